"""The MCP gate as a web server before another one (streamable HTTP)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx2
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from askfirst.adapters.mcp_gate import McpGate, UpstreamLost
from askfirst.adapters.mcp_messages import Message, Refusal, as_object, dump, line_of, read
from askfirst.adapters.mcp_stdio import GATED
from askfirst.adapters.mcp_tools import find_tool
from askfirst.ids import new_id
from askfirst.loopback import LOOPBACK_HOSTS

LARGEST_BODY = 64 * 1024 * 1024
_HOP = frozenset(
    {
        "connection",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that concern one connection, and are not passed on."""
_OWN = frozenset({"content-length", "accept-encoding"})
_MIRRORED = "mcp-param-"
"""How the headers begin that repeat arguments of a call."""


class HttpGate:
    """Passes HTTP requests on to one MCP endpoint, and puts calls of tools to the gate.

    What is not asked about passes as it comes, event streams too. ``requester`` is who calls, where a request has no
    ``Authorization`` that tells callers apart.
    """

    def __init__(
        self, gate: McpGate, upstream: str, requester: str, client: httpx2.AsyncClient | None = None
    ) -> None:
        self._gate = gate
        self._upstream = upstream
        self._requester = requester
        self._client = client or httpx2.AsyncClient(timeout=None, follow_redirects=False)
        parts = urlsplit(upstream)
        self._path = parts.path or "/"
        self._origin = f"{parts.scheme}://{parts.netloc}"
        every = ["GET", "POST", "DELETE", "OPTIONS"]
        self.app = Starlette(routes=[Route("/{path:path}", self._handle, methods=every)])
        """The gate as an ASGI application."""

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._client.aclose()

    async def _handle(self, request: Request) -> Response:
        if not _is_local(request.headers.get("origin")):
            return PlainTextResponse("the gate takes no requests of other sites' pages", 403)
        path = request.url.path
        if path.startswith("/.well-known/") and request.method == "GET":
            return await self._pass(request, f"{self._origin}{path}", b"")
        if path not in ("/", self._path):
            return PlainTextResponse(f"the MCP endpoint is {self._path}", 404)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_BODY:
                return PlainTextResponse("the message is too large", 413)
        raw = bytes(body)
        if request.method == "POST":
            try:
                message = read(raw)
            except Refusal as refusal:
                return Response(dump(refusal.message), 400, media_type="application/json")
            if message.get("method") in GATED and "id" in message:
                answered = await self._gated(request, message, raw)
                if answered is not None:
                    return answered
        return await self._pass(request, self._upstream, raw)

    async def _pass(self, request: Request, url: str, body: bytes) -> Response:
        """Send a request on as it came, and its response back as it comes."""
        headers = _headers(request.headers.raw, drop=_HOP)
        sent = self._client.build_request(request.method, url, headers=headers, content=body)
        try:
            back = await self._client.send(sent, stream=True)
        except httpx2.TransportError as error:
            return PlainTextResponse(f"the server cannot be reached: {type(error).__name__}", 502)
        answer = StreamingResponse(back.aiter_raw(), back.status_code, background=BackgroundTask(back.aclose))
        answer.raw_headers = _headers(back.headers.raw, drop=_HOP)
        return answer

    async def _gated(self, request: Request, message: Message, raw: bytes) -> Response | None:
        """Put a call to the gate; None if it passes. What the server says before its response is sent on at once."""
        upstream = _HttpUpstream(self._client, self._upstream, request)
        line = line_of(raw, message)
        requester = _requester(request, self._requester)
        task = asyncio.create_task(self._gate.handle(message, line, upstream, requester))
        event = asyncio.create_task(upstream.events.get())
        await asyncio.wait({task, event}, return_when=asyncio.FIRST_COMPLETED)
        if not event.done():
            event.cancel()
            answer = await task
            return None if answer is None else Response(answer.strip(), media_type="application/json")
        return StreamingResponse(
            _stream(event.result(), upstream.events, task), media_type="text/event-stream"
        )


async def _stream(
    first: bytes, events: asyncio.Queue[bytes], task: asyncio.Task[bytes | None]
) -> AsyncIterator[bytes]:
    yield first
    while not task.done() or not events.empty():
        event = asyncio.create_task(events.get())
        await asyncio.wait({task, event}, return_when=asyncio.FIRST_COMPLETED)
        if event.done():
            yield event.result()
        else:
            event.cancel()
    answer = await task
    if answer is not None:
        yield b"event: message\ndata: " + answer.strip() + b"\n\n"


class _HttpUpstream:
    """The server behind the gate, as one HTTP request of a client reaches it."""

    def __init__(self, client: httpx2.AsyncClient, url: str, request: Request) -> None:
        self._client = client
        self._url = url
        self._request = request
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        """What the server says before its response, such as progress."""

    async def request(self, message: Message, raw: bytes | None = None) -> tuple[bytes, Message]:
        """Post a request, and wait for its response. Raises `UpstreamLost`."""
        return await self._post(message, dump(message) if raw is None else raw, is_told=True)

    async def tool(self, name: str, meta: Message) -> Message | None:
        """The definition of a tool, as the server gives it now."""

        async def ask(message: Message) -> Message:
            message = {**message, "id": new_id()}
            return (await self._post(message, dump(message), is_told=False))[1]

        return await find_tool(ask, name, meta)

    async def _post(self, message: Message, body: bytes, *, is_told: bool) -> tuple[bytes, Message]:
        headers = _headers(self._request.headers.raw, drop=_HOP | _OWN)
        if any(name == b"mcp-method" for name, _ in headers):
            headers = _mirrored(headers, message)
        headers.append((b"accept-encoding", b"identity"))
        sent = self._client.build_request("POST", self._url, headers=headers, content=body)
        try:
            back = await self._client.send(sent, stream=True)
            try:
                if back.headers.get("content-type", "").startswith("text/event-stream"):
                    return await self._from_events(back, message, is_told=is_told)
                whole = await back.aread()
            finally:
                await back.aclose()
            return whole, json.loads(whole)
        except (httpx2.TransportError, ValueError):
            raise UpstreamLost from None

    async def _from_events(
        self, back: httpx2.Response, message: Message, *, is_told: bool
    ) -> tuple[bytes, Message]:
        async for event, data in _events(back.aiter_bytes()):
            told = as_object(json.loads(data)) if data else {}
            if "method" not in told and told.get("id") == message["id"]:
                return data, told
            if is_told:
                self.events.put_nowait(event)
        raise UpstreamLost


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, bytes]]:
    """The events of a stream: each as it came, and its data."""
    lines: list[bytes] = []
    rest = b""
    async for chunk in chunks:
        rest += chunk
        *whole, rest = rest.split(b"\n")
        for line in whole:
            lines.append(line)
            if line.strip(b"\r"):
                continue
            data = [it.rstrip(b"\r")[5:].removeprefix(b" ") for it in lines if it.startswith(b"data:")]
            yield b"\n".join(lines) + b"\n", b"\n".join(data)
            lines = []


def _headers(raw: list[tuple[bytes, bytes]], drop: frozenset[str]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in raw if name.lower().decode("latin-1") not in drop]


def _mirrored(headers: list[tuple[bytes, bytes]], message: Message) -> list[tuple[bytes, bytes]]:
    """The headers that repeat what the body says (MCP 2026-07-28), for another body."""
    params = as_object(message.get("params"))
    is_call = message["method"] == "tools/call"
    kept = [
        (name, value)
        for name, value in headers
        if name not in (b"mcp-method", b"mcp-name") and (is_call or not name.startswith(_MIRRORED.encode()))
    ]
    kept.append((b"mcp-method", str(message["method"]).encode()))
    if is_call:
        kept.append((b"mcp-name", str(params["name"]).encode()))
    return kept


def _requester(request: Request, otherwise: str) -> str:
    login = request.headers.get("authorization")
    return otherwise if login is None else f"authorization:{hashlib.sha256(login.encode()).hexdigest()}"


def _is_local(origin: str | None) -> bool:
    """Whether a request comes from no page of a browser, or from one of this machine."""
    return origin is None or urlsplit(origin).hostname in LOOPBACK_HOSTS
