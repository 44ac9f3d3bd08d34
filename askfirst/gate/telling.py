"""Telling people of a gate's requests from the gate's own process."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol

from askfirst.concurrency import LoopLock


class Notify(Protocol):
    """Tells people, as `askfirst.service.notifier.Notifier` does; the gate only says when."""

    def telling(self, store: Any) -> AbstractAsyncContextManager[None]:
        """Within this context, people are told of what is asked in an open store."""
        ...


class Telling:
    """The lifetime of a `Notify`: from the first use of a gate to its end."""

    def __init__(self, notify: Notify | None) -> None:
        self.notify = notify
        self._stack: AsyncExitStack | None = None
        self._beginning = LoopLock()

    async def begin(self, store: Any) -> None:
        """Have people told, if that is wanted and not so already."""
        if self.notify is None or self._stack is not None:
            return
        async with self._beginning:
            if self._stack is None:
                stack = AsyncExitStack()
                await stack.enter_async_context(self.notify.telling(store))
                self._stack = stack

    async def end(self) -> None:
        """Stop; what is to be told stays in the store."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()
