"""Who hears of the requests that a gate opens."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from askfirst.agent.emitter import logger
from askfirst.requests import StoredRequest


class Listeners:
    """The listeners of a gate. One that raises is logged, and keeps neither the others nor the call waiting."""

    def __init__(self) -> None:
        self._all: tuple[Callable[[StoredRequest], Any], ...] = ()

    def add(self, listener: Callable[[StoredRequest], Any]) -> Callable[[], None]:
        """Call ``listener`` (sync or async) from now on; returns what stops that."""
        self._all = (*self._all, listener)

        def stop() -> None:
            self._all = tuple(it for it in self._all if it is not listener)

        return stop

    async def tell(self, request: StoredRequest) -> None:
        """Tell all of them."""
        for listener in self._all:
            try:
                told = listener(request)
                if inspect.isawaitable(told):
                    await told
            except Exception:
                logger.exception("a listener of the gate failed on request %s", request.question_id)
