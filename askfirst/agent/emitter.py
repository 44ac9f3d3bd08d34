"""Telling listeners what happens, in order."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast
from weakref import WeakSet

from askfirst.concurrency import await_chain, continue_chain
from askfirst.errors import HitlControlException
from askfirst.events import AgentEvent, Event

Listener = Callable[[AgentEvent], Any]
"""A function of an event, sync or async; its return value is ignored, its exceptions are logged."""

logger = logging.getLogger("askfirst")


class Emitter:
    """The listeners of one agent, called in the order they subscribed and in the order of ``seq``.

    Async listeners are awaited before the agent continues. Without listeners no event is made.
    """

    __slots__ = (
        "__weakref__",
        "_listeners",
        "_parent",
        "_posted",
        "_seq",
        "_under_it",
        "listening",
        "path",
        "thread_id",
    )

    def __init__(
        self,
        thread_id: str,
        listeners: Sequence[Listener] = (),
        path: tuple[str, ...] = (),
        parent: Emitter | None = None,
    ) -> None:
        self.thread_id = thread_id
        self.path = path
        self._parent = parent
        self._under_it: WeakSet[Emitter] | None = None
        self._listeners = tuple(listeners)
        self.listening = bool(listeners)
        """Whether there is a listener, of this agent or of one that it works for."""
        if parent is not None:
            parent._adopt(self)
        self._seq = 0
        self._posted: tuple[asyncio.Future[None], ...] = ()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; call what is returned to remove it again."""
        entry: Listener = lambda event: listener(event)  # noqa: E731  (one entry a subscription)
        self._listeners = (*self._listeners, entry)
        self._note_listening()

        def unsubscribe() -> None:
            self._listeners = tuple(kept for kept in self._listeners if kept is not entry)
            self._note_listening()

        return unsubscribe

    def _adopt(self, emitter: Emitter) -> None:
        """Keep a subagent's emitter informed of whether this one has listeners."""
        if self._under_it is None:
            self._under_it = WeakSet()
        self._under_it.add(emitter)
        emitter._note_listening()

    def _note_listening(self) -> None:
        self.listening = bool(self._listeners) or (self._parent is not None and self._parent.listening)
        for emitter in self._under_it or ():
            emitter._note_listening()

    def emit(self, event_type: type[Event], run_id: str, **fields: Any) -> Awaitable[None]:
        """Make an event and tell everyone; await what is returned to wait for async listeners.

        A `HitlControlException` that a listener raises comes out of the await, when all have been told.
        """
        if not self.listening:
            return NOTHING
        waiting = self._tell(event_type, run_id, fields)
        return _all(waiting) if waiting else NOTHING

    def post(self, event_type: type[Event], run_id: str, **fields: Any) -> None:
        """Tell everyone without waiting for async listeners; `flush` waits for them, and raises for them."""
        if self.listening and (waiting := self._tell(event_type, run_id, fields)):
            self._posted = (*self._posted, asyncio.ensure_future(_all(waiting)))

    @property
    def has_posted(self) -> bool:
        """Whether posted events may still be with async listeners."""
        return bool(self._posted)

    async def flush(self) -> None:
        """Wait until async listeners are done with the posted events."""
        while self._posted:
            posted, self._posted = self._posted, ()
            await _all(posted)

    def _tell(self, event_type: type[Event], run_id: str, fields: dict[str, Any]) -> list[Awaitable[None]]:
        event: Any = event_type(
            thread_id=self.thread_id,
            run_id=run_id,
            seq=self._seq,
            at=time.time(),
            agent_path=self.path,
            **fields,
        )
        self._seq += 1
        return self._pass_on(event)

    def _pass_on(self, event: Any) -> list[Awaitable[None]]:
        waiting: list[Awaitable[None]] = []
        for listener in self._listeners:
            try:
                returned = listener(event)
            except Exception:
                _log(event)
            except HitlControlException as signal:
                waiting.append(_raise(signal))
            else:
                if inspect.isawaitable(returned):
                    waiting.append(_guarded(returned, event, await_chain()))
        if self._parent is not None:
            waiting += self._parent._pass_on(event)
        return waiting


class _Nothing:
    """An awaitable that does nothing and costs no coroutine: most events have no async listener."""

    __await__ = ().__iter__


NOTHING = cast("Awaitable[None]", _Nothing())
"""The awaitable for events without async listeners."""


def together(telling: Sequence[Awaitable[None]]) -> Awaitable[None]:
    """Several emitted events as one awaitable; `NOTHING` if none has an async listener."""
    waiting = [each for each in telling if each is not NOTHING]
    if len(waiting) < 2:
        return waiting[0] if waiting else NOTHING
    return _all(waiting)


async def _all(waiting: Sequence[Awaitable[None]]) -> None:
    """Wait for all, then raise the first exception, in order."""
    if len(waiting) == 1:
        await waiting[0]
        return
    for ended in await asyncio.gather(*waiting, return_exceptions=True):
        if ended is not None:
            raise ended


async def _guarded(returned: Awaitable[Any], event: Event, chain: tuple[asyncio.Task[Any], ...]) -> None:
    continue_chain(chain)
    try:
        await returned
    except Exception:
        _log(event)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        _log(event)


async def _raise(signal: HitlControlException) -> None:
    raise signal


def is_cancelled() -> bool:
    """Whether this task was cancelled; if not, a ``CancelledError`` was raised by the callee itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> None:
    """Call ``function`` on the loop: now if this is its thread, else as soon as the loop gets to it."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        function(*args)
    else:
        loop.call_soon_threadsafe(function, *args)


def _log(event: Any) -> None:
    logger.exception("a listener raised on %s (seq %d); the run goes on", event.type, event.seq)
