"""A thread with an event loop of its own, for code that has none."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from askfirst.agent.emitter import logger
from askfirst.errors import HitlError, StoreError

if TYPE_CHECKING:
    from askfirst.gate.gate import Gate

T = TypeVar("T")
_CLOSING_SECONDS = 5.0


class Portal:
    """Runs a gate's coroutines for threads without an event loop.

    ``make`` gives the gate that works on the portal's loop; it is made, and its store opened, at the first use.
    """

    def __init__(self, make: Callable[[], Gate]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate: Gate | None = None
        self._stopping: Callable[[], object] | None = None

    def run(self, work: Callable[[Gate], Awaitable[T]]) -> T:
        """Wait for a coroutine on the portal's loop; raises what it raises."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise HitlError(
                "a guarded function that is not async was called in the event loop's thread, where waiting for a "
                "person would stop everything: make it async, or call it with asyncio.to_thread"
            )
        loop, gate = self._started()

        async def working() -> T:
            return await work(gate)

        return asyncio.run_coroutine_threadsafe(working(), loop).result()

    @property
    def is_open(self) -> bool:
        """Whether its thread runs."""
        return self._loop is not None

    def close(self) -> None:
        """Close the store and end the thread; another use starts them again."""
        with self._lock:
            stopping, self._stopping, self._loop, self._gate = self._stopping, None, None, None
        if stopping is not None:
            stopping()

    def _started(self) -> tuple[asyncio.AbstractEventLoop, Any]:
        with self._lock:
            if self._loop is None or self._gate is None:
                self._loop, self._gate = asyncio.new_event_loop(), self._make()
                thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="askfirst-gate", daemon=True
                )
                thread.start()
                self._stopping = weakref.finalize(self, _stop, self._loop, self._gate, thread)
            return self._loop, self._gate


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, gate: Gate, thread: threading.Thread) -> None:
    """Close a portal when it is garbage collected, or when the program ends; runs once for each portal."""
    closing = asyncio.run_coroutine_threadsafe(gate.aclose(), loop)
    try:
        closing.result(timeout=_CLOSING_SECONDS)
    except TimeoutError:
        logger.warning("the store of a gate did not close within %s seconds", _CLOSING_SECONDS)
    except StoreError as error:
        logger.warning("the store of a gate did not close well: %s", error)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_CLOSING_SECONDS)
