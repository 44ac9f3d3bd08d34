"""What asyncio lacks: locks that outlive an event loop, waits that outlive a cancellation, tasks ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextvars import ContextVar
from types import CoroutineType
from typing import Any, Literal, TypeVar

from askfirst.errors import WaitsForItself

# A lock that does not stay with one event loop.


class LoopLock(asyncio.Lock):
    """An ``asyncio.Lock`` for objects that outlive their event loop, for instance across two calls of
    ``asyncio.run``.

    An ``asyncio.Lock`` is bound for ever to the loop on which a task first had to wait for it. This lock can be used
    on another loop whenever it is free.
    """

    def acquire(self) -> CoroutineType[Any, Any, Literal[True]]:
        """Wait until the lock is free, and take it."""
        if not self.locked():
            self._loop = None  # asyncio's own attribute; if asyncio renames it, this is an ordinary lock
        return super().acquire()


# A lock for one run at a time. It raises where a run would wait for a lock that it holds itself (a deadlock).


_Task = asyncio.Task[Any]

_await_chain: ContextVar[tuple[_Task, ...]] = ContextVar("askfirst_await_chain", default=())
"""The await chain: tasks that await one another, the innermost first. Child tasks inherit the variable, so it is
valid only in the task at its head."""


def await_chain() -> tuple[_Task, ...]:
    """The current task and the tasks that await it, as far as they are known."""
    task, chain = asyncio.current_task(), _await_chain.get()
    if task is None:
        return ()
    return chain if chain and chain[0] is task else (task,)


def continue_chain(chain: tuple[_Task, ...]) -> None:
    """Record which tasks await the current task: ``chain`` is the `await_chain` of the task that created it."""
    task = asyncio.current_task()
    if task is not None and task not in chain:
        _await_chain.set((task, *chain))


class RunLock(LoopLock):
    """The lock that lets one run at a time work on a thread.

    A tool's body or a listener that awaits another run of its own agent would deadlock, because its own run holds the
    lock. The lock raises `WaitsForItself` instead.
    """

    def __init__(self, thread_id: str) -> None:
        super().__init__()
        self._thread_id = thread_id
        self._holder: _Task | None = None

    def check(self) -> None:
        """Raise `WaitsForItself` if the current task, or a task that waits for it, holds the lock."""
        if self._holder is not None and self._holder in await_chain():
            raise WaitsForItself(self._thread_id)

    async def acquire(self) -> Literal[True]:
        """Wait until the lock is free, and take it. Raises `WaitsForItself` where that would be a deadlock."""
        if self._holder is not None:
            self.check()
        await super().acquire()
        self._holder = asyncio.current_task()
        return True

    __aenter__ = acquire  # pyright: ignore[reportAssignmentType]  (asyncio's awaits this method in another coroutine)

    def release(self) -> None:
        """Release the lock, so that the next waiting run can take it."""
        self._holder = None
        super().release()


# Waiting for a transaction that cannot be cancelled.


T = TypeVar("T")


class UncancellableFuture(asyncio.Future[T]):
    """A future that ignores `cancel`. A task that is cancelled while it awaits the future gets its `CancelledError`
    once the future is done."""

    def cancel(self, msg: object = None) -> bool:
        """Do nothing, and report that nothing was cancelled."""
        return False


async def finish(job: asyncio.Future[T]) -> T:
    """Wait for a transaction. If this task is cancelled meanwhile, its `CancelledError` is raised after the
    transaction.

    So whoever catches the `CancelledError` finds the transaction committed or rolled back, never under way.
    """
    if isinstance(job, UncancellableFuture):
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
            job.exception()  # the exception is retrieved, so that asyncio does not log it
        raise


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until each has ended. What they raise is left to their own callbacks."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)


async def first_of(*each: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
    """Run coroutines concurrently; returns the index of the first that ends, and its result.

    The others are cancelled. If the first to end raises, its exception is raised here.
    """
    tasks = [asyncio.ensure_future(one) for one in each]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next((place, task.result()) for place, task in enumerate(tasks) if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
