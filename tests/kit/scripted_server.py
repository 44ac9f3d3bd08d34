"""A server on a real socket with scripted answers for each path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any


@dataclass
class Said:
    """One answer: a body, or pieces that are sent one by one; after the last piece the connection is closed."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    pieces: AsyncIterator[bytes] | None = None


@dataclass
class Heard:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """A server. ``script`` has the answers of each path, in order; the last one is repeated."""

    url: str = ""
    script: dict[str, list[Said]] = field(default_factory=dict[str, list[Said]])
    heard: list[Heard] = field(default_factory=list[Heard])
    connections: int = 0

    def of(self, path: str) -> list[Heard]:
        return [each for each in self.heard if each.path == path]

    def offer(self, **fields: Any) -> dict[str, Any]:
        """A 202's body for a case of this server."""
        now = datetime.now(UTC)
        hitl = {
            "spec_version": "0.8",
            "case_id": "review_1",
            "review_url": f"{self.url}/review/review_1?token=the-review-token",
            "poll_url": f"{self.url}/reviews/review_1/status",
            "type": "approval",
            "prompt": "Please decide.",
            "created_at": now.isoformat(),
            "expires_at": (now + timedelta(hours=1)).isoformat(),
            **fields,
        }
        return {"status": "human_input_required", "hitl": hitl}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.heard.append(Heard(method, path, headers, body))
                answers = self.script.get(path) or [Said(404)]
                said = answers.pop(0) if len(answers) > 1 else answers[0]
                if await self._say(said, writer):
                    break

    async def _say(self, said: Said, writer: asyncio.StreamWriter) -> bool:
        """Send an answer; returns whether the connection is closed after it."""
        body = b"" if said.body is None else said.body
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **said.headers}
        if said.pieces is None:
            headers["Content-Length"] = str(len(encoded))
        lines = [f"HTTP/1.1 {said.status} X", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + encoded)
        await writer.drain()
        if said.pieces is None:
            return False
        async for piece in said.pieces:
            writer.write(piece)
            await writer.drain()
        return True


@asynccontextmanager
async def scripted() -> AsyncGenerator[Scripted]:
    """Run a scripted server on a port of this machine."""
    served = Scripted()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await served.serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
