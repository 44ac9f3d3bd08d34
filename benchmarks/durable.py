"""Durable threads: the time of approve cycles, the time of steps on long threads, and the bytes of a stored turn."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import asyncpg

from askfirst import Agent, AgentSpec, tool
from askfirst.checkpointer.base import Step
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.ids import new_id
from askfirst.messages import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    encode,
)
from askfirst.models import ModelRequest
from askfirst.store.postgres_engine import _DIALECT, PostgresSession, as_one
from benchmarks import by_hand, steps
from benchmarks.measure import Figure, interleaved, no_collection, python_calls

Sent = tuple[str, tuple[Any, ...], bool]
KILOBYTE = "x" * 1024
THREADS = 64
LONG, SHORT = 10_000, 10
FLUSH_SECONDS = 0.001


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(sqlite_cycles(Path(folder)))
        yield from asyncio.run(cycles_on_a_slower_disk(Path(folder)))
        yield from asyncio.run(long_threads(Path(folder)))
        yield from asyncio.run(stored_bytes(Path(folder)))
    yield from asyncio.run(postgres_cycles())


CALL = AssistantMessage((ToolCall("call-1", "charge", {"amount": 5}),), stop_reason="tool_use")
DONE = AssistantMessage((TextPart("done"),))


class CallThenDone:
    """A model without latency: one call of ``charge``, then a text."""

    name = "call-then-done"

    async def stream(self, request: ModelRequest) -> Any:
        yield CALL if request.messages[-1].role == "user" else DONE


@tool(requires_approval=True)
async def charge(amount: int) -> str:
    """Charge a card."""
    return KILOBYTE


SPEC = AgentSpec("bench", CallThenDone(), [charge])


async def cycle(store: Any, thread_id: str | None = None) -> Agent:
    """Prompt and pause, a person answers, a fresh agent resumes: six commits."""
    agent = Agent.from_spec(SPEC, checkpointer=store, thread_id=thread_id)
    paused = await agent.prompt("go")
    call = paused.messages[-1].tool_calls[0]
    await store.settle(agent.thread_id, call.id, {"decision": "approve"}, by="ann", via="bench")
    resumed = Agent.from_spec(SPEC, checkpointer=store, thread_id=agent.thread_id)
    assert (await resumed.resume()).text == "done"
    return resumed


# SQLite.

_CYCLE = "approve cycle"
_WHO = (_CYCLE, "its steps, without an agent", "by hand")


async def cycles_on_a_slower_disk(folder: Path) -> list[Figure]:
    """The same figures with one more millisecond per commit, as on most disks that do not lose acknowledged
    writes."""
    (folder / "slow").mkdir()
    with mock.patch.object(sqlite3, "connect", _SlowConnection):
        figures = await sqlite_cycles(folder / "slow")
    return [replace(figure, name=f"{figure.name}, 1 ms a flush") for figure in figures]


class _SlowConnection(sqlite3.Connection):
    """A connection whose commits take one millisecond longer."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        cursor = super().execute(sql, parameters)
        if sql == "COMMIT":
            time.sleep(FLUSH_SECONDS)
        return cursor


async def sqlite_cycles(folder: Path) -> list[Figure]:
    async with SQLiteCheckpointer(folder / "cycles.db") as store:
        await cycle(store)  # a warm-up, for what happens only once
        sent, thread_id = await by_hand.recorded(lambda: cycle(store))
        store_calls = await steps.recorded(lambda: cycle(store))
        raw = raw_sqlite(folder / "raw.db", _six_payloads(sent))
        async with SQLiteCheckpointer(folder / "by_hand.db"):
            pass  # makes the tables
        bare = by_hand.GroupCommit(folder / "by_hand.db")

        async def ours() -> None:
            await cycle(store)

        async def store_alone() -> None:
            await steps.cycle(store, store_calls)

        async def by_hand_cycle() -> None:
            await by_hand.cycle(bare, sent, thread_id, SPEC.resolved_model, charge)

        async def six_commits() -> None:
            raw()

        # The smallest count: on a busy machine the writing thread returns results one by one, and the loop makes more
        # turns.
        calls = min([await python_calls(ours) for _ in range(9)])
        *taken, six_commits_time = await interleaved(
            ours, store_alone, by_hand_cycle, six_commits, rounds=15, per_round=10
        )
        rates = await throughput(ours, store_alone, by_hand_cycle)
        bare.close()
    return [
        Figure("SQLite: Python calls of an approve cycle, on the loop", calls, 900, unit="calls"),
        *(
            figure
            for who, time_taken, (serial, together) in zip(_WHO, taken, rates, strict=True)
            for figure in (
                Figure(
                    f"SQLite: {who} / six raw sqlite3 commits",
                    time_taken / six_commits_time,
                    2.5 if who == _CYCLE else None,
                    note=_times(time_taken, six_commits_time),
                ),
                Figure(
                    f"SQLite: {who}, {THREADS} threads at once / one after another",
                    together / serial,
                    5 if who == _CYCLE else None,
                    at_least=True,
                    note=_rates(together, serial),
                ),
            )
        ),
    ]


def _times(one: float, other: float) -> str:
    return f"{one * 1e3:.2f} ms against {other * 1e3:.2f} ms"


def _rates(one: float, other: float) -> str:
    return f"{one:.0f} cycles/s against {other:.0f}"


def _six_payloads(sent: list[by_hand.Sent]) -> list[list[str]]:
    """The rows that the six commits of a cycle write: prompt, pause, answer, start, result, end."""
    commits = [["\0".join(map(str, values)) for _, values, reads in job if not reads] for job in sent]
    written = [rows for rows in commits if rows]
    assert len(written) == 6, written
    return written


def raw_sqlite(path: Path, commits: list[list[str]]) -> Callable[[], None]:
    """A function that writes these rows with bare `sqlite3`, one transaction for each list."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE raw (thread TEXT, seq INTEGER, body TEXT, PRIMARY KEY (thread, seq))")

    def run() -> None:
        thread, seq = new_id(), 0
        for bodies in commits:
            connection.execute("BEGIN IMMEDIATE")
            for body in bodies:
                connection.execute("INSERT INTO raw VALUES (?, ?, ?)", (thread, seq, body))
                seq += 1
            connection.execute("COMMIT")

    return run


async def throughput(*works: Callable[[], Awaitable[Any]]) -> list[tuple[float, float]]:
    """The cycles per second of each work: one after another, and many at once."""
    serial: list[list[float]] = [[] for _ in works]
    together: list[list[float]] = [[] for _ in works]
    with no_collection():
        for _ in range(5):
            for place, work in enumerate(works):
                begin = time.perf_counter()
                for _ in range(THREADS):
                    await work()
                serial[place].append(THREADS / (time.perf_counter() - begin))
                begin = time.perf_counter()
                for _ in range(4):
                    await asyncio.gather(*(work() for _ in range(THREADS)))
                together[place].append(4 * THREADS / (time.perf_counter() - begin))
    return [
        (statistics.median(one), statistics.median(many)) for one, many in zip(serial, together, strict=True)
    ]


# Long threads.


def _turn() -> list[Message]:
    """The messages of a turn with one call."""
    call = ToolCall(secrets.token_hex(8), "charge", {"amount": 5})
    return [
        UserMessage("What about the next one?"),
        AssistantMessage((call,), stop_reason="tool_use"),
        ToolResultMessage(call.id, "charge", KILOBYTE),
        AssistantMessage("That one is done as well."),
    ]


async def _filled_thread(store: Any, thread_id: str, messages: int) -> int:
    """A thread with that many messages; returns its fence."""
    fence = 0
    while messages > 0:
        batch = [message for _ in range(min(messages, 1000) // 4 + 1) for message in _turn()][:messages]
        fence = await store.commit(thread_id, Step("r", batch, release=True), fence=fence, acquire=True)
        messages -= len(batch)
    return fence


async def long_threads(folder: Path) -> list[Figure]:
    async with SQLiteCheckpointer(folder / "long.db") as store:
        for length in (SHORT, LONG):
            await _filled_thread(store, f"thread-{length}", length)

        def write(length: int) -> Callable[[], Awaitable[None]]:
            state = {"fence": None}

            async def work() -> None:
                if state["fence"] is None:
                    state["fence"] = (await store.load(f"write-{length}")).fence
                step = Step("r", _turn()[:2], release=True)
                state["fence"] = await store.commit(
                    f"write-{length}", step, fence=state["fence"], acquire=True
                )

            return work

        for length in (SHORT, LONG):
            await _filled_thread(store, f"write-{length}", length)
        long, short = await interleaved(write(LONG), write(SHORT), rounds=15, per_round=10)

        def load(thread_id: str) -> Callable[[], Awaitable[Any]]:
            def work() -> Awaitable[Any]:
                store._transcripts.forget(thread_id)  # as in a process that loads it for the first time
                return store.load(thread_id)

            return work

        await _filled_thread(store, "half", LONG // 2)
        whole, half = await interleaved(load(f"thread-{LONG}"), load("half"), rounds=5, per_round=1)
    return [
        Figure(
            f"writing a step on {LONG} messages / on {SHORT}", long / short, 1.2, note=f"{long * 1e3:.2f} ms"
        ),
        Figure(
            f"loading {LONG} messages / {LONG // 2} (linear is 2)",
            whole / half,
            2.4,
            note=f"{whole * 1e3:.0f} ms for {LONG}",
        ),
    ]


async def stored_bytes(folder: Path) -> list[Figure]:
    """Bytes in the database file for each turn, against the turn's plain JSON, early and late."""
    path = folder / "bytes.db"
    ratios: list[float] = []
    async with SQLiteCheckpointer(path) as store:
        fence, before = 0, _size(path)
        for _ in range(4):
            plain = 0
            for _ in range(250):
                turn = _turn()
                plain += sum(len(encode(message)) for message in turn)
                fence = await store.commit("t", Step("r", turn, release=True), fence=fence, acquire=True)
            after = _size(path)
            ratios.append((after - before) / plain)
            before = after
    early, late = ratios[0], ratios[-1]
    return [
        Figure("bytes stored per turn / its plain JSON (worst 250 turns)", max(ratios), 1.5),
        Figure("bytes per turn, turns 751-1000 / turns 1-250", late / early, 1.1),
    ]


def _size(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(FULL)")
        pages, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
        )
    return pages * size


# PostgreSQL.


async def postgres_cycles() -> list[Figure]:
    """A cycle against the same statements, replayed directly with asyncpg in six transactions."""
    dsn = os.environ.get("ASKFIRST_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
    async with PostgresCheckpointer(dsn) as store:
        transactions, thread_id = await _recorded(store)
        connection = await asyncpg.connect(dsn)
        sent = [each for statements in transactions for _, arguments, _ in statements for each in arguments]
        # The ids of the thread, of its run and of the rows in the audit trail.
        ids = {each for each in sent if isinstance(each, str) and re.fullmatch("[0-9a-f]{32}", each)} | {
            thread_id
        }
        prepared: dict[str, Any] = {}

        async def replay() -> None:
            new = {old: new_id() for old in ids}
            for statements in transactions:
                async with connection.transaction():
                    for sql, arguments, _ in statements:
                        if sql not in prepared:
                            prepared[sql] = await connection.prepare(sql)
                        await prepared[sql].fetch(*[new.get(each, each) for each in arguments])

        async def ours() -> None:
            await cycle(store)

        mine, replayed = await interleaved(ours, replay, rounds=15, per_round=10)
        ((serial, together),) = await throughput(ours)
        await connection.close()
    at_once = f"PostgreSQL: {THREADS} threads at once / one after another"
    return [
        Figure(
            "PostgreSQL: approve cycle / the same statements by asyncpg",
            mine / replayed,
            1.5,
            note=_times(mine, replayed),
        ),
        Figure(at_once, together / serial, 1, at_least=True, note=_rates(together, serial)),
    ]


async def _recorded(store: Any) -> tuple[list[list[Sent]], str]:
    """The statements of one cycle's writing transactions, a list for each transaction."""
    transactions: list[list[Sent]] = []
    begin, run, commit = PostgresSession.begin, PostgresSession.run, PostgresSession.commit
    at_once = PostgresSession.at_once
    writing_now = False

    async def recording_begin(self: PostgresSession) -> None:
        nonlocal writing_now
        writing_now = True
        transactions.append([])
        await begin(self)

    async def recording_commit(self: PostgresSession, wakes: Any) -> None:
        nonlocal writing_now
        writing_now = False
        await commit(self, wakes)

    async def recording_run(self: PostgresSession, statement: Any, params: Any) -> Any:
        sql, arguments, reads = statement.form(_DIALECT)
        each = params if isinstance(params, list) else [params]
        if writing_now:
            transactions[-1] += [(sql, tuple(arguments(one)), reads) for one in each]
        return await run(self, statement, params)

    async def recording_at_once(self: PostgresSession, foreseen: Any) -> bool:
        sql, arguments = as_one(foreseen)
        transactions.append([(sql, tuple(arguments), False)])
        done = await at_once(self, foreseen)
        assert done, sql
        return done

    await cycle(store)  # a warm-up, for what happens only once
    recording = {"begin": recording_begin, "run": recording_run, "commit": recording_commit}
    recording["at_once"] = recording_at_once
    with mock.patch.multiple(PostgresSession, **recording):
        agent = await cycle(store)
    writing = [sent for sent in transactions if not all(reads for _, _, reads in sent)]
    assert len(writing) == 6, [[sql for sql, _, _ in sent] for sent in transactions]
    return writing, agent.thread_id
