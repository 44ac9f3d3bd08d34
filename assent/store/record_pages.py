"""What the tables hold of requests, cases and keys, page by page: to be compared with the audit trail."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from assent.store import cases, requests, tables
from assent.store.case_rows import CaseRow
from assent.store.case_tables import cases as case_table
from assent.store.chain import ABOUT_AT_ONCE
from assent.store.rows import RequestRow
from assent.store.statement import Statement, Transaction, param

_T, _Q, _C = tables.threads.c, tables.requests.c, case_table.c
_IDS = [param(f"id{n}") for n in range(ABOUT_AT_ONCE)]
_LIMIT = param("limit", _T.next_seq.type)

THREADS = Statement(
    select(_T.thread_id).where(_T.thread_id > param("after")).order_by(_T.thread_id).limit(_LIMIT)
)
REQUESTS = Statement(
    select(*requests.COLUMNS).where(_Q.thread_id.in_(_IDS)).order_by(_Q.thread_id, _Q.question_id, _Q.round)
)
CASES = Statement(
    select(*cases.COLUMNS).where(_C.case_id > param("after")).order_by(_C.case_id).limit(_LIMIT)
)


def threads(after: str) -> Transaction[list[str]]:
    """A page of threads' ids, in order."""
    return [thread_id for (thread_id,) in (yield THREADS, {"after": after, "limit": ABOUT_AT_ONCE})]


def requests_of(thread_ids: Sequence[str]) -> Transaction[list[RequestRow]]:
    """All requests of up to `ABOUT_AT_ONCE` threads, whatever became of them."""
    padded = [*thread_ids, *[thread_ids[-1]] * (ABOUT_AT_ONCE - len(thread_ids))]
    rows = yield REQUESTS, {f"id{n}": it for n, it in enumerate(padded)}
    return [RequestRow(*row) for row in rows]


def case_page(after: str) -> Transaction[list[CaseRow]]:
    """A page of cases, by id."""
    return [CaseRow(*row) for row in (yield CASES, {"after": after, "limit": ABOUT_AT_ONCE})]
