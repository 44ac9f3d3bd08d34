"""Values and times as a terminal shows them: values exact and whole, with nothing hidden in them."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from typing import Any

from assent.visible import escaped, pieces

_UNITS = (("d", 172_800_000, 86_400_000), ("h", 7_200_000, 3_600_000), ("m", 120_000, 60_000))
_ODD_SPACE = re.compile(r"[^\S \u3000]")


def exact_json(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON of which every character can be seen: what would act, hide or pass for another is an escape.

    Read again, it is the same value. Nothing that is seen is escaped, so that people can read it.
    """
    plain = json.dumps(value, ensure_ascii=False, indent=indent)
    if plain.isascii() and "\x7f" not in plain:
        return plain
    return "\n".join(
        _exact(line) for line in plain.split("\n")
    )  # within values a newline is an escape already


def _exact(line: str) -> str:
    return "".join(
        escaped(part.text)
        if part.note is not None
        else _ODD_SPACE.sub(lambda found: escaped(found[0]), part.text)
        for part in pieces(line)
    )


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
