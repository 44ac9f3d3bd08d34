"""Connections that are slow or too many, to a real ``askfirst serve`` over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.warm_python import warm_python

from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.service.keys import Keys

pytestmark = pytest.mark.anyio
PATIENCE = 90.0
QUICK = """
import sys
from askfirst.cli.connection_limits import Doorkeeper
from askfirst.cli.main import main
Doorkeeper.__init__.__kwdefaults__.update(header_seconds={head}, body_seconds={body})
sys.argv[1:] = {arguments!r}
main()
"""


@dataclass
class Serve:
    """A running ``askfirst serve``, with a key to it."""

    port: int
    key: str
    log: Path

    async def connect(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        return reader, writer

    async def ask(self, request: bytes) -> bytes:
        """What is answered, until the connection is closed."""
        reader, writer = await self.connect(request)
        try:
            async with asyncio.timeout(PATIENCE):
                return await heard(reader)
        finally:
            writer.close()

    async def health(self) -> bytes:
        return await self.ask(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")

    def lines(self, about: str) -> list[str]:
        """The log's messages about something."""
        said = [json.loads(line)["message"] for line in self.log.read_text("utf-8").splitlines()]
        return [each for each in said if about in each]


async def heard(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the connection is closed.

    Nothing, where it is reset: a server that closes before it has read what was sent to it may take back its own
    last words with that.
    """
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


@asynccontextmanager
async def serve(folder: Path, *options: str, head: float = 60, body: float = 60) -> AsyncIterator[Serve]:
    async with SQLiteCheckpointer(folder / "a.db") as store:
        key = (await Keys(store.engine).issue("agent", by="test")).text
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["serve", "--port", str(port), *options]
    env = {**os.environ, "ASKFIRST_DATABASE_URL": f"sqlite:///{folder}/a.db"}
    log = folder / "log"
    with log.open("wb") as file:
        program = QUICK.format(head=head, body=body, arguments=arguments)
        process = await asyncio.create_subprocess_exec(*warm_python(), "-c", program, stderr=file, env=env)
        try:
            served = Serve(port, key, log)
            async with asyncio.timeout(PATIENCE):
                while True:
                    with suppress(OSError):
                        if b" 200 " in await served.health():
                            break
                    assert process.returncode is None, log.read_text("utf-8")
                    await asyncio.sleep(0.05)
            yield served
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


HALF = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: "


@pytest.mark.attack("M11", "slow and too many connections")
async def test_half_sent_requests_keep_nobody_out(
    tmp_path: Path, attacks_tried: Callable[[int], None]
) -> None:
    many = 300
    async with serve(tmp_path, "--max-connections", "100") as served:
        slow = [await served.connect(HALF) for _ in range(many)]
        for _ in range(5):
            assert b" 200 " in await served.health()
        ended = [reader for reader, _ in slow[:100]]  # those that have waited longest made room
        async with asyncio.timeout(PATIENCE):
            said = [await heard(reader) for reader in ended]
        assert {each.split(b"\r\n")[0] for each in said if each} == {b"HTTP/1.1 503 Service Unavailable"}
        noted = served.lines("to make room")
        counted = sum(1 + int(each.partition("(")[2].partition(" ")[0] or 0) for each in noted)
        assert 1 <= len(noted) < many / 4, "one line a second, not one for each"
        assert counted <= many
        for _, writer in slow:
            writer.close()
    attacks_tried(many)


@pytest.mark.attack("M11", "slow and too many connections")
@pytest.mark.parametrize("sent", [b"", HALF, b"POST /v1/reviews HTTP/1.1\r\n"])
async def test_headers_have_a_time_limit(tmp_path: Path, sent: bytes) -> None:
    async with serve(tmp_path, head=0.3) as served:
        assert (await served.ask(sent)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.attack("M11", "slow and too many connections")
async def test_headers_of_a_second_request_have_a_time_limit(tmp_path: Path) -> None:
    async with serve(tmp_path, head=0.3) as served:
        reader, writer = await served.connect(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" + HALF)
        async with asyncio.timeout(PATIENCE):
            said = await reader.read()
        writer.close()
        assert said.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in said


@pytest.mark.attack("M11", "slow and too many connections")
async def test_a_body_has_a_time_limit(tmp_path: Path) -> None:
    async with serve(tmp_path, body=0.3) as served:
        head = f"POST /v1/reviews HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {served.key}\r\n"
        begun = f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode()
        assert (await served.ask(begun)).startswith(b"HTTP/1.1 408 ")
        assert b" 200 " in await served.health()


@pytest.mark.attack("M11", "slow and too many connections")
async def test_a_body_that_nobody_wants_is_not_waited_for(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        begun = b"POST /v1/reviews HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n{"
        assert (await served.ask(begun)).startswith(b"HTTP/1.1 401 ")  # and then it is closed


@pytest.mark.attack("M11", "slow and too many connections")
async def test_one_address_has_so_many_connections_and_no_more(tmp_path: Path) -> None:
    async with serve(tmp_path, "--max-connections-per-address", "5") as served:
        body = json.dumps({"type": "approval", "prompt": "p"})
        head = f"POST /v1/reviews HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {served.key}\r\nConnection: close\r\n"
        opened = await served.ask(
            f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        case_id = json.loads(opened.partition(b"\r\n\r\n")[2])["hitl"]["case_id"]
        follow = f"GET /v1/reviews/{case_id}/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {served.key}\r\n\r\n"
        streams = [await served.connect(follow.encode()) for _ in range(5)]
        async with asyncio.timeout(PATIENCE):
            for reader, _ in streams:
                await reader.readuntil(b"retry: 3000")
        refused = [await served.ask(b"") for _ in range(20)]  # whoever is being served is not sent away
        assert {each.split(b"\r\n")[0] for each in refused if each} == {b"HTTP/1.1 503 Service Unavailable"}
        assert 1 <= len(served.lines("a connection was refused")) < 20
        streams[0][1].close()
        async with asyncio.timeout(PATIENCE):
            while b" 200 " not in await served.health():  # noqa: ASYNC110  (it is in another process)
                await asyncio.sleep(0.01)
        for _, writer in streams:
            writer.close()


@pytest.mark.attack("M11", "slow and too many connections")
async def test_headers_are_limited_and_what_is_no_http_is_logged_once_a_second(
    tmp_path: Path, attacks_tried: Callable[[int], None]
) -> None:
    async with serve(tmp_path) as served:
        for _ in range(40):
            said = await served.ask(b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n")
            assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
        assert 1 <= len(served.lines("Invalid HTTP request")) < 40
    attacks_tried(40)
