"""Whose thread it is: an agent neither goes on with, nor ends, what waits for a person under another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assent.agent.asking import is_about
from assent.agent.fold import unresolved_calls
from assent.agent.tree import load_tree, walk
from assent.checkpointer.base import Checkpointer
from assent.clock import SystemClock
from assent.errors import WrongAgent
from assent.ids import child_thread_id
from assent.requests import StoredRequest

if TYPE_CHECKING:
    from assent.agent.session import Session


async def check_owner(session: Session) -> None:
    """Raise `WrongAgent` if a thread, which is known, is another agent's to go on with; nothing is changed then.

    That is if its run was begun by an agent of another id, or if a person is being asked about a call of a tool that
    this agent does not have.
    """
    if session.parent is not None:
        return
    if session.run_by not in (None, session.spec.id) and session.is_under_way:
        raise WrongAgent(session.thread_id, session.spec.id, run_by=session.run_by)
    if session.spec.delegates:
        await load_tree(session)
    for owner in walk(session):
        for call in unresolved_calls(owner.thread.messages):
            if call.name not in owner.spec.tools_by_name and await _waits(owner, call.id):
                raise WrongAgent(owner.thread_id, owner.spec.id, tool_name=call.name)


async def _waits(owner: Session, call_id: str) -> bool:
    """Whether a person is being asked about this call, or by a subagent that it runs."""
    asked = [it for it in owner.thread.requests.values() if is_about(it.question_id, call_id)]
    kept = await owner.inbox.kept()
    if any(map(_is_open, asked)) or (kept is not None and is_about(kept.question_id, call_id)):
        return True
    return owner.checkpointer is not None and await _waits_beneath(
        owner.checkpointer, owner.thread_id, call_id
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
    """Whether somebody can still answer; what is past its deadline is timed out by whoever comes."""
    expires_at = asked.request.expires_at
    return asked.status == "pending" and (expires_at is None or expires_at > SystemClock().now())
