"""One run at a time, and none that waits for itself."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, Literal

from assent.errors import WaitsForItself
from assent.loop_lock import LoopLock

_Task = asyncio.Task[Any]

_line: ContextVar[tuple[_Task, ...]] = ContextVar("assent_line", default=())
"""A task, the one that waits for it, and so on. Tasks that nobody may be waiting for inherit it, so it counts
for the first only."""


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
        self.check()
        await super().acquire()
        self._holder = asyncio.current_task()
        return True

    def release(self) -> None:
        """Let the next one have its turn."""
        self._holder = None
        super().release()
