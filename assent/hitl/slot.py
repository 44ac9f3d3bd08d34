"""The one request that a channel waits for, and whoever ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from assent.agent.host import Host
from assent.errors import HitlControlException
from assent.requests import HitlRequest, StoredRequest


class Slot:
    """The one request that a channel waits for; ``asker`` is the agent whose run asks, if one does."""

    __slots__ = ("_after", "aborted", "asker", "by_listener", "request", "settled", "signalled", "told")

    def __init__(self, request: HitlRequest, asker: Host | None) -> None:
        self.request = request
        self.asker = asker
        self.signalled = False
        self.aborted: StoredRequest | None = None
        self.settled: asyncio.Future[StoredRequest] = asyncio.get_running_loop().create_future()
        self.told = False
        self.by_listener = False
        """Whether one that was told of the request has settled it, or ended the wait, while it was being told."""
        self._after: Callable[[], Awaitable[object]] | None = None

    def settle(self, stored: StoredRequest) -> None:
        if not self.settled.done():
            self.settled.set_result(stored)

    def interrupt(self, signal: HitlControlException, after: Callable[[], Awaitable[object]] | None) -> bool:
        """Take no more answers, and raise a signal in the asker ``after`` that; False if it is too late."""
        if self.settled.done():
            return False
        self._after = after
        self.by_listener = self.by_listener or _hearing.get() is self
        self.settled.set_exception(signal)
        return True

    def leave_with_tree(self) -> None:
        """Wait for nobody if the tree that asks was left while the request was being recorded; it stays open."""
        leaving = None if self.asker is None else self.asker.top.leaving
        if leaving is not None:
            self.interrupt(leaving.signal, leaving.hear)

    async def left(self) -> None:
        """Wait until the asker may hear that it was interrupted."""
        if self._after is not None:
            await self._after()

    async def tell(self, telling: Awaitable[None]) -> None:
        """Wait for async listeners, and know what they do about the request."""
        _hearing.set(self)
        await telling

    def close(self) -> None:
        """Nobody waits any more; an interruption that came too late is of no consequence."""
        if not self.settled.cancel() and not self.settled.cancelled():
            self.settled.exception()

    def failing(self) -> _Failing:
        return _Failing(self)


_hearing: ContextVar[Slot | None] = ContextVar("assent_hearing", default=None)
"""The request that listeners are being told of, in their tasks and those that these make."""


@contextmanager
def settling(slot: Slot | None) -> Generator[None]:
    """Note whether it is a listener that settles a request, if it can be settled like this."""
    listens = slot is not None and _hearing.get() is slot
    if slot is None or not listens or slot.by_listener:
        yield
        return
    slot.by_listener = True
    try:
        yield
    except BaseException:
        slot.by_listener = False
        raise


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
