"""What the subagents under a thread ask, as the store knows it: no agent is needed to find it."""

from __future__ import annotations

from assent.agent.fold import unresolved_calls
from assent.checkpointer.base import Checkpointer, StoredThread
from assent.ids import child_thread_id
from assent.requests import StoredRequest


async def open_beneath(
    checkpointer: Checkpointer, thread_id: str, question_id: str | None = None
) -> StoredRequest | None:
    """An open request of a subagent that works for the thread, directly or not; with an id, that one."""
    stored = await checkpointer.load(thread_id)
    return None if stored is None else await _open_under(checkpointer, stored, question_id)


async def _open_under(
    checkpointer: Checkpointer, caller: StoredThread, question_id: str | None
) -> StoredRequest | None:
    for call in unresolved_calls(caller.messages):
        child = await checkpointer.load(child_thread_id(caller.thread_id, call.id))
        if child is None:
            continue
        for known in child.requests.values():
            if known.status == "pending" and question_id in (None, known.question_id):
                return known
        found = await _open_under(checkpointer, child, question_id)
        if found is not None:
            return found
    return None
