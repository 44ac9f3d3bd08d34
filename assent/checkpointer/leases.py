"""Leases that are held, and the heartbeat that renews them."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from typing import TYPE_CHECKING

from assent.clock import Clock
from assent.errors import LeaseLost, StoreError
from assent.store.finish import finish
from assent.store.rows import AT_ONCE, Writing

if TYPE_CHECKING:
    from assent.store.store import Store

logger = logging.getLogger("assent.checkpointer")


class Leases:
    """Which threads this owner holds, from the step that takes the lease to the one that gives it back.

    One task renews, all at once, those that are older than a third of their length.
    """

    def __init__(self, seconds: float, owner: str | None, clock: Clock) -> None:
        if not seconds > 0:
            raise ValueError(f"lease_seconds is a time, not {seconds}")
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        self.length = round(seconds * 1000)
        self._seconds = seconds
        self._clock = clock
        self._held: dict[str, tuple[int, int]] = {}  # thread id: fence, and when it was last renewed
        self._beating: asyncio.Task[None] | None = None

    def note(self, store: Store, step: Writing, job: asyncio.Future[int]) -> None:
        """Keep account of what a step did to its thread's lease.

        A lease that was to be given back, or under which a step failed, is renewed no more: nobody works under
        it. A step that failed to take a lease says nothing of whoever holds it.
        """
        if job.cancelled():
            return
        if job.exception() is None and not step.release:
            self._held[step.thread_id] = (job.result(), step.now)
            if self._beating is None or self._beating.done():
                self._beating = asyncio.ensure_future(self._beat(store))
        elif step.release or not step.acquire or isinstance(job.exception(), LeaseLost):
            held = self._held.get(step.thread_id)
            if held is not None and held[0] <= step.fence:
                del self._held[step.thread_id]

    async def stop(self) -> None:
        """Renew no more. Nothing is given back: what is held lapses in its own time."""
        self._held.clear()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait({self._beating})
            self._beating = None

    async def _beat(self, store: Store) -> None:
        while True:
            await self._clock.sleep(self._seconds / 6)
            try:
                await self._renew(store)
            except StoreError as error:
                logger.warning("leases could not be renewed, will try again: %s", error)

    async def _renew(self, store: Store) -> None:
        now = round(self._clock.now() * 1000)
        old = [it for it, (_, renewed) in self._held.items() if now - renewed >= self.length / 3]
        for start in range(0, len(old), AT_ONCE):
            batch = old[start : start + AT_ONCE]
            lost = set(await finish(store.renew(self.owner, batch, now + self.length)))
            for thread_id in batch:
                held = self._held.get(thread_id)
                if held is None:
                    continue
                if thread_id in lost and held[1] < now:
                    del self._held[thread_id]
                else:
                    self._held[thread_id] = (held[0], max(held[1], now))
