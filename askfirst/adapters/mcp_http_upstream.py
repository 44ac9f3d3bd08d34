"""An MCP server behind the gate that is reached by HTTP: a client's request is forwarded with its headers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import httpx2
from starlette.requests import Request
from starlette.responses import Response

from askfirst.adapters.mcp_messages import Message, as_object, dump
from askfirst.adapters.mcp_upstream import UpstreamLost, UpstreamRefused, find_tool
from askfirst.ids import new_id

HOP_BY_HOP = frozenset(
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
"""Hop-by-hop headers: they concern one connection, and are not forwarded."""
_OWN = frozenset({"content-length", "accept-encoding"})
_MIRRORED = b"mcp-param-"
"""The prefix of headers that repeat arguments of a call."""
_REFUSALS = frozenset({401, 403, 404})
"""Statuses that clients get unchanged, because they have to act: log in, or begin a new session."""


class HttpRefusal(UpstreamRefused):
    """The server refused a request with an HTTP status; the client gets the same response."""

    def __init__(self, back: httpx2.Response, body: bytes) -> None:
        super().__init__(f"HTTP {back.status_code}")
        self.response = Response(body, back.status_code)
        self.response.raw_headers = forwarded_headers(
            back.headers.raw, drop=HOP_BY_HOP | {"content-encoding"}
        )


class HttpUpstream:
    """The server behind the gate, for one HTTP request of a client."""

    def __init__(self, client: httpx2.AsyncClient, url: str, request: Request) -> None:
        self._client = client
        self._url = url
        self._request = request
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        """Events that the server sends before its response, such as progress."""

    async def request(self, message: Message, raw: bytes | None = None) -> tuple[bytes, Message]:
        """Post a request, and wait for its response. Raises `UpstreamLost` and `HttpRefusal`."""
        return await self._post(message, dump(message) if raw is None else raw, forwards_events=True)

    async def tool(self, name: str, meta: Message) -> Message | None:
        """The definition of a tool, as the server gives it now."""

        async def ask(message: Message) -> Message:
            message = {**message, "id": new_id()}
            return (await self._post(message, dump(message), forwards_events=False))[1]

        return await find_tool(ask, name, meta)

    async def _post(self, message: Message, body: bytes, *, forwards_events: bool) -> tuple[bytes, Message]:
        headers = forwarded_headers(self._request.headers.raw, drop=HOP_BY_HOP | _OWN)
        if any(name == b"mcp-method" for name, _ in headers):
            headers = _mirrored(headers, message)
        headers.append((b"accept-encoding", b"identity"))
        sent = self._client.build_request("POST", self._url, headers=headers, content=body)
        try:
            back = await self._client.send(sent, stream=True)
            try:
                if back.headers.get("content-type", "").startswith("text/event-stream"):
                    return await self._from_events(back, message, forwards_events=forwards_events)
                whole = await back.aread()
            finally:
                await back.aclose()
            if back.status_code in _REFUSALS:
                raise HttpRefusal(back, whole)
            return whole, json.loads(whole)
        except (httpx2.TransportError, ValueError):
            raise UpstreamLost from None

    async def _from_events(
        self, back: httpx2.Response, message: Message, *, forwards_events: bool
    ) -> tuple[bytes, Message]:
        async for event, data in _events(back.aiter_bytes()):
            told = as_object(json.loads(data)) if data else {}
            if "method" not in told and told.get("id") == message["id"]:
                return data, told
            if forwards_events:
                self.events.put_nowait(event)
        raise UpstreamLost


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, bytes]]:
    """The server-sent events of a stream: each as its bytes, and its data."""
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


def forwarded_headers(raw: list[tuple[bytes, bytes]], drop: frozenset[str]) -> list[tuple[bytes, bytes]]:
    """The headers to forward: all but those to ``drop``."""
    return [(name, value) for name, value in raw if name.lower().decode("latin-1") not in drop]


def _mirrored(headers: list[tuple[bytes, bytes]], message: Message) -> list[tuple[bytes, bytes]]:
    """The headers for another body: those that repeat parts of the body (MCP 2026-07-28) are replaced."""
    params = as_object(message.get("params"))
    is_call = message["method"] == "tools/call"
    kept = [
        (name, value)
        for name, value in headers
        if name not in (b"mcp-method", b"mcp-name") and (is_call or not name.startswith(_MIRRORED))
    ]
    kept.append((b"mcp-method", header_text(str(message["method"])).encode()))
    if is_call:
        kept.append((b"mcp-name", header_text(str(params["name"])).encode()))
    return kept


def header_text(text: str) -> str:
    """A text as a value of MCP's headers: encoded in Base64 unless it is printable ASCII."""
    is_plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?")
    return text if is_plain else f"=?base64?{base64.b64encode(text.encode()).decode()}?="
