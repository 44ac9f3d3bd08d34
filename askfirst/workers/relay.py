"""Relay: hands due continuations over to a task queue as soon as the store reports them (outbox pattern)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import StoreError
from askfirst.workers.continuations import Continuation, Continuations

logger = logging.getLogger("askfirst.workers")
AT_ONCE = 32
"""How many are handed over at the same time."""
_LONGEST_SLEEP = 30.0
_PAUSE = 1.0
_SLOWEST = 300.0


class NotHandedOver(Exception):
    """A task queue did not accept a continuation; the text says why, for operators."""


class Relay:
    """Hands over what is due: ``hand`` gives a continuation to the queue, or raises `NotHandedOver`.

    A continuation that nobody has taken ``again_in`` seconds after it was handed over is handed over again. After a
    failure the relay waits 1, 2, 4 … seconds, at most 5 minutes.
    """

    def __init__(
        self,
        checkpointer: SqlCheckpointer,
        hand: Callable[[Continuation], Awaitable[None]],
        *,
        to: str,
        resumers: Sequence[str] | None,
        again_in: float,
    ) -> None:
        self.continuations = Continuations(checkpointer)
        self._hand = hand
        self._to = to
        self._resumers = resumers
        self._again_in = again_in
        self._failures = 0
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Hand nothing more over; `run` returns when the hand-overs under way have ended."""
        self._stopping.set()

    async def run(self) -> None:
        """Hand over what becomes due, until `stop`."""
        with self.continuations.waking() as woken:
            while not self._stopping.is_set():
                woken.clear()
                try:
                    pause = 0.0 if await self.hand_due() else await self._until_next()
                except StoreError as error:
                    logger.warning("continuations cannot be handed over, will try again: %s", error)
                    pause = _PAUSE
                if pause:
                    await self._idle(woken, pause)

    async def hand_due(self) -> int:
        """Hand over some of what is due now; gives how many were due."""
        due = await self.continuations.hand_over(self._to, AT_ONCE, self._again_in, self._resumers)
        accepted = await asyncio.gather(*[self._hand_one(each) for each in due])
        self._failures = self._failures + 1 if due and not any(accepted) else 0
        return len(due)

    async def _hand_one(self, handed: Continuation) -> bool:
        try:
            await self._hand(handed)
        except NotHandedOver as error:
            logger.warning("thread %s was not handed over: %s", handed.thread_id, error)
            await self.continuations.not_handed_over(
                handed, str(error)[:2000], min(2.0**self._failures, _SLOWEST)
            )
            return False
        return True

    async def _until_next(self) -> float:
        due_at = await self.continuations.next_due()
        if due_at is None:
            return _LONGEST_SLEEP
        wait = due_at - time.time()
        return (
            min(wait, _LONGEST_SLEEP) if wait > 0 else _PAUSE
        )  # only continuations of other resumers are due

    async def _idle(self, woken: asyncio.Event, seconds: float) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (woken, self._stopping)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
