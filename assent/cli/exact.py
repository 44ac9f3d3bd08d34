"""Values and times as a terminal shows them: values exact and whole, with nothing hidden in them."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from assent.visible import shows

_UNITS = (("d", 172_800_000, 86_400_000), ("h", 7_200_000, 3_600_000), ("m", 120_000, 60_000))
_WIDE_SPACE = "\u3000"


def exact_json(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON of which every character can be seen: what would act or hide is a JSON escape.

    Read again, it is the same value. Nothing that is seen is escaped, so that people can read it.
    """
    plain = json.dumps(value, ensure_ascii=False, indent=indent)
    if plain.isascii() and "\x7f" not in plain:
        return plain
    before = [" ", *plain]
    return "".join(
        char if _is_seen(char, last) else json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"
        for last, char in zip(before, plain, strict=False)
    )


def _is_seen(char: str, last: str) -> bool:
    if char in " \n":  # between values; within them a newline is an escape already
        return True
    return shows(char, last) and (not char.isspace() or char == _WIDE_SPACE)


def now_milliseconds() -> int:
    """Milliseconds since 1970."""
    return round(time.time() * 1000)


def moment(milliseconds: int) -> str:
    """A time, in UTC, to the second."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(milliseconds: int) -> str:
    """A length of time in one unit, rounded down: ``42s``, ``3m``, ``5h``, ``9d``."""
    for name, least, length in _UNITS:
        if milliseconds >= least:
            return f"{milliseconds // length}{name}"
    return f"{max(milliseconds, 0) // 1000}s"
