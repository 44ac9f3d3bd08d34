"""Callbacks that are still to be made: taken by one worker at a time, and tried again until they are done.

Keys take turns. A key's row in `usage` says when its next callback is due; that is its place in the queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import func, select, update

from assent.store import usage
from assent.store.budget_tables import usage as usage_table
from assent.store.case_rows import CallbackRow
from assent.store.case_tables import callbacks
from assent.store.statement import Statement, Transaction, param

AT_ONCE = 40
"""How many a worker makes at a time."""
PER_KEY = 4
"""And how many of these are one key's."""
_MOST_FULL = AT_ONCE // PER_KEY
_C, _U = callbacks.c, usage_table.c
_BIG = _C.due_at.type
_OF_KEY = _C.key_id == param("key_id")
COLUMNS = tuple(_C[name] for name in CallbackRow._fields)
TURNS = Statement(
    select(_U.key_id)
    .where(_U.callback_at <= param("now"), _U.key_id.not_in([param(f"full{n}") for n in range(_MOST_FULL)]))
    .order_by(_U.callback_at)
    .limit(param("limit", _BIG))
)
TURN = Statement(select(_U.callback_at).where(_U.key_id == param("key_id")).with_for_update())
DUE = Statement(
    select(*COLUMNS)
    .where(_OF_KEY, _C.due_at <= param("now"))
    .order_by(_C.key_id, _C.due_at)
    .limit(param("limit", _BIG))
)
NEXT = Statement(select(func.min(_C.due_at)).where(_OF_KEY, _C.due_at.is_not(None)))
SET_TURN = Statement(
    update(usage_table).where(_U.key_id == param("key_id")).values(callback_at=param("callback_at"))
)
SET = Statement(
    update(callbacks)
    .where(_C.callback_id == param("callback_id"), _C.write_id == param("seen"))
    .values({name: param(name) for name in ("attempts", "due_at", "outcome", "write_id")})
)


def take(
    now: int, until: int, limit: int, busy: Mapping[str, int], write_id: int
) -> Transaction[list[CallbackRow]]:
    """Take callbacks that are due, of each key no more than its share; ``busy`` has how many are being made.

    Nobody else takes them before ``until``, by when they are made or due again. Keys that wait longest come first.
    """
    taken: list[CallbackRow] = []
    full = [key_id for key_id, count in busy.items() if count >= PER_KEY][:_MOST_FULL]
    turns = yield TURNS, {"now": now, "limit": limit, **_padded(full)}
    for (key_id,) in turns:
        if len(taken) < limit:
            most = min(PER_KEY - busy.get(key_id, 0), limit - len(taken))
            taken += yield from _take_of(key_id, now, until, most, write_id)
    return taken


def _take_of(key_id: str, now: int, until: int, most: int, write_id: int) -> Transaction[list[CallbackRow]]:
    """A key's share; it stands behind the others then, or waits until its next one is due."""
    taken: list[CallbackRow] = []
    yield TURN, {"key_id": key_id}
    for row in map(CallbackRow._make, (yield DUE, {"key_id": key_id, "now": now, "limit": most})):
        mine = row._replace(attempts=row.attempts + 1, due_at=until, write_id=write_id)
        if (yield SET, {**mine._asdict(), "seen": row.write_id}):
            taken.append(mine)
    [(due_at,)] = yield NEXT, {"key_id": key_id}
    yield SET_TURN, {"key_id": key_id, "callback_at": None if due_at is None else max(due_at, now)}
    return taken


def done(
    row: CallbackRow, due_at: int | None, outcome: str | None, *, counts: bool = True
) -> Transaction[bool]:
    """Note how an attempt went, and when the next is due; False if another worker has taken it since.

    One that was not made after all does not count.
    """
    if due_at is not None:
        yield from usage.callback_due(row.key_id, due_at)
    attempts = row.attempts if counts else row.attempts - 1
    params = {**row._asdict(), "attempts": attempts, "due_at": due_at, "outcome": outcome}
    return bool((yield SET, {**params, "seen": row.write_id}))


def _padded(full: Sequence[str]) -> dict[str, str]:
    return {f"full{n}": full[n] if n < len(full) else "" for n in range(_MOST_FULL)}
