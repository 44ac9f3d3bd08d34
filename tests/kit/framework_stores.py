"""Databases for the tests of one framework: files, and those of a PostgreSQL server."""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from askfirst.checkpointer.connect import checkpointer_from_url

SERVER = os.environ.get("ASKFIRST_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
KINDS = ("sqlite", "postgres")


@contextmanager
def new_store(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database, which is gone afterwards. Skips the test if no server answers, unless in CI."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/askfirst.db"
        return
    name = f"askfirst_test_{secrets.token_hex(4)}"
    asyncio.run(_on_server(f"CREATE DATABASE {name} TEMPLATE {_template()}"))
    try:
        yield _url(name)
    finally:
        asyncio.run(_on_server(f"DROP DATABASE {name} WITH (FORCE)"))


@cache
def _template() -> str:
    """A database that has our tables, to copy: that is quicker than to make the tables each time."""
    name = f"askfirst_test_{secrets.token_hex(4)}_new"
    asyncio.run(_on_server(f"CREATE DATABASE {name}"))
    asyncio.run(_make_tables(_url(name)))
    atexit.register(lambda: asyncio.run(_on_server(f"DROP DATABASE {name} WITH (FORCE)")))
    return name


async def _make_tables(url: str) -> None:
    async with checkpointer_from_url(url):
        pass


def _url(name: str) -> str:
    return f"{SERVER.rpartition('/')[0]}/{name}"


async def _on_server(statement: str) -> None:
    import asyncpg

    try:
        connection = await asyncpg.connect(SERVER)
    except (OSError, asyncpg.PostgresError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no PostgreSQL server answers: {error}")
    await connection.execute(statement)
    await connection.close()
