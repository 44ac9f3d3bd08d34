"""The one request that a channel waits for, and whoever ends the wait."""

from __future__ import annotations

import asyncio
from typing import Any

from assent.requests import ChannelHost, HitlRequest, StoredRequest


class Slot:
    """The one request that a channel waits for; ``asker`` is the agent whose run asks, if one does."""

    __slots__ = ("aborted", "asker", "request", "settled", "signalled", "told")

    def __init__(self, request: HitlRequest, asker: ChannelHost | None) -> None:
        self.request = request
        self.asker = asker
        self.signalled = False
        self.aborted: StoredRequest | None = None
        self.settled: asyncio.Future[StoredRequest] = asyncio.get_running_loop().create_future()
        self.told = False

    def settle(self, stored: StoredRequest) -> None:
        if not self.settled.done():
            self.settled.set_result(stored)

    def close(self) -> None:
        """Nobody waits any more; an interruption that came too late is of no consequence."""
        if not self.settled.cancel() and not self.settled.cancelled():
            self.settled.exception()

    def failing(self) -> _Failing:
        return _Failing(self)


class _Failing:
    """Hands what goes wrong in a helper to whoever waits for the slot."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        if not self._slot.settled.done():
            self._slot.settled.set_exception(error)
        return True
