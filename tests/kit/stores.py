"""The stores of the conformance suite, each with a new database for this run.

Fixtures (through conftest.py): `database`, an empty database on each store in turn, made by `databases`, and
`checkpointer`, opened on it. They fail a test that leaves a connection, a thread or a task behind.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import pytest

from askfirst.checkpointer.base import RunRecord, Step, StoredEffect
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.mysql import MySQLCheckpointer
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.messages import AssistantMessage, Message, ToolCall, ToolResultMessage, UserMessage
from askfirst.requests import ApproveRequest, ConfirmRequest, HitlRequest
from kit.debian_packages import in_ci
from kit.patience import PATIENCE
from kit.throwaway_servers import mysql_login, run_coroutine

STORES = ("memory", "sqlite", "postgres", "mysql")
"""All stores. The one in memory is SQLite, too: it is only for the conformance suite and for proofs."""
SHARED = STORES[1:]
"""The stores that several processes can open."""
SERVERS = STORES[2:]
TABLES = (
    *("effects", "requests", "messages", "runs", "threads", "checkpoints", "permissions", "data_keys"),
    "continuations",
    "deliveries",
    "listeners",
    *(
        "cases",
        "case_tokens",
        "case_events",
        "callbacks",
        "email_codes",
        "polls",
        "usage",
        "counts",
        "streams",
        "failed_notices",
        "keys",
        "acts",
        "audit",
        "audit_head",
    ),
)
DEFAULTS = {
    "postgres": "postgresql://postgres@127.0.0.1:5432/test",
    "mysql": "mysql://root@127.0.0.1:3306/test",
}
KINDS: dict[str, Callable[..., SqlCheckpointer]] = {
    "sqlite": SQLiteCheckpointer,
    "postgres": PostgresCheckpointer,
    "mysql": MySQLCheckpointer,
}


@dataclass(frozen=True)
class Database:
    """An empty database. ``kind`` and ``address`` are all that another process needs to open it."""

    kind: str
    address: str

    def checkpointer(self, **options: Any) -> SqlCheckpointer:
        """A checkpointer on this database, not yet open."""
        return connect(self.kind, self.address, **options)


def connect(kind: str, address: str, **options: Any) -> SqlCheckpointer:
    """A checkpointer for a `Database`'s kind and address."""
    if kind == "memory":
        return MemoryCheckpointer(**options)
    return KINDS[kind](address, **options)


# Databases on the servers.


class Unreachable(Exception):
    """The test server cannot be reached."""


async def on_server(kind: str, *statements: str, database: str | None = None) -> list[Any]:
    """Run statements on the test server, by default in its own test database; returns the last one's rows."""
    dsn, rows = server_address(kind, database), []
    if kind == "postgres":
        connection = await asyncpg.connect(dsn, timeout=PATIENCE)
        try:
            *first, last = statements
            if first:
                await connection.execute(";".join(first))  # in one message
            rows = await connection.fetch(last)
        finally:
            await connection.close()
        return rows
    connection = await asyncmy.connect(**mysql_login(dsn), autocommit=True, connect_timeout=PATIENCE)
    try:
        async with connection.cursor() as cursor:
            for statement in statements:
                await cursor.execute(statement)
                rows = list(await cursor.fetchall() or ())
    finally:
        await connection.ensure_closed()
    return rows


def server_address(kind: str, database: str | None = None) -> str:
    """The address of the test server, or of a database there."""
    dsn = os.environ.get(f"ASKFIRST_TEST_{kind.upper()}") or DEFAULTS[kind]
    return dsn if database is None else urlsplit(dsn)._replace(path=f"/{database}").geturl()


class Fresh:
    """Makes one database per server and run, at its first use, and removes it at the end.

    For SQLite it makes a file of which each test gets a copy, because making the tables takes longer than most tests.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, str] = {}
        self._missing: dict[str, str] = {}

    def copy(self, path: Path) -> None:
        """Copy a SQLite database with tables and without rows to this path."""
        made = self._folder / "made.db"
        if not made.exists():
            run_coroutine(_open_and_close("sqlite", str(made)))
            assert [each.name for each in self._folder.iterdir()] == [made.name]  # all of it is in that file
        shutil.copy(made, path)  # with its rights

    def address(self, kind: str) -> str:
        """The database's address; skips the test, or fails it in CI, if the server cannot be reached."""
        if kind not in self._names and kind not in self._missing:
            name = f"askfirst_test_{secrets.token_hex(4)}"
            try:
                run_coroutine(on_server(kind, f"CREATE DATABASE {name}"))
                self._names[kind] = name
            except Exception as error:
                self._missing[kind] = f"no {kind} at {server_address(kind).rpartition('@')[2]}: {error}"
            else:
                run_coroutine(_open_and_close(kind, server_address(kind, name)))
        if kind in self._missing:
            raise (pytest.fail if in_ci() else pytest.skip).Exception(self._missing[kind])
        return server_address(kind, self._names[kind])

    def remove(self) -> None:
        """Drop the databases that were made."""
        for kind, name in self._names.items():
            force = " WITH (FORCE)" if kind == "postgres" else ""
            run_coroutine(on_server(kind, f"DROP DATABASE {name}{force}"))


@pytest.fixture(scope="session")
def fresh_databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    fresh = Fresh(tmp_path_factory.mktemp("fresh"))
    yield fresh
    fresh.remove()


def databases(*kinds: str) -> Any:
    """A fixture ``database``: an empty database on each of these stores in turn.

    Folders and files that need other stores define the fixture again; a single test parametrizes it indirectly.
    """

    @pytest.fixture(params=kinds)
    def database(
        request: pytest.FixtureRequest, tmp_path: Path, fresh_databases: Fresh
    ) -> Iterator[Database]:
        kind = request.param
        if kind in SERVERS:
            address = fresh_databases.address(kind)
            run_coroutine(empty(kind, address))
        else:
            address = str(tmp_path / "threads.db")
            if kind == "sqlite":
                fresh_databases.copy(tmp_path / "threads.db")
        yield Database(kind, address)
        check_threads()
        if kind in SERVERS:
            run_coroutine(check_connections(kind, address))

    return database


@pytest.fixture
async def checkpointer(database: Database) -> AsyncIterator[SqlCheckpointer]:
    """An open checkpointer on an empty database."""
    before = asyncio.all_tasks()
    async with database.checkpointer() as opened:
        yield opened
    left = [task for task in asyncio.all_tasks() - before if "/askfirst/" in str(task.get_coro())]
    assert not left, f"tasks left behind: {left}"


async def _open_and_close(kind: str, address: str) -> None:
    """Make the tables, by opening the database once."""
    async with connect(kind, address):
        pass


async def empty(kind: str, address: str) -> None:
    """Delete all rows."""
    name = urlsplit(address).path.lstrip("/")
    deletions = [f"DELETE FROM askfirst_{table}" for table in TABLES]  # noqa: S608
    await on_server(kind, *deletions, database=name)


def check_threads() -> None:
    """Assert that no worker thread outlives its checkpointer."""
    for thread in threading.enumerate():
        if thread.name.startswith("askfirst-"):
            thread.join(timeout=PATIENCE)
            assert not thread.is_alive(), f"thread left behind: {thread.name}"


async def check_connections(kind: str, address: str) -> None:
    """Assert that no connection outlives its checkpointer; the server may need a moment to notice the end."""
    name = urlsplit(address).path.lstrip("/")
    count = {
        "postgres": f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'",  # noqa: S608
        "mysql": f"SELECT count(*) FROM information_schema.processlist WHERE db = '{name}'",  # noqa: S608
    }
    async with asyncio.timeout(PATIENCE):
        while (await on_server(kind, count[kind]))[0][0]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# What the tests write.

CALL = ToolCall("call-1", "send", {"to": "a@example.org"})
RUN = "run-1"


def prompt(text: str = "Hello", *, run_id: str = RUN, **fields: Any) -> Step:
    """A step that begins a run."""
    return Step(run_id, [UserMessage(text)], run=RunRecord("agent"), **fields)


def said(*messages: Message, run_id: str = RUN, **fields: Any) -> Step:
    """A step that appends messages."""
    return Step(run_id, messages, **fields)


def approval(
    question_id: str = "call-1",
    created_at: float = 1_700_000_000.0,
    details: dict[str, Any] | None = None,
    **fields: Any,
) -> HitlRequest:
    """A request to approve a call."""
    payload = ApproveRequest(
        tool_name="send", tool_call_id=question_id, args={"n": 1}, digest="d" * 64, details=details
    )
    return HitlRequest(question_id=question_id, payload=payload, created_at=created_at, **fields)


def confirmation(question_id: str, created_at: float = 1_700_000_000.0, **fields: Any) -> HitlRequest:
    """A yes-or-no request."""
    payload = ConfirmRequest(prompt="Sure?")
    return HitlRequest(question_id=question_id, payload=payload, created_at=created_at, **fields)


def effect(tool_call_id: str = "call-1", attempt: int = 1) -> StoredEffect:
    """An effect about to begin."""
    return StoredEffect(tool_call_id, "send", "d" * 64, "once", attempt)


async def asked(
    checkpointer: SqlCheckpointer, thread_id: str = "t", *requests: HitlRequest
) -> tuple[int, list[HitlRequest]]:
    """Make a thread that waits for a person, without a lease; returns its fence and the request."""
    opened = list(requests) or [approval()]
    fence = await checkpointer.commit(thread_id, prompt(), fence=0, acquire=True)
    step = said(AssistantMessage(CALL), opened=opened, release=True)
    return await checkpointer.commit(thread_id, step, fence=fence), opened


async def whole_cycle(checkpointer: SqlCheckpointer, thread_id: str) -> int:
    """The six commits of an approve cycle."""
    fence, _ = await asked(checkpointer, thread_id)
    await checkpointer.settle(thread_id, "call-1", {"decision": "approve"}, by="ann", via="test")
    fence = await checkpointer.commit(thread_id, said(started=[effect()]), fence=fence, acquire=True)
    result = said(ToolResultMessage("call-1", "send", "sent"), ended=["call-1"])
    fence = await checkpointer.commit(thread_id, result, fence=fence)
    end = said(AssistantMessage("Done."), run=RunRecord("agent", "completed", 2), release=True)
    return await checkpointer.commit(thread_id, end, fence=fence)
