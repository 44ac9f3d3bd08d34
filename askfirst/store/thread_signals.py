"""Signals between an event loop and a worker thread: a queue for the thread, and wake-ups in both directions.

Both use ``eventfd`` where the kernel has it: it takes about half the time of a queue's lock and the loop's
socket pair, which are used elsewhere.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
HAS_EVENTFD = hasattr(os, "eventfd")


class Letterbox(Protocol[T]):
    """The queue of a worker thread: any thread enqueues items, the worker takes all of them at once."""

    def put(self, item: T) -> None: ...

    def leave(self, item: T) -> None:
        """Enqueue an item without waking the thread; the next `put` or `call` wakes it."""
        ...

    def call(self) -> None:
        """Wake the thread if the queue is not empty."""
        ...

    def take(self) -> list[T]:
        """Dequeue all items, in order; blocks until there is one."""
        ...

    def close(self) -> None:
        """Close the queue; called by the worker thread when it ends."""
        ...


class _CountedLetterbox(Generic[T]):
    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._count = os.eventfd(0, os.EFD_CLOEXEC)
        self._called = False

    def put(self, item: T) -> None:
        self._items.append(item)
        self.call()

    def leave(self, item: T) -> None:
        if self._count < 0:
            raise OSError(errno.EBADF, "nobody takes anything out any more")
        self._items.append(item)

    def call(self) -> None:
        if self._items and not self._called:  # otherwise the thread was woken already, and takes all items
            self._called = True
            os.eventfd_write(self._count, 1)

    def take(self) -> list[T]:
        items = self._items
        while True:
            os.eventfd_read(self._count)
            self._called = False
            taken: list[T] = []
            with suppress(IndexError):
                while True:
                    taken.append(items.popleft())
            if taken:  # else what it counts was taken with the last ones
                return taken

    def close(self) -> None:
        count, self._count = self._count, -1  # so that a late `put` fails, and meets no other file
        os.close(count)


class _QueuedLetterbox(Generic[T]):
    def __init__(self) -> None:
        self._items: SimpleQueue[T] = SimpleQueue()

    def put(self, item: T) -> None:
        self._items.put(item)

    leave = put

    def call(self) -> None:
        pass

    def take(self) -> list[T]:
        taken = [self._items.get()]
        with suppress(Empty):
            while True:
                taken.append(self._items.get_nowait())
        return taken

    def close(self) -> None:
        pass


def letterbox() -> Letterbox[Any]:
    """The fastest queue that this system has."""
    return _CountedLetterbox() if HAS_EVENTFD else _QueuedLetterbox()


class Doorbell:
    """Wakes an event loop from another thread: after a `ring`, the loop calls a function. Make it on that loop."""

    def __init__(self, answer: Callable[[], object]) -> None:
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._count: int | None = None
        if HAS_EVENTFD:
            count = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            try:
                self._loop.add_reader(count, self._heard)
            except NotImplementedError:  # a loop that watches no files, such as one of a program's own
                os.close(count)
            else:
                self._count = count

    def ring(self) -> None:
        """Call the function on the event loop soon. Any thread may call this, until `take_down`."""
        if self._count is not None:
            os.eventfd_write(self._count, 1)
            return
        with suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
            self._loop.call_soon_threadsafe(self._answer)

    def take_down(self) -> None:
        """Release the file descriptor; called on the loop when no thread rings any more."""
        if self._count is not None:
            self._loop.remove_reader(self._count)
            os.close(self._count)
            self._count = None

    def _heard(self) -> None:
        try:  # noqa: SIM105  (it is heard for every commit, and `suppress` costs more than the read)
            os.eventfd_read(self._count or 0)
        except BlockingIOError:
            pass
        self._answer()
