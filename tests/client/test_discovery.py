"""Discovery: what a service says about itself, or a clear word about why not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from kit.running_service import serving

from askfirst.client.discovery import MOST_BYTES, PATH, discover
from askfirst.errors import DiscoveryFailed

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def raw(answers: dict[str, bytes]) -> AsyncGenerator[str]:
    """A server that answers each path with these very bytes, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            writer.write(answers.get(head.split(" ")[1], b""))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + body


def document(**facts: Any) -> bytes:
    return json.dumps({"hitl_protocol": {"spec_version": "0.8", **facts}}).encode()


def moved(to: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


async def refusal(http: httpx2.AsyncClient, url: str) -> str:
    with pytest.raises(DiscoveryFailed) as failed:
        await discover(http, url)
    return str(failed.value)


async def test_our_own_service() -> None:
    async with serving("sqlite://") as served, httpx2.AsyncClient() as http:
        found = await discover(http, f"{served.url}/some/page?x=1")
    said = found.hitl_protocol
    assert said.spec_version == "0.8"
    assert said.capabilities is not None
    assert "sse" in (said.capabilities.transports or [])


async def test_an_earlier_version_and_a_redirect_on_the_host() -> None:
    old = json.dumps({"hitl_protocol": {"spec_version": "0.6", "service": {"name": "Old"}}}).encode()
    async with raw({PATH: moved("/elsewhere"), "/elsewhere": ok(old)}) as url, httpx2.AsyncClient() as http:
        found = await discover(http, url)
    assert found.hitl_protocol.service is not None
    assert found.hitl_protocol.service.name == "Old"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "there is no /.well-known/hitl.json"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "answered with HTTP 503"),
        (ok(b"<html>secret-page</html>"), "is not JSON"),
        (ok(document(spec_version="9.9")), "hitl_protocol.spec_version must be '0.8'"),
        (ok(b"[]"), "must be an object"),
        (ok(document(capabilities={"transports": ["pigeon"]})), "capabilities.transports"),
        (ok(b" " * (MOST_BYTES + 1)), f"has more than {MOST_BYTES} bytes"),
        (moved("https://elsewhere.example/hitl.json"), "leads to another host, elsewhere.example"),
        (moved(PATH), "redirected again and again"),
        (b"", "could not be reached (RemoteProtocolError)"),
    ],
)
async def test_what_is_wrong_is_said(answer: bytes, said: str) -> None:
    async with raw({PATH: answer}) as url, httpx2.AsyncClient() as http:
        told = await refusal(http, url)
    assert said in told
    assert told.startswith(url.removeprefix("http://"))
    assert "secret-page" not in told


async def test_addresses_that_are_not_even_tried() -> None:
    async with httpx2.AsyncClient() as http:
        for url in ("http://reviews.example", "ftp://reviews.example", "reviews.example", ""):
            assert "begins with https://" in await refusal(http, url)


async def test_nothing_listens_and_no_login_is_shown() -> None:
    async with raw({}) as url:
        gone = url
    async with httpx2.AsyncClient() as http:
        told = await refusal(http, gone.replace("http://", "http://ann:password@"))
    assert "could not be reached (ConnectError)" in told
    assert "password" not in told
