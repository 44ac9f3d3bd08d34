"""Clocks: the system's, and the protocol that a test's clock follows."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, overload

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
"""Durations in milliseconds, the unit of the tables."""


class Clock(Protocol):
    """Tells the time and waits for it."""

    def now(self) -> float:
        """Seconds since 1970 (UTC)."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep until this clock has advanced by that many seconds."""
        ...


def milliseconds(clock: Clock) -> int:
    """A clock's time as the tables store it: whole milliseconds since 1970 (UTC)."""
    return to_milliseconds(clock.now())


@overload
def to_milliseconds(seconds: float) -> int: ...


@overload
def to_milliseconds(seconds: float | None) -> int | None: ...


def to_milliseconds(seconds: float | None) -> int | None:
    """A time of a public value, in seconds since 1970 (UTC), as the tables store it: whole milliseconds."""
    return None if seconds is None else round(seconds * 1000)


@overload
def seconds(milliseconds: int) -> float: ...


@overload
def seconds(milliseconds: int | None) -> float | None: ...


def seconds(milliseconds: int | None) -> float | None:
    """A stored time, in milliseconds, as public values have it: seconds since 1970 (UTC)."""
    return None if milliseconds is None else milliseconds / 1000


class SystemClock:
    """The computer's own clock."""

    def now(self) -> float:
        """Seconds since 1970 (UTC)."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Sleep for so many seconds."""
        await asyncio.sleep(seconds)
