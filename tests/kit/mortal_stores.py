"""Simulated processes, within the test's process, that may die at any write, and whose store may fail.

A *life* stands for a process. Before every write, its store handle asks the life for the write's fate. After the life
has ended, nothing of it reaches the store, its leases are not renewed, and its tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Literal

from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.concurrency import UncancellableFuture
from askfirst.errors import StoreError
from askfirst.hitl.testing import FakeClock
from askfirst.store.store import Store
from kit.dying_stores import Died
from kit.stores import KINDS, Database

Fate = Literal["dies", "dies unheard", "fails", "is unheard"]
"""The fate of a write: its writer dies before it, or after it was sent; or the write fails, or its reply is lost."""

LEASE_SECONDS = 30.0
_WRITES = ("commit", "settle", "expire", "expire_due", "save_request")
_OF_THE_TEST = ("close", "check_home", "hub", "engine")


class Life:
    """One simulated process: its tasks, and the probability that a write goes wrong."""

    def __init__(self, dice: random.Random, *, risk: float) -> None:
        self._dice = dice
        self._risk = risk
        self.is_over = False
        self.tasks: set[asyncio.Task[Any]] = set()
        """The tasks of the process, without the tasks that they have started."""
        self.unheard: list[asyncio.Future[Any]] = []
        """The writes that it had sent when it died."""

    def check(self) -> None:
        """Raise `Died` if the process has died."""
        if self.is_over:
            raise Died

    def end(self) -> None:
        """Die."""
        self.is_over = True
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()

    def calm(self) -> None:
        """Set the probability of faults to zero."""
        self._risk = 0.0

    def risk(self) -> None:
        """Die here by chance; raises `Died` if the process dies now or has died."""
        self.check()
        if self._dice.random() < self._risk:
            self.end()
            raise Died

    def fate(self) -> Fate | None:
        """The fate of the next write."""
        self.check()
        if self._dice.random() >= self._risk:
            return None
        return self._dice.choice(["dies", "dies unheard", "dies unheard", "fails", "is unheard"])


class MortalStore:
    """A store, as a life sees it."""

    def __init__(self, store: Store, life: Life, *, closes: bool) -> None:
        self._store = store
        self._life = life
        self._closes = closes
        self._last: asyncio.Future[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._store, name)
        if name in _OF_THE_TEST:
            return work
        return (
            (lambda *args, **options: self._write(work, *args, **options))
            if name in _WRITES
            else self._alive(work)
        )

    def _alive(self, work: Any) -> Any:
        self._life.check()
        return work

    def renew(self, *args: Any) -> asyncio.Future[Any]:
        """Renew leases; the heartbeat of a dead process does nothing, and raises nothing."""
        if self._life.is_over:
            raise asyncio.CancelledError
        return self._store.renew(*args)

    async def close(self) -> None:
        """Close the store, unless other lives use it too."""
        if self._closes:
            await self._store.close()

    def _write(self, work: Any, *args: Any, **options: Any) -> asyncio.Future[Any]:
        life = self._life
        fate = life.fate()
        if fate == "dies":
            life.end()
            raise Died
        if fate == "fails":
            return _without_reply(self._last)
        job: asyncio.Future[Any] = work(*args, **options)
        self._last = job
        if fate == "dies unheard":
            job.add_done_callback(
                lambda job: job.exception()
            )  # its process is dead, so nobody handles the error
            life.unheard.append(job)
            life.end()
            raise Died
        return job if fate is None else _without_reply(job)


def _without_reply(job: asyncio.Future[Any] | None) -> asyncio.Future[Any]:
    """The failure of a write whose reply is lost. It comes only after ``job`` is done: this write, or the one before
    it."""
    heard: asyncio.Future[Any] = UncancellableFuture()

    def fail(job: asyncio.Future[Any] | None) -> None:
        if job is not None:
            job.exception()  # the same
        heard.set_exception(StoreError("the line went dead"))

    if job is None:
        fail(None)
    else:
        job.add_done_callback(fail)  # even if it is done: its other callbacks may not have run yet
    return heard


class _Mortal(SqlCheckpointer):
    """A checkpointer of a life; ``shared`` is the store in memory that all lives use, if they share one."""

    life: Life
    shared: Store | None

    async def _connect(self) -> Any:
        store = await super()._connect() if self.shared is None else self.shared  # type: ignore[safe-super]
        return MortalStore(store, self.life, closes=self.shared is None)


_KINDS = {
    kind: type(f"Mortal{plain.__name__}", (_Mortal, plain), {})
    for kind, plain in {**KINDS, "memory": MemoryCheckpointer}.items()
}


def mortal(database: Database, life: Life, clock: FakeClock, shared: Store | None) -> SqlCheckpointer:
    """A checkpointer for one life, not yet open."""
    address = () if database.kind == "memory" else (database.address,)
    made = _KINDS[database.kind](*address, clock=clock, lease_seconds=LEASE_SECONDS)
    made.life, made.shared = life, shared
    return made
