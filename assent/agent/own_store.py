"""A checkpointer that an agent was given by its URL: opened when it is first needed, closed with the event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from assent.loop_lock import LoopLock

if TYPE_CHECKING:
    from assent.checkpointer.sql import SqlCheckpointer


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
                # The event loop ends its async generators when it is shut down, and those that nobody has any more.
                self._life = _life(self.checkpointer)
                await anext(self._life)

    async def close(self) -> None:
        """Close it, if it is open."""
        life, self._life = self._life, None
        if life is not None:
            await life.aclose()


async def _life(checkpointer: SqlCheckpointer) -> AsyncGenerator[None]:
    async with checkpointer:
        yield
