"""The pipes of a process that is between a client and a server: lines in, lines out, and how the server ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import BinaryIO

from askfirst.concurrency import finish

LONGEST_LINE = 64 * 1024 * 1024
"""How many bytes a message may have."""
GRACE_SECONDS = 5.0
"""How long a server has to end by itself, and then after each signal."""


async def ended(process: asyncio.subprocess.Process) -> int:
    """The exit code of a server that is to end by itself, and is told to more firmly if it does not.

    A signal to a process that has ended, and that asyncio has not noticed yet, would lose its exit code.
    """
    for signal in (process.terminate, process.kill):
        waiting = asyncio.ensure_future(process.wait())
        await asyncio.wait({waiting}, timeout=GRACE_SECONDS)
        if waiting.done():
            return waiting.result()
        waiting.cancel()
        with suppress(ProcessLookupError):
            signal()
    return await process.wait()


async def write_line(out: BinaryIO, line: bytes) -> None:
    """Write a line in a thread, whole, although whoever waits is cancelled."""

    def write() -> None:
        out.write(line)
        out.flush()

    await finish(asyncio.ensure_future(asyncio.to_thread(write)))


async def lines_of(source: BinaryIO) -> AsyncIterator[bytes]:
    """The lines of a stream, read in a thread of their own, which does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()

    def read_all() -> None:
        with suppress(RuntimeError, ValueError, OSError):  # the loop has ended, or the stream was closed
            while line := source.readline(LONGEST_LINE):
                loop.call_soon_threadsafe(queue.put_nowait, line)
            loop.call_soon_threadsafe(queue.put_nowait, b"")

    threading.Thread(target=read_all, name="askfirst-mcp-stdin", daemon=True).start()
    while line := await queue.get():
        yield line
