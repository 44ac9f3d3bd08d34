"""Databases for the tests of one framework: files, and those of a PostgreSQL server."""

from __future__ import annotations

import asyncio
import atexit
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import asyncpg
import pytest

from askfirst.checkpointer.connect import checkpointer_from_url
from kit.database_servers import Missing, find_or_start_postgres
from kit.debian_packages import in_ci

KINDS = ("sqlite", "postgres")


@contextmanager
def new_store(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database, removed afterwards. Without a server the test is skipped, or fails in CI."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/askfirst.db"
        return
    name = f"askfirst_test_{secrets.token_hex(4)}"
    asyncio.run(_on_server(_server(), f"CREATE DATABASE {name} TEMPLATE {_template()}"))
    try:
        yield _url(name)
    finally:
        asyncio.run(_on_server(_server(), f"DROP DATABASE {name} WITH (FORCE)"))


@cache
def _template() -> str:
    """A template database with our tables: copying it is quicker than making the tables each time."""
    name = f"askfirst_test_{secrets.token_hex(4)}_new"
    asyncio.run(_on_server(_server(), f"CREATE DATABASE {name}"))
    asyncio.run(_make_tables(_url(name)))
    atexit.register(lambda: asyncio.run(_on_server(_server(), f"DROP DATABASE {name} WITH (FORCE)")))
    return name


async def _make_tables(url: str) -> None:
    async with checkpointer_from_url(url):
        pass


@cache
def _server() -> str:
    """The address of a server: one that was found, or one that is started and removed afterwards."""
    found = find_or_start_postgres()
    if isinstance(found, Missing):
        give_up = pytest.fail if in_ci() else pytest.skip
        raise give_up.Exception(str(found))
    atexit.register(found.close)
    return found.dsn


def _url(name: str) -> str:
    return f"{_server().rpartition('/')[0]}/{name}"


async def _on_server(server: str, statement: str) -> None:
    connection = await asyncpg.connect(server)
    await connection.execute(statement)
    await connection.close()
