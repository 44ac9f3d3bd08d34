"""The engines: commits shared, transactions run again, connections lost at the worst moment."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kit.lost_commits import break_once
from kit.patience import PATIENCE
from kit.stores import SERVERS, Database, approval, asked, check_threads, on_server, prompt, said, whole_cycle
from sqlalchemy import text

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlInvalidAnswer, HitlStaleAnswer, LeaseLost, StoreError
from askfirst.messages import UserMessage
from askfirst.store import audit, requests, sqlite_engine, wakeups
from askfirst.store.rows import RequestRow, Settled
from askfirst.store.sqlite_engine import SQLiteEngine, migrate
from askfirst.store.statement import WAKE, Statement, Transaction
from askfirst.store.tables import requests as requests_table

pytestmark = pytest.mark.anyio


# Transactions by hand.


def test_a_transaction_is_driven_by_hand() -> None:
    by = Settled("t", "q", "answered", now=5000, write_id=7, answer=True, by="ann")
    payload = '{"payload":{"kind":"confirm","prompt":"?"},"created_at":1.0}'
    row = RequestRow("t", "q", 1, None, "confirm", payload, None, "pending", 1000, None, *[None] * 6)
    transaction = requests.settle(by)
    assert next(transaction)[0] is requests.LATEST
    statement, params = transaction.send([row])
    assert statement is requests.SETTLE
    assert (params["answer"], params["answered_by"], params["round"]) == ("true", "ann", 1)  # type: ignore[call-overload]
    said = {transaction.send(1)[0], transaction.send(0)[0]}
    assert said == {WAKE, audit.APPEND}, "the act is written in the answer's own transaction"
    with pytest.raises(StopIteration) as stop:
        transaction.send(0)
    assert (stop.value.value.status, stop.value.value.settled_at) == ("answered", 5000)
    loser = requests.settle(by)
    next(loser)
    loser.send([row])
    assert loser.send(0)[0] is requests.LATEST
    with pytest.raises(HitlStaleAnswer):
        loser.send([row._replace(status="cancelled")])


# SQLite.


@pytest.fixture
async def engine(tmp_path: Path) -> Any:
    engine = SQLiteEngine(tmp_path / "x.db")
    await engine.open()
    yield engine
    await engine.close()


async def test_nothing_is_left_beside_the_file_when_it_is_closed(tmp_path: Path) -> None:
    """SQLite's log holds what was deleted, or was not encrypted yet."""
    for _ in range(30):
        engine = SQLiteEngine(tmp_path / "x.db")
        await engine.open()
        await engine.read(run_ids)
        await engine.close()
        assert [path.name for path in tmp_path.iterdir()] == ["x.db"]  # noqa: ASYNC240


@pytest.mark.parametrize("turns", range(1, 5))
async def test_closing_that_is_called_off_leaves_no_thread(tmp_path: Path, turns: int) -> None:
    engine = SQLiteEngine(tmp_path / "x.db")
    await engine.open()
    closing = asyncio.create_task(engine.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await asyncio.to_thread(check_threads)


INSERT = Statement(text("INSERT INTO askfirst_runs VALUES ('t', :id, 'a', NULL, 0, '{}', 0, NULL)"))
IDS = Statement(text("SELECT run_id FROM askfirst_runs ORDER BY run_id"), reads=True)
BREAK = Statement(text("ROLLBACK"))


def insert(run_id: str, then: Callable[[], object] = lambda: None) -> Transaction[str]:
    yield INSERT, {"id": run_id}
    then()
    return run_id


def run_ids() -> Transaction[list[str]]:
    return [row[0] for row in (yield IDS, {})]


def breaks_the_transaction() -> Transaction[None]:
    yield INSERT, {"id": "broken"}
    yield BREAK, {}
    raise ValueError("broken")


def fails() -> None:
    raise ValueError("mine alone")


async def held_up(engine: SQLiteEngine, transactions: list[Callable[[], Transaction[Any]]]) -> list[Any]:
    """Queue transactions while the worker is busy, so that they share the next commit."""
    begun, go_on = threading.Event(), threading.Event()

    def busy() -> Transaction[None]:
        yield IDS, {}
        begun.set()
        go_on.wait(PATIENCE)

    first = engine.write(busy)
    while not begun.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0)
    jobs = [engine.write(transaction) for transaction in transactions]
    go_on.set()
    await first
    return await asyncio.gather(*jobs, return_exceptions=True)


async def test_writers_that_queue_up_share_one_commit(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    together = sqlite_engine._write_together

    def counted(connection: sqlite3.Connection, batch: list[Any]) -> bool:
        batches.append(len(batch))
        return together(connection, batch)

    monkeypatch.setattr(sqlite_engine, "_write_together", counted)
    results = await held_up(engine, [lambda n=n: insert(f"{n:02}") for n in range(20)])
    assert results == [f"{n:02}" for n in range(20)]
    assert batches == [20]
    assert await engine.read(run_ids) == results


async def test_one_that_fails_does_not_harm_the_others_in_its_commit(engine: SQLiteEngine) -> None:
    results = await held_up(
        engine,
        [
            lambda: insert("a"),
            lambda: insert("b", fails),
            lambda: insert("a"),
            lambda: insert("c"),
        ],
    )
    assert (results[0], results[3]) == ("a", "c")
    assert isinstance(results[1], ValueError)
    assert isinstance(results[2], StoreError)
    assert "UNIQUE" in str(results[2])
    assert await engine.read(run_ids) == ["a", "c"]


async def test_one_that_breaks_the_whole_transaction_harms_only_itself(engine: SQLiteEngine) -> None:
    results = await held_up(engine, [lambda: insert("a"), breaks_the_transaction, lambda: insert("b")])
    assert (results[0], results[2]) == ("a", "b")
    assert isinstance(results[1], ValueError)
    assert await engine.read(run_ids) == ["a", "b"]


async def test_a_locked_file_is_waited_for_then_reported(
    engine: SQLiteEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_engine, "BUSY_SECONDS", 0.01)
    impatient = SQLiteEngine(tmp_path / "x.db")
    await impatient.open()
    locked, unlock = threading.Event(), threading.Event()

    def lock() -> None:
        connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        locked.set()
        unlock.wait(PATIENCE)
        connection.execute("COMMIT")
        connection.close()

    holder = asyncio.ensure_future(asyncio.to_thread(lock))
    while not locked.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    with pytest.raises(StoreError, match="locked"):
        await impatient.write(lambda: insert("a"))
    waiting = engine.write(lambda: insert("b"))
    unlock.set()
    assert await waiting == "b"
    await holder
    await impatient.close()


def test_no_query_scans_what_is_open(tmp_path: Path) -> None:
    """SQLite's own word that each of these is an index lookup, however many requests are open."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    plans = {
        "OPEN_PAGE": "askfirst_requests_open (status=? AND created_at>",
        "DUE": "askfirst_requests_due (status=? AND expires_at<?",
        "LATEST": "(thread_id=? AND question_id=?)",
        "SETTLE": "(thread_id=? AND question_id=? AND round=?)",
        "END": "(thread_id=? AND question_id=?)",
        "OPEN_IDS": "(thread_id=?)",
        "OPEN_HERE": "(thread_id=?)",
        "STILL_OPEN": "(thread_id=? AND question_id=?)",
    }
    for name, expected in plans.items():
        sql = getattr(requests, name).form(sqlite_engine._DIALECT).sql
        steps = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?")).fetchall()
        plan = " / ".join(str(step[3]) for step in steps)
        assert expected in plan, (name, plan)
        assert f"SCAN {requests_table.name}" not in plan, (name, plan)
    connection.close()


# Servers.


async def cut_off(database: Database) -> None:
    """Let the server end every connection to a database."""
    name = urlsplit(database.address).path.lstrip("/")
    if database.kind == "postgres":
        query = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"  # noqa: S608
        await on_server("postgres", query)
        return
    query = f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"  # noqa: S608
    for (connection_id,) in await on_server("mysql", query):
        with suppress(Exception):  # it may be gone already
            await on_server("mysql", f"KILL {connection_id}")


@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_lost_connections_are_replaced(database: Database) -> None:
    async with database.checkpointer() as checkpointer, asyncio.timeout(PATIENCE):
        await asyncio.gather(*(asked(checkpointer, f"t{number}") for number in range(5)))
        for number in range(5):
            await cut_off(database)
            await checkpointer.settle(f"t{number}", "call-1", {"decision": "approve"})
        await cut_off(database)
        assert await checkpointer.pending() == []


@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_waiter_whose_connection_is_lost_still_wakes(database: Database) -> None:
    async with database.checkpointer() as here, database.checkpointer() as there, asyncio.timeout(PATIENCE):
        for number in range(3):
            await asked(here, f"t{number}")
            waiter = asyncio.create_task(here.settled(f"t{number}", "call-1"))
            await asyncio.sleep(0.02 * number)
            await cut_off(database)
            await there.settle(f"t{number}", "call-1", {"decision": "approve"})
            assert (await waiter).status == "answered"


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_connection_lost_during_commit_neither_loses_nor_doubles(
    database: Database, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.checkpointer() as checkpointer:
        break_once(monkeypatch, database.kind, committed=committed)
        fence = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
        for release in (False, True):
            break_once(monkeypatch, database.kind, committed=committed)
            step = said(UserMessage("once"), release=release)
            fence += 1
            assert await checkpointer.commit("t", step, fence=fence - 1) == fence
        break_once(monkeypatch, database.kind, committed=committed)
        await checkpointer.commit("t", said(opened=[approval()], release=True), fence=fence, acquire=True)
        thread = await checkpointer.load("t")
        assert thread is not None
        assert [message.text for message in thread.messages] == ["Hello", "once", "once"]
        break_once(monkeypatch, database.kind, committed=committed)
        settled = await checkpointer.settle("t", "call-1", {"decision": "approve"}, by="ann")
        assert (settled.status, settled.answered_by) == ("answered", "ann")
        break_once(monkeypatch, database.kind, committed=committed)
        await checkpointer.fork("t", "fork")
        with pytest.raises(LeaseLost):
            await checkpointer.commit("t", said(), fence=fence, acquire=True)
        with pytest.raises(HitlStaleAnswer):
            await checkpointer.settle("t", "call-1", {"decision": "approve"}, by="ann")


@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_failed_transaction_leaves_its_connection_clean(database: Database) -> None:
    async with database.checkpointer() as checkpointer:
        await asked(checkpointer)
        for _ in range(30):
            with pytest.raises(HitlInvalidAnswer):
                await checkpointer.settle("t", "call-1", "nonsense")
        await whole_cycle(checkpointer, "other")


async def test_twenty_tasks_make_one_new_thread_and_one_of_them_wins(checkpointer: SqlCheckpointer) -> None:
    results = await asyncio.gather(
        *(checkpointer.commit("t", prompt(str(n)), fence=0, acquire=True) for n in range(20)),
        return_exceptions=True,
    )
    (fence,) = (result for result in results if not isinstance(result, StoreError))
    thread = await checkpointer.load("t")
    assert thread is not None
    assert (thread.fence, len(thread.messages)) == (fence, 1)


async def test_a_watcher_that_fails_is_started_again(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeups, "RETRY_SECONDS", 0)
    hub, failures = checkpointer._store.hub, []
    watch = hub._watch

    async def fails_twice(watched: wakeups.Hub) -> None:
        if len(failures) < 2:
            failures.append(True)
            raise StoreError("no luck")
        await watch(watched)

    monkeypatch.setattr(hub, "_watch", fails_twice)
    await asked(checkpointer)
    async with asyncio.timeout(PATIENCE):
        waiter = asyncio.create_task(checkpointer.settled("t", "call-1"))
        while len(failures) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await checkpointer.settle("t", "call-1", {"decision": "approve"})
        assert (await waiter).status == "answered"
    assert "no luck" in caplog.text
