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
_connections: list[Any] = []
"""The connection of a resuming process, made at its first use."""


async def resume(continuation: Continuation) -> None:
    """The resumed body: it reports at once that it runs."""
    if not _connections:
        _connections.append(await asyncpg.connect(os.environ[DSN]))
    await _connections[0].execute(f"NOTIFY {PONG}, '{continuation.thread_id}'")


resumers = {"bench": resume}


async def echo() -> None:
    """The process at the other end of a bare round trip."""
    connection = await asyncpg.connect(os.environ[DSN])
    heard: asyncio.Queue[str] = asyncio.Queue()
    await connection.add_listener(PING, lambda *it: heard.put_nowait(it[3]))
    while True:
        await connection.execute(f"NOTIFY {PONG}, '{await heard.get()}'")


class Pongs:
    """The notifications that come back from other processes, each under a name that is awaited."""

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
            bare, resumed = await _measured(dsn, store, engine)
        for name, of in (("median", statistics.median), ("p99", _p99)):
            ours, bare_time = of(resumed), of(bare)
            found.append(
                Figure(
                    f"answer to body, {engine}, {name} / NOTIFY and back",
                    ours / bare_time,
                    budget,
                    note=f"{1000 * ours:.2f} ms against {1000 * bare_time:.2f} ms",
                )
            )
    return found


async def _measured(dsn: str, store: SqlCheckpointer, engine: str) -> tuple[list[float], list[float]]:
    environment = {**os.environ, DSN: dsn}
    echo_command = [
        sys.executable,
        "-c",
        "import asyncio; from benchmarks import going_on as it; asyncio.run(it.echo())",
    ]
    worker_command = [
        sys.executable,
        "-m",
        "askfirst.cli",
        "worker",
        "benchmarks.going_on:resumers",
        "--engine",
        engine,
    ]
    silent = subprocess.DEVNULL
    commands = (echo_command, worker_command)
    processes = [subprocess.Popen(each, env=environment, stderr=silent) for each in commands]  # noqa: ASYNC220
    listening, sending = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    try:
        pongs = Pongs(sending)
        await listening.add_listener(PONG, pongs.heard)
        async with Gate(store) as gate:
            await _wait_for_echo(pongs)
            await _resumed_after(pongs, store, gate, "first")
            bare: list[float] = []
            resumed: list[float] = []
            for number in range(WARM + ROUNDS):
                bare.append(await _round_trip(pongs, f"p{number}"))
                resumed.append(await _resumed_after(pongs, store, gate, f"t{number}"))
            return bare[WARM:], resumed[WARM:]
    finally:
        for each in processes:
            each.kill()
            each.wait()
        await listening.close()
        await sending.close()


async def _wait_for_echo(pongs: Pongs) -> None:
    """Wait until the echoing process answers."""
    while True:
        try:
            async with asyncio.timeout(0.5):
                await _round_trip(pongs, secrets.token_hex(4))
            return
        except TimeoutError:
            continue


async def _round_trip(pongs: Pongs, name: str) -> float:
    """The seconds of a bare NOTIFY to the echoing process and back."""
    end, begin = pongs.expect(name), time.perf_counter()
    await pongs.connection.execute(f"NOTIFY {PING}, '{name}'")
    return await end - begin


async def _resumed_after(pongs: Pongs, store: SqlCheckpointer, gate: Gate, name: str) -> float:
    """The seconds from an answer until the resumed body in the worker reports."""
    await gate.open(name, Action(tool="pay", args={}, resumer="bench", resumes=name))
    end, begin = pongs.expect(name), time.perf_counter()
    await gate.answer(name, {"decision": "approve"})
    return await end - begin


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
