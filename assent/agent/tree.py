"""An agent with the subagents that its open calls have set to work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assent.agent.asking import is_about
from assent.agent.fold import answers, unresolved_calls
from assent.agent.pending import pending_approval
from assent.agent.subagents import SubagentTool
from assent.approvals import PendingApproval
from assent.requests import StoredRequest

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


def latest_children(session: Session) -> list[Session]:
    """The sessions of the calls of the model's last message, whether or not those have a result by now."""
    said = next(answers(session.thread.messages), None)
    called = () if said is None else said.tool_calls
    return [session.children[call.id] for call in called if call.id in session.children]


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


def open_requests(session: Session) -> list[tuple[Session, StoredRequest]]:
    """What people are being asked, by the session or one that works for it."""
    return [
        (owner, stored)
        for owner in walk(session)
        for stored in owner.thread.requests.values()
        if stored.status == "pending"
    ]


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
