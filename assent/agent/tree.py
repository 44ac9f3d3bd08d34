"""An agent with the subagents that its open calls have set to work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assent.agent.asking import is_about
from assent.agent.ending import Ending
from assent.agent.fold import is_finished, unresolved_calls
from assent.agent.pending import pending_approval
from assent.agent.result import AgentResult, result_of
from assent.agent.run import Run
from assent.agent.subagents import SubagentTool
from assent.agent.tools import ToolResult, as_result
from assent.approvals import PendingApproval
from assent.channels import HitlChannel
from assent.checkpointer.base import StoredEffect
from assent.errors import HitlAborted, HitlDetached, HitlNoPendingRequest, HitlPaused, HitlStaleAnswer
from assent.messages import ToolResultMessage
from assent.requests import HitlRequest, StoredRequest

if TYPE_CHECKING:
    from assent.agent.session import Session


def open_subagents(session: Session) -> Iterator[tuple[str, SubagentTool]]:
    """The calls that run subagents and have no result yet: the call's id, and the tool."""
    if session.spec.delegates:
        for call in unresolved_calls(session.thread.messages):
            tool = session.spec.tools_by_name.get(call.name)
            if isinstance(tool, SubagentTool):
                yield call.id, tool


def open_children(session: Session) -> list[Session]:
    """The sessions of those calls, as far as they are known in this process."""
    return [session.children[it] for it, _ in open_subagents(session) if it in session.children]


def walk(session: Session) -> Iterator[Session]:
    """A session and all that work for it, callers first."""
    yield session
    for child in open_children(session):
        yield from walk(child)


async def load_tree(session: Session, *, fresh: bool = True) -> None:
    """Know all that work for a session, which itself is known, as the store does."""
    for call_id, tool in open_subagents(session):
        child = session.child(tool, call_id)
        await child.load(fresh=fresh)
        await load_tree(child, fresh=fresh)
        if child.thread.messages:  # begun by another process, perhaps
            begun = StoredEffect(call_id, tool.name, "", tool.effect, 1)
            session.thread.effects.setdefault(call_id, begun)
            _note_returned(session, child, tool, call_id)


def _note_returned(session: Session, child: Session, tool: SubagentTool, call_id: str) -> None:
    """Know what a subagent has returned whose call is open still, for another one was waited for.

    Not where hooks are to see it first: they come with the call's own turn, if it has one.
    """
    if session.spec.onion.after_tool_call or not is_finished(child.thread.messages):
        return
    result = result_of(child.thread.messages, child.thread_id, "")
    if result.status == "completed":
        said = as_result(returned_by(tool, result))
        session.thread.returned[call_id] = ToolResultMessage(
            call_id, tool.name, said.content, details=said.details
        )


def returned_by(tool: SubagentTool, result: AgentResult) -> ToolResult:
    """What a subagent's call returns; raises the signal of one that has not come to its end."""
    match result.status:
        case "paused":
            raise HitlPaused
        case "suspended":
            raise HitlDetached(result.reason or "it waits")
        case "aborted":
            raise HitlAborted(result.reason or "aborted")
        case _:
            failed = result.status == "failed"
            said = f"{tool.name} failed: {result.reason}" if failed else result.text
            return ToolResult(said, {"thread_id": result.thread_id}, is_error=failed)


def open_requests(session: Session) -> list[tuple[Session, StoredRequest]]:
    """What people are being asked, by the session or one that works for it."""
    return [
        (owner, stored)
        for owner in walk(session)
        for stored in owner.thread.requests.values()
        if stored.status == "pending"
    ]


async def open_request(session: Session) -> HitlRequest | None:
    """One of those requests, if there is any; those that are past their deadlines are timed out."""
    for owner in walk(session):
        request = await owner.inbox.open_in(owner.thread)
        if request is not None:
            return request
    return None


async def asked(session: Session) -> list[tuple[Session, HitlRequest]]:
    """What people are being asked, and by whom: as far as it is in the store, on a thread, or in a channel alone."""
    found: list[tuple[Session, HitlRequest]] = []
    for owner in walk(session):
        first = await owner.inbox.open_in(owner.thread)
        known = [it.request for it in owner.thread.requests.values() if it.status == "pending"]
        found += [(owner, request) for request in known]
        if first is not None and first not in known:
            found.append((owner, first))
    return found


async def cut(session: Session, run: Run, ending: Ending) -> None:
    """End what subagents have open whose calls are not run any more, before the end of the run itself is written.

    If the process dies in between, the caller is open still, and whoever comes next ends it.
    """
    if not any(open_subagents(session)):
        return
    await session.take(run, ending)
    await load_tree(session)  # not before: until then another worker may begin one
    for child in open_children(session):
        if child.is_under_way:
            await child.cut(ending)


def check_closed(session: Session, waiting: HitlRequest | None) -> None:
    """Nothing is open: that is right if the run that was ``waiting`` has closed itself, and else an error."""
    for owner in walk(session):
        for call in unresolved_calls(owner.thread.messages):
            for known in owner.thread.requests.values():
                if is_about(known.question_id, call.id):
                    status = None if known.status == "pending" else known.status
                    raise HitlStaleAnswer(known.question_id, status)
    if waiting is None:
        raise HitlNoPendingRequest(session.thread_id)
    if result_of(session.thread.messages, session.thread_id, "").status != "aborted":
        raise HitlStaleAnswer(waiting.question_id)


def is_cut_short(session: Session) -> bool:
    """Whether a subagent was ended together with its caller, whose own end was never written."""
    return any(
        result_of(child.thread.messages, child.thread_id, "").status == "aborted"
        if is_finished(child.thread.messages)
        else is_cut_short(child)
        for child in open_children(session)
        if child.thread.messages
    )


def in_flight(session: Session) -> list[tuple[HitlChannel, HitlRequest]]:
    """What channels ask just now for the session, or for those that work for it; a subagent may have one of its own.

    Other agents may ask through the same channels; their requests are none of ours.
    """
    if not session.children:
        channel = session.channel
        pending = None if channel is None else channel.pending
        is_ours = pending is not None and pending.thread_id in (None, session.thread_id)
        return [(channel, pending)] if channel is not None and pending is not None and is_ours else []
    owners = list(walk(session))
    threads = {None, *(owner.thread_id for owner in owners)}
    channels = {id(owner.channel): owner.channel for owner in owners}
    asked = [(channel, channel.pending) for channel in channels.values() if channel is not None]
    return [(channel, it) for channel, it in asked if it is not None and it.thread_id in threads]


def request_in_flight(session: Session) -> HitlRequest | None:
    """One of those requests, if there is any."""
    if not session.children and (session.channel is None or session.channel.pending is None):
        return None
    found = in_flight(session)
    return found[0][1] if found else None


def pending_approvals(session: Session) -> list[tuple[PendingApproval, Session, StoredRequest]]:
    """Those requests as values to be shown and answered, each with whom and what it is about."""
    return [(_approval(owner, stored), owner, stored) for owner, stored in open_requests(session)]


def decided_approvals(session: Session) -> list[tuple[PendingApproval, Session, StoredRequest]]:
    """What people have answered about calls that are still open."""
    return [
        (_approval(owner, stored), owner, stored)
        for owner in walk(session)
        for call in unresolved_calls(owner.thread.messages)
        for stored in owner.thread.requests.values()
        if stored.status == "answered" and is_about(stored.question_id, call.id)
    ]


def _approval(owner: Session, stored: StoredRequest) -> PendingApproval:
    return pending_approval(owner.spec, owner.path, owner.principal, stored.request, owner.call_path)
