"""Leases that are held, and the heartbeat that renews them."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from askfirst.checkpointer.encoding import checked_id
from askfirst.clock import Clock, milliseconds, to_milliseconds
from askfirst.concurrency import finish
from askfirst.errors import LeaseLost, StoreError
from askfirst.store.rows import AT_ONCE, Writing

if TYPE_CHECKING:
    from askfirst.store.store import Store

logger = logging.getLogger("askfirst.checkpointer")
_LONGEST = 1e9
"""The longest lease in seconds, some thirty years."""


class _Held(NamedTuple):
    """A lease as this owner last wrote it."""

    fence: int
    now: int
    """When the lease was written, by the wall clock (epoch milliseconds)."""
    ticks: float
    """When the lease was written, by the monotonic clock."""
    until: int

    def age(self, now: int, ticks: float) -> float:
        """The lease's age in milliseconds: the larger of its ages by the wall clock and by the monotonic clock. So a
        lease counts as old if the wall clock was set meanwhile."""
        return max(abs(now - self.now), (ticks - self.ticks) * 1000)

    def renewed_until(self, now: int, ticks: float, length: int) -> int:
        """When the renewed lease lapses: the later of its ends by the wall clock and by the monotonic clock.

        By the wall clock alone, a lease would lapse too early on other machines after this machine's clock was set
        back.
        """
        return max(now + length, self.until + round((ticks - self.ticks) * 1000))


class Leases:
    """The leases that this owner holds, from the step that acquires each to the step that releases it.

    One task, the heartbeat, renews all leases that are older than a third of their length.
    """

    def __init__(self, seconds: float, owner: str | None, clock: Clock) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST:
            raise ValueError(
                f"lease_seconds is a number of seconds above 0, up to {_LONGEST:g}, not {seconds!r}"
            )
        if owner:
            checked_id("owner", owner)
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        self.length = to_milliseconds(seconds)
        self._seconds = seconds
        self._clock = clock
        self._held: dict[str, _Held] = {}
        self._beating: asyncio.Task[None] | None = None

    def record(self, store: Store, step: Writing, job: asyncio.Future[int]) -> None:
        """Record what a step did to its thread's lease.

        A lease is no longer renewed if the step was to release it, or failed while it was held: no run uses it any
        more. A step that failed to acquire a lease changes nothing here, because another run of this owner may hold
        it.
        """
        if job.cancelled():
            return
        failure = job.exception()
        if failure is None and not step.release:
            self._hold(step)
            if self._beating is None or self._beating.done():
                self._beating = asyncio.ensure_future(self._beat(store))
        elif step.release or not step.acquire or isinstance(failure, LeaseLost):
            held = self._held.get(step.thread_id)
            if held is not None and held.fence <= step.fence:
                del self._held[step.thread_id]

    def _hold(self, step: Writing) -> None:
        held, fence = self._held.get(step.thread_id), step.new_fence
        if held is not None and step.lease_until < held.until:  # the clock was set back: renew it at once
            self._held[step.thread_id] = held._replace(fence=fence, now=0)
        else:
            self._held[step.thread_id] = _Held(fence, step.now, time.monotonic(), step.lease_until)

    async def stop(self) -> None:
        """Stop the heartbeat. Leases that are still held are not released; they lapse."""
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
        now, ticks = milliseconds(self._clock), time.monotonic()
        old = [
            (held.renewed_until(now, ticks, self.length), thread_id, held)
            for thread_id, held in self._held.items()
            if held.age(now, ticks) >= self.length / 3
        ]
        old.sort()  # by their ends: all leases of a batch get the latest end among them
        for start in range(0, len(old), AT_ONCE):
            batch = old[start : start + AT_ONCE]
            until = batch[-1][0]
            renewed = await finish(store.renew(self.owner, [it for _, it, _ in batch], until))
            for _, thread_id, held in batch:
                if self._held.get(thread_id) is not held:  # renewed or released by a step meanwhile
                    continue
                if thread_id in renewed.lost:
                    del self._held[thread_id]
                elif thread_id in renewed.done:
                    self._held[thread_id] = _Held(held.fence, now, ticks, until)
