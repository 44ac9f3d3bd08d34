"""The slowest request of the hostile corpus against an ordinary poll, and how long a poll waits meanwhile."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure
from benchmarks.service import Connection, Server, server

CORPUS = Path(__file__).parent.parent / "tests" / "kit" / "hostile_corpus.py"
POLLS = 200
JSON = "application/json"


def corpus() -> Any:
    """The module of the tests with the hostile requests."""
    spec = importlib.util.spec_from_file_location("hostile_corpus", CORPUS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def exchange(connection: Connection, request: bytes) -> tuple[int, bytes]:
    """Send a request; returns the status and the body of the answer."""
    connection.writer.write(request)
    head = await connection.reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    return int(head[9:12]), await connection.reader.readexactly(length)


def post(served: Server, path: str, kind: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {served.key}\r\n"
    return f"{head}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def path_of(url: str) -> str:
    return "/" + url.partition("://")[2].partition("/")[2]


class Slowest:
    """Measures requests one after another, while a poller polls."""

    def __init__(self, served: Server) -> None:
        self.served = served
        self.seconds, self.name = 0.0, ""
        self._polls = 0
        known = corpus()  # loaded before the polling starts, because the poller runs in this process, too
        self._bodies = {name: (kind, make()) for name, (kind, make) in known.BODIES.items()}
        self._openings = {name: make() for name, make in known.OPENINGS.items()}
        self._answers = {name: (kind, which, make()) for name, (kind, which, make) in known.ANSWERS.items()}

    async def poll(self, connection: Connection) -> float:
        self._polls += 1
        begin = time.perf_counter()
        await connection.ask(self.served.status(self._polls))
        return time.perf_counter() - begin

    async def measure(self, name: str, request: bytes) -> tuple[int, bytes]:
        """Send a request on a new connection."""
        connection = await self.served.connect()
        begin = time.perf_counter()
        status, body = await exchange(connection, request)
        taken = time.perf_counter() - begin
        connection.writer.close()
        assert status < 500, (name, status, body[:300])
        if taken > self.seconds:
            self.seconds, self.name = taken, name
        return status, body

    async def all(self) -> None:
        """Every request of the corpus, and the page of every case that it opens."""
        links: dict[str, str] = {}
        for name, (kind, sent) in self._bodies.items():
            case_id, token = self.served.cases[0]
            for path in (f"/v1/reviews/{case_id}/respond", f"/review/{case_id}/respond?token={token}"):
                await self.measure(name, post(self.served, path, kind, sent))
        for name, sent in self._openings.items():
            status, body = await self.measure(name, post(self.served, "/v1/reviews", JSON, sent))
            if status == 202:
                links[name] = path_of(json.loads(body)["hitl"]["review_url"])
                await self.measure(f"the page of {name}", self.served.get(links[name]))
        for name, (kind, which, sent) in self._answers.items():
            page, _, token = links[which].partition("?")
            await self.measure(name, post(self.served, f"{page}/respond?{token}", kind, sent))


async def hostile(folder: Path) -> Iterator[Figure]:
    """The time of the slowest request, and of polls that are made while the corpus is sent."""
    async with server(folder / "hostile.db", 3_000) as served:
        slowest, poller = Slowest(served), await served.connect()
        ordinary = statistics.median([await slowest.poll(poller) for _ in range(POLLS)])
        sending = asyncio.create_task(slowest.all())
        meanwhile: list[float] = []
        while not sending.done():
            meanwhile.append(await slowest.poll(poller))
            await asyncio.sleep(0.01)
        await sending
    said = f"{slowest.name}: {slowest.seconds * 1e3:.0f} ms against {ordinary * 1e3:.2f} ms"
    typical = statistics.median(meanwhile)
    note = f"at most {max(meanwhile) * 1e3:.0f} ms, of {len(meanwhile):,}"
    return iter(
        [
            Figure(
                "slowest hostile request / an ordinary poll", slowest.seconds / ordinary, 1_000, note=said
            ),
            Figure("a poll while hostile requests are sent / alone", typical / ordinary, 10, note=note),
        ]
    )
