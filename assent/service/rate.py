"""How often one case may be asked for: the protocol's 60 times a minute."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable

REQUESTS = 60
WINDOW_SECONDS = 60.0
CASES = 10_000


class CaseRate:
    """Counts, within this process, how often each case was asked for in the last minute.

    It remembers up to ``cases`` cases. With more than that in one minute, those asked for longest ago are
    forgotten and may start anew.
    """

    def __init__(self, *, cases: int = CASES, timer: Callable[[], float] = time.monotonic) -> None:
        self._cases = cases
        self._timer = timer
        self._asked: OrderedDict[str, deque[float]] = OrderedDict()

    def allow(self, case_id: str) -> int | None:
        """None, and it counts; or after how many seconds to come again."""
        now = self._timer()
        self._forget(now)
        times = self._asked.setdefault(case_id, deque(maxlen=REQUESTS))
        if len(times) == REQUESTS and now - times[0] < WINDOW_SECONDS:
            return max(1, math.ceil(WINDOW_SECONDS - (now - times[0])))
        times.append(now)
        self._asked.move_to_end(case_id)
        if len(self._asked) > self._cases:
            self._asked.popitem(last=False)
        return None

    def _forget(self, now: float) -> None:
        """Drop those that nobody has asked for within the minute; they stand first."""
        while self._asked:
            case_id, times = next(iter(self._asked.items()))
            if now - times[-1] < WINDOW_SECONDS:
                return
            del self._asked[case_id]
