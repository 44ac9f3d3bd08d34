"""A thread's state in one statement (a UNION), so that all of it is of one moment without a transaction.

Thread, run, requests and effects have different columns. Each part of the union fills the text and number
columns from the left, and leaves the rest NULL. On PostgreSQL the statement also returns the messages, as one
array, which saves a round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Executable,
    Select,
    Text,
    cast,
    func,
    literal_column,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by

from askfirst.store import tables
from askfirst.store.rows import Loaded, RequestRow
from askfirst.store.statement import Statement, param

_T, _R, _Q, _E, _M = (
    table.c for table in (tables.threads, tables.runs, tables.requests, tables.effects, tables.messages)
)
_TEXTS, _NUMBERS = 10, 5
_ID = param("thread_id")
# A literal, not a parameter: SQLite prepares a statement again when a parameter in a partial index's condition
# is bound.
_PENDING = literal_column("'pending'", tables.ID)
_LATEST_RUN = select(_T.run_id).where(_T.thread_id == _ID).scalar_subquery()


_BODIES = ARRAY(Text)
_NEW_BODIES = (
    select(func.array_agg(aggregate_order_by(_M.body, _M.seq)))
    .where(_M.thread_id == _ID, _M.seq >= param("since"), _M.seq < _T.next_seq)
    .correlate(tables.threads)
    .scalar_subquery()
)


def _part(
    name: str,
    texts: Sequence[ColumnElement[Any]],
    numbers: Sequence[ColumnElement[Any]] = (),
    bodies: ColumnElement[Any] | None = None,
) -> Select[Any]:
    columns: list[ColumnElement[Any]] = [literal_column(f"'{name}'", tables.ID)]
    columns += [*texts, *[null()] * (_TEXTS - len(texts))]
    columns += [*numbers, *[cast(null(), BigInteger)] * (_NUMBERS - len(numbers))]
    if bodies is not None:
        columns.append(cast(bodies, _BODIES))
    return select(*(column.label(f"c{place}") for place, column in enumerate(columns)))


_WHAT_WAS_ASKED = ("question_id", "run_id", "kind", "payload", "digest")
_REQUEST_TEXTS = (*_WHAT_WAS_ASKED, "status", "answer", "reason", "answered_by", "via")
_REQUEST_NUMBERS = ("round", "created_at", "expires_at", "settled_at", "write_id")


def _state(dialect: str) -> Executable:
    none = null() if dialect == "postgresql" else None
    return union_all(
        _part("requests", [_Q[it] for it in _REQUEST_TEXTS], [_Q[it] for it in _REQUEST_NUMBERS], none).where(
            _Q.thread_id == _ID, or_(_Q.status == _PENDING, _Q.run_id == _LATEST_RUN)
        ),
        _part(
            "thread",
            [_T.lease_owner, _T.extra],
            [_T.fence, _T.lease_until, _T.next_seq, _T.created_at],
            None if none is None else _NEW_BODIES,
        ).where(_T.thread_id == _ID),
        _part("run", [_R.run_id, _R.agent_id, _R.status], (), none).where(
            _R.thread_id == _ID, _R.run_id == _LATEST_RUN
        ),
        _part("effects", [_E.tool_call_id, _E.tool_name, _E.digest, _E.effect], [_E.attempt], none).where(
            _E.thread_id == _ID, _E.ended_at.is_(None)
        ),
    )


# In these columns the other parts of the union have values that are never encrypted; those are returned unchanged.
_SEALED = {
    **{1 + _REQUEST_TEXTS.index(name): f"requests.{name}" for name in ("payload", "answer", "reason")},
    1 + _TEXTS + _NUMBERS: "messages.body",
}
STATE = Statement(_state, reads=True, sealed=_SEALED)


def loaded(thread_id: str, since: int, rows: Sequence[Sequence[Any]]) -> Loaded | None:
    """The rows of `STATE`, sorted out; None if there is no thread. Most dialects do not bring the messages."""
    bodies: list[str] = []
    thread: Sequence[Any] | None = None
    run: tuple[Any, ...] | None = None
    requests: list[RequestRow] = []
    effects: list[tuple[Any, ...]] = []
    for part, *values in rows:
        texts, numbers = values[:_TEXTS], values[_TEXTS:]
        if part == "requests":
            named = dict(zip((*_REQUEST_TEXTS, *_REQUEST_NUMBERS), values, strict=False))
            requests.append(RequestRow(thread_id=thread_id, **named))
        elif part == "thread":
            thread = (*numbers[:3], *texts[:2], numbers[3])
            bodies = (numbers[_NUMBERS] or bodies) if len(numbers) > _NUMBERS else bodies
        elif part == "run":
            run = tuple(texts[:3])
        else:
            effects.append((*texts[:4], numbers[0]))
    if thread is None:
        return None
    requests.sort(key=lambda row: row.round)
    return Loaded(*thread, requests=requests, effects=effects, run=run, bodies=bodies, since=since)
