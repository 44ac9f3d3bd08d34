"""The listeners of a gate, which are notified of the requests that it opens."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from askfirst.agent.emitter import logger
from askfirst.requests import StoredRequest


class Listeners:
    """The listeners of a gate. The exception of a listener is logged; it delays neither the other listeners nor the
    call."""

    def __init__(self) -> None:
        self._all: tuple[Callable[[StoredRequest], Any], ...] = ()

    def add(self, listener: Callable[[StoredRequest], Any]) -> Callable[[], None]:
        """Call ``listener`` (sync or async) from now on; returns a function that removes it."""
        self._all = (*self._all, listener)

        def stop() -> None:
            self._all = tuple(it for it in self._all if it is not listener)

        return stop

    async def tell(self, request: StoredRequest) -> None:
        """Notify all listeners."""
        for listener in self._all:
            try:
                told = listener(request)
                if inspect.isawaitable(told):
                    await told
            except Exception:
                logger.exception("a listener of the gate failed on request %s", request.question_id)
