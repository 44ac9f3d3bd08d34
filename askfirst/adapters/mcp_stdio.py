"""The MCP gate on standard input and output: the server is a process that the gate starts."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import BinaryIO, TypeVar

from askfirst.adapters.mcp_gate import McpGate, is_gated
from askfirst.adapters.mcp_messages import INVALID_REQUEST, Message, Refusal, as_object, dump, line_of, read
from askfirst.adapters.mcp_upstream import UpstreamLost, find_tool
from askfirst.adapters.stdio_pipes import GRACE_SECONDS, LONGEST_LINE, end_process, lines_of, write_line
from askfirst.ids import new_id

S = TypeVar("S")


class StdioGate:
    """Relays lines between a client and a server's process, and puts tool calls to the gate.

    Lines of the server pass byte for byte, except responses to calls that a person was asked about. The class is
    also the `Upstream` of its `McpGate`.
    """

    def __init__(self, gate: McpGate, command: Sequence[str], requester: str) -> None:
        self._gate = gate
        self._command = command
        self._requester = requester
        self._process: asyncio.subprocess.Process | None = None
        self._out: BinaryIO = sys.stdout.buffer
        self._writing = asyncio.Lock()
        self._awaited: dict[str, asyncio.Future[tuple[bytes, Message]]] = {}
        """Futures of responses that the gate itself waits for, by the JSON of their ids."""
        self._calls: dict[str, asyncio.Task[None]] = {}

    async def run(self, source: BinaryIO | None = None, out: BinaryIO | None = None) -> int:
        """Start the server and relay until the client or the server ends; returns the server's exit code."""
        self._out = out or sys.stdout.buffer
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
        )
        from_client = asyncio.create_task(self._from_client(lines_of(source or sys.stdin.buffer)))
        from_server = asyncio.create_task(self._from_server())
        try:
            await asyncio.wait({from_client, from_server}, return_when=asyncio.FIRST_COMPLETED)
            for done in (from_client, from_server):
                if done.done():
                    done.result()
            if from_client.done():
                await self._end_server(process, from_server)
        finally:
            for task in (from_client, from_server, *self._calls.values()):
                task.cancel()
            await asyncio.gather(*self._calls.values(), return_exceptions=True)
            await self._gate.aclose()
            code = await end_process(process)
        return code

    async def _end_server(self, process: asyncio.subprocess.Process, from_server: asyncio.Task[None]) -> None:
        """Close the server's input, and relay its last lines for a short while."""
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.wait({from_server}, timeout=GRACE_SECONDS)

    # Lines of the client.

    async def _from_client(self, lines: AsyncIterator[bytes]) -> None:
        async for raw in lines:
            if not raw.strip():
                continue
            try:
                message = read(raw)
                if is_gated(message):
                    self._begin(message, raw)
                    continue
            except Refusal as refusal:
                await self._write(dump(refusal.message) + b"\n")
                continue
            if message.get("method") == "notifications/cancelled":
                self._cancel(message)
            await self._send(line_of(raw, message))

    def _begin(self, message: Message, raw: bytes) -> None:
        key = json.dumps(message.get("id"))
        if key in self._calls:
            raise Refusal(INVALID_REQUEST, "another request with this id is still running", message.get("id"))
        task = asyncio.create_task(self._answer(message, line_of(raw, message)))
        self._calls[key] = task
        task.add_done_callback(lambda _: self._calls.pop(key, None))

    async def _answer(self, message: Message, line: bytes) -> None:
        answer = await self._gate.handle(message, line, self, self._requester)
        if answer is None:
            await self._send(line)
        else:
            await self._write(answer.rstrip(b"\r\n") + b"\n")

    def _cancel(self, message: Message) -> None:
        cancelled = as_object(message.get("params")).get("requestId")
        task = self._calls.get(json.dumps(cancelled))
        if task is not None:
            task.cancel()

    # Lines of the server.

    async def _from_server(self) -> None:
        try:
            async for raw in _open_stream(self._process and self._process.stdout):
                awaited = self._response(raw) if self._awaited else None
                if awaited is not None:
                    future, message = awaited
                    if not future.done():
                        future.set_result((raw, message))
                else:
                    await self._write(raw)
        finally:
            for future in self._awaited.values():
                if not future.done():
                    future.set_exception(UpstreamLost())

    def _response(self, raw: bytes) -> tuple[asyncio.Future[tuple[bytes, Message]], Message] | None:
        """The future of a response that the gate waits for, and the response; None for any other line."""
        try:
            message = as_object(json.loads(raw))
        except ValueError:
            return None
        if not message or "method" in message:
            return None
        future = self._awaited.pop(json.dumps(message.get("id")), None)
        return None if future is None else (future, message)

    # An Upstream.

    async def request(self, message: Message, raw: bytes | None = None) -> tuple[bytes, Message]:
        """Send a request to the server, and wait for its response. Raises `UpstreamLost`."""
        key = json.dumps(message["id"])
        future = self._awaited[key] = asyncio.get_running_loop().create_future()
        try:
            await self._send(dump(message) if raw is None else raw)
            return await future
        except (BrokenPipeError, ConnectionResetError):
            raise UpstreamLost from None
        finally:
            self._awaited.pop(key, None)

    async def tool(self, name: str, meta: Message) -> Message | None:
        """The definition of a tool, as the server gives it now."""

        async def ask(message: Message) -> Message:
            return (await self.request({**message, "id": new_id()}))[1]

        return await find_tool(ask, name, meta)

    async def _send(self, line: bytes) -> None:
        stdin = _open_stream(self._process and self._process.stdin)
        stdin.write(line + b"\n")
        await stdin.drain()

    async def _write(self, line: bytes) -> None:
        async with self._writing:
            await write_line(self._out, line)


def _open_stream(stream: S | None) -> S:
    """A stream of the server's process; raises `UpstreamLost` if the process has none."""
    if stream is None:
        raise UpstreamLost
    return stream
