"""One run at a time, and none that waits for itself."""

from __future__ import annotations

import asyncio
from typing import Literal

from assent.errors import WaitsForItself


class RunLock(asyncio.Lock):
    """The lock that a thread's runs take turns by.

    Whoever holds it and waits for it would wait for ever: a tool's body or a listener that awaits a run of the
    very agent it works for. It is told so instead.
    """

    def __init__(self, thread_id: str) -> None:
        super().__init__()
        self._thread_id = thread_id
        self._holder: asyncio.Task[object] | None = None

    def check(self) -> None:
        """Raise `WaitsForItself` if this task holds it."""
        if self._holder is not None and self._holder is asyncio.current_task():
            raise WaitsForItself(self._thread_id)

    async def acquire(self) -> Literal[True]:
        """Wait for one's turn; raises `WaitsForItself`."""
        self.check()
        await super().acquire()
        self._holder = asyncio.current_task()
        return True

    def release(self) -> None:
        """Let the next one have its turn."""
        self._holder = None
        super().release()
