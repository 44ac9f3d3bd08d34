"""Notify: deliver the requests of a gate to people, from the gate's own process."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol

from askfirst.concurrency import LoopLock


class Notify(Protocol):
    """Delivers requests to people, as `askfirst.service.notifier.Notifier` does; the gate only says when."""

    def delivering(self, store: Any) -> AbstractAsyncContextManager[None]:
        """Within this context, every request of an open store is delivered to people."""
        ...


class Notifying:
    """The lifetime of a `Notify`: from the first use of a gate to its end."""

    def __init__(self, notify: Notify | None) -> None:
        self.notify = notify
        self._stack: AsyncExitStack | None = None
        self._beginning = LoopLock()

    async def begin(self, store: Any) -> None:
        """Begin to deliver, unless there is no `Notify` or it has begun."""
        if self.notify is None or self._stack is not None:
            return
        async with self._beginning:
            if self._stack is None:
                stack = AsyncExitStack()
                await stack.enter_async_context(self.notify.delivering(store))
                self._stack = stack

    async def end(self) -> None:
        """Stop. Messages that were not sent stay in the store."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()
