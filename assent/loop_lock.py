"""A lock that does not stay with one event loop."""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import Any, Literal


class LoopLock(asyncio.Lock):
    """An ``asyncio.Lock`` for objects that outlive their loop, as under one ``asyncio.run`` after another.

    asyncio's own belongs for ever to the first loop on which somebody had to wait for it. This one, when it is
    free, goes along to the next.
    """

    def acquire(self) -> CoroutineType[Any, Any, Literal[True]]:
        """Wait for one's turn."""
        if not self.locked():
            self._loop = None  # asyncio's; should it ever be named otherwise, this is an ordinary lock
        return super().acquire()
