"""Telling of new cases: each is told by one process at a time, and again if that one dies or fails before it is done.

What fails is noted for whoever looks after the service, and tried again for as long as the case is open.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Integer, delete, insert, literal_column, select, update

from assent.store import cases
from assent.store.budget_tables import failed_notices
from assent.store.case_rows import CaseRow
from assent.store.case_tables import cases as case_table
from assent.store.rows import RequestRow
from assent.store.statement import Statement, Transaction, param

_C, _N = case_table.c, failed_notices.c
_THIS = _C.case_id == param("case_id")
_ONE = literal_column("1", Integer)
UNTOLD = Statement(
    select(*cases.COLUMNS)
    .where(_C.is_open == _ONE, _C.tell_at <= param("now"))
    .order_by(_C.is_open, _C.tell_at)
    .limit(1)
)
SET = Statement(update(case_table).where(_THIS, _C.tell_at == param("seen")).values(tell_at=param("tell_at")))


class FailedNotice(NamedTuple):
    """A case of which nobody could be told: how often that was tried, since when, and the last error's type."""

    case_id: str
    tries: int
    since: int
    error: str


_COLUMNS = tuple(_N[name] for name in FailedNotice._fields)
_VALUES = {name: param(name) for name in FailedNotice._fields}
FAILED = Statement(select(*_COLUMNS).where(_N.case_id == param("case_id")).with_for_update())
INSERT = Statement(insert(failed_notices).values(_VALUES).inline())
UPDATE = Statement(
    update(failed_notices)
    .where(_N.case_id == param("case_id"))
    .values(tries=param("tries"), error=param("error"))
)
FORGET = Statement(delete(failed_notices).where(_N.case_id == param("case_id")))
ALL_FAILED = Statement(
    select(*_COLUMNS)
    .select_from(failed_notices.join(case_table, _C.case_id == _N.case_id))
    .where(_C.is_open == _ONE)
    .order_by(_N.since)
    .limit(param("limit", _C.created_at.type))
)


def take(now: int, until: int) -> Transaction[tuple[CaseRow, RequestRow | None] | None]:
    """An open case of which nobody has been told, with its request; nobody else gets it before ``until``."""
    for row in map(CaseRow._make, (yield UNTOLD, {"now": now})):
        if (yield SET, {"case_id": row.case_id, "seen": row.tell_at, "tell_at": until}):
            return row._replace(tell_at=until), (yield from cases.request_of(row))
    return None


def told(row: CaseRow) -> Transaction[bool]:
    """Note that somebody was told; False if another process has taken the case since."""
    if not (yield SET, {"case_id": row.case_id, "seen": row.tell_at, "tell_at": None}):
        return False
    yield FORGET, {"case_id": row.case_id}
    return True


def failed(row: CaseRow, error: str, now: int, first: int, longest: int) -> Transaction[FailedNotice | None]:
    """Note that nobody could be told, and when to try again: after ``first`` milliseconds, then twice as long
    each time up to ``longest``. None if another process has taken the case since."""
    known = yield FAILED, {"case_id": row.case_id}
    notice = FailedNotice(*known[0]) if known else FailedNotice(row.case_id, 0, now, error)
    notice = notice._replace(tries=notice.tries + 1, error=error)
    again = now + min(first * 2 ** min(notice.tries - 1, 30), longest)
    if not (yield SET, {"case_id": row.case_id, "seen": row.tell_at, "tell_at": again}):
        return None
    yield (UPDATE if known else INSERT), notice._asdict()
    return notice


def all_failed(limit: int) -> Transaction[list[FailedNotice]]:
    """Open cases of which nobody could be told as yet, those that wait longest first."""
    return [FailedNotice(*row) for row in (yield ALL_FAILED, {"limit": limit})]
