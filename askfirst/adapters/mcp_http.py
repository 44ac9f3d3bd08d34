"""The MCP gate as a web server in front of an MCP server (streamable HTTP)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from email.message import EmailMessage
from urllib.parse import urlsplit

import httpx2
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from askfirst.adapters.mcp_gate import McpGate, is_gated
from askfirst.adapters.mcp_http_upstream import (
    HOP_BY_HOP,
    HttpRefusal,
    HttpUpstream,
    forwarded_headers,
    header_text,
)
from askfirst.adapters.mcp_messages import INVALID_REQUEST, Message, Refusal, as_object, dump, line_of, read
from askfirst.loopback import LOOPBACK_HOSTS

LARGEST_BODY = 64 * 1024 * 1024
"""The most bytes of a request's body."""


class HttpGate:
    """A reverse proxy for one MCP endpoint that puts tool calls to the gate.

    All other requests and responses pass unchanged, event streams too. ``requester`` is who calls, if a request has
    no ``Authorization`` header that tells callers apart.
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
        await self._gate.aclose()
        await self._client.aclose()

    async def _handle(self, request: Request) -> Response:
        if not _is_local(request.headers.get("origin")):
            return PlainTextResponse("the gate accepts no requests from web pages of other origins", 403)
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
                _check_headers(request, message)
            except Refusal as refusal:
                return Response(dump(refusal.message), 400, media_type="application/json")
            if is_gated(message):
                answered = await self._gated(request, message, raw)
                if answered is not None:
                    return answered
        return await self._pass(request, self._upstream, raw)

    async def _pass(self, request: Request, url: str, body: bytes) -> Response:
        """Forward a request unchanged, and stream its response back."""
        headers = forwarded_headers(request.headers.raw, drop=HOP_BY_HOP)
        sent = self._client.build_request(request.method, url, headers=headers, content=body)
        try:
            back = await self._client.send(sent, stream=True)
        except httpx2.TransportError as error:
            return PlainTextResponse(f"the server cannot be reached: {type(error).__name__}", 502)
        answer = StreamingResponse(back.aiter_raw(), back.status_code, background=BackgroundTask(back.aclose))
        answer.raw_headers = forwarded_headers(back.headers.raw, drop=HOP_BY_HOP)
        return answer

    async def _gated(self, request: Request, message: Message, raw: bytes) -> Response | None:
        """Put a call to the gate; None if the call is to be forwarded. Events that the server sends first are
        streamed."""
        upstream = HttpUpstream(self._client, self._upstream, request)
        line = line_of(raw, message)
        requester = _requester(request, self._requester)
        task = asyncio.create_task(self._gate.handle(message, line, upstream, requester))
        event = asyncio.create_task(upstream.events.get())
        await asyncio.wait({task, event}, return_when=asyncio.FIRST_COMPLETED)
        if not event.done():
            event.cancel()
            try:
                answer = await task
            except HttpRefusal as refusal:
                return refusal.response
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


def _check_headers(request: Request, message: Message) -> None:
    """Raise `Refusal` for headers that could make a server read another message than the gate reads."""
    said, parameters = _content_type(request)
    if said != "application/json" or parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        raise Refusal(INVALID_REQUEST, "a message is application/json in UTF-8", message.get("id"))
    repeats = {"mcp-method": message.get("method")}
    if message.get("method") == "tools/call":
        repeats["mcp-name"] = as_object(message.get("params")).get("name")
    for name, value in repeats.items():
        for given in request.headers.getlist(name):
            if not isinstance(value, str) or given not in (value, header_text(value)):
                raise Refusal(
                    INVALID_REQUEST,
                    f"the header {name} does not agree with the message",
                    message.get("id"),
                )


def _content_type(request: Request) -> tuple[str, dict[str, str]]:
    header = EmailMessage()
    header["content-type"] = request.headers.get("content-type", "")
    return header.get_content_type(), dict(header["content-type"].params)


def _requester(request: Request, otherwise: str) -> str:
    """Who calls: a digest of the request's ``Authorization`` header; without one, ``otherwise``."""
    login = request.headers.get("authorization")
    return otherwise if login is None else f"authorization:{hashlib.sha256(login.encode()).hexdigest()}"


def _is_local(origin: str | None) -> bool:
    """Whether a request comes from a page of this machine, or has no origin because no browser sent it."""
    return origin is None or urlsplit(origin).hostname in LOOPBACK_HOSTS
