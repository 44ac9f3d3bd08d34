"""Callbacks that are still to be made: taken by one worker at a time, and tried again until they are done."""

from __future__ import annotations

from sqlalchemy import select, update

from assent.store.case_rows import CallbackRow
from assent.store.case_tables import callbacks
from assent.store.statement import Statement, Transaction, param

_C = callbacks.c
COLUMNS = tuple(_C[name] for name in CallbackRow._fields)
DUE = Statement(
    select(*COLUMNS)
    .where(_C.due_at <= param("now"))
    .order_by(_C.due_at)
    .limit(param("limit", _C.due_at.type))
)
SET = Statement(
    update(callbacks)
    .where(_C.callback_id == param("callback_id"), _C.write_id == param("seen"))
    .values({name: param(name) for name in ("attempts", "due_at", "outcome", "write_id")})
)


def take(now: int, until: int, limit: int, write_id: int) -> Transaction[list[CallbackRow]]:
    """Take callbacks that are due; nobody else does before ``until``, by when they are made or due again."""
    taken: list[CallbackRow] = []
    for row in map(CallbackRow._make, (yield DUE, {"now": now, "limit": limit})):
        mine = row._replace(attempts=row.attempts + 1, due_at=until, write_id=write_id)
        if (yield SET, {**mine._asdict(), "seen": row.write_id}):
            taken.append(mine)
    return taken


def done(row: CallbackRow, due_at: int | None, outcome: str) -> Transaction[bool]:
    """Note how an attempt went, and when the next is due; False if another worker has taken it since."""
    params = {**row._asdict(), "due_at": due_at, "outcome": outcome, "seen": row.write_id}
    return bool((yield SET, params))
