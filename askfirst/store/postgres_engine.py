"""PostgreSQL, by asyncpg: waiters are woken by LISTEN and NOTIFY; short transactions are one statement."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Protocol, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from askfirst.errors import StoreError
from askfirst.store import requests
from askfirst.store.server_engine import LOCK_SECONDS, STATEMENT_SECONDS, Fault, ServerEngine, watch_line
from askfirst.store.statement import Foreseen, Params, Statement
from askfirst.store.wakeups import Hub, Key, look_after

# A transaction's statements as one, where PostgreSQL lets a query have parts that write.


CHANNEL = "askfirst_settled"
UNFORESEEN = "22012"
"""The error that rolls everything back if a part changed no row, or several: a division by zero."""

_PARAMETER = re.compile(r"\$(\d+)")


@lru_cache(256)
def joined(parts: tuple[str, ...], wakes: int) -> str:
    """One statement of several that each change one row (a CTE).

    It fails unless each of them does, and sends the NOTIFYs.

    Its parameters are those of the parts, one after another, then those of the notifications. All parts see the
    tables as they were before the statement; none sees another's changes.
    """
    named: list[str] = []
    count = 0
    for number, sql in enumerate(parts):
        named.append(f"p{number} AS ({_moved(sql, count)} RETURNING 1)")
        count += max((int(found) for found in _PARAMETER.findall(sql)), default=0)
    each = " AND ".join(f"(SELECT count(*) FROM p{number}) = 1" for number in range(len(parts)))  # noqa: S608
    told = _columns([f"pg_notify('{CHANNEL}', ${count + number + 1}::text)" for number in range(wakes)])
    # The remark is for whoever finds the error in the server's log.
    return f"WITH {', '.join(named)} SELECT 1 / CASE WHEN {each} THEN 1 ELSE 0 /* undo all */ END{told}"


def _moved(sql: str, by: int) -> str:
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", sql)


def _columns(more: Sequence[str]) -> str:
    return "".join(f", {each}" for each in more)


LISTENER_CHECK_SECONDS = 3.0
LISTENER_SECONDS = 5.0
"""How long the server may take to answer the listener."""
LOOK_SECONDS = 1.0
"""How often requests that are waited for are polled while there is no connection for LISTEN."""
_DIALECT = asyncpg_dialect()
_LOST = ("08", "57P01", "57P02")
_BUSY = ("57P03", "53300")
# asyncpg's internal error is what a statement gets that meets the server's goodbye.
_BROKEN = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_MIGRATING = 7286889413
_OUTDATED = ("0A000", "26000")
"""The error of a prepared statement whose tables have changed, or that the server has discarded."""
_AT_ONCE = 12
_LOCKED = "55P03"
_AGAIN = ("40001", "40P01", "23505", _LOCKED, *_OUTDATED)


class _Prepared(Protocol):
    """As much of `asyncpg.prepared_stmt.PreparedStatement` as is used here."""

    async def fetch(self, *args: Any, timeout: float | None = None) -> list[tuple[Any, ...]]: ...
    async def executemany(self, args: list[tuple[Any, ...]]) -> None: ...
    def get_statusmsg(self) -> str: ...


class _Connection(Protocol):
    """As much of `asyncpg.Connection` as is used here."""

    async def execute(self, query: str, *, timeout: float | None = None) -> str: ...
    async def prepare(self, query: str, *, timeout: float) -> _Prepared: ...
    async def add_listener(self, channel: str, callback: Any) -> None: ...
    def add_termination_listener(self, callback: Any) -> None: ...
    async def close(self, *, timeout: float) -> None: ...
    def terminate(self) -> None: ...


class PostgresSession:
    """One connection. It is dropped if a transaction takes too long, for whatever reason."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._prepared: dict[str, _Prepared] = {}
        self._deadline: asyncio.TimerHandle | None = None

    async def begin(self) -> None:
        """READ COMMITTED is enough: each transaction begins with a compare-and-set."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(STATEMENT_SECONDS, self._connection.terminate)
        await self._connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")

    async def run(self, statement: Statement, params: Params) -> Any:
        """The rows that were read, or the number of rows that were changed."""
        sql, arguments, reads = statement.form(_DIALECT)
        prepared = await self._statement(sql)
        try:
            if isinstance(params, list):
                await prepared.executemany([arguments(each) for each in params])
                return len(params)
            rows = await prepared.fetch(
                *arguments(cast("dict[str, Any]", params)),
                timeout=STATEMENT_SECONDS if self._deadline is None else None,
            )
        except asyncpg.PostgresError as error:
            self._outdated(error)
            raise
        return rows if reads else int(prepared.get_statusmsg().rpartition(" ")[2])

    async def at_once(self, foreseen: Foreseen) -> bool:
        """One statement is one transaction, and takes one round trip instead of three and more."""
        if len(foreseen.parts) > _AT_ONCE:  # the server keeps a statement for each number of parts
            return False
        sql, values = as_one(foreseen)
        prepared = await self._statement(sql)
        try:
            await prepared.fetch(*values, timeout=STATEMENT_SECONDS)
        except asyncpg.PostgresError as error:
            if getattr(error, "sqlstate", None) == UNFORESEEN:
                return False
            self._outdated(error)
            raise
        return True

    async def _statement(self, sql: str) -> _Prepared:
        prepared = self._prepared.get(sql)
        if prepared is None:
            prepared = self._prepared[sql] = await self._connection.prepare(sql, timeout=STATEMENT_SECONDS)
        return prepared

    def _outdated(self, error: Exception) -> None:
        if getattr(error, "sqlstate", None) in _OUTDATED:
            self._prepared.clear()

    async def commit(self, wakes: Sequence[Key]) -> None:
        """Commit, and send the notifications (NOTIFY) in the same round trip."""
        notify = "".join(f"NOTIFY {CHANNEL}, '{_payload(key)}'; " for key in wakes)
        await self._connection.execute(f"{notify}COMMIT")
        self._done()

    async def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        if self._deadline is not None:
            await self._execute("ROLLBACK")
            self._done()

    def _done(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    async def set_patience(self, seconds: int) -> None:
        """Set ``lock_timeout`` (0: no limit) by a statement, because poolers refuse it as a connection option."""
        await self._execute(f"SET lock_timeout = '{seconds}s'")

    async def lock(self) -> None:
        """Take the migration's advisory lock, without a lock time-out."""
        await self.set_patience(0)
        await self._execute(f"SELECT pg_advisory_lock({_MIGRATING})")

    async def unlock(self) -> None:
        """Release the migration lock."""
        await self._execute(f"SELECT pg_advisory_unlock({_MIGRATING})")
        await self.set_patience(LOCK_SECONDS)

    async def run_all(self, statements: Sequence[str]) -> None:
        """Run the statements in one transaction."""
        await self._execute("; ".join(("BEGIN", *statements, "COMMIT")))

    async def _execute(self, sql: str) -> None:
        await self._connection.execute(sql, timeout=STATEMENT_SECONDS)

    async def close(self) -> None:
        """Close the connection in order."""
        await self._connection.close(timeout=5)

    def drop(self) -> None:
        """Close the connection at once, without telling the server."""
        self._done()
        self._connection.terminate()


def as_one(foreseen: Foreseen) -> tuple[str, list[Any]]:
    """A transaction as one statement, and its parameters."""
    forms = [(statement.form(_DIALECT), row) for statement, row in foreseen.parts]
    sql = joined(tuple([form.sql for form, _ in forms]), len(foreseen.wakes))
    values = [value for form, row in forms for value in form.arguments(row)]
    return sql, [*values, *map(_told, foreseen.wakes)]


def _told(key: Key) -> str:
    return json.dumps(key)  # ASCII, at most 6 KB for the longest ids; NOTIFY takes 8


def _payload(key: Key) -> str:
    return _told(key).replace("'", "''")


class PostgresServer:
    """A database at ``postgresql://user:password@host:port/name``."""

    name = "PostgreSQL"
    dialect = "postgresql"

    def __init__(self, dsn: str) -> None:
        try:
            url = make_url(dsn)
        except ArgumentError:
            raise StoreError("a PostgreSQL address looks like postgresql://user:password@host/name") from None
        if url.get_backend_name() not in ("postgresql", "postgres"):
            raise StoreError(f"{url.drivername}:// is not a PostgreSQL address: use postgresql://")
        self._password = url.password
        self.where = f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"
        self._dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)

    async def connect(self) -> PostgresSession:
        """Open a connection."""
        session = PostgresSession(await self._open())
        try:
            await session.set_patience(LOCK_SECONDS)
        except BaseException:
            session.drop()
            raise
        return session

    async def _open(self) -> _Connection:
        connect = cast(Any, asyncpg).connect
        connection = await connect(
            self._dsn,
            timeout=10,
            server_settings={"application_name": "askfirst", "standard_conforming_strings": "on"},
        )
        watch_line(connection)
        return connection

    def fault(self, error: BaseException) -> Fault:
        """What an error means."""
        state: str = getattr(error, "sqlstate", None) or ""
        if state.startswith(_LOST) or isinstance(error, _BROKEN):
            return Fault.LOST
        if state in _BUSY:
            return Fault.BUSY
        if state in _AGAIN:
            return Fault.AGAIN
        if state == "42P01":
            return Fault.NO_TABLE
        return Fault.OTHER if isinstance(error, asyncpg.PostgresError) else Fault.FOREIGN

    def reason(self, error: BaseException) -> str:
        """The error in a line, without the password."""
        if isinstance(error, TimeoutError):
            return "no answer in time"
        if getattr(error, "sqlstate", None) == _LOCKED:
            where = getattr(error, "context", None) or "or a table"  # it names the row's
            return f"another session keeps a row locked, {where}; pg_stat_activity names it"
        said = " ".join(str(error).split()) or type(error).__name__
        return (
            said.replace(self._password, "***")
            if isinstance(self._password, str) and self._password
            else said
        )

    async def watch(self, engine: ServerEngine, hub: Hub) -> None:
        """LISTEN on a connection of its own; while none can be had, poll instead."""
        away = asyncio.Event()
        away.set()
        looking = asyncio.ensure_future(_look(engine, hub, away))
        try:
            await self._keep_listening(engine, hub, away)
        finally:
            looking.cancel()
            await asyncio.wait({looking})

    async def _keep_listening(self, engine: ServerEngine, hub: Hub, away: asyncio.Event) -> None:
        wait = 0.0
        while True:
            with suppress(Exception):
                connection = await self._open()
                try:
                    with suppress(Exception):
                        await _listen(connection, hub, away)
                    if not away.is_set():  # it was there, and is lost
                        wait = 0.0
                        engine.drop_idle()
                except asyncio.CancelledError:
                    with suppress(Exception):
                        await connection.close(timeout=5)
                    raise
                finally:
                    away.set()
                    connection.terminate()
            await asyncio.sleep(wait)
            wait = min(wait + 0.1, 1.0)


async def _look(engine: ServerEngine, hub: Hub, away: asyncio.Event) -> None:
    """While there is no listener, poll the table for the requests that are waited for."""

    async def still_open(keys: list[Key]) -> dict[Key, int]:
        return await engine.read(lambda: requests.still_open(keys))

    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await away.wait()
        with suppress(StoreError):  # who waits finds out for themselves
            await look_after(hub, still_open, batch=requests.WATCHED)


async def _listen(connection: _Connection, hub: Hub, away: asyncio.Event) -> None:
    """Pass notifications on until the connection is lost."""
    lost = asyncio.Event()

    def heard(_connection: object, _pid: int, _channel: str, payload: str) -> None:
        thread_id, question_id = json.loads(payload)
        hub.wake([(thread_id, question_id)])

    def ended(_connection: object) -> None:
        lost.set()

    connection.add_termination_listener(ended)
    async with asyncio.timeout(LISTENER_SECONDS):
        await connection.add_listener(CHANNEL, heard)
    away.clear()
    hub.wake_all()
    while not lost.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(LISTENER_CHECK_SECONDS):
                await lost.wait()
                return
        # Without a query now and then, a silently dead connection would not be noticed.
        await connection.execute("SELECT 1", timeout=LISTENER_SECONDS)
