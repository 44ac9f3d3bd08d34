"""Processes within the test's own that may die of any write, and whose store may fail them.

A *life* stands for a process. Its store handle asks it before every write what is to come of it; once the life is
over nothing of it reaches the store any more, nobody renews its leases, and what it was doing is cut short.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Literal

from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.concurrency import Decided
from askfirst.errors import StoreError
from askfirst.hitl.testing import FakeClock
from askfirst.store.store import Store
from kit.dying_stores import Died
from kit.stores import KINDS, Database

Fate = Literal["dies", "dies unheard", "fails", "is unheard"]
"""What may come of a write: its writer dies before it, or after it was sent; or it fails, or only its reply does."""

LEASE_SECONDS = 30.0
_WRITES = ("commit", "settle", "expire", "expire_due", "save_request")
_OF_THE_TEST = ("close", "check_home", "hub", "engine")


class Life:
    """One process: what goes on in it, and how likely each write of it goes wrong."""

    def __init__(self, dice: random.Random, *, risk: float) -> None:
        self._dice = dice
        self._risk = risk
        self.is_over = False
        self.tasks: set[asyncio.Task[Any]] = set()
        """What the process is doing, beside what that has begun itself."""
        self.unheard: list[asyncio.Future[Any]] = []
        """What it had sent when it died."""

    def check(self) -> None:
        """Raise `Died` if it has."""
        if self.is_over:
            raise Died

    def end(self) -> None:
        """Die."""
        self.is_over = True
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        self._risk = 0.0

    def risk(self) -> None:
        """A moment at which it may die, or may have died."""
        self.check()
        if self._dice.random() < self._risk:
            self.end()
            raise Died

    def fate(self) -> Fate | None:
        """What comes of its next write."""
        self.check()
        if self._dice.random() >= self._risk:
            return None
        return self._dice.choice(["dies", "dies unheard", "dies unheard", "fails", "is unheard"])


class MortalStore:
    """A store as seen from a life."""

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
        """A dead process's heart stops, and nobody hears of it."""
        if self._life.is_over:
            raise asyncio.CancelledError
        return self._store.renew(*args)

    async def close(self) -> None:
        """Disconnect, unless others use it too."""
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
            job.add_done_callback(lambda job: job.exception())  # nobody hears of that
            life.unheard.append(job)
            life.end()
            raise Died
        return job if fate is None else _without_reply(job)


def _without_reply(job: asyncio.Future[Any] | None) -> asyncio.Future[Any]:
    """The failure of a write that nobody hears the end of; no sooner than a ``job`` is done that comes before it,
    or that is this very write."""
    heard: asyncio.Future[Any] = Decided()

    def fail(job: asyncio.Future[Any] | None) -> None:
        if job is not None:
            job.exception()  # nobody hears of that either
        heard.set_exception(StoreError("the line went dead"))

    if job is None:
        fail(None)
    else:
        job.add_done_callback(fail)  # also if it is done: others may still have to hear of that
    return heard


class _Mortal(SqlCheckpointer):
    """A checkpointer of a life; ``shared`` is the store in memory that all of them use, if they do."""

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
    """A checkpointer for one life, not open yet."""
    address = () if database.kind == "memory" else (database.address,)
    made = _KINDS[database.kind](*address, clock=clock, lease_seconds=LEASE_SECONDS)
    made.life, made.shared = life, shared
    return made
