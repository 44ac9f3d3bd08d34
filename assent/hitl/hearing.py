"""Listeners that hear of a request while it is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Self

from assent.hitl.slot import Slot
from assent.requests import HitlRequest


class Subscription:
    """An endless iterator of requests; dropping it ends it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[HitlRequest] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> HitlRequest:
        return await self.queue.get()


class Listeners:
    """Those that a channel tells, who may take their time: one that asks at a terminal does.

    What ends a request meanwhile does not wait for them, unless it is one of them.
    """

    def __init__(self) -> None:
        self._at_it: set[asyncio.Task[None]] = set()

    async def hear(self, slot: Slot, telling: Awaitable[None]) -> None:
        """Wait until they have heard, or the request has ended. Raises a signal that one of them raises."""
        task = asyncio.ensure_future(slot.tell(telling))
        try:
            await asyncio.wait({task, slot.settled}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and slot.by_listener:
                await asyncio.wait({task})
        except BaseException:
            task.cancel()
            await asyncio.wait({task})
            raise
        if task.done():
            task.result()
        else:
            self._at_it.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """One is done with a request that ended before; what it raised is of no consequence."""
        self._at_it.discard(task)
        if not task.cancelled():
            task.exception()
