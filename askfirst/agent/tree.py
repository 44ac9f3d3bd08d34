"""A session with the sessions of its subagents: walked, loaded, owned, written as a checkpoint and restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic_core import from_json, to_json

from askfirst.agent.asking import CHOICES
from askfirst.agent.inbox import attribution, pending_approval
from askfirst.agent.question_ids import is_about
from askfirst.agent.result import (
    AgentResult,
    CheckpointUsage,
    KeptEffect,
    KeptRequest,
    RunCheckpoint,
    SerializedSession,
    result_of,
)
from askfirst.agent.run import Ending, Run
from askfirst.agent.subagents import SubagentTool
from askfirst.agent.thread import Thread, is_finished, iterations, unresolved_calls, usage
from askfirst.agent.tools import ToolResult, as_result
from askfirst.agent.verdicts import failed
from askfirst.approvals import PendingApproval
from askfirst.channels import HitlChannel
from askfirst.checkpointer.base import Checkpointer, StoredEffect
from askfirst.clock import SystemClock
from askfirst.errors import (
    HitlAborted,
    HitlDetached,
    HitlNoPendingRequest,
    HitlPaused,
    HitlStaleAnswer,
    InvalidCheckpoint,
    WrongAgent,
)
from askfirst.ids import child_thread_id, new_id
from askfirst.messages import JsonObject, ToolResultMessage
from askfirst.requests import (
    ApproveRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    StoredRequest,
    seal_in,
    with_seal,
)

if TYPE_CHECKING:
    from askfirst.agent.session import Session


def open_subagents(session: Session) -> Sequence[tuple[str, SubagentTool]]:
    """The calls that run subagents and have no result yet: the call's id, and the tool."""
    spec = session.actor.spec
    if not spec.delegates:
        return ()
    calls = unresolved_calls(session.live.thread.messages)
    tools = [(call.id, spec.tools_by_name.get(call.name)) for call in calls]
    return [(call_id, tool) for call_id, tool in tools if isinstance(tool, SubagentTool)]


def open_children(session: Session) -> list[Session]:
    """The sessions of the calls of `open_subagents`, as far as this process has them."""
    return [session.children[it] for it, _ in open_subagents(session) if it in session.children]


def walk(session: Session) -> Sequence[Session]:
    """A session and those of its subagents, callers first."""
    if not session.children:
        return (session,)
    return [session, *(owner for child in open_children(session) for owner in walk(child))]


async def load_tree(session: Session, *, fresh: bool = True) -> None:
    """Load the threads of all subagents under a session that is loaded itself."""
    for call_id, tool in open_subagents(session):
        child = session.child(tool, call_id)
        await child.load(fresh=fresh)
        await load_tree(child, fresh=fresh)
        if child.live.thread.messages:  # another process may have begun it
            begun = StoredEffect(call_id, tool.name, "", tool.effect, 1)
            session.live.thread.effects.setdefault(call_id, begun)
            _note_returned(session, child, tool, call_id)


def _note_returned(session: Session, child: Session, tool: SubagentTool, call_id: str) -> None:
    """Note the result of a finished subagent whose call has no result yet, because another body waited.

    Not if the agent has ``after_tool_call`` hooks: these have to see the result first, when the call is executed.
    """
    if session.actor.spec.onion.after_tool_call or not is_finished(child.live.thread.messages):
        return
    result = result_of(child.live.thread.messages, child.thread_id, "")
    if result.status == "completed":
        said = as_result(returned_by(tool, result))
        session.live.thread.returned[call_id] = ToolResultMessage(
            call_id, tool.name, said.content, details=said.details
        )


def returned_by(tool: SubagentTool, result: AgentResult) -> ToolResult:
    """The result of a subagent's call; raises the signal that fits a run which has not completed."""
    match result.status:
        case "paused":
            raise HitlPaused
        case "suspended":
            raise HitlDetached(result.reason or "it waits")
        case "aborted":
            raise HitlAborted(result.reason or "aborted")
        case _:
            is_error = result.status == "failed"
            said = failed(tool.name, result.reason) if is_error else result.text
            return ToolResult(said, {"thread_id": result.thread_id}, is_error=is_error)


def open_requests(session: Session) -> list[tuple[Session, StoredRequest]]:
    """The pending requests of a session and its subagents, each with the session that asks."""
    return [
        (owner, stored)
        for owner in walk(session)
        for stored in owner.live.thread.requests.values()
        if stored.status == "pending"
    ]


async def open_request(session: Session) -> HitlRequest | None:
    """One open request of the tree, if there is any; requests past their deadlines are settled as timed out."""
    for owner in walk(session):
        request = await owner.inbox.open_in(owner.live.thread)
        if request is not None:
            return request
    return None


async def asked(session: Session) -> list[tuple[Session, HitlRequest]]:
    """The open requests of the tree, each with the session that asks; those that only a channel keeps included."""
    found: list[tuple[Session, HitlRequest]] = []
    for owner in walk(session):
        first = await owner.inbox.open_in(owner.live.thread)
        known = [it.request for it in owner.live.thread.requests.values() if it.status == "pending"]
        found += [(owner, request) for request in known]
        if first is not None and first not in known:
            found.append((owner, first))
    return found


async def end_subagents(session: Session, run: Run, ending: Ending) -> None:
    """End the unfinished runs of subagents, before the end of the caller's own run is written.

    If the process dies in between, the caller's run is still open, and the next worker ends it.
    """
    if not open_subagents(session):
        return
    await session.hold(run, ending)
    await load_tree(session)  # only now: without the lease another worker could begin one
    for child in open_children(session):
        if child.live.is_under_way:
            await child.end(ending)


def check_closed(session: Session, waiting: HitlRequest | None) -> None:
    """Raise unless the run that was ``waiting`` has closed itself; called if no request is open."""
    for owner in walk(session):
        for call in unresolved_calls(owner.live.thread.messages):
            for known in owner.live.thread.requests.values():
                if is_about(known.question_id, call.id):
                    status = None if known.status == "pending" else known.status
                    raise HitlStaleAnswer(known.question_id, status)
    if waiting is None:
        raise HitlNoPendingRequest(session.thread_id)
    if result_of(session.live.thread.messages, session.thread_id, "").status != "aborted":
        raise HitlStaleAnswer(waiting.question_id)


def is_cut_short(session: Session) -> bool:
    """Whether a subagent was ended together with its caller, whose own end was never written."""
    return any(
        result_of(child.live.thread.messages, child.thread_id, "").status == "aborted"
        if is_finished(child.live.thread.messages)
        else is_cut_short(child)
        for child in open_children(session)
        if child.live.thread.messages
    )


def in_flight(session: Session) -> list[tuple[HitlChannel, HitlRequest]]:
    """The requests that channels of this process wait for, of the session and its subagents, with their channels.

    Requests of other agents on the same channels are left out.
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
    """One of the requests of `in_flight`, if there is any."""
    if not session.children and (session.channel is None or session.channel.pending is None):
        return None
    found = in_flight(session)
    return found[0][1] if found else None


Approval = tuple[PendingApproval, "Session", StoredRequest]
"""A request as a portable value, the session that asks, and the request as it stands."""


def pending_approvals(session: Session) -> list[Approval]:
    """The pending requests of the tree as portable approvals."""
    return [
        (pending_approval(owner.actor, stored.request), owner, stored)
        for owner, stored in open_requests(session)
    ]


def approvals_to_show(
    session: Session, asked_here: Sequence[tuple[HitlChannel, HitlRequest]]
) -> tuple[PendingApproval, ...]:
    """The requests that can still be answered, as values: the known ones, and those that only channels have."""
    found = [
        pending_approval(owner.actor, stored.request)
        for owner, stored in open_requests(session)
        if _is_open(stored)
    ]
    owners = {owner.thread_id: owner for owner in walk(session)}
    seen = {approval.id for approval in found}
    for _, request in asked_here:
        approval = pending_approval(owners.get(request.thread_id or "", session).actor, request)
        if approval.id not in seen:
            found.append(approval)
    return tuple(found)


def decided_requests(session: Session) -> list[tuple[Session, StoredRequest]]:
    """The answered requests about calls that have no result yet, each with the session that asks."""
    return [
        (owner, stored)
        for owner in walk(session)
        for call in unresolved_calls(owner.live.thread.messages)
        for stored in owner.live.thread.requests.values()
        if stored.status == "answered" and is_about(stored.question_id, call.id)
    ]


# Ownership: an agent neither resumes nor ends a thread whose run belongs to another agent.


async def check_owner(session: Session) -> None:
    """Raise `WrongAgent` if a loaded thread belongs to another agent; nothing is changed then.

    It does if an agent of another id began its unfinished run, or if a person is asked about a call of a tool that
    this agent does not have.
    """
    if session.parent is not None:
        return
    if session.live.run_by not in (None, session.actor.spec.id) and session.live.is_under_way:
        raise WrongAgent(session.thread_id, session.actor.spec.id, run_by=session.live.run_by)
    if session.actor.spec.delegates:
        await load_tree(session)
    for owner in walk(session):
        for call in unresolved_calls(owner.live.thread.messages):
            if call.name not in owner.actor.spec.tools_by_name and await _waits(owner, call.id):
                raise WrongAgent(owner.thread_id, owner.actor.spec.id, tool_name=call.name)


async def _waits(owner: Session, call_id: str) -> bool:
    """Whether a request about this call is open, or one of the subagent that the call runs."""
    asked = [it for it in owner.live.thread.requests.values() if is_about(it.question_id, call_id)]
    kept = await owner.inbox.kept()
    if any(map(_is_open, asked)) or (kept is not None and is_about(kept.question_id, call_id)):
        return True
    return owner.live.checkpointer is not None and await _waits_beneath(
        owner.live.checkpointer, owner.thread_id, call_id
    )


async def _waits_beneath(checkpointer: Checkpointer, thread_id: str, call_id: str) -> bool:
    stored = await checkpointer.load(child_thread_id(thread_id, call_id))
    if stored is None:
        return False
    if any(map(_is_open, stored.requests.values())):
        return True
    calls = unresolved_calls(stored.messages)
    return any([await _waits_beneath(checkpointer, stored.thread_id, call.id) for call in calls])


def _is_open(asked: StoredRequest) -> bool:
    """Whether a request is pending and its deadline has not passed."""
    expires_at = asked.request.expires_at
    return asked.status == "pending" and (expires_at is None or expires_at > SystemClock().now())


# A paused run as a checkpoint, and a session restored from one.


def checkpoint_of(session: Session, pending: Sequence[Approval]) -> RunCheckpoint:
    """A session and its subagents' sessions as a portable value; its parts need no validation."""
    messages = session.live.thread.messages
    children = [each for each in walk(session) if each is not session and each.live.thread.messages]
    return RunCheckpoint.of_valid(
        spec_id=session.actor.spec.id,
        iteration=iterations(messages),
        usage=CheckpointUsage.of(usage(messages)),
        root_messages=tuple(messages),
        subagent_sessions=tuple(map(_serialized, children)),
        pending=tuple([approval for approval, _, _ in pending]),
        checkpoint_id=new_id(),
        thread_id=session.thread_id,
        run_id=session.live.run_id,
        principal=session.actor.principal,
        stored=session.live.checkpointer is not None,
        root_requests=_settled(session),
        root_effects=_effects(session),
        seals=_seals(pending) if session.live.checkpointer is None else None,
    )


def _seals(pending: Sequence[Approval]) -> dict[str, str] | None:
    """The seals of the pending requests by approval id; needed only without a store, which keeps them itself."""
    sealed = {approval.id: seal for approval, _, it in pending if (seal := seal_in(it.request)) is not None}
    return sealed or None


def _serialized(session: Session) -> SerializedSession:
    return SerializedSession.of_valid(
        spec_id=session.actor.spec.id,
        thread_id=session.thread_id,
        agent_path=session.actor.path,
        call_path=session.actor.call_path,
        messages=tuple(session.live.thread.messages),
        requests=_settled(session),
        effects=_effects(session),
    )


def _settled(session: Session) -> tuple[KeptRequest, ...]:
    """The settled requests of unresolved calls; the pending ones are in the checkpoint's ``pending``."""
    known = session.live.thread.requests.values()
    return tuple([KeptRequest.of(each) for each in known if each.status != "pending"])


def _effects(session: Session) -> tuple[KeptEffect, ...]:
    if not session.live.thread.effects:
        return ()
    return tuple(
        KeptEffect(
            tool_call_id=it.tool_call_id,
            tool_name=it.tool_name,
            digest=it.digest,
            effect=it.effect,
            attempt=it.attempt,
        )
        for it in session.live.thread.effects.values()
    )


def restore(session: Session, checkpoint: RunCheckpoint) -> None:
    """Fill a new session of the same agent, without a store, from a checkpoint whose messages it has already."""
    if checkpoint.spec_id != session.actor.spec.id:
        raise InvalidCheckpoint(
            [f"the checkpoint is of the agent {checkpoint.spec_id!r}, not of {session.actor.spec.id!r}"]
        )
    session.live.run_id = checkpoint.run_id
    _fill(session, checkpoint.root_requests, checkpoint.root_effects)
    for kept in sorted(checkpoint.subagent_sessions, key=lambda each: len(each.call_path)):
        child = _child_at(session, kept)
        if child is not None:
            child.live.thread = Thread(child.thread_id, kept.messages)
            _fill(child, kept.requests, kept.effects)
    owners = {each.actor.call_path: each for each in walk(session)}
    for approval in checkpoint.pending:
        owner = owners.get(approval.call_path)
        if owner is not None:  # None: the agent no longer has that subagent, so the gate refuses the call
            effect = owner.live.thread.effects.get(approval.tool_call.id)
            asked = request_of(approval, owner.thread_id, 1 if effect is None else effect.attempt)
            request = with_seal(asked, (checkpoint.seals or {}).get(approval.id))
            stored = StoredRequest(request, owner.thread_id, None, "pending")
            owner.live.thread.requests[request.question_id] = stored


def _child_at(session: Session, kept: SerializedSession) -> Session | None:
    for call_id in kept.call_path:
        tool = dict(open_subagents(session)).get(call_id)
        if tool is None:
            return None
        session = session.child(tool, call_id)
    if session.actor.spec.id != kept.spec_id:
        raise InvalidCheckpoint(
            [f"the subagent {kept.spec_id!r} of the checkpoint is {session.actor.spec.id!r} here"]
        )
    return session


def _fill(session: Session, requests: Sequence[KeptRequest], effects: Sequence[KeptEffect]) -> None:
    thread = session.live.thread
    for kept in requests:
        stored = kept.stored(thread.thread_id)
        thread.requests[stored.question_id] = stored
    for it in effects:
        thread.effects[it.tool_call_id] = StoredEffect(
            it.tool_call_id, it.tool_name, it.digest, it.effect, it.attempt
        )


def request_of(approval: PendingApproval, thread_id: str, attempt: int = 1) -> HitlRequest:
    """The request that a portable approval stands for; an answer is bound to what the approval shows."""
    call = approval.tool_call
    payload: HitlPayload
    if approval.kind == "escalate":
        details: JsonObject = {"tool_name": call.name, "tool_call_id": call.id, "args": call.args}
        details["attempt"] = attempt
        payload = EscalateRequest(prompt=approval.reason or "", choices=list(CHOICES), details=details)
    else:
        details = attribution(
            approval.agent_path, approval.principal, approval.matched_rule_id, approval.reason
        )
        payload = ApproveRequest.of_valid(
            tool_name=call.name,
            tool_call_id=call.id,
            args=from_json(
                to_json(call.args)
            ),  # a copy: a change to the approval must not change the request
            details=details or None,
            digest=approval.digest or call.digest,  # version 1 has none
        )
    lasts = None if approval.expires_at is None else approval.expires_at - approval.created_at
    return HitlRequest.of_valid(
        question_id=approval.question_id,
        thread_id=thread_id,
        payload=payload,
        created_at=approval.created_at,
        timeout_seconds=lasts,
    )
