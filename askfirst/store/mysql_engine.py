"""MySQL and MariaDB, by asyncmy. Waiters poll for answers, with back-off."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

import asyncmy
from asyncmy.constants.CLIENT import FOUND_ROWS
from asyncmy.cursors import Cursor
from sqlalchemy import text
from sqlalchemy.dialects.mysql.asyncmy import dialect as asyncmy_dialect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from askfirst.errors import StoreError
from askfirst.store import requests
from askfirst.store.server_engine import LOCK_SECONDS, STATEMENT_SECONDS, Fault, ServerEngine, watch_line
from askfirst.store.statement import Params, Statement, Transaction
from askfirst.store.wakeups import Hub, Key, look_after

POLL_SECONDS = 0.05, 0.5
_DIALECT = asyncmy_dialect()
_LOST = {1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
_BUSY = {1040, 1203}
_MIGRATING = "CONCAT('askfirst_', LEFT(SHA2(DATABASE(), 256), 32))"
_THERE_ALREADY = {1050, 1060, 1061, 1062}
_LOCKED = 1205
_AGAIN = {1020, 1062, _LOCKED, 1213}
_TABLE = re.compile(r"askfirst_\w+")
_OPTIONS = {"unix_socket"}
_STRICT = "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"


class _Cursor(Protocol):
    rowcount: int

    async def execute(self, query: str, args: Sequence[Any]) -> Any: ...
    async def executemany(self, query: str, args: Sequence[Sequence[Any]]) -> Any: ...
    async def fetchall(self) -> Sequence[tuple[Any, ...]]: ...


class _QuietCursor(Cursor):
    """Does not ask for the server's warnings: one more round trip, only to log them."""

    async def _show_warnings(self, conn: object) -> None:
        pass


class _Connection(Protocol):
    """As much of `asyncmy.Connection` as is used here."""

    def cursor(self) -> _Cursor: ...
    async def query(self, sql: str) -> Any: ...
    async def ensure_closed(self) -> None: ...
    def close(self) -> None: ...


PACKET = Statement(text("SELECT @@max_allowed_packet"), reads=True)


def largest_packet() -> Transaction[int]:
    """How many bytes the server takes in one statement."""
    rows = yield PACKET, {}
    return int(rows[0][0])


class MySQLSession:
    """One connection."""

    at_once = None
    """MySQL has no statement that writes to several tables."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def begin(self) -> None:
        """Sessions are READ COMMITTED, which is enough: each transaction begins with a compare-and-set."""
        await self._connection.query("START TRANSACTION")

    async def run(self, statement: Statement, params: Params) -> Any:
        """The rows that were read, or the number of rows that were changed."""
        sql, arguments, reads = statement.form(_DIALECT)
        cursor = self._connection.cursor()
        try:
            if isinstance(params, list):
                for each in params:
                    await cursor.execute(sql, arguments(each))
                return len(params)
            await cursor.execute(sql, arguments(cast("dict[str, Any]", params)))
        except asyncmy.MySQLError as error:
            if error.args and error.args[0] == _LOCKED:
                error.args = (_LOCKED, _locked(sql))
            raise
        return await cursor.fetchall() if reads else cursor.rowcount

    async def commit(self, wakes: Sequence[Key]) -> None:
        """Commit. Other processes notice by polling."""
        await self._connection.query("COMMIT")

    async def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        await self._connection.query("ROLLBACK")

    async def lock(self) -> None:
        """Take the migration's named lock (``GET_LOCK``, one for the server), with longer time-outs for tables."""
        await self._connection.query(f"SET {_patience(50)}")
        await self._connection.query(f"SELECT GET_LOCK({_MIGRATING}, 50)")

    async def unlock(self) -> None:
        """Release the migration lock."""
        await self._connection.query(f"SELECT RELEASE_LOCK({_MIGRATING})")
        await self._connection.query(f"SET {_patience(LOCK_SECONDS)}")

    async def run_all(self, statements: Sequence[str]) -> None:
        """Run the statements one by one (MySQL commits each); skip what an interrupted attempt has made already."""
        for sql in statements:
            try:
                await self._connection.query(sql)
            except asyncmy.MySQLError as error:
                if not error.args or error.args[0] not in _THERE_ALREADY:
                    raise

    async def close(self) -> None:
        """Close the connection in order."""
        await self._connection.ensure_closed()

    def drop(self) -> None:
        """Close the connection at once, without telling the server."""
        self._connection.close()


def _patience(seconds: int) -> str:
    """Set the time-outs of row locks and table locks."""
    return f"SESSION innodb_lock_wait_timeout = {seconds}, SESSION lock_wait_timeout = {seconds}"


def _locked(sql: str) -> str:
    table = _TABLE.search(sql)
    where = "what it needs" if table is None else f"{table[0]}, or a row of it,"
    return f"another session keeps {where} locked; SHOW ENGINE INNODB STATUS or SHOW PROCESSLIST names it"


class MySQLServer:
    """A database at ``mysql://user:password@host:port/name``."""

    name = "MySQL"
    dialect = "mysql"

    def __init__(self, dsn: str) -> None:
        try:
            url = make_url(dsn)
        except ArgumentError:
            raise StoreError("a MySQL address looks like mysql://user:password@host/name") from None
        if url.get_backend_name() not in ("mysql", "mariadb"):
            raise StoreError(f"{url.drivername}:// is not a MySQL address: use mysql://")
        if not url.database:
            raise StoreError("a MySQL address ends with the database's name: mysql://user:password@host/name")
        unknown = set(url.query) - _OPTIONS
        if unknown:
            raise StoreError(f"a MySQL address takes no {', '.join(sorted(unknown))}")
        self.where = f"{url.host or 'localhost'}:{url.port or 3306}/{url.database}"
        self._password = url.password
        self._options: dict[str, Any] = {
            "host": url.host or "127.0.0.1",
            "port": url.port or 3306,
            "user": url.username,
            "password": url.password or "",
            "database": url.database,
            **url.query,
        }

    async def connect(self) -> MySQLSession:
        """Open a connection."""
        return MySQLSession(await self._open())

    async def _open(self) -> _Connection:
        connect = cast(Any, asyncmy).connect
        connection = await connect(
            **self._options,
            charset="utf8mb4",
            autocommit=True,
            client_flag=FOUND_ROWS,  # an UPDATE counts what it matched, as everywhere else
            cursor_cls=_QuietCursor,
            connect_timeout=10,
            read_timeout=STATEMENT_SECONDS,
            sql_mode=f"{_STRICT}, {_patience(LOCK_SECONDS)}",  # goes into one SET
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )
        watch_line(connection)
        return connection

    def fault(self, error: BaseException) -> Fault:
        """What an error means."""
        if isinstance(error, OSError | TimeoutError | asyncmy.InterfaceError | EOFError):
            return Fault.LOST
        code = error.args[0] if isinstance(error, asyncmy.MySQLError) and error.args else None
        if code in _LOST:
            return Fault.LOST
        if code in _BUSY:
            return Fault.BUSY
        if code in _AGAIN:
            return Fault.AGAIN
        if code == 1146:
            return Fault.NO_TABLE
        return Fault.OTHER if isinstance(error, asyncmy.MySQLError) else Fault.FOREIGN

    def reason(self, error: BaseException) -> str:
        """The error in a line, without the password."""
        if isinstance(error, TimeoutError):
            return "no answer in time"
        said = " ".join(str(error.args[-1] if error.args else error).split()) or type(error).__name__
        return (
            said.replace(self._password, "***")
            if isinstance(self._password, str) and self._password
            else said
        )

    async def watch(self, engine: ServerEngine, hub: Hub) -> None:
        """Poll while somebody waits: often after a wake-up or a new waiter, then with back-off."""
        shortest, longest = POLL_SECONDS
        pause = shortest

        async def still_open(keys: list[Key]) -> dict[Key, int]:
            return await engine.read(lambda: requests.still_open(keys))

        while hub.keys:
            hub.arrived.clear()
            with suppress(StoreError):  # who waits finds out for themselves
                woken = await look_after(hub, still_open, batch=requests.WATCHED)
                pause = shortest if woken else min(pause * 1.5, longest)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await hub.arrived.wait()
                    pause = shortest
