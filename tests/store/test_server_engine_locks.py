"""Rows that another program keeps locked: who waits for one is told in the end, and leases are renewed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncmy
import asyncpg
import pytest
from kit.stores import SERVERS, Database, asked, prompt, said
from kit.throwaway_servers import mysql_login

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import StoreError
from askfirst.hitl.testing import FakeClock
from askfirst.messages import AssistantMessage
from askfirst.store import mysql_engine, postgres_engine, server_engine

pytestmark = pytest.mark.anyio
GUARD = 40
"""Seconds after which something plainly hangs: fewer than MariaDB itself waits for a lock, which is no success."""
YES = {"decision": "approve"}


def locked(database: Database, table: str, *thread_ids: str) -> AbstractAsyncContextManager[None]:
    """Another program has locked these threads' rows of a table."""
    listed = ", ".join(f"'{thread_id}'" for thread_id in thread_ids)
    query = f"SELECT thread_id FROM askfirst_{table} WHERE thread_id IN ({listed}) FOR UPDATE"  # noqa: S608
    return between(database, "BEGIN", query, "ROLLBACK")


def locked_table(database: Database) -> AbstractAsyncContextManager[None]:
    """Another program has locked all requests, for whoever reads them too."""
    if database.kind == "postgres":
        return between(database, "BEGIN", "LOCK TABLE askfirst_requests", "ROLLBACK")
    return between(database, "LOCK TABLES askfirst_requests WRITE", "UNLOCK TABLES")


@asynccontextmanager
async def between(database: Database, *queries: str) -> AsyncIterator[None]:
    """Another program has run all of these but the last one."""
    connection: Any
    if database.kind == "postgres":
        connection = await asyncpg.connect(database.address)
        close, run = connection.close, connection.execute
    else:
        connection = await asyncmy.connect(**mysql_login(database.address))
        close, run = connection.ensure_closed, connection.query
    try:
        for query in queries[:-1]:
            await run(query)
        yield
        await run(queries[-1])
    finally:
        await close()


async def lease_until(checkpointer: SqlCheckpointer, thread_id: str) -> float:
    thread = await checkpointer.load(thread_id)
    assert thread is not None
    return thread.lease_until


async def renew(checkpointer: SqlCheckpointer) -> None:
    await checkpointer._leases._renew(checkpointer._store)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in (mysql_engine, postgres_engine):
        monkeypatch.setattr(engine, "LOCK_SECONDS", 1, raising=False)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_row_that_stays_locked_is_given_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_engine, "CONFLICT_SECONDS", 0.0, raising=False)
    async with database.checkpointer() as checkpointer:
        await asked(checkpointer)
        async with asyncio.timeout(GUARD), locked(database, "requests", "t"):
            with pytest.raises(StoreError, match=r"given up after .* s and 1 attempts: .*askfirst_requests"):
                await checkpointer.settle("t", "call-1", YES)
        assert (await checkpointer.settle("t", "call-1", YES)).status == "answered"


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_table_that_stays_locked_is_given_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_engine, "CONFLICT_SECONDS", 0.0, raising=False)
    async with database.checkpointer() as checkpointer:
        await asked(checkpointer)
        async with asyncio.timeout(GUARD), locked_table(database):
            with pytest.raises(StoreError, match=r"given up after .* s and 1 attempts: another session"):
                await checkpointer.settle("t", "call-1", YES)
            with pytest.raises(StoreError, match=r"given up after .* s and 1 attempts: another session"):
                await checkpointer.load("t")
        assert (await checkpointer.settle("t", "call-1", YES)).status == "answered"


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_row_that_is_let_go_in_time_is_waited_for(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    conflict = asyncio.Event()
    after = server_engine.Patience.after

    async def noted(self: server_engine.Patience, error: BaseException, fault: server_engine.Fault) -> None:
        conflict.set()
        await after(self, error, fault)

    monkeypatch.setattr(server_engine.Patience, "after", noted)
    async with database.checkpointer() as checkpointer, asyncio.timeout(GUARD):
        await asked(checkpointer)
        async with locked(database, "requests", "t"):
            settling = asyncio.create_task(checkpointer.settle("t", "call-1", YES))
            await conflict.wait()
        assert (await settling).status == "answered"


@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_leases_are_renewed_while_every_connection_waits_for_a_lock(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer, asyncio.timeout(GUARD):
        waiting = [f"t{number}" for number in range(server_engine.POOL_SIZE)]
        for thread_id in waiting:
            await asked(checkpointer, thread_id)
        await checkpointer.commit("held", prompt(), fence=0, acquire=True)
        async with locked(database, "requests", *waiting):
            settling = [asyncio.create_task(checkpointer.settle(it, "call-1", YES)) for it in waiting]
            while not checkpointer._store.engine._slots.locked():  # type: ignore[attr-defined] # noqa: ASYNC110
                await asyncio.sleep(0)
            clock._now += 15
            await renew(checkpointer)
            assert not any(job.done() for job in settling)
        await asyncio.gather(*settling)
        assert await lease_until(checkpointer, "held") == clock.now() + 30


@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_thread_that_is_locked_does_not_keep_others_from_being_renewed(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer, asyncio.timeout(GUARD):
        begun = clock.now() + 30
        for thread_id in ("a", "b", "c"):
            await checkpointer.commit(thread_id, prompt(), fence=0, acquire=True)
        async with locked(database, "threads", "b"):
            clock._now += 15
            await renew(checkpointer)
            assert [await lease_until(checkpointer, it) - begun for it in "abc"] == [15, 0, 15]
        await renew(checkpointer)
        assert await lease_until(checkpointer, "b") - begun == 15


async def test_a_lease_that_was_taken_is_forgotten_and_its_neighbours_are_renewed(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        fences = {it: await checkpointer.commit(it, prompt(), fence=0, acquire=True) for it in ("a", "b")}
        held = dict(checkpointer._leases._held)
        await checkpointer.commit("a", said(AssistantMessage("Done."), release=True), fence=fences["a"])
        checkpointer._leases._held.update(held)  # as if the step had not been its own
        clock._now += 15
        await renew(checkpointer)
        assert set(checkpointer._leases._held) == {"b"}
        assert await lease_until(checkpointer, "a") == 0
        assert await lease_until(checkpointer, "b") == clock.now() + 30
