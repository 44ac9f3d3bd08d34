"""What the subagents under a thread ask, as the store knows it: no agent is needed to find it."""

from __future__ import annotations

from assent.agent.fold import unresolved_calls
from assent.checkpointer.base import Checkpointer, StoredThread
from assent.ids import child_thread_id
from assent.requests import StoredRequest


async def open_beneath(checkpointer: Checkpointer, thread_id: str) -> list[StoredRequest]:
    """The open requests of the subagents that work for the thread, directly or not."""
    stored = await checkpointer.load(thread_id)
    return [] if stored is None else await _open_under(checkpointer, stored)


async def _open_under(checkpointer: Checkpointer, caller: StoredThread) -> list[StoredRequest]:
    found: list[StoredRequest] = []
    for call in unresolved_calls(caller.messages):
        child = await checkpointer.load(child_thread_id(caller.thread_id, call.id))
        if child is not None:
            found += [known for known in child.requests.values() if known.status == "pending"]
            found += await _open_under(checkpointer, child)
    return found
