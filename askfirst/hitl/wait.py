"""One open request of a channel: its listeners, deadline, signal, interruption and span."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from askfirst import tracing
from askfirst.agent.context import Context, current
from askfirst.answers import ApproveAnswer, without_edits
from askfirst.errors import HitlAborted, HitlCancelled, HitlControlException, HitlDetached, HitlTimedOut
from askfirst.requests import HitlRequest, StoredRequest

if TYPE_CHECKING:
    from askfirst.agent.session import Session

# The span around a wait for a person.


_ANSWERED = {"approve": "approved", "deny": "denied", "edit": "edited"}
_SIGNALS: dict[type[BaseException], str] = {
    HitlCancelled: "cancelled",
    HitlTimedOut: "timed_out",
    HitlAborted: "aborted",
    HitlDetached: "detached",
}


class hitl_span:  # noqa: N801  (used like a function)
    """The span of a wait for a person (``hitl.approve`` and its siblings), with its outcome and duration.

    Nothing is traced or measured before ``begin`` is called.
    """

    __slots__ = ("_answered_after", "_began", "_begun", "_call", "_kind", "_outcome", "_span", "from_resume")

    def __init__(self, request: HitlRequest) -> None:
        payload = request.payload
        attributes: dict[str, Any] = {"hitl.question_id": request.question_id}
        self._call = call = payload.gated_call
        if call is not None:
            attributes |= {"hitl.tool_name": call.tool_name, "hitl.tool_call_id": call.tool_call_id}
        self._kind = payload.kind
        self._span = tracing.span(f"hitl.{payload.kind}", attributes)
        self._began = time.monotonic()
        self._begun = False
        self._answered_after: float | None = None
        self._outcome = "detached"
        self.from_resume = False

    def begin(self) -> None:
        """Start the span and the timer; a second call does nothing."""
        if self._begun:
            return
        self._begun = True
        self._span.__enter__()
        if (call := self._call) is not None:
            self._span.set_content("hitl.args", lambda: call.args)
        tracing.request_opened(self._kind)

    def settled(self, stored: StoredRequest) -> None:
        """Record the time from the request to its settlement, which may have come before this run waited."""
        if stored.settled_at is not None:
            self._answered_after = max(0.0, stored.settled_at - stored.request.created_at)

    def outcome(self, answer: Any) -> Any:
        """Record the outcome in the span, and return it."""
        self._outcome = _ANSWERED[answer.decision] if isinstance(answer, ApproveAnswer) else "answered"
        self._span.set_content("hitl.answer", lambda: without_edits(answer))
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if not self._begun:
            return
        seconds = time.monotonic() - self._began
        outcome = self._outcome if kind is None else _SIGNALS.get(kind) or _cancelled_outcome()
        if kind is not None and issubclass(kind, Exception):
            self._span.fail(kind.__name__)
        else:
            self._span.set("hitl.outcome", outcome)
        self._span.set("hitl.duration_seconds", seconds)
        if self._call is not None:
            self._span.set("hitl.from_resume", self.from_resume)
        tracing.request_left(self._kind)
        if kind is None:
            tracing.request_answered(
                self._kind, outcome, seconds if self._answered_after is None else self._answered_after
            )
        self._span.__exit__(kind, *error)


def _cancelled_outcome() -> str:
    """The outcome of a wait that ended by a cancellation: ``aborted`` if the run was aborted, else ``detached``."""
    session = current.get().session
    run = None if session is None else session.top.run  # a tree of agents is aborted at its root
    return "aborted" if run is not None and run.stop.is_asked else "detached"


# Listeners, which are notified of a request while a run waits for it.


class Subscription:
    """An endless iterator of requests; the subscription ends when the object is garbage-collected."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[HitlRequest] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> HitlRequest:
        return await self.queue.get()


class Listeners:
    """Notifies the listeners of a channel. A listener may take long, for instance to ask at a terminal.

    If the request is settled meanwhile, the waiting run goes on without waiting for the listeners, unless a listener
    itself settled the request.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    async def wait(self, slot: Slot, announcement: Awaitable[None]) -> None:
        """Wait until all listeners are done, or the request is settled.

        Raises a control signal that a listener raises.
        """
        task = asyncio.ensure_future(slot.notify(announcement))
        try:
            await asyncio.wait({task, slot.settled}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and slot.by_listener:
                await asyncio.wait({task})
        except BaseException:
            task.cancel()
            await asyncio.wait({task})
            raise
        if task.done():
            task.result()
        else:
            self._running.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """Drop the exception of a listener that ends after its request was settled."""
        self._running.discard(task)
        if not task.cancelled():
            task.exception()


class Slot:
    """The one request that a channel waits for; ``asker`` is the agent whose run asks, if one does."""

    __slots__ = ("_after", "aborted", "announced", "asker", "by_listener", "request", "settled", "signalled")

    def __init__(self, request: HitlRequest, asker: Session | None) -> None:
        self.request = request
        self.asker = asker
        self.signalled = False
        """Whether the caller's signal was set."""
        self.aborted: StoredRequest | None = None
        """The request as aborted, if the signal was why it was cancelled."""
        self.settled: asyncio.Future[StoredRequest] = asyncio.get_running_loop().create_future()
        self.announced = False
        """Whether listeners are notified of the request; only then is it pending for hosts."""
        self.by_listener = False
        """Whether a listener settled the request, or interrupted the wait, while it was being notified."""
        self._after: Callable[[], Awaitable[object]] | None = None

    def settle(self, stored: StoredRequest) -> None:
        if not self.settled.done():
            self.settled.set_result(stored)

    def interrupt(self, signal: HitlControlException, after: Callable[[], Awaitable[object]] | None) -> bool:
        """End the wait: raise a signal in the waiting run, after awaiting ``after``. False if the wait has ended."""
        if self.settled.done():
            return False
        self._after = after
        self.by_listener = self.by_listener or current.get().hearing is self
        self.settled.set_exception(signal)
        return True

    def leave_with_tree(self) -> None:
        """Leave the wait, with the request open, if the agent tree was told to leave during the recording."""
        passage = None if self.asker is None else self.asker.top.passage
        leaving = None if passage is None else passage.leaving
        if leaving is not None:
            self.interrupt(leaving.signal, leaving.hear)

    async def await_after(self) -> None:
        """Await the ``after`` of an interruption, if there was one, before its signal is raised."""
        if self._after is not None:
            await self._after()

    async def notify(self, announcement: Awaitable[None]) -> None:
        """Await the async listeners. A context variable lets `settling` recognise them."""
        at = current.get()
        current.set(Context(at.session, at.turns, at.turn_at, at.asking, self, at.framework_run))
        await announcement

    def close(self) -> None:
        """End the slot; the exception of an interruption that came too late is dropped."""
        if not self.settled.cancel() and not self.settled.cancelled():
            self.settled.exception()

    def passing_errors(self) -> _PassErrors:
        return _PassErrors(self)


@contextmanager
def settling(slot: Slot | None) -> Generator[None]:
    """Mark the slot as settled by a listener, if the caller is one of its listeners; unmark it if settling fails."""
    listens = slot is not None and current.get().hearing is slot
    if slot is None or not listens or slot.by_listener:
        yield
        return
    slot.by_listener = True
    try:
        yield
    except BaseException:
        slot.by_listener = False
        raise


class _PassErrors:
    """Passes an error of a helper task to the task that waits for the slot."""

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
