"""The service: the cost of a poll, an event to its streams, a new case, and a hundred thousand open cases."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.service.api import open_review
from askfirst.service.app import create_app
from askfirst.service.budgets import Budgets
from askfirst.service.embedding import running, service_in
from askfirst.service.new_review import ReviewRequest
from askfirst.store import sqlite_engine
from benchmarks.measure import Figure, interleaved
from benchmarks.open_files import allow_many

POLLERS, POLLS = 8, 400
STREAMS, ANSWERS = 2_000, 60
FEW, MANY = 100, 100_000
BEFORE = 500
"""Cases that are opened before the recorded one, so that its row number differs from all other numbers in the row."""


def figures() -> Iterator[Figure]:
    allow_many()
    with tempfile.TemporaryDirectory() as folder:
        yield asyncio.run(polls(Path(folder)))
        yield asyncio.run(streams(Path(folder)))
        yield asyncio.run(creation(Path(folder)))
        yield asyncio.run(among_many(Path(folder)))
        from benchmarks.hostile import hostile  # here, because it imports this module

        yield from asyncio.run(hostile(Path(folder)))


# A service in a separate process, and a client with little overhead.


@dataclass
class Connection:
    """A persistent connection to a server, with a minimal HTTP client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes) -> bytes:
        """Send a request and return the answer's body; its status has to be 200."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await self.reader.readexactly(length)
        assert b" 200 " in head[:13], head + body
        return body


@dataclass
class Server:
    """A running service with open cases: their ids and review tokens."""

    port: int
    key: str
    cases: list[tuple[str, str]]
    connections: list[Connection] = field(default_factory=list[Connection])

    async def connect(self) -> Connection:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        self.connections.append(connection)
        return connection

    def get(self, path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {self.key}\r\n\r\n".encode()

    def status(self, number: int) -> bytes:
        return self.get(f"/v1/reviews/{self.cases[number % len(self.cases)][0]}/status")


@asynccontextmanager
async def server(path: Path, cases: int) -> AsyncIterator[Server]:
    command = [sys.executable, "-m", "benchmarks.serving", str(path), str(cases)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, limit=2**24)
    assert process.stdout is not None
    try:
        served = Server(**json.loads(await process.stdout.readline()))
        yield served
        for connection in served.connections:
            connection.writer.close()
    finally:
        process.terminate()
        await process.wait()


# Polling.


async def polls(folder: Path) -> Figure:
    """Eight pollers at once, as fast as they can, over many cases in turn, so that no case is polled too often."""
    async with server(folder / "polls.db", 3_000) as served:
        pollers = [await served.connect() for _ in range(POLLERS)]
        count = 0

        async def poll(poller: Connection, path: Callable[[str], str]) -> None:
            nonlocal count
            for _ in range(POLLS // POLLERS):
                count += 1
                await poller.ask(served.get(path(served.cases[count % len(served.cases)][0])))

        def all_of(path: Callable[[str], str]) -> Callable[[], Awaitable[object]]:
            return lambda: asyncio.gather(*(poll(poller, path) for poller in pollers))

        ours = all_of(lambda case_id: f"/v1/reviews/{case_id}/status")
        by_hand = all_of(lambda case_id: f"/bare/{case_id}")
        mine, theirs = await interleaved(ours, by_hand, rounds=15, per_round=1)
    note = f"{POLLS / mine:.0f} polls/s against {POLLS / theirs:.0f}"
    return Figure("polls per second / a bare FastAPI route", theirs / mine, 0.5, at_least=True, note=note)


# Following.


async def follow(served: Server, number: int) -> Connection:
    """A stream of a case's events, open and waiting."""
    connection = await served.connect()
    connection.writer.write(served.get(f"/v1/reviews/{served.cases[number][0]}/events"))
    await connection.reader.readuntil(b"retry: 3000")
    return connection


async def approve(served: Server, number: int, person: Connection) -> None:
    """A person approves a case."""
    case_id, token = served.cases[number]
    body = '{"action":"approve","data":{}}'
    head = f"POST /review/{case_id}/respond?token={token} HTTP/1.1\r\nHost: a\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    await person.ask((head + body).encode())


async def answered(served: Server, number: int, stream: Connection, person: Connection) -> float:
    """Seconds from sending an answer to receiving its event."""
    begin = time.perf_counter()
    answering = asyncio.create_task(approve(served, number, person))
    await stream.reader.readuntil(b"event: review.completed")
    taken = time.perf_counter() - begin
    await answering
    stream.writer.close()
    return taken


async def streams(folder: Path) -> Figure:
    """Two services, one with many streams and one with a single stream; a case of each is answered in turns."""
    async with (
        server(folder / "streams.db", STREAMS + ANSWERS) as busy,
        server(folder / "stream.db", ANSWERS) as quiet,
    ):
        opened = [await follow(busy, number) for number in range(STREAMS)]
        people = await busy.connect(), await quiet.connect()
        many: list[float] = []
        single: list[float] = []
        for number in range(ANSWERS):
            many.append(await answered(busy, number, opened[number], people[0]))
            opened.append(await follow(busy, STREAMS + number))
            single.append(await answered(quiet, number, await follow(quiet, number), people[1]))
        mine, theirs = statistics.median(many), statistics.median(single)
    note = f"{mine * 1e3:.1f} ms against {theirs * 1e3:.1f} ms"
    return Figure(f"answer to event with {STREAMS:,} streams / with 1", mine / theirs, 3, note=note)


# Opening.

REVIEW = {
    "type": "approval",
    "prompt": "May order 1042 be shipped to the new address?",
    "context": {"order": 1042, "address": "1 Long Lane, Leeds"},
    "timeout": "24h",
}


async def creation(folder: Path) -> Figure:
    async with SQLiteCheckpointer(folder / "raw.db"):
        pass  # makes the same tables and indexes
    many = Budgets(open_cases=10**9, cases_per_hour=10**9)
    url = f"sqlite:///{folder / 'created.db'}"
    app = create_app(url, base_url="http://127.0.0.1:8000", budgets=many)
    async with running(app):
        service = service_in(app)

        async def ours() -> None:
            await open_review(service, "key_bench", ReviewRequest.model_validate(REVIEW))

        for _ in range(BEFORE):
            await ours()
        raw = _replayed(folder / "raw.db", await _recorded(ours))

        async def by_hand() -> None:
            raw()

        mine, theirs = await interleaved(ours, by_hand, rounds=25, per_round=20)
    note = f"{mine * 1e3:.2f} ms against {theirs * 1e3:.2f} ms"
    return Figure("opening a case / its raw inserts", mine / theirs, 3, note=note)


Sent = tuple[str, list[Any]]


async def _recorded(work: Callable[[], Awaitable[None]]) -> list[Sent]:
    """The statements that opening one case sends."""
    sent: list[Sent] = []
    execute = sqlite_engine._execute

    def recording(connection: sqlite3.Connection, statement: Any, params: Any) -> Any:
        sql, arguments, reads = statement.form(sqlite_engine._DIALECT)
        if not reads:
            sent.extend(
                (sql, list(arguments(one))) for one in (params if isinstance(params, list) else [params])
            )
        return execute(connection, statement, params)

    with mock.patch.object(sqlite_engine, "_execute", recording):
        await work()
    assert [re.search("askfirst_[a-z_]+", sql)[0] for sql, _ in sent] == [  # pyright: ignore[reportOptionalSubscript]
        "askfirst_cases",
        "askfirst_usage",
        "askfirst_case_tokens",
        "askfirst_acts",
        "askfirst_acts",
    ], sent
    return sent


def _replayed(path: Path, sent: list[Sent]) -> Callable[[], None]:
    """A function that sends the same statements in one commit, with new ids each time."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    # The case's id, the hash of its token, and the ids of its rows in the audit trail.
    _, _, (_, token), *acts = sent
    names = {sent[0][1][0], token[1], *(act[0] for _, act in acts)}
    count = 0

    def run() -> None:
        nonlocal count
        count += 1
        new: dict[Any, Any] = {name: f"{name[:-8]}{count:08x}" for name in names}
        connection.execute("BEGIN IMMEDIATE")
        for sql, values in sent:
            connection.execute(sql, [new.get(value, value) for value in values])
        connection.execute("COMMIT")

    return run


# Many open cases.


async def among_many(folder: Path) -> Figure:
    async with server(folder / "many.db", MANY) as full, server(folder / "few.db", FEW) as empty:
        asking = await full.connect(), await empty.connect()
        counts = [0, 0]

        def poll(which: int, served: Server) -> Callable[[], Awaitable[object]]:
            def one() -> Awaitable[object]:
                counts[which] += 1
                return asking[which].ask(served.status(counts[which] * 37))

            return one

        mine, theirs = await interleaved(poll(0, full), poll(1, empty), rounds=60, per_round=25)
    note = f"{mine * 1e3:.2f} ms against {theirs * 1e3:.2f} ms"
    return Figure(f"status of one among {MANY:,} open cases / {FEW}", mine / theirs, 1.2, note=note)
