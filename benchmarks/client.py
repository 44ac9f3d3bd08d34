"""The client: the memory of a thousand waits at once, and the time from an answer to its outcome."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx2

from askfirst.client import HitlClient
from askfirst.clock import Clock, SystemClock
from askfirst.delivery.base import Notice
from benchmarks.measure import Figure
from benchmarks.open_files import allow_many
from benchmarks.service import Server, answered, approve, follow, server

WAITS, ANSWERS, WARM_UP = 1_000, 60, 10
SPEED = 5.0
"""How many times as fast the clock runs for polling waits: the service asks for 30 seconds between two polls."""
PAGE = os.sysconf("SC_PAGE_SIZE")


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        for way in (by_events, by_polls):  # each in a new process, because memory is measured
            with ProcessPoolExecutor(1, get_context("spawn")) as apart:
                yield from apart.submit(measured, way, Path(folder)).result()


def measured(way: Callable[[Path], Coroutine[Any, Any, list[Figure]]], folder: Path) -> list[Figure]:
    allow_many()
    return asyncio.run(way(folder))


class QuickClock:
    """A clock that runs `SPEED` times as fast as the computer's."""

    def __init__(self) -> None:
        self._begin = time.time()

    def now(self) -> float:
        return self._begin + (time.time() - self._begin) * SPEED

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


async def nobody(notice: Notice) -> None:
    """A delivery that does nothing: the benchmark itself plays the person."""


def asked(served: Server, number: int, *, follows: bool) -> httpx2.Response:
    """The 202 response with which a case was opened."""
    base, (case_id, token) = f"http://127.0.0.1:{served.port}", served.cases[number]
    hitl = {
        "spec_version": "0.8",
        "case_id": case_id,
        "review_url": f"{base}/review/{case_id}?token={token}",
        "poll_url": f"{base}/v1/reviews/{case_id}/status",
        "type": "approval",
        "prompt": f"May order {number} be shipped to the new address?",
        "created_at": "2030-03-17T17:46:40Z",
        "expires_at": "2030-03-18T17:46:40Z",
        **({"events_url": f"{base}/v1/reviews/{case_id}/events"} if follows else {}),
    }
    body = {"status": "human_input_required", "hitl": hitl}
    request = httpx2.Request("POST", f"{base}/v1/reviews", headers={"Authorization": f"Bearer {served.key}"})
    return httpx2.Response(202, json=body, request=request)


def resident() -> int:
    """The resident memory of this process, in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@asynccontextmanager
async def waiting(
    served: Server, clock: Clock, *, follows: bool
) -> AsyncGenerator[tuple[list[asyncio.Task[Any]], float]]:
    """A client with its waits running, and the memory of each wait in bytes."""
    async with HitlClient(deliver=nobody, clock=clock) as client:
        await client.request("GET", f"http://127.0.0.1:{served.port}/healthz")  # a warm-up
        before, open_before = resident(), descriptors()
        waits = [
            asyncio.create_task(client.handle(asked(served, number, follows=follows)))
            for number in range(WAITS)
        ]
        try:
            while follows and descriptors() < open_before + WAITS:  # noqa: ASYNC110  (the client opens them)
                await asyncio.sleep(0.1)
            await asyncio.sleep(35 / SPEED)  # until each wait has polled once and the machine is idle
            yield waits, (resident() - before) / WAITS
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def timed(answering: Coroutine[Any, Any, None], outcome: asyncio.Task[Any]) -> float:
    """Seconds from sending an answer to its outcome."""
    begin = time.perf_counter()
    sent = asyncio.create_task(answering)
    action = await outcome
    taken = time.perf_counter() - begin
    assert getattr(action, "action", action) == "approve", action
    await sent
    return taken


async def by_events(folder: Path) -> list[Figure]:
    """Waits that follow events; a case of such a wait and a case of a bare stream are answered in turns."""
    async with (
        server(folder / "events.db", WAITS + ANSWERS + WARM_UP) as served,
        waiting(served, SystemClock(), follows=True) as (waits, each),
    ):
        person = await served.connect()
        ours: list[float] = []
        bare: list[float] = []
        for number in range(ANSWERS + WARM_UP):
            ours.append(await timed(approve(served, number, person), waits[number]))
            stream = await follow(served, WAITS + number)
            bare.append(await answered(served, WAITS + number, stream, person))
    mine, theirs = statistics.median(ours[WARM_UP:]), statistics.median(bare[WARM_UP:])
    note = f"{mine * 1e3:.1f} ms against {theirs * 1e3:.1f} ms"
    return [
        Figure(f"memory of a wait by events, of {WAITS:,}", each / 1024, 80, unit="KB"),
        Figure("answer to outcome by events / a bare stream", mine / theirs, 2, note=note),
    ]


async def bare_poller(served: Server, number: int) -> str:
    """Polls as often as the service allows; returns the decision."""
    while True:
        connection = await served.connect()  # the server closes an idle connection before the next poll
        told = json.loads(await connection.ask(served.status(number)))
        if told["status"] == "completed":
            return told["result"]["action"]
        await asyncio.sleep(30 / SPEED)


async def by_polls(folder: Path) -> list[Figure]:
    """Waits that poll, and bare pollers with the same interval; equally many are answered, over several intervals."""
    async with (
        server(folder / "polls.db", WAITS + ANSWERS) as served,
        waiting(served, QuickClock(), follows=False) as (waits, each),
    ):
        pause = 2 * 30 / SPEED / ANSWERS
        pollers: list[asyncio.Task[str]] = []
        for number in range(WAITS, WAITS + ANSWERS):
            pollers.append(asyncio.create_task(bare_poller(served, number)))
            await asyncio.sleep(pause)
        ours: list[asyncio.Task[float]] = []
        bare: list[asyncio.Task[float]] = []
        for number, poller in enumerate(pollers):
            people = await served.connect(), await served.connect()
            ours.append(asyncio.create_task(timed(approve(served, number, people[0]), waits[number])))
            bare.append(asyncio.create_task(timed(approve(served, WAITS + number, people[1]), poller)))
            await asyncio.sleep(pause)
        mine = statistics.mean([await taken for taken in ours])
        theirs = statistics.mean([await taken for taken in bare])
    note = f"{mine:.2f} s against {theirs:.2f} s, at {SPEED:g} times the pace"
    return [
        Figure(f"memory of a wait by polls, of {WAITS:,}", each / 1024, 40, unit="KB"),
        Figure("answer to outcome by polls / a bare poller", mine / theirs, 2, note=note),
    ]
