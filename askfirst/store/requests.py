"""Transactions on requests: open, settle once (compare-and-set), expire, find."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import starmap
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import (
    Integer,
    String,
    and_,
    case,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)

from askfirst.errors import (
    HitlConcurrencyError,
    HitlInvalidAnswer,
    HitlNoPendingRequest,
    HitlStaleAnswer,
    StoreError,
)
from askfirst.requests import UNWRITABLE, fit_answer, plain_answer
from askfirst.store import audit, continuations, tables
from askfirst.store.audit import Entry
from askfirst.store.rows import Expired, RequestRow, Row, Settled, decode_request
from askfirst.store.statement import WAKE, Statement, Transaction, param
from askfirst.store.wakeups import SIGNAL

_Q = tables.requests.c
# Partial indexes are used only where the status stands in the statement itself.
_PENDING = literal_column("'pending'", String)
_0, _1 = literal_column("0", Integer), literal_column("1", Integer)
_THREAD = _Q.thread_id == param("thread_id")
_THIS = and_(_THREAD, _Q.question_id == param("question_id"))
_IS_OPEN = _Q.status == _PENDING
# Where the key is given, the primary key is the better index: there the status is a parameter, so that no
# partial one is used.
_OPEN_BY_KEY = _Q.status == literal("pending")
OPENED = (f"{SIGNAL}requests", "opened")
"""What a service waits for, to make cases of requests: it is woken whenever one is opened."""
WATCHED = 50
"""How many requests one statement of `still_open` checks."""
LISTED = 5000
"""How many requests one statement of `listed_still_open` checks."""


COLUMNS = tuple(_Q[name] for name in RequestRow._fields)
_BIG = _Q.created_at.type

_FRESH = (
    *("thread_id", "question_id", "run_id", "kind", "payload", "digest", "created_at", "expires_at"),
    *("nonce", "resumer", "resumes"),
)
OPEN = Statement(
    insert(tables.requests).from_select(
        [*_FRESH, "status", "round"],
        select(
            *(param(name, _Q[name].type).label(name) for name in _FRESH),
            _PENDING.label("status"),
            (func.coalesce(func.max(_Q.round), _0) + _1).label("round"),
        )
        .where(_THIS)
        .having(func.coalesce(func.max(case((_IS_OPEN, _1), else_=_0)), _0) == _0),
    )
)
_SETTLED: dict[Any, Any] = {
    _Q.status: param("status"),
    _Q.answer: param("answer"),
    _Q.reason: param("reason"),
    _Q.answered_by: param("answered_by"),
    _Q.via: param("via"),
    _Q.settled_at: param("now"),
    _Q.write_id: param("write_id"),
}
SETTLE = Statement(
    update(tables.requests).where(_THIS, _Q.round == param("round"), _OPEN_BY_KEY).values(_SETTLED)
)
END = Statement(update(tables.requests).where(_THIS, _OPEN_BY_KEY).values(_SETTLED))
LATEST = Statement(select(*COLUMNS).where(_THIS).order_by(_Q.round.desc()).limit(1))
LOCKED = Statement(select(*COLUMNS).where(_THIS).order_by(_Q.round.desc()).limit(1).with_for_update())
OPEN_IDS = Statement(select(_Q.question_id).where(_THREAD, _OPEN_BY_KEY))
OPEN_HERE = Statement(select(*COLUMNS).where(_THREAD, _OPEN_BY_KEY))
OPEN_PAGE = Statement(
    select(*COLUMNS)
    .where(
        _IS_OPEN,
        _Q.created_at >= param("created_at"),  # for the index; the row comparison below is the exact place
        tuple_(_Q.created_at, _Q.thread_id, _Q.question_id)
        > tuple_(param("created_at", _BIG), param("thread_id", tables.ID), param("question_id", tables.ID)),
    )
    .order_by(_Q.status, _Q.created_at, _Q.thread_id, _Q.question_id)
    .limit(param("limit", _BIG))
)
DUE = Statement(
    select(*COLUMNS)
    .where(_IS_OPEN, _Q.expires_at <= param("now"))
    .order_by(_Q.status, _Q.expires_at)
    .limit(param("limit", _BIG))
)
STILL_OPEN = Statement(
    select(_Q.thread_id, _Q.question_id, _Q.round).where(
        _OPEN_BY_KEY,
        or_(
            *(and_(_Q.thread_id == param(f"t{n}"), _Q.question_id == param(f"q{n}")) for n in range(WATCHED))
        ),
    )
)
# For SQLite, which takes 10 ms for the statement above. CROSS JOIN keeps the order of the tables: one lookup
# for each key.
LISTED_STILL_OPEN = Statement(
    text(
        "SELECT r.thread_id, r.question_id, r.round FROM json_each(:keys) AS k CROSS JOIN askfirst_requests AS r "
        "WHERE r.thread_id = json_extract(k.value, '$[0]') AND r.question_id = json_extract(k.value, '$[1]') "
        "AND r.status = :pending"
    ).bindparams(pending="pending"),
    reads=True,
)


def open_all(opened: Sequence[Row], key: Row, now: int, write_id: int) -> Transaction[None]:
    """Open requests. A pending request with the same id is superseded by the new round."""
    entries: list[Entry] = []
    for request in opened:
        row: Row = {"resumer": None, "resumes": None, **key, **request}
        if not (yield OPEN, row):
            ended = _ended(row["thread_id"], row["question_id"], "superseded", now, write_id)
            if (yield END, ended):
                entries.append(audit.request_settled(ended))
            yield WAKE, ended
            yield OPEN, row
        entries.append(audit.request_opened(row, now))
    if entries:
        yield WAKE, {"thread_id": OPENED[0], "question_id": OPENED[1]}
    yield from audit.append(entries)


def end(ended: Sequence[Row], key: Row, now: int, write_id: int) -> Transaction[None]:
    """Settle requests as part of a step, without checking answers. Raises `HitlStaleAnswer` if one is settled."""
    entries: list[Entry] = []
    for request in ended:
        row = {
            **_params(Settled(key["thread_id"], now=now, write_id=write_id, **request)),
            "answer": request["answer"],
        }
        if not (yield END, row):
            raise _too_late(row, (yield LATEST, row))
        yield WAKE, row
        entries.append(audit.request_settled(row))
    yield from audit.append(entries)


def settle(by: Settled) -> Transaction[RequestRow]:
    """Settle the latest round of a request; one that is past its deadline is timed out instead.

    ``by`` names the digest or the round that the person saw. If the latest round is another one, it raises
    `HitlStaleAnswer`. An answer that names neither counts for the first round only. The caller must check the
    status of the returned row: it is ``timed_out`` if the deadline had passed.
    """
    params = _params(by)
    row = yield from _meant(params)
    if row.status != "pending":
        raise HitlStaleAnswer(by.question_id, row.status)
    _check_seen(by, row)
    if _overdue(row, by.now):
        params |= {"status": "timed_out", "reason": None, "answered_by": None, "via": None, "shown": None}
    elif by.status == "answered":
        params["answer"] = _encode_answer(row, by.answer)
    return (yield from _settle_row(row, params, by.actor))


def landed(by: Settled) -> Transaction[RequestRow | None]:
    """The check after an indeterminate commit of `settle`: the row if this write settled it, else None."""
    rows = yield LOCKED, by.params()
    found = RequestRow(*rows[0]) if rows else None
    return found if found is not None and found.write_id == by.write_id else None


def expire(by: Settled) -> Transaction[RequestRow]:
    """Time a request out if it is pending and past its deadline; returns it as it stands."""
    params = by.params()
    row = yield from _latest(params)
    if row.status == "pending" and _overdue(row, by.now) and (yield SETTLE, {**params, "round": row.round}):
        yield from audit.append([audit.request_settled(params, row)])
        yield from continuations.make_due(row, params["now"], params["write_id"])
        yield WAKE, params
    return (yield from _latest(params))


def expire_due(now: int, limit: int, write_id: int) -> Transaction[Expired]:
    """Time out requests that are past their deadline."""
    rows = yield DUE, {"now": now, "limit": limit}
    expired: list[RequestRow] = []
    entries: list[Entry] = []
    for row in starmap(RequestRow, rows):
        params = _ended(row.thread_id, row.question_id, "timed_out", now, write_id)
        if (yield SETTLE, {**params, "round": row.round}):
            yield from continuations.make_due(row, now, write_id)
            yield WAKE, params
            expired.append(_as_settled(row, params))
            entries.append(audit.request_settled(params, row))
    yield from audit.append(entries)
    return Expired(len(rows), expired)


def latest(thread_id: str, question_id: str) -> Transaction[RequestRow | None]:
    """A request as it stands now."""
    rows = yield LATEST, {"thread_id": thread_id, "question_id": question_id}
    return RequestRow(*rows[0]) if rows else None


def open_page(limit: int, after: tuple[int, str, str]) -> Transaction[list[RequestRow]]:
    """Open requests of all threads, oldest first."""
    created_at, thread_id, question_id = after
    place = {"created_at": created_at, "thread_id": thread_id, "question_id": question_id}
    rows = yield OPEN_PAGE, {**place, "limit": limit}
    return [RequestRow(*row) for row in rows]


def oldest_open(thread_id: str) -> Transaction[RequestRow | None]:
    """A thread's oldest pending request."""
    # Sorted in Python: with ORDER BY a database may choose the index over the open requests of all threads.
    rows = yield OPEN_HERE, {"thread_id": thread_id}
    return min(starmap(RequestRow, rows), key=lambda row: (row.created_at, row.question_id), default=None)


def check_alone(thread_id: str, question_id: str, now: int) -> Transaction[None]:
    """Raise `HitlConcurrencyError` if another request of the thread can still be answered."""
    for row in starmap(RequestRow, (yield OPEN_HERE, {"thread_id": thread_id})):
        if row.question_id != question_id and not _overdue(row, now):
            raise HitlConcurrencyError(row.question_id)


def end_open(thread_id: str, now: int, write_id: int) -> Transaction[None]:
    """Cancel whatever is pending on a thread."""
    rows = yield OPEN_HERE, {"thread_id": thread_id}
    entries: list[Entry] = []
    for row in starmap(RequestRow, rows):
        ended = _ended(thread_id, row.question_id, "cancelled", now, write_id)
        if (yield END, ended):
            yield WAKE, ended
            entries.append(audit.request_settled(ended, row))
    yield from audit.append(entries)


def still_open(keys: Sequence[tuple[str, str]]) -> Transaction[dict[tuple[str, str], int]]:
    """Those of up to `WATCHED` requests that are still pending, each with its round."""
    padded = [*keys, *[keys[-1]] * (WATCHED - len(keys))]
    params = {f"t{n}": key[0] for n, key in enumerate(padded)} | {
        f"q{n}": key[1] for n, key in enumerate(padded)
    }
    rows = yield STILL_OPEN, params
    return {(thread_id, question_id): round_ for thread_id, question_id, round_ in rows}


def listed_still_open(keys: Sequence[tuple[str, str]]) -> Transaction[dict[tuple[str, str], int]]:
    """As `still_open`, for up to `LISTED` requests, on SQLite."""
    rows = yield LISTED_STILL_OPEN, {"keys": json.dumps(keys)}
    return {(thread_id, question_id): round_ for thread_id, question_id, round_ in rows}


def _ended(
    thread_id: str, question_id: str, status: str, now: int, write_id: int, reason: str | None = None
) -> dict[str, Any]:
    """Parameters that settle a request without an answer."""
    return _params(Settled(thread_id, question_id, status, now, write_id, reason=reason))


def _params(by: Settled) -> dict[str, Any]:
    if by.reason is not None and not isinstance(by.reason, str):
        raise StoreError(
            f"the reason given for request {by.question_id!r} is a text, not {type(by.reason).__name__}"
        )
    try:
        return by.params()
    except PydanticSerializationError:
        raise StoreError(f"the reason given for request {by.question_id!r} is not valid Unicode") from None


def _encode_answer(row: RequestRow, answer: Any) -> str:
    fitted = fit_answer(decode_request(row), answer)
    try:
        return to_json(plain_answer(fitted)).decode()
    except PydanticSerializationError:
        raise HitlInvalidAnswer(row.question_id, [UNWRITABLE]) from None


def _latest(params: Row) -> Transaction[RequestRow]:
    rows = yield LATEST, params
    if not rows:
        raise HitlNoPendingRequest(params["thread_id"], params["question_id"])
    return RequestRow(*rows[0])


def _meant(params: Row) -> Transaction[RequestRow]:
    """The request to be settled. An unknown id is stale if another request is open on the thread, else not found."""
    try:
        return (yield from _latest(params))
    except HitlNoPendingRequest:
        if (yield OPEN_IDS, params):
            raise HitlStaleAnswer(params["question_id"]) from None
        raise


def _check_seen(by: Settled, row: RequestRow) -> None:
    """Raise `HitlStaleAnswer` if the person saw another digest or round, or names none for a later round."""
    if by.round not in (None, row.round):
        raise HitlStaleAnswer(by.question_id, "superseded")
    if by.digest is not None:
        if by.digest != (row.digest or decode_request(row).digest):
            raise HitlStaleAnswer(by.question_id, "superseded")
    elif by.round is None and by.status == "answered" and row.round > 1:
        raise HitlStaleAnswer(by.question_id, "superseded", is_unnamed=True)


def _overdue(row: RequestRow, now: int) -> bool:
    return row.expires_at is not None and row.expires_at <= now


def _settle_row(row: RequestRow, params: Row, actor: str | None) -> Transaction[RequestRow]:
    """The compare-and-set on the status: one writer wins, all later ones get `HitlStaleAnswer`."""
    won = yield SETTLE, {**params, "round": row.round}
    if not won:
        raise _too_late(params, (yield LATEST, params))
    yield from audit.append([audit.request_settled(params, row, actor)])
    yield from continuations.make_due(row, params["now"], params["write_id"])
    yield WAKE, params
    return _as_settled(row, params)


def _as_settled(row: RequestRow, params: Row) -> RequestRow:
    names = ("status", "answer", "reason", "answered_by", "via", "write_id")
    return row._replace(settled_at=params["now"], **{name: params[name] for name in names})


def _too_late(params: Row, rows: Sequence[tuple[Any, ...]]) -> Exception:
    if not rows:
        return HitlNoPendingRequest(params["thread_id"], params["question_id"])
    return HitlStaleAnswer(params["question_id"], RequestRow(*rows[0]).status)


def expired(tried: Expired) -> Transaction[Expired | None]:
    """The check after an indeterminate commit of `expire_due`: what this write timed out, or None if nothing."""
    found: list[RequestRow] = []
    for row in tried.rows:
        rows = yield LOCKED, {"thread_id": row.thread_id, "question_id": row.question_id}
        now = RequestRow(*rows[0]) if rows else None
        if now is not None and now.write_id == row.write_id:
            found.append(now)
    return Expired(tried.found, found) if found else None
