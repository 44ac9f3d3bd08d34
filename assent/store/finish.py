"""Waiting for a transaction that nobody can call off."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


class Decided(asyncio.Future[T]):
    """A future that cannot be called off: a task that is cancelled while it waits for it hears of the
    cancellation when the future is done."""

    def cancel(self, msg: object = None) -> bool:
        """No."""
        return False


async def finish(job: asyncio.Future[T]) -> T:
    """Wait for a transaction. If this task is cancelled meanwhile, it still waits, then is cancelled.

    So whoever sees the cancellation also sees the transaction done or undone, never under way.
    """
    if isinstance(job, Decided):
        return await job
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        while not job.done():
            try:
                await asyncio.wait({job})
            except asyncio.CancelledError:
                continue
        if not job.cancelled():
            job.exception()  # nobody is left to hear of it
        raise
