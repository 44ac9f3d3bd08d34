"""What time it is, as something that can be handed in and, in a test, be turned by hand."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits for it."""

    def now(self) -> float:
        """Seconds since 1970 (UTC)."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Come back after this many seconds of this clock."""
        ...


class SystemClock:
    """The computer's own clock."""

    def now(self) -> float:
        """Seconds since 1970 (UTC)."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Come back after this many seconds."""
        await asyncio.sleep(seconds)
