"""Telling of new cases: each is told by one process at a time, and again if that one dies before it is done."""

from __future__ import annotations

from sqlalchemy import Integer, literal_column, select, update

from assent.store import cases
from assent.store.case_rows import CaseRow
from assent.store.case_tables import cases as case_table
from assent.store.rows import RequestRow
from assent.store.statement import Statement, Transaction, param

_C = case_table.c
_THIS = _C.case_id == param("case_id")
UNTOLD = Statement(
    select(*cases.COLUMNS)
    .where(_C.is_open == literal_column("1", Integer), _C.tell_at <= param("now"))
    .order_by(_C.is_open, _C.tell_at)
    .limit(1)
)
SET = Statement(update(case_table).where(_THIS, _C.tell_at == param("seen")).values(tell_at=param("tell_at")))


def take(now: int, until: int) -> Transaction[tuple[CaseRow, RequestRow | None] | None]:
    """An open case of which nobody has been told, with its request; nobody else gets it before ``until``."""
    for row in map(CaseRow._make, (yield UNTOLD, {"now": now})):
        if (yield SET, {"case_id": row.case_id, "seen": row.tell_at, "tell_at": until}):
            return row._replace(tell_at=until), (yield from cases.request_of(row))
    return None


def told(row: CaseRow) -> Transaction[bool]:
    """Note that somebody was told; False if another process has taken the case since."""
    return bool((yield SET, {"case_id": row.case_id, "seen": row.tell_at, "tell_at": None}))
