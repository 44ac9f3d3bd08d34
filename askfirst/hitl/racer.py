"""The process that `askfirst.hitl.testing` forks its racers from: ``python -m askfirst.hitl.racer``.

It reads one race per line from its input and writes one line of outcomes for each race. Its children are forked after
everything is loaded, so that fifty of them are ready quickly. Each child reports that it is ready, and then all start
at once. When its input ends, the process kills its children and ends.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import selectors
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

Start = Callable[[], Awaitable[None]]
"""A racer awaits this when it is ready; it returns when all racers are ready."""

Racer = Callable[[Any, Start], Awaitable[Any]]
"""The function that each process runs: it gets its job and returns its outcome, both JSON."""

_READY = b"\n"


def main() -> None:
    """Serve races until the input ends."""
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a racer prints goes to standard error
    while line := _read_line():
        race = json.loads(line)
        sys.path[:] = race["path"]
        racer = _find(race["target"])
        if race["warm_up"] is not None:
            asyncio.run(_warm_up(racer, race["warm_up"]))
            gc.collect()
        gc.freeze()  # otherwise each child's garbage collector would copy the memory that it shares with this process
        outcomes.write(json.dumps(_Race(racer, race["jobs"]).run()) + "\n")
        outcomes.flush()


async def _warm_up(racer: Racer, job: Any) -> None:
    """Run one job in this process, so that the children inherit what it has loaded and compiled."""

    async def start() -> None:
        pass

    await racer(job, start)


def _read_line() -> bytes:
    """The next line of input, read unbuffered, because `_Race.run` watches the same input for its end."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            return b""
        line += piece
    return line


def _find(target: str) -> Racer:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


class _Race:
    """One race: a child process for each job."""

    def __init__(self, racer: Racer, jobs: list[Any]) -> None:
        self._racer = racer
        self._jobs = jobs
        self._gate, self._opener = os.pipe()

    def run(self) -> list[Any]:
        """Fork the children, wait until all are ready (or have ended), start them, and collect their outcomes."""
        children = [self._fork(job) for job in self._jobs]
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            for child in children:
                selector.register(child.read_fd, selectors.EVENT_READ, child)
            opener: int | None = self._opener
            running = len(children)
            while running:
                if opener is not None and all(child.output for child in children):
                    os.close(opener)
                    opener = None
                for key, _ in selector.select():
                    if key.fd == 0:
                        _kill(children)
                    elif not key.data.listen():
                        selector.unregister(key.fd)
                        running -= 1
            if opener is not None:
                os.close(opener)
        os.close(self._gate)
        return [child.outcome() for child in children]

    def _fork(self, job: Any) -> _Child:
        read_fd, write_fd = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write_fd)
            return _Child(pid, read_fd)
        try:
            os.close(self._opener)
            os.close(read_fd)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            output = json.dumps(asyncio.run(self._one(job, write_fd)))
            with os.fdopen(write_fd, "w") as pipe:
                pipe.write(output)
        finally:
            os._exit(0)

    async def _one(self, job: Any, write_fd: int) -> dict[str, Any]:
        async def start() -> None:
            os.write(write_fd, _READY)
            await asyncio.to_thread(os.read, self._gate, 1)

        try:
            return {"value": await self._racer(job, start)}
        except BaseException as error:
            return {"error": type(error).__name__, "message": str(error), "facts": _facts(error)}


class _Child:
    """A child process, as its parent sees it."""

    def __init__(self, pid: int, read_fd: int) -> None:
        self.pid = pid
        self.read_fd = read_fd
        self.output = b""

    def listen(self) -> bool:
        """Read the child's output; False once the child has ended."""
        piece = os.read(self.read_fd, 65536)
        self.output += piece or (b"" if self.output else _READY)
        return bool(piece)

    def outcome(self) -> dict[str, Any]:
        """The child's outcome: its value, its error, or the signal that killed it."""
        os.close(self.read_fd)
        _, status = os.waitpid(self.pid, 0)
        output = self.output.strip()
        if os.WIFSIGNALED(status):
            return {"signal": os.WTERMSIG(status)}
        return (
            cast("dict[str, Any]", json.loads(output))
            if output
            else {"error": "SystemExit", "message": "it wrote no outcome"}
        )


def _kill(children: list[_Child]) -> None:
    """Kill the children and end this process: its input has ended, so nobody waits for the outcomes."""
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
    os._exit(1)


def _facts(error: BaseException) -> dict[str, Any]:
    """An exception's attributes, as far as they can be written as JSON."""
    return {name: value for name, value in vars(error).items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    """Whether a value can be written as JSON."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, cast("list[Any]", value)))
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return all(isinstance(name, str) and _is_plain(each) for name, each in pairs)
    return value is None or isinstance(value, str | int | float | bool)


if __name__ == "__main__":
    main()
