"""Lines that are dead without a sign: a NAT forgot them, and what is sent on them vanishes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from kit.stores import SERVERS, Database, asked

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.store import postgres_engine, server_engine

pytestmark = pytest.mark.anyio
on_servers = pytest.mark.parametrize("database", SERVERS, indirect=True)
GUARD = 40
"""Seconds after which a wake-up has plainly not come: fewer than a statement may take, which is no success."""
YES = {"decision": "approve"}


class Nat:
    """Between a client and a server; it can forget all lines that there are."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._lines: list[asyncio.StreamWriter] = []
        self._pipes: set[asyncio.Task[None]] = set()
        self._alive = asyncio.Event()

    def forget(self) -> None:
        """From now on nothing arrives any more on the lines of before."""
        self._alive.set()
        self._alive = asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what a client sends, and what it is sent."""
        there, back = await asyncio.open_connection(*self._to)
        self._lines += writer, back
        forgotten = self._alive
        for one, other in ((reader, back), (there, writer)):
            self._pipes.add(asyncio.ensure_future(self._pipe(one, other, forgotten)))

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forgotten: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if not forgotten.is_set():
                writer.write(data)
        if not forgotten.is_set():
            writer.close()

    async def close(self) -> None:
        """Hang up."""
        for line in self._lines:
            line.close()
        for pipe in self._pipes:
            pipe.cancel()
        if self._pipes:
            await asyncio.wait(self._pipes)


@asynccontextmanager
async def behind_nat(database: Database) -> AsyncIterator[tuple[Nat, Database]]:
    url = urlsplit(database.address)
    nat = Nat(url.hostname or "127.0.0.1", url.port or 0)
    async with await asyncio.start_server(nat.take, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        user = url.netloc.rpartition("@")[0]
        address = url._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()
        yield nat, Database(database.kind, address)
        await nat.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_engine, "LISTENER_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(postgres_engine, "LISTENER_SECONDS", 0.5, raising=False)
    monkeypatch.setattr(server_engine, "READ_SECONDS", 0.5, raising=False)


async def waits(checkpointer: SqlCheckpointer, thread_id: str) -> None:
    """Until somebody waits for a request, and has been woken by the watcher's first look."""
    while not checkpointer._store.hub.keys:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for _ in range(5):
        await checkpointer.load(thread_id)
    await at_rest(checkpointer)


async def at_rest(checkpointer: SqlCheckpointer) -> None:
    """Until nothing is under way: what is on its way when a line dies takes as long as a statement may."""
    engine: Any = checkpointer._store.engine
    quiet = 0
    while quiet < 20:
        quiet = 0 if engine._jobs else quiet + 1
        await asyncio.sleep(0.005)


@on_servers
async def test_a_waiter_wakes(database: Database) -> None:
    async with (
        database.checkpointer() as there,
        behind_nat(database) as (nat, behind),
        behind.checkpointer() as here,
        asyncio.timeout(GUARD),
    ):
        await asked(here)
        waiter = asyncio.create_task(here.settled("t", "call-1"))
        await waits(here, "t")
        nat.forget()
        await there.settle("t", "call-1", YES)
        assert (await waiter).status == "answered"


@on_servers
async def test_one_reads_and_answers_on_another_line(database: Database) -> None:
    async with behind_nat(database) as (nat, behind), behind.checkpointer() as here, asyncio.timeout(GUARD):
        await asked(here)
        await at_rest(here)
        nat.forget()
        assert await here.load("t") is not None
        nat.forget()
        assert (await here.settle("t", "call-1", YES, by="ann")).answered_by == "ann"
        nat.forget()
        assert await here.pending() == []


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_idle_connections_are_not_used_once_the_listener_is_lost(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_engine, "READ_SECONDS", 60.0)
    async with (
        database.checkpointer() as there,
        behind_nat(database) as (nat, behind),
        behind.checkpointer() as here,
        asyncio.timeout(GUARD),
    ):
        await asked(here)
        waiter = asyncio.create_task(here.settled("t", "call-1"))
        await waits(here, "t")
        nat.forget()
        await there.settle("t", "call-1", YES)
        assert (await waiter).status == "answered"


@on_servers
async def test_the_system_probes_idle_lines(database: Database) -> None:
    async with database.checkpointer() as checkpointer:
        session: Any = checkpointer._store.engine._idle[0]  # type: ignore[attr-defined]
        line = session._connection._transport.get_extra_info("socket")
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT"):
            if hasattr(socket, name):
                expected = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}.get(name, 10_000)
                assert line.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == expected
