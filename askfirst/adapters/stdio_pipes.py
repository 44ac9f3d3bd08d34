"""The pipes between a client, the gate and a server's process: reading and writing lines, and ending the server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import BinaryIO

from askfirst.concurrency import finish

LONGEST_LINE = 64 * 1024 * 1024
"""The most bytes of a message."""
GRACE_SECONDS = 5.0
"""How long a server has to end by itself, and then after SIGTERM, before the next signal."""


async def end_process(process: asyncio.subprocess.Process) -> int:
    """End a server's process, and return its exit code: wait, then send SIGTERM, then SIGKILL.

    The wait comes first: if the process has ended and asyncio has not noticed it, a signal would lose the exit code.
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
    """Write a whole line in a thread, even if the calling task is cancelled meanwhile."""

    def write() -> None:
        out.write(line)
        out.flush()

    await finish(asyncio.ensure_future(asyncio.to_thread(write)))


async def lines_of(source: BinaryIO) -> AsyncIterator[bytes]:
    """The lines of a stream, read in a daemon thread, so that a blocked read does not keep this process from
    ending."""
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
