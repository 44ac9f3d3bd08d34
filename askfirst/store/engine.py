"""What an engine is. Only `sqlite_engine`, `postgres_engine` and `mysql_engine` know drivers.

SQL that differs between dialects is in `statement`, `thread_state`, `inspect` and `former_name`.
"""

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
    """The event loop and process in which a store was opened; its connections and threads serve no other."""

    __slots__ = ("_forks", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._forks = _forks

    def check(self) -> None:
        """Raise `StoreError` on another loop or in another process."""
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
    """Runs transactions. It returns futures: a transaction is completed even if its waiter is cancelled.

    A transaction may be run more than once (after a deadlock or a lost connection), so it is passed as a
    function that makes the generator; only one run is ever committed. Failures of the database are raised as
    `StoreError`.
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
        """Run a transaction and commit it; the future is done once the commit is on disk.

        ``behind``: nobody waits for this transaction just now. It begins with the loop's next turn at the
        latest, so that another one may share its commit (group commit).

        ``at_once``: its writes may be tried as a single statement. That is for a transaction that reads only
        before it writes, and whose writes each check what they need and nearly always change exactly one row.

        If the connection breaks during COMMIT, the outcome is unknown (an indeterminate commit). Then
        ``landed`` is run on a new connection, in the transaction of the second attempt and before it. If it
        returns something other than None, that is the result. It must take the lock that the first attempt
        held.
        """
        ...

    def read(self, transaction: Callable[[], Transaction[T]]) -> asyncio.Future[T]:
        """Run statements that only read, without a transaction: each statement sees its own snapshot."""
        ...
