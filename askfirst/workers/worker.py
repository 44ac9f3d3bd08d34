"""Worker: takes due continuations and runs them, several threads at once, each thread by one worker at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from askfirst.checkpointer.base import LEASE_SECONDS
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import StoreError
from askfirst.workers.attempt import check_worker, go_on, worker_name
from askfirst.workers.continuations import Continuation, Continuations
from askfirst.workers.resumers import Resumer

logger = logging.getLogger("askfirst.workers")
_LONGEST_SLEEP = 30.0
_STORE_PAUSE = 1.0


class Worker:
    """Runs continuations by the resumers that it knows.

    ``await worker.run()`` goes on until `stop`; ``async with worker:`` runs beside; `run_due` does what is due now
    and returns. A continuation is held under a lease, which is renewed while its resumer runs, so that another worker
    takes over what a dead one has left.
    """

    def __init__(
        self,
        checkpointer: SqlCheckpointer,
        resumers: Mapping[str, Resumer],
        *,
        concurrency: int = 10,
        lease_seconds: float = LEASE_SECONDS,
        owner: str | None = None,
    ) -> None:
        check_worker(resumers, concurrency)
        self.continuations = Continuations(checkpointer)
        self._resumers = dict(resumers)
        self._concurrency = concurrency
        self._lease_seconds = lease_seconds
        self._owner = owner or worker_name()
        self._at_work: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._stopping.clear()
        self._running = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._running is not None:
            await self._running
            self._running = None

    def stop(self) -> None:
        """Take nothing more; `run` returns when what is under way has ended."""
        self._stopping.set()

    async def run(self) -> None:
        """Run what becomes due, until `stop`."""
        with self.continuations.waking() as woken:
            while not self._stopping.is_set():
                woken.clear()
                try:
                    taken = await self._take()
                    pause = 0.0 if taken else await self._until_next()
                except StoreError as error:
                    logger.warning("continuations cannot be read, will try again: %s", error)
                    pause = _STORE_PAUSE
                is_full = len(self._at_work) >= self._concurrency
                if pause or is_full:
                    await self._idle(None if is_full else woken, None if is_full else pause)
        if self._at_work:
            await asyncio.wait(self._at_work)

    async def run_due(self) -> int:
        """Run what is due now, and what becomes due meanwhile; returns how many continuations were run."""
        count = 0
        while (taken := await self._take()) or self._at_work:
            count += taken
            if self._at_work:
                await asyncio.wait(self._at_work, return_when=asyncio.FIRST_COMPLETED)
        return count

    async def _idle(self, woken: asyncio.Event | None, seconds: float | None) -> None:
        """Wait until something may be due, something under way has ended, the worker is stopped or time is over."""
        events = [it for it in (woken, self._stopping) if it is not None]
        waits = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait({*waits, *self._at_work}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)

    async def _until_next(self) -> float:
        due_at = await self.continuations.next_due()
        wait = _LONGEST_SLEEP if due_at is None else due_at - time.time()
        return min(max(wait, 0.01), _LONGEST_SLEEP)

    async def _take(self) -> int:
        free = self._concurrency - len(self._at_work)
        if free <= 0:
            return 0
        taken = await self.continuations.take(self._owner, free, self._lease_seconds, list(self._resumers))
        for continuation in taken:
            task = asyncio.create_task(self._go_on(continuation))
            self._at_work.add(task)
            task.add_done_callback(self._at_work.discard)
        return len(taken)

    async def _go_on(self, taken: Continuation) -> None:
        """Run one continuation and record how it ended; no exception of a resumer ends the worker."""
        await go_on(
            self.continuations, taken, self._resumers[taken.resumer], lease_seconds=self._lease_seconds
        )
