"""The rate limit of polls: 60 a minute for each case, over all processes."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from askfirst.clock import MINUTE, Clock, SystemClock, milliseconds
from askfirst.concurrency import finish
from askfirst.store import case_access
from askfirst.store.case_access import Limit
from askfirst.store.engine import Engine

LIMIT = Limit(most=60, window=MINUTE, few=5)
KEPT = 2
"""How many polls of a case a process keeps in memory. A client that polls every 30 seconds, as advised, makes no more
within a minute."""
CASES = 10_000


@dataclass(slots=True)
class _Case:
    """The recent polls of a case in this process."""

    asked_at: int
    kept: list[int] = field(default_factory=list[int])
    """The polls of the last minute that are not counted in the store."""
    counted_from: int = 0
    """When this process last began to count polls in the store."""


class CaseRate:
    """Counts the polls of each case in the last minute, over all processes.

    A process keeps a case's first `KEPT` polls of a minute in memory. Each further poll is counted in the store, for
    a minute and for as long as the store says that the case is polled often. So slow polling costs no write, and all
    processes know of a case that is polled too often. Kept polls of such a case are written within half a second
    (`catch_up`). So the limit of 60 polls a minute can be exceeded by `KEPT` polls for each further process that has
    not written its kept polls yet.

    At most ``cases`` cases are remembered. Beyond that, the least recently polled are dropped with their kept polls.
    """

    def __init__(self, engine: Engine, clock: Clock | None = None, *, cases: int = CASES) -> None:
        self._engine = engine
        self._clock = clock or SystemClock()
        self._most_cases = cases
        self._cases: OrderedDict[str, _Case] = OrderedDict()
        self.keeps = asyncio.Event()
        """Set while this process may have kept polls in memory."""

    async def poll(self, case_id: str, counted: Sequence[int]) -> int | None:
        """Count a poll and return None; if there are too many, the seconds to wait.

        ``counted`` are the store's counts.
        """
        now = self._now()
        case = self._case(case_id, now)
        known = LIMIT.recent(counted, now)
        wait = LIMIT.wait(sorted([*known, *case.kept]), now)
        if wait is None:
            quiet = len(known) <= LIMIT.few and abs(now - case.counted_from) >= LIMIT.window
            if quiet and len(case.kept) < KEPT:
                case.kept.append(now)
                self.keeps.set()
            else:
                wait = await self._count(case_id, "poll", _take_kept(case, now), now)
        return _seconds(wait)

    async def submission(self, case_id: str) -> int | None:
        """As `poll`, for answers from messengers, all of which are counted in the store."""
        return _seconds(await self._count(case_id, "submit", (), self._now()))

    async def catch_up(self) -> bool:
        """Write the kept polls of cases that the store counts. Returns False: there is no more work left."""
        if not any(case.kept for case in self._cases.values()):
            self.keeps.clear()
            return False
        now = self._now()
        busy = partial(case_access.busy_cases, now - LIMIT.window, "poll")
        for case_id in await self._engine.read(busy):
            case = self._cases.get(case_id)
            if case is not None and case.kept:
                await self._count(case_id, "poll", _take_kept(case, now), now, one_more=False)
        return False

    async def _count(
        self, case_id: str, kind: str, kept: Sequence[int], now: int, *, one_more: bool = True
    ) -> int | None:
        count = partial(case_access.count_poll, case_id, kind, kept, now, LIMIT, one_more=one_more)
        return await finish(self._engine.write(count))

    def _case(self, case_id: str, now: int) -> _Case:
        """The entry of a case. Entries that were not polled within the minute, which come first, are removed."""
        while self._cases:
            oldest, case = next(iter(self._cases.items()))
            if abs(now - case.asked_at) < LIMIT.window:
                break
            del self._cases[oldest]
        case = self._cases.setdefault(case_id, _Case(now))
        case.asked_at = now
        case.kept = LIMIT.recent(case.kept, now)
        self._cases.move_to_end(case_id)
        if len(self._cases) > self._most_cases:
            self._cases.popitem(last=False)
        return case

    def _now(self) -> int:
        return milliseconds(self._clock)


def _take_kept(case: _Case, now: int) -> list[int]:
    """Take the kept polls of a case, to write them. From now on its polls are written at once, for a minute."""
    if abs(now - case.counted_from) >= LIMIT.window:
        case.counted_from = now
    kept, case.kept = case.kept, []
    return kept


def _seconds(wait: int | None) -> int | None:
    return None if wait is None else math.ceil(wait / 1000)
