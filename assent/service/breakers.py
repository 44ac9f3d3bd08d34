"""Circuit breakers: a host that does not take callbacks is left alone for a while, and tried with one at a time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

FAILURES = 3
"""After so many in a row a host is left alone."""
FIRST_PAUSE = 30_000
LONGEST_PAUSE = 1_800_000
PROBE = 20_000
"""Milliseconds for the one callback that tries a host again; the others wait for what comes of it."""
HOSTS = 10_000


@dataclass(slots=True)
class _Breaker:
    failures: int = 0
    until: int = 0


class Breakers:
    """The breakers of one process, by name; those used longest ago are forgotten where there are too many.

    All times are in milliseconds since 1970.
    """

    def __init__(self, *, hosts: int = HOSTS) -> None:
        self._most = hosts
        self._known: OrderedDict[str, _Breaker] = OrderedDict()

    def wait(self, names: tuple[str, ...], now: int) -> int | None:
        """None, and a try may be made; or when to come again."""
        closed = [known for name in names if (known := self._known.get(name)) and known.failures >= FAILURES]
        until = max((each.until for each in closed), default=0)
        if until > now:
            return until
        for each in closed:
            each.until = now + PROBE
        return None

    def worked(self, names: tuple[str, ...]) -> None:
        """The host has answered as it should."""
        for name in names:
            self._known.pop(name, None)

    def failed(self, name: str, now: int) -> None:
        """It has not."""
        known = self._known.setdefault(name, _Breaker())
        self._known.move_to_end(name)
        known.failures += 1
        if known.failures >= FAILURES:
            pause = FIRST_PAUSE * 2 ** min(known.failures - FAILURES, 10)
            known.until = now + min(pause, LONGEST_PAUSE)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
