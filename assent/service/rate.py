"""How often one case may be asked for: the protocol's 60 times a minute, over all processes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from assent.clock import Clock, SystemClock
from assent.store.case_store import CaseStore
from assent.store.finish import finish
from assent.store.polls import Limit

LIMIT = Limit(most=60, window=60_000, few=5)
KEPT = 2
"""Whoever polls every 30 seconds, as they are told to, makes no more in a minute."""
CASES = 10_000


@dataclass(slots=True)
class _Case:
    """What a process remembers of a case."""

    asked_at: int
    kept: list[int] = field(default_factory=list[int])
    """The polls of the last minute of which the store does not know."""
    counted_from: int = 0
    """When the process has last begun to count in the store."""


class CaseRate:
    """Counts how often each case was asked for in the last minute, together with all other processes.

    A case's first `KEPT` polls within a minute a process keeps to itself. From the next on, for a minute, and
    for as long as the store says that the case is asked for often, each is counted there. So those who poll at
    leisure cost no write, and of a case that is hammered all processes know. What a process has kept of such a
    case it tells within half a second (`catch_up`). So the most that a minute can have is 60, and `KEPT` more
    for each further process that was asked for the case and has not told yet.

    It remembers up to ``cases`` cases. With more than that in one minute, those asked for longest ago are
    forgotten, with the polls that were kept of them.
    """

    def __init__(self, store: CaseStore, clock: Clock | None = None, *, cases: int = CASES) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._most_cases = cases
        self._cases: OrderedDict[str, _Case] = OrderedDict()

    async def poll(self, case_id: str, counted: Sequence[int]) -> int | None:
        """None, and it counts; or after how many seconds to come again. ``counted`` is what the store has said."""
        now = self._now()
        case = self._case(case_id, now)
        known = LIMIT.recent(counted, now)
        wait = LIMIT.wait(sorted([*known, *case.kept]), now)
        if wait is None:
            quiet = len(known) <= LIMIT.few and abs(now - case.counted_from) >= LIMIT.window
            if quiet and len(case.kept) < KEPT:
                case.kept.append(now)
            else:
                wait = await finish(self._store.count(case_id, "poll", _told(case, now), now, LIMIT))
        return _seconds(wait)

    async def submission(self, case_id: str) -> int | None:
        """The same for answers that a messenger carries, each of which is counted in the store."""
        return _seconds(await finish(self._store.count(case_id, "submit", (), self._now(), LIMIT)))

    async def catch_up(self) -> bool:
        """Tell the store of what was kept of cases that it counts; False, for there is never more at once."""
        now = self._now()
        if any(case.kept for case in self._cases.values()):
            for case_id in await self._store.busy(now - LIMIT.window, "poll"):
                case = self._cases.get(case_id)
                if case is not None and case.kept:
                    kept = _told(case, now)
                    await finish(self._store.count(case_id, "poll", kept, now, LIMIT, one_more=False))
        return False

    def _case(self, case_id: str, now: int) -> _Case:
        """What is remembered of a case. What nobody has asked for within the minute is forgotten: it stands first."""
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
        return round(self._clock.now() * 1000)


def _told(case: _Case, now: int) -> list[int]:
    """What was kept of a case, which is now told to the store, as is what follows within a minute."""
    if abs(now - case.counted_from) >= LIMIT.window:
        case.counted_from = now
    kept, case.kept = case.kept, []
    return kept


def _seconds(wait: int | None) -> int | None:
    return None if wait is None else math.ceil(wait / 1000)
