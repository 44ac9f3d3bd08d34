"""What an engine is. `sqlite_engine`, `postgres_engine` and `mysql_engine` alone know dialects and drivers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Protocol, TypeVar

from askfirst.errors import StoreError
from askfirst.store.statement import Transaction
from askfirst.store.wakeups import Hub

T = TypeVar("T")


_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)  # cheaper than to ask for the process's id each time


class Home:
    """The event loop and the process that a store was opened in: its connections and threads serve no other."""

    __slots__ = ("_forks", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._forks = _forks

    def check(self) -> None:
        """Raise `StoreError` anywhere else."""
        if self._forks != _forks:
            raise StoreError("this store was opened before the process was forked: open one in each process")
        try:
            if asyncio.get_running_loop() is self._loop:
                return
        except RuntimeError:  # no loop at all
            pass
        raise StoreError(
            "this store was opened on another event loop, and only there it can be used and closed"
        )


class Engine(Protocol):
    """Runs transactions. What it returns is a future: the transaction goes on if nobody waits any more.

    A transaction may be run more than once (a deadlock, a lost connection), so it is handed in as a function;
    only one of these passages is ever committed. Failures of the database are raised as `StoreError`.
    """

    hub: Hub

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        ...

    async def close(self) -> None:
        """Finish what is under way and disconnect."""
        ...

    def write(
        self,
        transaction: Callable[[], Transaction[T]],
        landed: Callable[[], Transaction[T | None]] | None = None,
        *,
        behind: bool = False,
        at_once: bool = False,
    ) -> asyncio.Future[T]:
        """Run a transaction and commit it; the future is done once that is on disk.

        One that nobody waits for (``behind``) begins with the loop's next turn at the latest, so that what comes
        before may share its commit. One that reads first, if at all, and whose every statement that writes checks
        what it needs and nearly always touches one row, may have those tried as one (``at_once``).

        Where the connection breaks during the COMMIT, nobody knows the outcome. Then ``landed`` is run on a
        new connection, in the transaction of the second attempt, before that attempt: what it returns, if
        not None, is the result. It has to take the lock that the first attempt held.
        """
        ...

    def read(self, transaction: Callable[[], Transaction[T]]) -> asyncio.Future[T]:
        """Run statements that only read; each sees a moment of its own."""
        ...
