"""What the tests of the MCP gate share: a gate before the test's server, clients, and the person."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from fastmcp import Client as FastClient
from fastmcp.client.transports import StdioTransport
from kit.paths import ROOT
from kit.patience import PATIENCE
from mcp.client import Client, session
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from askfirst.gate.gate import Gate

session.DISCOVER_TIMEOUT_SECONDS = PATIENCE  # two programs start meanwhile, on a machine that may be busy
SERVER = Path(__file__).parent / "mcp_upstream.py"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "lines", "version": "1"},
}


class Rig:
    """A folder with effects, a store, and the commands of a server and of a gate before it."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store
        self.server = [sys.executable, str(SERVER)]
        self.ports = _free_port(), _free_port()
        self.environment = {
            **os.environ,
            "UPSTREAM_FOLDER": str(folder),
            "ASKFIRST_DATABASE_URL": store,
            "ASKFIRST_BASE_URL": "http://127.0.0.1:8000",
            "ASKFIRST_SECRET": "s" * 40,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
            "FASTMCP_LOG_LEVEL": "ERROR",
        }

    def gate_command(self, *options: str) -> list[str]:
        """A gate on standard input and output that holds no call."""
        return [sys.executable, "-m", "askfirst.cli", "gate", "--hold", "0", *options, "--", *self.server]

    @property
    def effects(self) -> list[str]:
        file = self.folder / "effects.txt"
        return file.read_text().split() if file.exists() else []

    # The person.

    async def waiting(self) -> list[Any]:
        async with Gate(self.store) as gate:
            return await gate.pending()

    async def answer(self, answer: Any = None, place: int = 0) -> None:
        """Answer what waits, in a process or a connection that the gate knows nothing of."""
        async with Gate(self.store) as gate:
            waiting = await gate.pending()
            await gate.answer(waiting[place], answer or {"decision": "approve"}, by="ada")

    # Clients.

    def _stdio(self, options: tuple[str, ...]) -> Any:
        first, *rest = self.gate_command(*options)
        return stdio_client(StdioServerParameters(command=first, args=rest, env=self.environment))

    @asynccontextmanager
    async def reference(self, *options: str, **settings: Any) -> AsyncGenerator[Client]:
        """The reference SDK's client of a new gate."""
        async with Client(self._stdio(options), **settings) as client:
            yield client

    @asynccontextmanager
    async def fast(self, *options: str, **settings: Any) -> AsyncGenerator[FastClient[Any]]:
        """FastMCP's client of a new gate."""
        first, *rest = self.gate_command(*options)
        transport = StdioTransport(first, rest, env=self.environment, keep_alive=False)
        async with FastClient(transport, **settings) as client:
            yield client

    @contextmanager
    def over_http(self, *options: str) -> Generator[tuple[str, str]]:
        """The URLs of a server, and of a gate before it."""
        up, down = self.ports  # the same again: the server's URL is a part of who asks
        server = subprocess.Popen(  # noqa: S603
            [*self.server, str(up)], env=self.environment, stderr=subprocess.DEVNULL
        )
        upstream, gate_url = f"http://127.0.0.1:{up}/mcp", f"http://127.0.0.1:{down}/mcp"
        listen = ["--listen", f"127.0.0.1:{down}", "--upstream", upstream]
        command = [sys.executable, "-m", "askfirst.cli", "gate", "--hold", "0", *options, *listen]
        gate = subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL)  # noqa: S603
        (self.folder / "gate.pid").write_text(str(gate.pid))
        try:
            for url in (upstream, gate_url):
                _until_it_answers(url)
            yield upstream, gate_url
        finally:
            for process in (gate, server):
                process.terminate()
                process.wait(PATIENCE)


@asynccontextmanager
async def http_client(
    url: str, headers: dict[str, str] | None = None, **settings: Any
) -> AsyncGenerator[Client]:
    """The reference SDK's client over HTTP."""
    async with (
        httpx2.AsyncClient(headers=headers or {}, timeout=PATIENCE) as http,
        Client(streamable_http_client(url, http_client=http), **settings) as client,
    ):
        yield client


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def _until_it_answers(url: str) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            httpx2.get(url)
            return
        except httpx2.TransportError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


class Lines:
    """A client that writes lines and keeps every byte that it reads."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.said: list[bytes] = []

    def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def ask(self, id: int | str | None, line: bytes) -> Any:
        """Send a request and read up to its response."""
        assert self._process.stdout is not None
        self.send(line)
        while raw := self._process.stdout.readline():
            self.said.append(raw)
            message = json.loads(raw)
            if "method" not in message and message.get("id") == id:
                return message
        raise AssertionError("the other side ended")

    def call(self, id: int | str, method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": META}}
        return self.ask(id, json.dumps(message).encode())

    def end(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._ended()

    def kill(self) -> None:
        self._process.kill()
        self._ended()

    def _ended(self) -> int:
        with self._process as ended:  # which closes its pipes
            return ended.wait(PATIENCE)
