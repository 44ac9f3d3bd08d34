"""Reads for whoever follows a thread: whether anything has changed, and what is new since a position."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import NamedTuple

from sqlalchemy import and_, func, literal_column, or_, select

from askfirst.store import case_access, continuations, requests, tables
from askfirst.store.rows import ContinuationRow, RequestRow
from askfirst.store.statement import Statement, Transaction, param

PAGE = 100
"""How many messages are read at once."""
_T, _R, _Q, _M, _C = (
    table.c for table in (tables.threads, tables.runs, tables.requests, tables.messages, tables.continuations)
)
_ID = param("thread_id")
_PENDING = literal_column("'pending'", tables.ID)
_ASKED = select(func.count()).select_from(tables.requests).where(_Q.thread_id == _ID)

MARK = Statement(
    select(
        _T.write_id,
        _T.updated_at,
        _C.write_id,
        _ASKED.scalar_subquery(),
        _ASKED.where(_Q.status == _PENDING).scalar_subquery(),
    )
    .select_from(tables.threads.outerjoin(tables.continuations, _C.thread_id == _T.thread_id))
    .where(_T.thread_id == _ID)
)
THREAD = Statement(
    select(_T.next_seq, _T.lease_owner, _T.lease_until, _T.run_id, _R.status)
    .select_from(
        tables.threads.outerjoin(tables.runs, and_(_R.thread_id == _T.thread_id, _R.run_id == _T.run_id))
    )
    .where(_T.thread_id == _ID)
)
REQUESTS = Statement(
    select(_Q.question_id, _Q.round, _Q.status, _Q.created_at, _Q.settled_at).where(
        _Q.thread_id == _ID,
        or_(_Q.status == _PENDING, _Q.created_at >= param("since"), _Q.settled_at >= param("since")),
    )
)
REQUEST = Statement(
    select(*requests.COLUMNS).where(
        _Q.thread_id == _ID, _Q.question_id == param("question_id"), _Q.round == param("round")
    )
)
MESSAGES = Statement(
    select(_M.seq, _M.run_id, _M.body)
    .where(_M.thread_id == _ID, _M.seq >= param("since"), _M.seq < param("upto"))
    .order_by(_M.seq)
)

Mark = tuple[int | None, ...]
"""A thread's numbers, of which one differs whenever anything about it has changed."""


class RequestMark(NamedTuple):
    """The state of a request, without what was asked and answered."""

    question_id: str
    round: int
    status: str
    created_at: int
    settled_at: int | None


class ThreadNews(NamedTuple):
    """How a thread stands, and what is new since a position."""

    length: int
    """How many messages the thread has."""
    leased_until: int | None
    """Until when a worker holds the thread; None if nobody does."""
    run_id: str | None
    run_status: str | None
    """How the latest run ended; None if it has not."""
    requests: Sequence[RequestMark]
    """Those that are open, and those opened or settled since the time that was asked for.

    None are read before the last page of messages."""
    continuation: ContinuationRow | None
    messages: Sequence[tuple[int, str, str]]
    """A page of the messages: place, run and body of each."""


def mark(thread_id: str) -> Transaction[Mark | None]:
    """The numbers by which a change is noticed; None if there is no such thread."""
    rows = yield MARK, {"thread_id": thread_id}
    return tuple(rows[0]) if rows else None


def news(
    thread_id: str, seq: int | None, since: int, key_id: str | None = None
) -> Transaction[ThreadNews | None]:
    """How a thread stands, with at most `PAGE` messages from place ``seq`` on, or none; None if it is gone.

    It is None, too, if the API key ``key_id`` has been revoked. The reads are no transaction: what is written in
    between is found by the next one.
    """
    key = {"thread_id": thread_id}
    rows = yield THREAD, key
    if not rows or (key_id is not None and (yield from case_access.is_revoked(key_id))):
        return None
    length, owner, until, run_id, status = rows[0]
    leased = None if owner is None else until
    messages: list[tuple[int, str, str]] = []
    if seq is not None and seq < length:
        messages = [
            *starmap(_message, (yield MESSAGES, {**key, "since": seq, "upto": min(length, seq + PAGE)}))
        ]
        if seq + PAGE < length:
            return ThreadNews(length, leased, run_id, status, (), None, messages)
    asked = [RequestMark(*row) for row in (yield REQUESTS, {**key, "since": since})]
    continuation = yield from continuations.one(thread_id)
    return ThreadNews(length, leased, run_id, status, asked, continuation, messages)


def request(thread_id: str, question_id: str, round_: int) -> Transaction[RequestRow | None]:
    """One round of a request."""
    rows = yield REQUEST, {"thread_id": thread_id, "question_id": question_id, "round": round_}
    return RequestRow(*rows[0]) if rows else None


def _message(seq: int, run_id: str, body: str) -> tuple[int, str, str]:
    return seq, run_id, body
