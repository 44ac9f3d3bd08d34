"""PostgreSQL waiters where there is no connection to listen on: they look, until there is one again."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from kit.patience import PATIENCE
from kit.stores import Database, asked

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.store import postgres_engine, wakeups

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database", ["postgres"], indirect=True)]


def refuse_connections(monkeypatch: pytest.MonkeyPatch, checkpointer: SqlCheckpointer) -> asyncio.Event:
    """An open checkpointer keeps the connection it has, and gets another only once the event is set."""
    server: Any = checkpointer._store.engine._server  # type: ignore[attr-defined]
    connect, allowed = server._open, asyncio.Event()

    async def full() -> Any:
        if not allowed.is_set():
            raise asyncpg.TooManyConnectionsError("too many connections for role")
        return await connect()

    monkeypatch.setattr(server, "_open", full)
    return allowed


async def test_a_waiter_wakes_without_a_connection_to_listen_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.checkpointer() as here, database.checkpointer() as there, asyncio.timeout(PATIENCE):
        await asked(here)
        refuse_connections(monkeypatch, here)
        waiter = asyncio.create_task(here.settled("t", "call-1"))
        while not here._store.hub.keys:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await here.load("t")  # behind the waiter's own first look, on the one connection that there is
        await there.settle("t", "call-1", {"decision": "approve"})
        assert (await waiter).status == "answered"


async def test_a_waiter_wakes_while_the_listening_connection_hangs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection pooler takes the connection, and keeps its first statement waiting."""

    async def hangs(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(postgres_engine, "_listen", hangs)
    async with database.checkpointer() as here, database.checkpointer() as there, asyncio.timeout(PATIENCE):
        await asked(here)
        waiter = asyncio.create_task(here.settled("t", "call-1"))
        while not here._store.hub.keys:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await here.load("t")
        await there.settle("t", "call-1", {"decision": "approve"})
        assert (await waiter).status == "answered"


async def test_nobody_looks_any_more_once_there_is_a_connection_to_listen_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[wakeups.Hub] = []
    listening = asyncio.Event()
    wake_all = wakeups.Hub.wake_all

    async def counted(hub: wakeups.Hub, *args: Any, **options: Any) -> bool:
        looks.append(hub)
        return await wakeups.look_after(hub, *args, **options)

    def begun(self: wakeups.Hub) -> None:
        listening.set()
        wake_all(self)

    monkeypatch.setattr(postgres_engine, "LOOK_SECONDS", 0)
    monkeypatch.setattr(postgres_engine, "look_after", counted)
    monkeypatch.setattr(wakeups.Hub, "wake_all", begun)
    async with database.checkpointer() as here, database.checkpointer() as there, asyncio.timeout(PATIENCE):
        await asked(here)
        allowed = refuse_connections(monkeypatch, here)
        waiter = asyncio.create_task(here.settled("t", "call-1"))
        while len(looks) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        allowed.set()
        await listening.wait()
        before = len(looks)
        for _ in range(20):
            await here.load("t")
        await there.settle("t", "call-1", {"decision": "approve"})
        assert (await waiter).status == "answered"
        assert len(looks) == before
