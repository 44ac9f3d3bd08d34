"""What the subagents under a thread ask, as the store knows it: no agent is needed to find it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from assent.agent.fold import unresolved_calls
from assent.checkpointer.base import Checkpointer
from assent.ids import child_thread_id
from assent.requests import StoredRequest


async def open_beneath(checkpointer: Checkpointer, thread_id: str) -> StoredRequest | None:
    """An open request of a subagent that works for the thread, directly or not."""
    return await anext(all_beneath(checkpointer, thread_id), None)


async def all_beneath(checkpointer: Checkpointer, thread_id: str) -> AsyncIterator[StoredRequest]:
    """The open requests of the subagents that work for the thread, directly or not."""
    stored = await checkpointer.load(thread_id)
    for call in unresolved_calls(stored.messages) if stored is not None else ():
        under = child_thread_id(thread_id, call.id)
        child = await checkpointer.load(under)
        for known in child.requests.values() if child is not None else ():
            if known.status == "pending":
                yield known
        if child is not None:
            async for known in all_beneath(checkpointer, under):
                yield known
