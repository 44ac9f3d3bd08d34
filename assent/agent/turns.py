"""Taking turns at a channel: it asks one thing at a time, and several subagents may want to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from assent.errors import HitlAborted, HitlDetached

T = TypeVar("T")


class Turns:
    """Shared by an agent and its subagents for the length of a run.

    When one of them is told to stop waiting, so are those that have not had their turn.
    """

    __slots__ = ("_lock", "_stopped")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._stopped: HitlDetached | HitlAborted | None = None

    async def take(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask when it is our turn, and wait for the answer."""
        async with self._lock:
            if self._stopped is not None:
                raise self._stopped
            try:
                return await ask()
            except (HitlDetached, HitlAborted) as signal:
                self._stopped = signal
                raise
