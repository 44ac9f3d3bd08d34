"""The gate: the cost of a call that the policy allows, alone, among many, and with a million requests in the store.

``ASKFIRST_BENCH_REQUESTS`` is the number of settled requests in the larger of two databases.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from askfirst import Gate, Ran
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.gate.action import Action
from askfirst.ids import new_id
from askfirst.permissions import StaticPermissionPolicy
from benchmarks import by_hand
from benchmarks.durable import raw_sqlite, throughput
from benchmarks.measure import Figure, interleaved, no_collection, python_calls
from benchmarks.own_database import own_database

FEW = 1_000
MANY = int(os.environ.get("ASKFIRST_BENCH_REQUESTS", "1000000"))
ALLOWS = StaticPermissionPolicy([{"id": "small", "scope": {"tool": "*"}, "effect": "allow"}])
ARGS = {"order": "A-1042", "cents": 4900}
TABLES = ("threads", "messages", "runs", "requests", "effects")


def figures() -> Iterator[Figure]:
    yield from asyncio.run(in_memory())
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(on_sqlite(Path(folder)))
    yield from asyncio.run(with_many_requests())


async def refund(order: str, cents: int) -> str:
    """Pay money back."""
    return order


def calling(gate: Gate, effect: str) -> Callable[[], Awaitable[None]]:
    """A call that the policy allows, with a new key."""

    async def call() -> None:
        outcome = await gate.call(refund, ARGS, requires_approval=False, effect=effect)
        assert isinstance(outcome, Ran)

    return call


async def bare() -> None:
    await refund(**ARGS)


async def in_memory() -> list[Figure]:
    async with MemoryCheckpointer() as store, Gate(store, policy=ALLOWS) as gate:
        once, free = calling(gate, "once"), calling(gate, "none")
        recorded, unrecorded, alone = await interleaved(once, free, bare, rounds=30, per_round=50)
        calls = [await python_calls(work) for work in (once, free)]
    return [
        Figure("in memory: effect 'once', over the bare function", (recorded - alone) * 1e6, None, unit="us"),
        Figure(
            "in memory: effect 'none', over the bare function", (unrecorded - alone) * 1e6, None, unit="us"
        ),
        Figure("in memory: Python calls, effect 'once'", calls[0], None, unit="calls"),
        Figure("in memory: Python calls, effect 'none'", calls[1], None, unit="calls"),
    ]


async def on_sqlite(folder: Path) -> list[Figure]:
    async with SQLiteCheckpointer(folder / "gate.db") as store, Gate(store, policy=ALLOWS) as gate:
        once, free = calling(gate, "once"), calling(gate, "none")
        await once()  # a warm-up, for what happens only once
        written = await _commits(once)
        assert len(written) == 2, written
        assert await _commits(free) == []
        raw = raw_sqlite(folder / "raw.db", written)

        async def two_commits() -> None:
            raw()

        mine, theirs = await interleaved(once, two_commits, rounds=30, per_round=20)
        ((serial, together),) = await throughput(once)
    return [
        Figure(
            "SQLite: a call, effect 'once' / its two raw commits",
            mine / theirs,
            2,
            note=f"{mine * 1e3:.2f} ms against {theirs * 1e3:.2f} ms",
        ),
        Figure("SQLite: commits of a call, effect 'none'", 0, 0, unit="commits"),
        Figure(
            "SQLite: 64 calls at once / one after another",
            together / serial,
            None,
            at_least=True,
            note=f"{together:.0f} calls/s against {serial:.0f}",
        ),
    ]


async def _commits(call: Callable[[], Awaitable[None]]) -> list[list[str]]:
    """The rows that the commits of a call write, a list for each commit."""
    sent = await by_hand.transactions(call)
    commits = [["\0".join(map(str, values)) for _, values, reads in job if not reads] for job in sent]
    return [rows for rows in commits if rows]


# A million requests.


async def with_many_requests() -> list[Figure]:
    """Each verb on a database with a thousand settled requests, and on one with `MANY`, in turns."""
    async with AsyncExitStack() as stack:
        few, many = [await stack.enter_async_context(_filled(count)) for count in (FEW, MANY)]
        times = await _verbs(few, many)
    name = f"{MANY:,} settled requests / {FEW:,}"
    return [
        Figure(
            f"PostgreSQL: {verb}, {name}",
            of_many / of_few,
            1.5,
            note=f"{of_many * 1e3:.2f} ms against {of_few * 1e3:.2f} ms",
        )
        for verb, (of_few, of_many) in times.items()
    ]


@asynccontextmanager
async def _filled(count: int) -> AsyncIterator[Gate]:
    """A gate on a database with ``count`` calls that a person approved and that ran."""
    async with own_database("gate") as url, PostgresCheckpointer(url) as store, Gate(store) as gate:
        await _whole_call(gate, "seed")
        connection = await asyncpg.connect(url)
        begin = time.perf_counter()
        for table in TABLES:
            await _multiply(connection, f"askfirst_{table}", count - 1)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()
        print(f"  {count:,} requests filled in {time.perf_counter() - begin:.0f} s", flush=True)
        yield gate


async def _multiply(connection: Any, table: str, count: int) -> None:
    """Copy the rows of the first call under ``count`` other keys."""
    found = await connection.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_name = $1", table
    )
    columns = [f'"{row[0]}"' for row in found if row[0] != "thread_id"]
    names = ", ".join(columns)
    await connection.execute(
        f"INSERT INTO {table} (thread_id, {names}) "  # noqa: S608
        f"SELECT 'gate:filled-' || lpad(md5(n::text), 32, '0'), {names} "
        f"FROM {table} CROSS JOIN generate_series(1, {count}) AS n WHERE thread_id = 'gate:seed'"
    )


async def _whole_call(gate: Gate, key: str) -> dict[str, float]:
    """Take a call through every verb; returns the seconds of each."""
    action = Action(tool="refund", args=ARGS)
    taken: dict[str, float] = {}

    async def timed(verb: str, work: Awaitable[Any]) -> None:
        begin = time.perf_counter()
        await work
        taken[verb] = time.perf_counter() - begin

    await timed("open", gate.open(key, action))
    request = (await gate.pending(1))[0]
    await timed("settle", gate.answer(request, {"decision": "approve"}, by="ann"))
    await timed("decision", gate.decision(key))
    await timed("begin", gate.begin(key, ARGS))
    await timed("finish", gate.finish(key, "done"))
    return taken


async def _verbs(few: Gate, many: Gate, rounds: int = 400) -> dict[str, tuple[float, float]]:
    """The median seconds of each verb on both databases, measured in turns."""
    samples: dict[str, tuple[list[float], list[float]]] = {}
    for gate in (few, many):
        for _ in range(20):
            await _whole_call(gate, new_id())
    with no_collection():
        for _ in range(rounds):
            for place, gate in enumerate((few, many)):
                for verb, seconds in (await _whole_call(gate, new_id())).items():
                    samples.setdefault(verb, ([], []))[place].append(seconds)
    return {verb: (_median(one), _median(other)) for verb, (one, other) in samples.items()}


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
