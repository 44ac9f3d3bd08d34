"""Reading a database for operators: its schema and clock, what is open, what is overdue."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    and_,
    exists,
    func,
    literal_column,
    select,
    text,
    tuple_,
)

from askfirst.errors import StoreError
from askfirst.store import cases as case_store
from askfirst.store import requests as request_store
from askfirst.store import tables
from askfirst.store.case_rows import CaseRow
from askfirst.store.case_tables import callbacks, cases, keys
from askfirst.store.former_name import FORMER_VERSION, FORMER_VERSION_TABLE
from askfirst.store.rows import RequestRow
from askfirst.store.schema import VERSION
from askfirst.store.server_engine import Fault, Server
from askfirst.store.statement import Statement, Transaction, param
from askfirst.store.tables import VERSION_TABLE, checkpoints, continuations, effects, requests, runs, threads

# Reading a database without migrating it, as opening it would.


_SQLITE_SECONDS = 5.0
_CLOCKS = {
    "postgresql": "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
}
CLOCK = Statement(lambda dialect: text(_CLOCKS[dialect]), reads=True)


class Look(NamedTuple):
    """What a look at a database found: its schema's revision (None: no schema yet), and how far its clock is ahead.

    ``ahead`` is in milliseconds, and None where the database has no clock of its own.
    """

    where: str
    version: str | None
    ahead: int | None = None


async def look(url: str) -> Look:
    """Look at the database with this URL; its driver has to be there. Raises `StoreError` if it cannot be reached."""
    scheme, _, rest = url.partition("://")
    kind = scheme.partition("+")[0].lower()
    if kind == "sqlite":
        path = rest.removeprefix("/")
        return Look(path, await asyncio.to_thread(_sqlite_version, path))
    if kind in ("postgresql", "postgres"):
        from askfirst.store.postgres_engine import PostgresServer

        return await _look_at(PostgresServer(f"postgresql://{rest}"))
    from askfirst.store.mysql_engine import MySQLServer

    return await _look_at(MySQLServer(f"mysql://{rest}"))


async def _look_at(server: Server) -> Look:
    try:
        session = await server.connect()
        try:
            before = time.time()
            clock = (await session.run(CLOCK, {}))[0][0]
            here = (before + time.time()) / 2
            rows: list[Any] = []
            for version in (VERSION, FORMER_VERSION):
                try:
                    rows = await session.run(version, {})
                    break
                except Exception as error:
                    if server.fault(error) is not Fault.NO_TABLE:
                        raise
        finally:
            with suppress(Exception):
                await session.close()
            session.drop()
    except Exception as error:
        raise StoreError(
            f"{server.name} at {server.where} cannot be reached: {server.reason(error)}"
        ) from error
    return Look(f"{server.name} at {server.where}", rows[0][0] if rows else None, int(clock - here * 1000))


def _sqlite_version(path: str) -> str | None:
    if not Path(path).exists():
        return None
    try:
        uri = f"{Path(path).absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=_SQLITE_SECONDS)
        try:
            there = {
                row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            name = next((name for name in (VERSION_TABLE, FORMER_VERSION_TABLE) if name in there), None)
            rows = connection.execute(f"SELECT version_num FROM {name}").fetchall() if name else []  # noqa: S608
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StoreError(f"the SQLite database {path!r} cannot be read: {error}") from error
    return rows[0][0] if rows else None


# Open items: agents' requests, and the cases of other services.


_Q, _R, _C, _K = tables.requests.c, tables.runs.c, cases.c, keys.c
_BIG = _C.created_at.type
_PENDING = _Q.status == literal_column("'pending'", _Q.status.type)
_SERVICES = and_(_C.is_open == literal_column("1", Integer), _C.thread_id.is_(None))
_WITH_RUN = tables.requests.outerjoin(tables.runs, and_(_R.thread_id == _Q.thread_id, _R.run_id == _Q.run_id))

OPEN_REQUESTS = Statement(
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
OPEN_CASES = Statement(
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
ENDED_REQUESTS = Statement(
    select(*request_store.COLUMNS, _R.agent_id)
    .select_from(_WITH_RUN)
    .where(
        _Q.nonce >= param("first", _BIG),
        _Q.nonce <= param("last", _BIG),
        _Q.status != literal_column("'pending'", _Q.status.type),
    )
    .limit(2)
)
ENDED_CASES = Statement(
    select(*case_store.COLUMNS, _K.name)
    .select_from(cases.outerjoin(keys, _K.key_id == _C.key_id))
    .where(
        _C.case_id >= param("first", tables.ID),
        _C.case_id < param("last", tables.ID),
        _C.thread_id.is_(None),
        _C.is_open == literal_column("0", Integer),
    )
    .limit(2)
)
ROUND = Statement(
    select(*request_store.COLUMNS, _R.agent_id)
    .select_from(_WITH_RUN)
    .where(
        _Q.thread_id == param("thread_id"),
        _Q.question_id == param("question_id"),
        _Q.round == param("round", _Q.round.type),
    )
)
ENDED_KEYS = Statement(
    select(_Q.thread_id, _Q.question_id, _Q.round, _Q.nonce)
    .where(
        _Q.status != literal_column("'pending'", _Q.status.type),
        tuple_(_Q.thread_id, _Q.question_id, _Q.round)
        > tuple_(
            param("thread_id", tables.ID), param("question_id", tables.ID), param("round", _Q.round.type)
        ),
    )
    .order_by(_Q.thread_id, _Q.question_id, _Q.round)
    .limit(param("limit", _BIG))
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
    return [_asked(row) for row in (yield OPEN_REQUESTS, {**place, "limit": limit})]


def case_page(limit: int, after: CaseRow | None) -> Transaction[list[CaseAndKey]]:
    """The open cases that other services opened, oldest first; no agent's request is among them."""
    place = {"created_at": -1, "case_id": ""}
    if after is not None:
        place = {name: getattr(after, name) for name in place}
    return [_opened(row) for row in (yield OPEN_CASES, {**place, "limit": limit})]


def latest_request(thread_id: str, question_id: str) -> Transaction[AskedRow | None]:
    """A request's latest round, open or not."""
    rows = yield REQUEST, {"thread_id": thread_id, "question_id": question_id}
    return _asked(rows[0]) if rows else None


def case_by_id(case_id: str) -> Transaction[CaseAndKey | None]:
    """A case, open or not."""
    rows = yield CASE, {"case_id": case_id}
    return _opened(rows[0]) if rows else None


def ended_by_digits(
    nonces: tuple[int, int], case_ids: tuple[str, str]
) -> Transaction[tuple[list[AskedRow], list[CaseAndKey]]]:
    """Settled requests with a nonce, and ended cases with an id, in these ranges: at most two of each.

    Two are enough to tell one from several.

    There is no index on nonces: this reads all requests, and is for an operator's command only.
    """
    asked = yield ENDED_REQUESTS, {"first": nonces[0], "last": nonces[1]}
    opened = yield ENDED_CASES, {"first": case_ids[0], "last": case_ids[1]}
    return [_asked(row) for row in asked], [_opened(row) for row in opened]


class RequestKey(NamedTuple):
    """What identifies a round of a request."""

    thread_id: str
    question_id: str
    round: int
    nonce: int | None


def request_round(key: RequestKey) -> Transaction[AskedRow | None]:
    """One round of a request, open or not."""
    names = {"thread_id": key.thread_id, "question_id": key.question_id, "round": key.round}
    rows = yield ROUND, names
    return _asked(rows[0]) if rows else None


def ended_keys(limit: int, after: RequestKey | None) -> Transaction[list[RequestKey]]:
    """What identifies the rounds of requests that are settled, a page of them."""
    place = {"thread_id": "", "question_id": "", "round": -1}
    if after is not None:
        place = {name: getattr(after, name) for name in place}
    return [RequestKey(*row) for row in (yield ENDED_KEYS, {**place, "limit": limit})]


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


_REQUESTS, _CASES, _B, _T, _E, _P, _RUNS, _G = (
    requests.c,
    cases.c,
    callbacks.c,
    threads.c,
    effects.c,
    checkpoints.c,
    runs.c,
    continuations.c,
)
_BEFORE = param("before")
_LAPSED = and_(_T.lease_owner.is_not(None), _T.lease_until <= _BEFORE)
_STARTED = exists(
    select(literal_column("1", Integer)).where(_E.thread_id == _T.thread_id, _E.ended_at.is_(None))
)


def _oldest(column: ColumnElement[int | None]) -> Select[int, int | None]:
    return select(func.count(), func.min(column))


LATE_REQUESTS = Statement(
    _oldest(_REQUESTS.expires_at).where(
        _REQUESTS.status == literal_column("'pending'", _REQUESTS.status.type),
        _REQUESTS.expires_at <= _BEFORE,
    )
)
LATE_CASES = Statement(
    _oldest(_CASES.expires_at).where(
        _CASES.is_open == literal_column("1", Integer), _CASES.expires_at <= _BEFORE
    )
)
LATE_CALLBACKS = Statement(_oldest(_B.due_at).where(_B.due_at <= _BEFORE))
FAILING = Statement(
    _oldest(_B.since).where(_B.due_at.is_not(None), _B.outcome == literal_column("'retry'", _B.outcome.type))
)
GAVE_UP = Statement(_oldest(_B.since).where(_B.outcome == literal_column("'gave_up'", _B.outcome.type)))
IN_DOUBT = Statement(_oldest(_T.lease_until).where(_LAPSED, _STARTED))
STALLED = Statement(_oldest(_T.lease_until).where(_LAPSED, ~_STARTED))
LATE_CLAIMS = Statement(
    _oldest(_P.claimed_until).where(
        _P.state == literal_column("'resolving'", _P.state.type), _P.claimed_until <= _BEFORE
    )
)


_IS_DUE, _IS_RUNNING, _IS_FAILED = (
    _G.state == literal_column(f"'{state}'", _G.state.type) for state in ("due", "running", "failed")
)
LATE_CONTINUATIONS = Statement(_oldest(_G.settled_at).where(_IS_DUE, _G.due_at <= _BEFORE))
LAPSED_CONTINUATIONS = Statement(_oldest(_G.due_at).where(_IS_RUNNING, _G.due_at <= _BEFORE))
FAILING_CONTINUATIONS = Statement(_oldest(_G.settled_at).where(_IS_FAILED, _G.due_at.is_not(None)))
FAILED_CONTINUATIONS = Statement(_oldest(_G.settled_at).where(_IS_FAILED, _G.due_at.is_(None)))


def _unresumed() -> Select[int, int | None]:
    """Threads without a lease whose run has not ended, and to which nothing was written since a person answered.

    Settling a request writes nothing to its thread. Unfinished runs have an index of their own, and a
    thread's requests are found by its id. So no row of a finished run is read.
    """
    open_still = requests.alias("open_still").c
    waiting = exists(
        select(literal_column("1", Integer)).where(
            open_still.thread_id == _T.thread_id,
            open_still.status == literal_column("'pending'", open_still.status.type),
        )
    )
    gone_on_by_a_worker = exists(
        select(literal_column("1", Integer)).where(
            _G.thread_id == _T.thread_id, _G.state != literal_column("'done'", _G.state.type)
        )
    )
    answered = (
        select(_REQUESTS.thread_id, func.min(_REQUESTS.settled_at).label("since"))
        .select_from(
            runs.join(threads, and_(_T.thread_id == _RUNS.thread_id, _T.run_id == _RUNS.run_id)).join(
                requests, _REQUESTS.thread_id == _RUNS.thread_id
            )
        )
        .where(
            _RUNS.ended_at.is_(None),
            _T.lease_owner.is_(None),
            _REQUESTS.status == literal_column("'answered'", _REQUESTS.status.type),
            _REQUESTS.settled_at >= _T.updated_at,
            _REQUESTS.settled_at <= _BEFORE,
            ~waiting,
            ~gone_on_by_a_worker,
        )
        .group_by(_REQUESTS.thread_id)
        .subquery("answered")
    )
    return _oldest(answered.c.since).select_from(answered)


UNRESUMED = Statement(_unresumed())
_SLOW = (LATE_CALLBACKS, UNRESUMED, LATE_CONTINUATIONS)
GRACE_MILLISECONDS = 60_000
"""How long work may be due before `askfirst doctor` and `askfirst deliveries` call it overdue."""


@dataclass(frozen=True, slots=True)
class Late:
    """The number of overdue items of one kind, and since when the oldest is overdue (milliseconds since 1970)."""

    count: int
    since: int | None


class Overdue(NamedTuple):
    """Overdue work, by kind."""

    requests: Late
    """Agents' open requests past their deadline."""
    cases: Late
    """Open cases past theirs."""
    callbacks: Late
    """Callbacks that nobody makes."""
    failing: Late
    """Callbacks that were tried and failed, and will be tried again."""
    gave_up: Late
    """Callbacks that failed for days and are tried no more."""
    in_doubt: Late
    """Threads whose worker is gone, and whose tool bodies may or may not have run."""
    stalled: Late
    """Threads whose worker is gone, and nothing is in doubt."""
    claims: Late
    """Checkpoints whose holder is gone."""
    unresumed: Late
    """Threads whose people have answered, and that nobody has gone on with since."""
    undone: Late
    """Continuations that are due, and that no worker takes."""
    lapsed: Late
    """Continuations whose worker is gone, and that no other takes over."""
    not_yet: Late
    """Continuations that failed, and will be tried again."""
    failed: Late
    """Continuations that failed too often, and are tried no more."""


def overdue(before: int, slow_before: int) -> Transaction[Overdue]:
    """The work that was due before these times. Callbacks and resuming get more time than the rest."""
    late: list[Late] = []
    for statement in (
        LATE_REQUESTS,
        LATE_CASES,
        LATE_CALLBACKS,
        FAILING,
        GAVE_UP,
        IN_DOUBT,
        STALLED,
        LATE_CLAIMS,
        UNRESUMED,
        LATE_CONTINUATIONS,
        LAPSED_CONTINUATIONS,
        FAILING_CONTINUATIONS,
        FAILED_CONTINUATIONS,
    ):
        params = {"before": slow_before if statement in _SLOW else before}
        rows = yield statement, params
        late.append(Late(*rows[0]))
    return Overdue(*late)
