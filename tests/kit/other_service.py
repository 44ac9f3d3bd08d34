"""A small service that asks a human, written from the protocol's SPEC alone: it shares no code with ours.

`OtherService` conforms to the protocol, and differs from our service: it has other addresses and minimal events. The
test plays the person. Services with faults are in `kit.other_service_bugs`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kit.patience import PATIENCE

KEY = "key-of-the-agent"
SECRET = "what the other service signs its callbacks with"  # noqa: S105
FINAL = ("completed", "expired", "cancelled")
REASONS = {200: "OK", 202: "Accepted", 304: "Not Modified"}


class QuickClock:
    """A clock that runs a thousand times as fast as the computer's: a day is over in a minute and a half."""

    def __init__(self, speed: float = 1000.0) -> None:
        self._speed = speed
        self._real, self._begin = time.monotonic(), 1_800_000_000.0

    def now(self) -> float:
        return self._begin + (time.monotonic() - self._real) * self._speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


class Cut(Exception):
    """The connection is closed here, without an answer."""


@dataclass
class Asked:
    """A request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"null")


@dataclass
class Reply:
    """An answer: a body, or a stream of pieces that may raise `Cut`."""

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cut: bool = False
    """Whether the connection is closed after the body, even if the headers announced more."""

    @classmethod
    def of(cls, content: Any, status: int = 200, **headers: str) -> Reply:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, json.dumps(content).encode(), {"Content-Type": "application/json", **told})


@dataclass
class OtherCase:
    """One case, and everything that happened to it."""

    case_id: str
    offer: dict[str, Any]
    created: float
    expires: float
    callback_url: str | None = None
    status: str = "pending"
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    version: int = 1
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    polls: int = 0
    streams: int = 0
    last_event_ids: list[str | None] = field(default_factory=list[str | None])
    """The ``Last-Event-ID`` of each stream."""

    @property
    def is_over(self) -> bool:
        return self.status in FINAL

    @property
    def is_known(self) -> bool:
        """Whether a client has polled the case, or follows its events."""
        return self.polls + self.streams > 0


class OtherService:
    """Cases in memory, for one agent. The test is the person: `decide`, `cancel`, `expire` and so on."""

    lifetime = 86_400.0
    follows = True
    """Whether it has streams of events."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self.url = ""
        self.fields: dict[str, Any] = {}
        """Additional fields for the hitl object of each case."""
        self.cases: dict[str, OtherCase] = {}
        self.requests: list[Asked] = []
        self.connections = 0
        """How many connections were ever made."""
        self.live = 0
        self.most = 0
        """The largest number of connections at once."""
        self.calls: list[int | None] = []
        """The status of each callback that was sent; None if there was no answer."""
        self._noticed = asyncio.Event()

    # What the person and the clock do.

    def open_page(self, case: OtherCase) -> None:
        self.move(case, "opened", opened_at=self.stamp())

    def work_on(self, case: OtherCase, **progress: int) -> None:
        self.move(case, "in_progress", progress=progress)

    def decide(self, case: OtherCase, action: str, data: Any = None, **more: Any) -> None:
        result = {"action": action, "data": {} if data is None else data}
        self.move(case, "completed", completed_at=self.stamp(), result=result, **more)

    def expire(self, case: OtherCase) -> None:
        default = case.offer.get("default_action", "skip")
        self.move(case, "expired", expired_at=self.stamp(), default_action=default)

    def cancel(self, case: OtherCase, reason: str) -> None:
        self.move(case, "cancelled", cancelled_at=self.stamp(), reason=reason)

    def remind(self, case: OtherCase) -> None:
        self.tell(case, "review.reminder", {"reminder_sent_at": self.stamp()})

    def move(self, case: OtherCase, status: str, **facts: Any) -> None:
        """Put a case into a state; the first final state counts."""
        if case.is_over:
            return
        case.status = status
        case.facts |= facts
        case.version += 1
        self.tell(case, f"review.{status}", facts)

    def tell(self, case: OtherCase, name: str, facts: dict[str, Any]) -> None:
        case.events.append((name, {"case_id": case.case_id, **facts}))
        changed, case.changed = case.changed, asyncio.Event()
        changed.set()

    def stamp(self, at: float | None = None) -> str:
        return datetime.fromtimestamp(self.now() if at is None else at, UTC).isoformat()

    # What the agent asks.

    async def answer(self, asked: Asked) -> Reply:
        """Answer a request: every request comes through this method."""
        self.requests.append(asked)
        noticed, self._noticed = self._noticed, asyncio.Event()
        noticed.set()
        match asked.path.strip("/").split("/"):
            case ["review", case_id] if case_id in self.cases:
                return self.page(self.cases[case_id], asked)
            case _ if asked.headers.get("authorization") != f"Bearer {KEY}":
                return Reply.of({"error": "unauthorized", "message": "who are you?"}, 401)
            case ["orders"] if asked.method == "POST":
                return await self.opened(self.open(asked.json))
            case ["cases", case_id] if case_id in self.cases:
                self.cases[case_id].polls += 1
                return await self.poll(self.cases[case_id], asked)
            case ["cases", case_id, "events"] if case_id in self.cases:
                self.cases[case_id].streams += 1
                self.cases[case_id].last_event_ids.append(asked.headers.get("last-event-id"))
                return await self.events(self.cases[case_id], asked)
            case ["status"]:
                return Reply.of({"fine": True})
            case _:
                return Reply.of({"error": "not_found", "message": "nothing here"}, 404)

    def open(self, body: Any = None, **fields: Any) -> OtherCase:
        """A new case with its hitl object."""
        case_id = f"case-{len(self.cases) + 1}-{secrets.token_hex(4)}"
        created, expires = self.now(), self.now() + self.lifetime
        callback_url = body.get("hitl_callback_url") if isinstance(body, dict) else None
        offer: dict[str, Any] = {
            "spec_version": "0.8",
            "case_id": case_id,
            "review_url": f"{self.url}/review/{case_id}?token={secrets.token_urlsafe(32)}",
            "poll_url": f"{self.url}/cases/{case_id}",
            "type": "approval",
            "prompt": "Ship order 7?",
            "created_at": self.stamp(created),
            "expires_at": self.stamp(expires),
            "callback_url": callback_url,
            **({"events_url": f"{self.url}/cases/{case_id}/events"} if self.follows else {}),
            **self.fields,
            **fields,
        }
        self.cases[case_id] = OtherCase(case_id, offer, created, expires, callback_url)
        return self.cases[case_id]

    async def opened(self, case: OtherCase) -> Reply:
        return Reply.of(self.wanted(case), 202)

    def wanted(self, case: OtherCase) -> dict[str, Any]:
        """The body of the 202."""
        return {
            "status": "human_input_required",
            "message": "A person has to look at this.",
            "hitl": case.offer,
        }

    async def poll(self, case: OtherCase, asked: Asked) -> Reply:
        if not case.is_over and self.now() >= case.expires:
            self.expire(case)
        tag = f'"v{case.version}"'
        if asked.headers.get("if-none-match") == tag:
            return Reply(304, headers={"ETag": tag, "Retry-After": "30"})
        return Reply.of(self.state(case), ETag=tag, Retry_After="30")

    def state(self, case: OtherCase) -> dict[str, Any]:
        told = {"status": case.status, "case_id": case.case_id, "created_at": self.stamp(case.created)}
        return {**told, **case.facts}

    async def events(self, case: OtherCase, asked: Asked) -> Reply:
        known = int(asked.headers.get("last-event-id") or 0)
        return Reply(200, self.stream(case, known), {"Content-Type": "text/event-stream; charset=utf-8"})

    async def stream(self, case: OtherCase, known: int) -> AsyncIterator[bytes]:
        yield b": welcome\n\n"
        while True:
            changed = case.changed
            for number, (name, data) in enumerate(case.events[known:], start=known + 1):
                yield self.event(number, name, data)
            known = len(case.events)
            if case.is_over:
                return
            await changed.wait()

    def event(self, number: int, name: str, data: Any) -> bytes:
        return f"id: {number}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()

    def page(self, case: OtherCase, asked: Asked) -> Reply:
        """The review page; the person's browser posts the answer to it."""
        if f"token={asked.query.get('token')}" not in case.offer["review_url"]:
            return Reply.of({"error": "not_found", "message": "nothing here"}, 404)
        if asked.method == "GET":
            self.open_page(case) if case.status == "pending" else None
            return Reply(200, b"<p>Ship order 7?</p>", {"Content-Type": "text/html"})
        if case.is_over:
            return Reply.of({"error": "duplicate_submission", "message": "too late"}, 409)
        self.decide(case, asked.json["action"], asked.json.get("data"))
        return Reply.of({"status": "completed", "case_id": case.case_id, "completed_at": self.stamp()})

    # Calling back.

    async def call_back(self, case: OtherCase) -> None:
        """Send the callback about a case's end, in at most three attempts."""
        body = json.dumps({"event": f"review.{case.status}", "case_id": case.case_id, **case.facts}).encode()
        for attempt in range(3):
            status = await self.post(case, body, self.signature(body))
            if status is not None and status < 500:
                return
            await asyncio.sleep(0.01 * 2**attempt)

    def signature(self, body: bytes) -> str:
        return "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()

    async def post(self, case: OtherCase, body: bytes, signature: str) -> int | None:
        """One attempt; returns the status of the answer."""
        assert case.callback_url is not None
        url = urlsplit(case.callback_url)
        head = (
            f"POST {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
            f"X-HITL-Signature: {signature}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        status = None
        try:
            reader, writer = await asyncio.open_connection(url.hostname, url.port)
            writer.write(head.encode() + body)
            status = int((await reader.readline()).split()[1])
            writer.close()
        except (OSError, IndexError):
            pass
        self.calls.append(status)
        return status

    # For tests.

    async def until(self, check: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is checked whenever a request comes in."""
        async with asyncio.timeout(PATIENCE):
            while not check():
                await self._noticed.wait()

    async def case(self, number: int = 0) -> OtherCase:
        """The case with this number, in the order of opening, once the agent has polled it."""
        await self.until(lambda: len(self.cases) > number and self.nth(number).is_known)
        return self.nth(number)

    def nth(self, number: int) -> OtherCase:
        return list(self.cases.values())[number]


# Sockets.


@asynccontextmanager
async def listening(service: OtherService) -> AsyncGenerator[OtherService]:
    """The service on a port of this machine."""
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_connection(service, reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=1024)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _connection(
    service: OtherService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    service.connections += 1
    service.live += 1
    service.most = max(service.most, service.live)
    try:
        while (asked := await _read(reader)) is not None:
            answering = asyncio.create_task(_answer(service, asked, writer))
            # This returns only if the client disconnects: it sends nothing more before it gets its answer.
            gone = asyncio.create_task(reader.read(1))
            try:
                await asyncio.wait([answering, gone], return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    return
                answering.result()
            finally:
                for task in (answering, gone):
                    task.cancel()
                await asyncio.gather(answering, gone, return_exceptions=True)
    except (Cut, OSError, asyncio.IncompleteReadError):
        writer.transport.abort()
    finally:
        service.live -= 1
        writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    return Asked(method, url.path, query, headers, body)


async def _answer(service: OtherService, asked: Asked, writer: asyncio.StreamWriter) -> None:
    reply = await service.answer(asked)
    whole = isinstance(reply.body, bytes)
    framing = {} if reply.status == 304 else {"Content-Length": str(len(reply.body))} if whole else {}
    if not whole:
        framing = {"Transfer-Encoding": "chunked"}
    lines = [f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Whatever')}"]
    lines += [f"{name}: {value}" for name, value in {**framing, **reply.headers}.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    if isinstance(reply.body, bytes):
        writer.write(reply.body)
    else:
        async for piece in reply.body:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    if reply.cut:
        raise Cut
