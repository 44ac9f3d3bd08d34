"""The service on a real uvicorn, and its clients: agents over the API, people with forms."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import httpx2
import uvicorn
from fastapi import FastAPI

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import StoreError
from askfirst.protocol import (
    ErrorBody,
    HumanInputRequired,
    InlineSubmitRejected,
    PollResponse,
    SubmissionAccepted,
)
from askfirst.protocol.wire import Wire
from askfirst.service import background
from askfirst.service.app import create_app
from askfirst.service.context import Service
from kit.patience import PATIENCE
from kit.published_protocol import PUBLISHED, published_validator

SECRET = "a secret of the server that is long enough"  # noqa: S105
BROWSER = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
    "Sec-Fetch-Site": "none",
}
BUTTON = {
    "submitted_via": "telegram_inline_button",
    "submitted_by": {"platform": "telegram", "platform_user_id": "7", "display_name": "Ada"},
}


class HandClock:
    """A clock that stands still until it is turned; its ``sleep`` returns soon."""

    def __init__(self) -> None:
        self.time = float(int(time.time()))

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.002)  # without any sleep, a repeated task would keep a core busy

    def turn(self, seconds: float) -> None:
        self.time += seconds


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        return nullcontext()  # pytest's own handlers stay


class _Hasty:
    """`asyncio` with a shorter ``sleep``, for uvicorn, which otherwise takes a fifth of a second to shut down."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.005))

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


@asynccontextmanager
async def listening(make: Callable[[str], Any]) -> AsyncGenerator[tuple[str, Any]]:
    """Serve an application on a port of this machine; ``make`` makes it from its address."""
    # With the protocol named, asyncio sends without delay; else each answer waits for 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        app = make(url)
        config = uvicorn.Config(
            app, log_level="warning", lifespan="on", timeout_graceful_shutdown=1, access_log=False
        )
        server = _Server(config)
        with mock.patch.object(uvicorn.server, "asyncio", _Hasty()):
            task = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                while not server.started:
                    if task.done():
                        task.result()
                    await asyncio.sleep(0.005)
                yield url, app
            finally:
                server.should_exit = True
                await task


@dataclass
class Served:
    """A running service, and a client without a key."""

    url: str
    app: FastAPI
    http: httpx2.AsyncClient
    tokens: list[str] = field(default_factory=list)
    """All secrets that the service issued."""

    @property
    def service(self) -> Service:
        return self.app.state.service

    async def agent(self, name: str = "agent") -> Agent:
        """A caller with a new API key."""
        issued = await self.service.keys.issue(name, by="test")
        self.tokens.append(issued.text)
        return Agent(self, issued.key_id, {"Authorization": f"Bearer {issued.text}"})


@asynccontextmanager
async def serving(
    store: SqlCheckpointer | str, *, quick: bool = True, **options: Any
) -> AsyncGenerator[Served]:
    """Run the service on a store; with ``quick`` its background tasks run without delay."""
    options = {"secret": SECRET, "development": True, "hold_seconds": 0, **options}
    with _quick() if quick else nullcontext():
        async with (
            listening(lambda url: create_app(store, base_url=url, **options)) as (url, app),
            httpx2.AsyncClient(
                base_url=url, timeout=PATIENCE, limits=httpx2.Limits(max_connections=200)
            ) as http,
        ):
            yield Served(url, app, http)


@contextmanager
def _quick() -> Any:
    before = background.SWEEP_SECONDS, background.HINT_SECONDS
    background.SWEEP_SECONDS = background.HINT_SECONDS = 0.02
    try:
        yield
    finally:
        background.SWEEP_SECONDS, background.HINT_SECONDS = before


@dataclass
class Agent:
    """A client that opens and polls cases. Every message is validated against the published schemas."""

    served: Served
    key_id: str
    headers: dict[str, str]

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return await self.served.http.post(path, json=body, headers={**self.headers, **headers})

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.served.http.get(path, headers={**self.headers, **headers})

    async def open(self, type: str = "approval", **fields: Any) -> Opened:
        """Open a case."""
        answer = await self.post("/v1/reviews", {"type": type, "prompt": "Please decide.", **fields})
        assert answer.status_code == 202, answer.text
        assert answer.headers["retry-after"]
        return Opened(self, fits(HumanInputRequired, answer.json())["hitl"])


@dataclass
class Opened:
    """A case, from its hitl object."""

    agent: Agent
    hitl: dict[str, Any]

    def __post_init__(self) -> None:
        secret = [self.token, self.hitl.get("submit_token")]
        self.agent.served.tokens += [token for token in secret if token]

    @property
    def case_id(self) -> str:
        return self.hitl["case_id"]

    @property
    def token(self) -> str:
        """The link's token; empty if the service does not give it to the caller."""
        return parse_qs(urlsplit(self.hitl["review_url"]).query).get("token", [""])[0]

    @property
    def http(self) -> httpx2.AsyncClient:
        return self.agent.served.http

    async def poll(self) -> dict[str, Any]:
        """The answer to a poll."""
        answer = await self.http.get(self.hitl["poll_url"], headers=self.agent.headers)
        assert answer.status_code == 200, answer.text
        return fits(PollResponse, answer.json())

    async def visit(self, **headers: str) -> httpx2.Response:
        """A person opens the link."""
        return await self.http.get(self.hitl["review_url"], headers={**BROWSER, **headers})

    async def form(self, **fields: Any) -> httpx2.Response:
        """A person presses a button of the page."""
        headers = {**BROWSER, "Sec-Fetch-Site": "same-origin", "Origin": "null"}
        return await self.http.post(self._respond, data=fields, headers=headers)

    async def say(self, action: str, data: Any = None, **headers: str) -> httpx2.Response:
        """The page's answer as JSON."""
        body = {"action": action} if data is None else {"action": action, "data": data}
        answer = await self.http.post(self._respond, json=body, headers=headers)
        return _fitting(answer)

    async def press(self, action: str, data: Any = None, **more: Any) -> httpx2.Response:
        """A button in a messenger."""
        headers = {"Authorization": f"Bearer {self.hitl['submit_token']}"}
        body = {"action": action, **BUTTON, **more} | ({} if data is None else {"data": data})
        return _fitting(await self.http.post(self.hitl["submit_url"], json=body, headers=headers))

    async def cancel(self, **body: Any) -> httpx2.Response:
        """The agent cancels the case."""
        return await self.agent.post(f"/v1/reviews/{self.case_id}/cancel", body or None)

    @property
    def _respond(self) -> str:
        return f"/review/{self.case_id}/respond?token={self.token}"


def _fitting(answer: httpx2.Response) -> httpx2.Response:
    if answer.headers["content-type"].startswith("application/json"):
        body = answer.json()
        kind: type[Wire] = SubmissionAccepted if answer.is_success else ErrorBody
        fits(InlineSubmitRejected if answer.status_code == 403 and "case_id" in body else kind, body)
    return answer


def fits(model: type[Wire], body: Any) -> Any:
    """Assert that a message fits our model and, if available, the published schemas; returns the message."""
    model.read(body)
    if PUBLISHED.is_dir():
        faults = [error.message for error in published_validator(model).iter_errors(body)]
        assert not faults, (model.__name__, faults, body)
    return body


async def until(check: Callable[[], Awaitable[Any]]) -> Any:
    """Call ``check`` until it returns something true, and return that."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await check()):  # noqa: ASYNC110  (what it waits for may be in another process)
            await asyncio.sleep(0.01)
    return found


@dataclass(frozen=True)
class Event:
    """A server-sent event."""

    id: int
    event: str
    data: dict[str, Any]


async def events(
    http: httpx2.AsyncClient, url: str, headers: dict[str, str], after: int | None = None
) -> AsyncIterator[Event]:
    """A stream's events until it closes; ``after`` is the id of the last known event, as after a reconnect."""
    told = headers if after is None else {**headers, "Last-Event-ID": str(after)}
    async with http.stream("GET", url, headers=told) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in stream.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                data = json.loads(fields["data"])
                own = ("reminder_at", "message") if fields["event"] == "review.reminder" else ()
                fits(PollResponse, {name: data[name] for name in data if name not in own})
                yield Event(int(fields["id"]), fields["event"], data)
                fields = {}


def not_answering(*_: object) -> asyncio.Future[Any]:
    """An engine's ``read`` while its database does not answer: a future that never ends."""
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(StoreError("the database at db.internal does not answer"))
    return failed
