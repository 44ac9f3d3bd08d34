"""Times as a page shows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000))


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: ``iso`` for machines, ``text`` in UTC for people."""

    iso: str
    text: str


def moment(milliseconds: int) -> Moment:
    """A time, given in milliseconds since 1970."""
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return Moment(time.strftime("%Y-%m-%dT%H:%M:%SZ"), f"{time.day} {time:%B %Y, %H:%M} UTC")


def time_left(milliseconds: int) -> str:
    """How long that is, in its largest unit, rounded down."""
    for name, length in _UNITS:
        if milliseconds >= length:
            count = milliseconds // length
            return f"{count} {name}{'' if count == 1 else 's'}"
    return "less than a minute"
