"""A checkpointer that an agent was given by its URL: opened when it is first needed, closed with the event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING

from assent.loop_lock import LoopLock

if TYPE_CHECKING:
    from assent.checkpointer.sql import SqlCheckpointer

_lives: set[AsyncGenerator[None]] = set()
"""The checkpointers that are open: an event loop that ends closes its async generators, if they are still there."""
_closing: set[asyncio.Task[None]] = set()
"""Tasks that close what nobody has any more; an event loop alone would not keep them."""


class OwnStore:
    """A checkpointer, and who looks after it.

    It is closed by `close`, or when the event loop that it runs in ends (as by ``asyncio.run``), or when nobody has
    it any more. After that it is opened again by whoever needs it, on another loop too.
    """

    def __init__(self, url: str) -> None:
        from assent.checkpointer.connect import checkpointer_from_url  # brings a database's library

        self.checkpointer: SqlCheckpointer = checkpointer_from_url(url)
        self._opening = LoopLock()
        self._life: AsyncGenerator[None] | None = None

    async def open(self) -> None:
        """Have it open."""
        if self.checkpointer.is_open:
            return
        async with self._opening:
            if not self.checkpointer.is_open:
                self._life = life = _life(self.checkpointer)
                _lives.add(life)
                weakref.finalize(self, _end, asyncio.get_running_loop(), life).atexit = False
                try:
                    await anext(life)
                except BaseException:
                    _lives.discard(life)
                    raise

    async def close(self) -> None:
        """Close it, if it is open."""
        life, self._life = self._life, None
        if life is not None:
            try:
                await life.aclose()
            finally:
                _lives.discard(life)


async def _life(checkpointer: SqlCheckpointer) -> AsyncGenerator[None]:
    async with checkpointer:
        yield


def _end(loop: asyncio.AbstractEventLoop, life: AsyncGenerator[None]) -> None:
    """Close what nobody has any more, on its loop; whoever drops the last reference may be in another thread."""
    if life not in _lives:
        return
    with suppress(RuntimeError):  # the loop is closed, and has closed this too
        loop.call_soon_threadsafe(_close_soon, loop, life)


def _close_soon(loop: asyncio.AbstractEventLoop, life: AsyncGenerator[None]) -> None:
    task = loop.create_task(_close(life))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _close(life: AsyncGenerator[None]) -> None:
    try:
        await life.aclose()
    finally:
        _lives.discard(life)
