"""Looking at a database without changing it: opening it for work would bring its schema up to date."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import text

from assent.errors import StoreError
from assent.store.schema import VERSION
from assent.store.server_engine import Fault, Server
from assent.store.statement import Statement

_SQLITE_SECONDS = 5.0
_CLOCKS = {
    "postgresql": "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
}
CLOCK = Statement(lambda dialect: text(_CLOCKS[dialect]), reads=True)


class Look(NamedTuple):
    """What is there: the schema's revision, None if there is none yet, and how far its clock is ahead of ours.

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
        from assent.store.postgres_engine import PostgresServer

        return await _look_at(PostgresServer(f"postgresql://{rest}"))
    from assent.store.mysql_engine import MySQLServer

    return await _look_at(MySQLServer(f"mysql://{rest}"))


async def _look_at(server: Server) -> Look:
    try:
        session = await server.connect()
        try:
            before = time.time()
            clock = (await session.run(CLOCK, {}))[0][0]
            here = (before + time.time()) / 2
            try:
                rows: list[Any] = await session.run(VERSION, {})
            except Exception as error:
                if server.fault(error) is not Fault.NO_TABLE:
                    raise
                rows = []
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
            rows = connection.execute("SELECT version_num FROM assent_alembic_version").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        if "no such table" in str(error):
            return None
        raise StoreError(f"the SQLite database {path!r} cannot be read: {error}") from error
    return rows[0][0] if rows else None
