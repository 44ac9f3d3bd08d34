"""A transaction's statements as one, where PostgreSQL lets a query have parts that write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

CHANNEL = "assent_settled"
UNFORESEEN = "22012"
"""What is raised, and undoes everything, if a part touched no row, or several: division by zero."""

_PARAMETER = re.compile(r"\$(\d+)")


@lru_cache(256)
def joined(parts: tuple[str, ...], wakes: int) -> str:
    """Statements that each touch one row, as one that fails unless they do, and notifies of so many wake-ups.

    Its parameters are those of the parts, one after another, and then the notifications'. The parts see the
    tables as they were before, and none sees what another did.
    """
    named: list[str] = []
    count = 0
    for number, sql in enumerate(parts):
        named.append(f"p{number} AS ({_moved(sql, count)} RETURNING 1)")
        count += max((int(found) for found in _PARAMETER.findall(sql)), default=0)
    each = " AND ".join(f"(SELECT count(*) FROM p{number}) = 1" for number in range(len(parts)))  # noqa: S608
    told = _columns([f"pg_notify('{CHANNEL}', ${count + number + 1}::text)" for number in range(wakes)])
    # The remark is for whoever finds the error in the server's log.
    return f"WITH {', '.join(named)} SELECT 1 / CASE WHEN {each} THEN 1 ELSE 0 /* undo all */ END{told}"


def _moved(sql: str, by: int) -> str:
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", sql)


def _columns(more: Sequence[str]) -> str:
    return "".join(f", {each}" for each in more)
