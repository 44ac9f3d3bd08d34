"""What asyncio lacks: locks across event loops and runs, a future awaited to its end, the first of several tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from types import CoroutineType
from typing import Any, Literal, TypeVar

from askfirst.errors import WaitsForItself

# A lock that does not stay with one event loop.


class LoopLock(asyncio.Lock):
    """An ``asyncio.Lock`` for objects that outlive their loop, as under one ``asyncio.run`` after another.

    asyncio's own belongs for ever to the first loop on which somebody had to wait for it. This one, when it is
    free, goes along to the next.
    """

    def acquire(self) -> CoroutineType[Any, Any, Literal[True]]:
        """Wait for one's turn."""
        if not self.locked():
            self._loop = None  # asyncio's; should it ever be named otherwise, this is an ordinary lock
        return super().acquire()


# One run at a time, and none that waits for itself.


_Task = asyncio.Task[Any]

_line: ContextVar[tuple[_Task, ...]] = ContextVar("askfirst_line", default=())
"""The chain of tasks that await one another, the innermost first. Child tasks inherit the variable, so it is valid
only in the task at its head."""


def waiting_line() -> tuple[_Task, ...]:
    """This task, and those that wait for it as far as is known."""
    task, line = asyncio.current_task(), _line.get()
    if task is None:
        return ()
    return line if line and line[0] is task else (task,)


def join(line: tuple[_Task, ...]) -> None:
    """Say, in a task that was made for part of a work, who waits for it: the `waiting_line` it was made in."""
    task = asyncio.current_task()
    if task is not None and task not in line:
        _line.set((task, *line))


class RunLock(LoopLock):
    """The lock that a thread's runs take turns by.

    Whoever holds it and waits for it would wait for ever: a tool's body or a listener that awaits a run of the
    very agent it works for. It is told so instead.
    """

    def __init__(self, thread_id: str) -> None:
        super().__init__()
        self._thread_id = thread_id
        self._holder: _Task | None = None

    def check(self) -> None:
        """Raise `WaitsForItself` if this task holds it, or one that waits for this task."""
        if self._holder is not None and self._holder in waiting_line():
            raise WaitsForItself(self._thread_id)

    async def acquire(self) -> Literal[True]:
        """Wait for one's turn; raises `WaitsForItself`."""
        if self._holder is not None:
            self.check()
        await super().acquire()
        self._holder = asyncio.current_task()
        return True

    def release(self) -> None:
        """Let the next one have its turn."""
        self._holder = None
        super().release()


# Waiting for a transaction that nobody can call off.


T = TypeVar("T")


class Decided(asyncio.Future[T]):
    """A future that cannot be called off: a task that is cancelled while it waits for it hears of the
    cancellation when the future is done."""

    def cancel(self, msg: object = None) -> bool:
        """No."""
        return False


async def finish(job: asyncio.Future[T]) -> T:
    """Wait for a transaction. If this task is cancelled meanwhile, it still waits, then is cancelled.

    So code that sees the cancellation also sees the transaction committed or rolled back, never under way.
    """
    if isinstance(job, Decided):
        return await job
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        while not job.done():
            try:
                await asyncio.wait({job})
            except asyncio.CancelledError:
                continue
        if not job.cancelled():
            job.exception()  # nobody is left to hear of it
        raise


async def first_of(*each: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
    """Which of these ends first, and what it gives or raises; the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in each]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next((place, task.result()) for place, task in enumerate(tasks) if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
