"""Everything that waits for a person: agents' open requests, and the open cases of other services."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Integer, and_, literal_column, select, tuple_

from assent.store import cases as case_store
from assent.store import requests as request_store
from assent.store import tables
from assent.store.case_rows import CaseRow
from assent.store.case_tables import cases
from assent.store.rows import RequestRow
from assent.store.service_tables import keys
from assent.store.statement import Statement, Transaction, param

_Q, _R, _C, _K = tables.requests.c, tables.runs.c, cases.c, keys.c
_BIG = _C.created_at.type
_PENDING = _Q.status == literal_column("'pending'", _Q.status.type)
_SERVICES = and_(_C.is_open == literal_column("1", Integer), _C.thread_id.is_(None))
_WITH_RUN = tables.requests.outerjoin(tables.runs, and_(_R.thread_id == _Q.thread_id, _R.run_id == _Q.run_id))

REQUESTS = Statement(
    select(*request_store.COLUMNS, _R.agent_id)
    .select_from(_WITH_RUN)
    .where(
        _PENDING,
        _Q.created_at >= param("created_at"),  # the index's way in; what follows is the exact place
        tuple_(_Q.created_at, _Q.thread_id, _Q.question_id)
        > tuple_(param("created_at", _BIG), param("thread_id", tables.ID), param("question_id", tables.ID)),
    )
    .order_by(_Q.status, _Q.created_at, _Q.thread_id, _Q.question_id)
    .limit(param("limit", _BIG))
)
REQUEST = Statement(
    select(*request_store.COLUMNS, _R.agent_id)
    .select_from(_WITH_RUN)
    .where(_Q.thread_id == param("thread_id"), _Q.question_id == param("question_id"))
    .order_by(_Q.round.desc())
    .limit(1)
)
CASES = Statement(
    select(*case_store.COLUMNS, _K.name)
    .select_from(cases.outerjoin(keys, _K.key_id == _C.key_id))
    .where(
        _SERVICES,
        tuple_(_C.created_at, _C.case_id) > tuple_(param("created_at", _BIG), param("case_id", tables.ID)),
    )
    .order_by(_C.created_at, _C.case_id)
    .limit(param("limit", _BIG))
)
CASE = Statement(
    select(*case_store.COLUMNS, _K.name)
    .select_from(cases.outerjoin(keys, _K.key_id == _C.key_id))
    .where(_C.case_id == param("case_id"))
)
REQUEST_KEYS = Statement(select(_Q.thread_id, _Q.question_id, _Q.round, _Q.nonce).where(_PENDING))
CASE_IDS = Statement(select(_C.case_id).where(_SERVICES))


class AskedRow(NamedTuple):
    """A request, and the agent that asks, where its run is known."""

    request: RequestRow
    agent_id: str | None


class CaseAndKey(NamedTuple):
    """A case, and the name of the API key that opened it, as JSON."""

    case: CaseRow
    key_name: str | None


def request_page(limit: int, after: RequestRow | None) -> Transaction[list[AskedRow]]:
    """Agents' open requests, oldest first."""
    place = {"created_at": -1, "thread_id": "", "question_id": ""}
    if after is not None:
        place = {name: getattr(after, name) for name in place}
    return [_asked(row) for row in (yield REQUESTS, {**place, "limit": limit})]


def case_page(limit: int, after: CaseRow | None) -> Transaction[list[CaseAndKey]]:
    """The open cases that other services opened, oldest first; no agent's request is among them."""
    place = {"created_at": -1, "case_id": ""}
    if after is not None:
        place = {name: getattr(after, name) for name in place}
    return [_opened(row) for row in (yield CASES, {**place, "limit": limit})]


def latest_request(thread_id: str, question_id: str) -> Transaction[AskedRow | None]:
    """A request's latest round, open or not."""
    rows = yield REQUEST, {"thread_id": thread_id, "question_id": question_id}
    return _asked(rows[0]) if rows else None


def case_by_id(case_id: str) -> Transaction[CaseAndKey | None]:
    """A case, open or not."""
    rows = yield CASE, {"case_id": case_id}
    return _opened(rows[0]) if rows else None


class RequestKey(NamedTuple):
    """What identifies a round of a request."""

    thread_id: str
    question_id: str
    round: int
    nonce: int | None


def open_keys() -> Transaction[tuple[list[RequestKey], list[str]]]:
    """What identifies all that is open: requests, and the ids of cases."""
    requests = yield REQUEST_KEYS, {}
    services = yield CASE_IDS, {}
    return [RequestKey(*row) for row in requests], [case_id for (case_id,) in services]


def _asked(row: tuple[object, ...]) -> AskedRow:
    *columns, agent_id = row
    return AskedRow(RequestRow(*columns), agent_id)  # pyright: ignore[reportArgumentType]


def _opened(row: tuple[object, ...]) -> CaseAndKey:
    *columns, name = row
    return CaseAndKey(CaseRow._make(columns), name)  # pyright: ignore[reportArgumentType]
