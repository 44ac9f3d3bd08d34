"""The time from an answer to the resumed body in another process, against a bare NOTIFY round trip."""

from __future__ import annotations

import asyncio
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import asyncpg

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.gate.action import Action
from askfirst.gate.gate import Gate
from askfirst.workers import Continuation
from benchmarks.measure import Figure
from benchmarks.own_database import own_database

ROUNDS = 300
WARM = 30
PING, PONG = "askfirst_bench_ping", "askfirst_bench_pong"
DSN = "ASKFIRST_DATABASE_URL"
_back: list[Any] = []


async def resume(continuation: Continuation) -> None:
    """The resumed body: it reports at once that it runs."""
    if not _back:
        _back.append(await asyncpg.connect(os.environ[DSN]))
    await _back[0].execute(f"NOTIFY {PONG}, '{continuation.thread_id}'")


resumers = {"bench": resume}


async def echo() -> None:
    """The process at the other end of a bare round trip."""
    connection = await asyncpg.connect(os.environ[DSN])
    heard: asyncio.Queue[str] = asyncio.Queue()
    await connection.add_listener(PING, lambda *it: heard.put_nowait(it[3]))
    while True:
        await connection.execute(f"NOTIFY {PONG}, '{await heard.get()}'")


class Ends:
    """Waits for notifications of other processes on a channel."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._waiting: dict[str, asyncio.Future[float]] = {}

    def heard(self, *it: Any) -> None:
        waiting = self._waiting.pop(it[3], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(time.perf_counter())

    def expect(self, name: str) -> asyncio.Future[float]:
        self._waiting[name] = asyncio.get_running_loop().create_future()
        return self._waiting[name]


def figures() -> Iterator[Figure]:
    yield from asyncio.run(_all())


async def _all() -> list[Figure]:
    found: list[Figure] = []
    for engine, budget in (("askfirst", 5.0), ("procrastinate", 5.0)):
        async with own_database("bench") as dsn, checkpointer_from_url(dsn) as store:
            bare, gone_on = await _measured(dsn, store, engine)
        for name, of in (("median", statistics.median), ("p99", _p99)):
            this, that = of(gone_on), of(bare)
            found.append(
                Figure(
                    f"answer to body, {engine}, {name} / NOTIFY and back",
                    this / that,
                    budget,
                    note=f"{1000 * this:.2f} ms against {1000 * that:.2f} ms",
                )
            )
    return found


async def _measured(dsn: str, store: SqlCheckpointer, engine: str) -> tuple[list[float], list[float]]:
    environment = {**os.environ, DSN: dsn}
    echoing = [
        sys.executable,
        "-c",
        "import asyncio; from benchmarks import going_on as it; asyncio.run(it.echo())",
    ]
    working = [
        sys.executable,
        "-m",
        "askfirst.cli",
        "worker",
        "benchmarks.going_on:resumers",
        "--engine",
        engine,
    ]
    silent = subprocess.DEVNULL
    others = [subprocess.Popen(each, env=environment, stderr=silent) for each in (echoing, working)]  # noqa: ASYNC220
    listening, sending = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    try:
        ends = Ends(sending)
        await listening.add_listener(PONG, ends.heard)
        async with Gate(store) as gate:
            await _up(ends)
            await _gone_on(ends, store, gate, "first")
            bare: list[float] = []
            gone_on: list[float] = []
            for number in range(WARM + ROUNDS):
                bare.append(await _bare(ends, f"p{number}"))
                gone_on.append(await _gone_on(ends, store, gate, f"t{number}"))
            return bare[WARM:], gone_on[WARM:]
    finally:
        for each in others:
            each.kill()
            each.wait()
        await listening.close()
        await sending.close()


async def _up(ends: Ends) -> None:
    """Wait until the echoing process answers."""
    while True:
        try:
            async with asyncio.timeout(0.5):
                await _bare(ends, secrets.token_hex(4))
            return
        except TimeoutError:
            continue


async def _bare(ends: Ends, name: str) -> float:
    end, begin = ends.expect(name), time.perf_counter()
    await ends.connection.execute(f"NOTIFY {PING}, '{name}'")
    return await end - begin


async def _gone_on(ends: Ends, store: SqlCheckpointer, gate: Gate, name: str) -> float:
    await gate.open(name, Action(tool="pay", args={}, resumer="bench", resumes=name))
    end, begin = ends.expect(name), time.perf_counter()
    await gate.answer(name, {"decision": "approve"})
    return await end - begin


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
