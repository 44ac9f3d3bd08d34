"""How often a service is asked: patiently, and more patiently when it is in trouble."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

USUAL = 30.0
SLOWEST = 300.0
"""The protocol's bounds, in seconds: no quicker by default, and no slower."""
MOST_A_MINUTE = 60
_MINUTE = 60.0
_LONGEST_DEMAND = 3600.0
"""A service that asks for more patience than this is mistaken."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The time between two polls of a case. ``quick`` is a developer's choice to go below the protocol's bound."""

    interval: float = USUAL
    quick: bool = False

    @classmethod
    def chosen(cls, poll_interval: float | None, min_poll_interval: float) -> Pace:
        """The pace that a developer asked for, within its bounds."""
        if not 0 < min_poll_interval <= SLOWEST:
            raise ValueError(f"min_poll_interval must be more than 0 and at most {SLOWEST:g} seconds")
        wanted = min_poll_interval if poll_interval is None else poll_interval
        return cls(min(max(wanted, min_poll_interval), SLOWEST), quick=min_poll_interval < USUAL)

    def after_answer(self, retry_after: float | None, *, streaming: bool) -> float:
        """How long to wait after an answer; ``streaming`` while a stream of events tells us anyway."""
        if streaming:
            return SLOWEST
        advised = 0.0 if retry_after is None or self.quick else retry_after
        return min(max(self.interval, advised), SLOWEST)

    def after_failure(self, failures: int, demanded: float | None) -> float:
        """How long to wait when it went wrong that many times in a row; a service in need may demand its time."""
        most = min(self.interval * 2 ** min(failures, 16), SLOWEST)
        wait = max(random.uniform(0, most), min(self.interval, 1.0))  # noqa: S311
        return wait if demanded is None else max(wait, min(demanded, _LONGEST_DEMAND))


class Allowance:
    """No more than 60 polls of a case in any minute, whatever the reason for each."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: deque[float] = deque(maxlen=MOST_A_MINUTE)

    def next(self, now: float) -> float:
        """When the next poll may begin: now, or later."""
        if len(self._begun) < MOST_A_MINUTE:
            return now
        return max(now, self._begun[0] + _MINUTE)

    def use(self, now: float) -> None:
        """A poll begins."""
        self._begun.append(now)

    @property
    def last(self) -> float | None:
        """When the last poll began."""
        return self._begun[-1] if self._begun else None
