"""Procrastinate runs continuations: one job for each thread, delivered twice or cut off without harm."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from kit.own_databases import OwnDatabases
from kit.patience import PATIENCE
from procrastinate import App, PsycopgConnector, RetryStrategy
from procrastinate.exceptions import ConnectorException

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import MissingExtra, ResumeLater, StoreError
from askfirst.gate.action import Action
from askfirst.gate.gate import Gate
from askfirst.workers import Continuation, Continuations, ProcrastinateWorker, Resumer
from askfirst.workers.procrastinate_engine import TASK, queue_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[PostgresCheckpointer]:
    with OwnDatabases(tmp_path) as own:
        async with checkpointer_from_url(await own.new("postgres")) as opened:
            assert isinstance(opened, PostgresCheckpointer)
            yield opened


@asynccontextmanager
async def working(
    store: PostgresCheckpointer, resumers: Mapping[str, Resumer], **options: Any
) -> AsyncIterator[ProcrastinateWorker]:
    worker = ProcrastinateWorker(store, resumers, **options)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()


async def answered(store: PostgresCheckpointer, thread_id: str, number: int = 1) -> None:
    async with Gate(store) as gate:
        key = f"{thread_id}:c{number}"
        await gate.open(key, Action(tool="pay", args={}, resumer="desk", resumes=thread_id))
        await gate.answer(key, {"decision": "approve"})


async def ended(store: PostgresCheckpointer, thread_id: str, state: str = "done") -> Continuation:
    async with asyncio.timeout(PATIENCE):
        while True:
            known = await Continuations(store).of(thread_id)
            if known is not None and known.state == state:
                return known
            await asyncio.sleep(0.01)


async def jobs(store: PostgresCheckpointer, status: str) -> int:
    connection = await asyncpg.connect(store.dsn)
    try:
        return await connection.fetchval(
            "SELECT count(*) FROM procrastinate_jobs WHERE status = $1::procrastinate_job_status", status
        )
    finally:
        await connection.close()


async def test_answers_go_on_and_each_thread_once(store: PostgresCheckpointer) -> None:
    ran: list[str] = []

    async def resume(continuation: Continuation) -> None:
        ran.append(continuation.thread_id)

    async with working(store, {"desk": resume}), working(store, {"desk": resume}):
        for number in range(20):
            await answered(store, f"t{number}")
        for number in range(20):
            known = await ended(store, f"t{number}")
            assert (known.attempts, known.error) == (1, None)
    assert sorted(ran) == sorted(f"t{number}" for number in range(20))


async def test_workers_that_start_together_make_the_tables_once(store: PostgresCheckpointer) -> None:
    async def resume(continuation: Continuation) -> None:
        return None

    workers = [ProcrastinateWorker(store, {"desk": resume}, concurrency=1) for _ in range(6)]
    assert await asyncio.gather(*[each.run_due() for each in workers]) == [0] * 6
    await answered(store, "t")
    assert await ProcrastinateWorker(store, {"desk": resume}).run_due() == 1
    assert (await ended(store, "t")).attempts == 1


async def test_a_job_that_is_delivered_twice_does_nothing_the_second_time(
    store: PostgresCheckpointer,
) -> None:
    ran: list[str] = []

    async def resume(continuation: Continuation) -> None:
        ran.append(continuation.thread_id)

    await answered(store, "t")
    assert await ProcrastinateWorker(store, {"desk": resume}).run_due() == 1
    app = App(connector=PsycopgConnector(conninfo=store.dsn))
    async with app.open_async():
        for _ in range(3):  # without locks, so that they may even run at the same time
            await app.configure_task(TASK, queue=queue_of("desk")).defer_async(thread_id="t")
        await app.configure_task(TASK, queue=queue_of("desk")).defer_async(thread_id="unknown")
    assert await ProcrastinateWorker(store, {"desk": resume}).run_due() == 0
    assert (await jobs(store, "todo"), await jobs(store, "failed")) == (0, 0)
    assert ran == ["t"]


async def test_a_failed_one_is_tried_again_by_the_strategy(store: PostgresCheckpointer) -> None:
    attempts: list[int] = []

    async def failing(continuation: Continuation) -> None:
        attempts.append(continuation.attempts)
        raise RuntimeError("the model is down")

    await answered(store, "t")
    strategy = RetryStrategy(max_attempts=2)  # at once, and then at once again
    async with working(store, {"desk": failing}, retry=strategy):
        async with asyncio.timeout(PATIENCE):
            known = await ended(store, "t", "failed")
            while known.due_at is not None:
                await asyncio.sleep(0.01)
                known = await ended(store, "t", "failed")
    assert attempts == [1, 2, 3]
    assert (known.error, known.attempts) == ("RuntimeError: the model is down", 3)

    async def good(continuation: Continuation) -> None:
        attempts.append(continuation.attempts)

    await Continuations(store).retry("t")
    assert await ProcrastinateWorker(store, {"desk": good}).run_due() == 1
    assert (await ended(store, "t")).error is None


async def test_the_default_strategy_waits_longer_each_time(store: PostgresCheckpointer) -> None:
    async def failing(continuation: Continuation) -> None:
        raise RuntimeError("no")

    await answered(store, "t")
    assert await ProcrastinateWorker(store, {"desk": failing}).run_due() == 1
    known = await ended(store, "t", "failed")
    assert known.due_at is not None
    assert 0.5 < known.due_at - known.updated_at <= 2.0


async def test_later_is_no_failure(store: PostgresCheckpointer) -> None:
    seen: list[int] = []

    async def busy(continuation: Continuation) -> None:
        seen.append(continuation.attempts)
        if len(seen) < 3:
            raise ResumeLater("another worker has it", 0.01)

    await answered(store, "t")
    async with working(store, {"desk": busy}):
        await ended(store, "t")
    assert seen == [1, 1, 1]
    assert await jobs(store, "failed") == 0


async def test_what_is_answered_while_it_runs_runs_again_and_never_beside_it(
    store: PostgresCheckpointer,
) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()
    at_once, most, runs = 0, 0, 0

    async def slow(continuation: Continuation) -> None:
        nonlocal at_once, most, runs
        at_once, runs = at_once + 1, runs + 1
        most = max(most, at_once)
        began.set()
        await may_end.wait()
        at_once -= 1

    async with working(store, {"desk": slow}), working(store, {"desk": slow}):
        await answered(store, "t", 1)
        async with asyncio.timeout(PATIENCE):
            await began.wait()
        await answered(store, "t", 2)
        async with asyncio.timeout(PATIENCE):
            while await jobs(store, "todo") != 1:  # noqa: ASYNC110  (it changes in the database)
                await asyncio.sleep(0.01)
        await answered(store, "t", 3)  # still one job that waits
        may_end.set()
        await ended(store, "t")
    assert runs in (2, 3)
    assert most == 1


async def test_what_a_dead_worker_had_is_done_by_another(store: PostgresCheckpointer) -> None:
    """As after SIGKILL: a job that runs for ever, a lock on its thread, a worker without a heartbeat, a lease."""
    ran: list[str] = []

    async def resume(continuation: Continuation) -> None:
        ran.append(continuation.thread_id)

    await answered(store, "t")
    assert await ProcrastinateWorker(store, {"desk": resume}).run_due() == 1
    await answered(store, "t", 2)
    [handed] = await Continuations(store).hand_over("procrastinate", 1, 0.2, ["desk"])
    assert await Continuations(store).take_one("t", "dead", 0.2, ["desk"]) is not None
    assert handed.owner is not None
    connection = await asyncpg.connect(store.dsn)
    try:
        await connection.execute(
            "WITH dead AS (INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 hour') "
            "RETURNING id) INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, status, "
            "worker_id) SELECT $1, $2, 'askfirst:t', 'askfirst:t', '{\"thread_id\": \"t\"}', 'doing', id FROM dead",
            queue_of("desk"),
            TASK,
        )
    finally:
        await connection.close()
    async with working(store, {"desk": resume}, lease_seconds=1.0):
        await ended(store, "t")
    assert ran == ["t", "t"]
    assert await jobs(store, "doing") == 0


async def test_connections_may_break(store: PostgresCheckpointer) -> None:
    ran: list[str] = []

    async def resume(continuation: Continuation) -> None:
        ran.append(continuation.thread_id)

    broken: list[dict[str, Any]] = []  # what Procrastinate could not write down, and asyncio is told of
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    connection = await asyncpg.connect(store.dsn)
    try:
        async with working(store, {"desk": resume}, lease_seconds=1.5):
            for number in range(3):
                await answered(store, f"t{number}")
                await ended(store, f"t{number}")
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            async with asyncio.timeout(PATIENCE):
                while await jobs(store, "doing"):  # noqa: ASYNC110  (it changes in the database)
                    await asyncio.sleep(0.05)
    finally:
        await connection.close()
    assert sorted(set(ran)) == ["t0", "t1", "t2"]
    assert all(isinstance(each.get("exception"), ConnectorException) for each in broken), broken


async def test_what_it_needs_is_said_in_a_sentence(tmp_path: Path, monkeypatch: Any) -> None:
    async def resume(continuation: Continuation) -> None:
        return None

    with pytest.raises(StoreError, match="needs PostgreSQL: give it a database at postgresql://"):
        ProcrastinateWorker(SQLiteCheckpointer(tmp_path / "a.db"), {"desk": resume})
    store = PostgresCheckpointer("postgresql://nowhere/none")
    with pytest.raises(ValueError, match="resumer"):
        ProcrastinateWorker(store, {})
    monkeypatch.setitem(sys.modules, "procrastinate", None)
    with pytest.raises(MissingExtra, match=r"pip install 'askfirst\[procrastinate\]'"):
        ProcrastinateWorker(store, {"desk": resume})


def test_names_of_queues_fit_into_a_channel() -> None:
    assert queue_of("desk") == "askfirst-desk"
    long = queue_of("ein sehr langer Name für einen Resumer, länger als ein Kanal sein darf")
    assert len(f"procrastinate_queue_v1#{long}") < 63
    assert long != queue_of("another one with spaces")
