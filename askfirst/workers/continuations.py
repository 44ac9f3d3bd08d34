"""Continuations: threads that have to be continued because a request was settled, for workers and operators."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, cast

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import seconds
from askfirst.concurrency import finish
from askfirst.errors import StoreError
from askfirst.store import continuations as transactions
from askfirst.store.rows import ContinuationRow, decode_text, encode_text, fresh_write_id

ContinuationState = Literal["due", "running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Continuation:
    """A thread that has to be continued, and the name of the resumer that does it. Times are seconds since 1970
    (UTC)."""

    thread_id: str
    resumer: str
    state: ContinuationState
    attempts: int
    error: str | None
    """Why the last attempt failed."""
    due_at: float | None
    """When the next attempt is due, or when the lease of the worker that runs it lapses; None if neither applies."""
    settled_at: float
    """When the request was settled that made the continuation due."""
    updated_at: float
    owner: str | None = None
    """The worker that runs the continuation or ran it last, or the task queue that it was handed over to."""
    checkpointer: SqlCheckpointer | None = field(default=None, repr=False, compare=False)
    """The store of the thread, for resumers."""
    row: ContinuationRow | None = field(default=None, repr=False, compare=False)


class Continuations:
    """The continuations of a store."""

    def __init__(self, checkpointer: SqlCheckpointer) -> None:
        self._checkpointer = checkpointer

    async def list(self, limit: int = 100, *, with_done: bool = False) -> list[Continuation]:
        """The continuations that are not done, or all; the last changed comes first."""
        rows = await self._checkpointer.engine.read(partial(transactions.page, limit, with_done=with_done))
        return [self._read(row) for row in rows]

    async def of(self, thread_id: str) -> Continuation | None:
        """A thread's continuation."""
        row = await self._checkpointer.engine.read(partial(transactions.one, thread_id))
        return None if row is None else self._read(row)

    async def take(
        self, owner: str, limit: int, lease_seconds: float, resumers: Sequence[str]
    ) -> list[Continuation]:
        """Take due continuations of these resumers under a lease of so many seconds; no other worker has them
        meanwhile."""
        now = _now()
        until = now + round(lease_seconds * 1000)
        job = self._checkpointer.engine.write(
            partial(transactions.take, owner, now, until, limit, fresh_write_id(), list(resumers))
        )
        return [self._read(row) for row in await finish(job)]

    async def take_one(
        self, thread_id: str, owner: str, lease_seconds: float, resumers: Sequence[str]
    ) -> Continuation | None:
        """Take one thread's continuation under a lease; None if it is done, or another worker has it."""
        now = _now()
        until = now + round(lease_seconds * 1000)
        job = self._checkpointer.engine.write(
            partial(transactions.take_one, thread_id, owner, now, until, fresh_write_id(), list(resumers))
        )
        row = await finish(job)
        return None if row is None else self._read(row)

    async def hand_over(
        self, to: str, limit: int, again_in: float, resumers: Sequence[str] | None = None
    ) -> Sequence[Continuation]:
        """Mark due continuations, of these resumers or of all, as handed over to a task queue of this name.

        A continuation that nobody takes with `take_one` within so many seconds is due again. The ``owner`` of each is
        the queue's name and a number, which stays the same while `not_handed_over` reports failures.
        """
        now = _now()
        until, known = now + round(again_in * 1000), None if resumers is None else list(resumers)
        job = self._checkpointer.engine.write(
            partial(transactions.hand_over, to, now, until, limit, fresh_write_id(), known)
        )
        return [self._read(row) for row in await finish(job)]

    async def not_handed_over(self, handed: Continuation, error: str, retry_in: float) -> bool:
        """Record that a hand-over failed, and is tried again in so many seconds; False if a worker has taken the
        continuation since."""
        due_at = _now() + round(retry_in * 1000)
        changed = await self._change(handed, "failed", due_at=due_at, error=error, owner=handed.owner)
        return changed is not None

    async def renew(self, taken: Continuation, lease_seconds: float) -> Continuation | None:
        """Renew the lease on a continuation; None if it was made due again, or taken over."""
        return await self._change(taken, "running", due_at=_now() + round(lease_seconds * 1000))

    async def done(self, taken: Continuation) -> bool:
        """Record that a thread was continued; False if it was made due again meanwhile, so that a worker takes it
        once more."""
        return await self._change(taken, "done", due_at=None, owner=taken.owner) is not None

    async def failed(self, taken: Continuation, error: str, retry_in: float | None) -> bool:
        """Record a failure: try again in so many seconds, or only after `retry` (None)."""
        due_at = None if retry_in is None else _now() + round(retry_in * 1000)
        return await self._change(taken, "failed", due_at=due_at, error=error) is not None

    async def later(self, taken: Continuation, retry_in: float) -> bool:
        """Postpone a continuation: another worker has the thread, which is no failure."""
        attempts = max(0, taken.attempts - 1)
        due_at = _now() + round(retry_in * 1000)
        return await self._change(taken, "due", due_at=due_at, attempts=attempts) is not None

    async def retry(self, thread_id: str) -> Continuation:
        """Make a continuation due now, whatever its state. Raises `StoreError` if there is none."""
        known = await self.of(thread_id)
        while known is not None:
            changed = await self._change(known, "due", due_at=_now(), attempts=0)
            if changed is not None:
                return changed
            known = await self.of(thread_id)
        raise StoreError(f"there is no continuation of thread {thread_id!r}")

    async def next_due(self) -> float | None:
        """When the next continuation is due, or its worker's lease lapses."""
        return seconds(await self._checkpointer.engine.read(transactions.next_due))

    @contextmanager
    def waking(self) -> Generator[asyncio.Event]:
        """An event that is set when a continuation may have become due."""
        with self._checkpointer.engine.hub.waiting(transactions.KEY) as woken:
            yield woken

    async def _change(
        self,
        known: Continuation,
        state: ContinuationState,
        *,
        due_at: int | None,
        error: str | None = None,
        owner: str | None = None,
        attempts: int | None = None,
    ) -> Continuation | None:
        row = known.row
        if row is None:
            raise StoreError("this continuation is not a row of a store")
        write_id = fresh_write_id()
        new = row._replace(
            state=state,
            due_at=due_at,
            error=encode_text(error),
            owner=owner or (row.owner if state == "running" else None),
            attempts=row.attempts if attempts is None else attempts,
            updated_at=_now(),
            write_id=write_id,
        )
        job = self._checkpointer.engine.write(
            partial(transactions.change, new, row.write_id),
            partial(transactions.changed, row.thread_id, write_id),
        )
        return self._read(new) if await finish(job) else None

    def _read(self, row: ContinuationRow) -> Continuation:
        return Continuation(
            thread_id=row.thread_id,
            resumer=row.resumer,
            state=cast(ContinuationState, row.state),
            attempts=row.attempts,
            error=decode_text(row.error),
            due_at=seconds(row.due_at),
            settled_at=seconds(row.settled_at),
            updated_at=seconds(row.updated_at),
            owner=row.owner,
            checkpointer=self._checkpointer,
            row=row,
        )


def _now() -> int:
    return time.time_ns() // 1_000_000
