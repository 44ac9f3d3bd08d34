"""An open store: the transactions, each handed to the engine. What it returns are futures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from askfirst.store import checkpoints, grants, requests, threads
from askfirst.store.audit_chain import Linker
from askfirst.store.engine import Engine, Home
from askfirst.store.rows import (
    CheckpointRow,
    Expired,
    Holding,
    Loaded,
    Page,
    RequestRow,
    Row,
    Settled,
    Writing,
)
from askfirst.store.statement import Transaction
from askfirst.store.threads import Renewal, Renewed
from askfirst.store.wakeups import Hub

T = TypeVar("T")
Job = asyncio.Future[T]


class Store:
    """An open store: a method for each transaction, which hands it to the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._home = Home()
        self._linker = Linker(engine)

    @property
    def engine(self) -> Engine:
        """The engine that runs the transactions."""
        return self._engine

    @property
    def hub(self) -> Hub:
        """The waiters of requests in this process."""
        self.check_home()
        return self._engine.hub

    def check_home(self) -> None:
        """Raise `StoreError` on a loop, or in a process, other than the one that the store was opened in."""
        self._home.check()

    async def close(self) -> None:
        """Finish what is under way and disconnect."""
        self._linker.stop()
        await self._engine.close()

    def load(self, thread_id: str, since: int = 0) -> Job[Loaded | None]:
        """A thread's rows, all from one moment; of its messages, those from ``since`` on."""
        return self._engine.read(partial(threads.load, thread_id, since))

    def commit(self, step: Writing, *, behind: bool = False) -> Job[int]:
        """Write a step; ``behind`` if nobody waits for it just now (see `Engine.write`)."""
        if step.opened or step.settled:
            self._linker.acted()
        return self._engine.write(
            partial(threads.commit, step), partial(threads.landed, step), behind=behind, at_once=True
        )

    def renew(self, owner: str, thread_ids: Sequence[str], lease_until: int) -> Job[Renewed]:
        """Renew leases; returns which were renewed, and which are lost."""
        return self._engine.write(Renewal(owner, thread_ids, lease_until))

    def listing(self, limit: int, after: str | None) -> Job[list[tuple[Any, ...]]]:
        """A page of threads."""
        return self._engine.read(partial(threads.listing, limit, after))

    def fork(self, thread_id: str, new_id: str, upto: int | None, now: int, write_id: int) -> Job[bool]:
        """Copy a thread's beginning."""
        return self._engine.write(
            partial(threads.fork, thread_id, new_id, upto, now, write_id),
            partial(threads.forked, new_id, write_id),
        )

    def said(self, thread_id: str) -> Job[tuple[int | None, list[str]]]:
        """A thread's fence, and its assistant messages."""
        return self._engine.read(partial(threads.said, thread_id))

    def children(self, parent: str, thread_ids: Sequence[str]) -> Job[list[str]]:
        """The threads among these that exist and have this parent."""
        return self._engine.read(partial(threads.children, parent, thread_ids))

    def remove(self, fences: Mapping[str, int | None], now: int) -> Job[bool]:
        """Delete threads, if they are still at these fences (compare-and-set)."""
        self._linker.acted()
        return self._engine.write(partial(threads.remove, fences, now))

    def settle(self, by: Settled) -> Job[RequestRow]:
        """Answer or cancel a request."""
        self._linker.acted()
        return self._engine.write(partial(requests.settle, by), partial(requests.landed, by), at_once=True)

    def expire(self, by: Settled) -> Job[RequestRow]:
        """Time a request out, if it is past its deadline."""
        self._linker.acted()
        return self._engine.write(partial(requests.expire, by))

    def expire_due(self, now: int, limit: int, write_id: int) -> Job[Expired]:
        """Time out requests that are past their deadline."""
        tried = Expired(0, [])

        def expire() -> Transaction[Expired]:
            nonlocal tried
            tried = yield from requests.expire_due(now, limit, write_id)
            return tried

        job = self._engine.write(expire, lambda: requests.expired(tried))
        job.add_done_callback(self._expired)
        return job

    def _expired(self, job: Job[Expired]) -> None:
        if not job.cancelled() and job.exception() is None and job.result().rows:
            self._linker.acted()

    def request(self, thread_id: str, question_id: str) -> Job[RequestRow | None]:
        """A request as it stands."""
        return self._engine.read(partial(requests.latest, thread_id, question_id))

    def open_page(self, limit: int, after: tuple[int, str, str]) -> Job[list[RequestRow]]:
        """A page of open requests."""
        return self._engine.read(partial(requests.open_page, limit, after))

    def oldest_open(self, thread_id: str) -> Job[RequestRow | None]:
        """A thread's oldest pending request."""
        return self._engine.read(partial(requests.oldest_open, thread_id))

    def save_request(
        self, thread_id: str, request: Row | None, now: int, write_id: int, alone: bool
    ) -> Job[None]:
        """Open a request outside of any step (see `threads.save_request`), or cancel all open ones of a thread."""
        self._linker.acted()
        if request is None:
            return self._engine.write(partial(requests.end_open, thread_id, now, write_id))
        return self._engine.write(
            partial(threads.save_request, thread_id, request, now, write_id, alone=alone)
        )

    # Checkpoints.

    def save_checkpoint(self, new: CheckpointRow) -> Job[CheckpointRow]:
        """Store a checkpoint, or replace a pending one's body."""
        landed = partial(checkpoints.landed, new.checkpoint_id, new.write_id)
        return self._engine.write(partial(checkpoints.save, new), landed)

    def claim_checkpoint(self, by: Holding) -> Job[CheckpointRow]:
        """Claim a checkpoint."""
        return self._move_checkpoint(checkpoints.claim, by)

    def resolve_checkpoint(self, by: Holding) -> Job[CheckpointRow]:
        """Mark a claimed checkpoint as resolved."""
        return self._move_checkpoint(checkpoints.resolve, by)

    def release_checkpoint(self, by: Holding) -> Job[CheckpointRow]:
        """Release a claimed checkpoint."""
        return self._move_checkpoint(checkpoints.release, by)

    def renew_checkpoint(self, by: Holding) -> Job[CheckpointRow]:
        """Renew the claim on a checkpoint."""
        return self._move_checkpoint(checkpoints.renew, by)

    def _move_checkpoint(
        self, move: Callable[[Holding], Transaction[CheckpointRow]], by: Holding
    ) -> Job[CheckpointRow]:
        landed = partial(checkpoints.landed, by.checkpoint_id, by.write_id)
        return self._engine.write(partial(move, by), landed)

    def checkpoint(self, checkpoint_id: str) -> Job[CheckpointRow | None]:
        """A checkpoint as it stands."""
        return self._engine.read(partial(checkpoints.get, checkpoint_id))

    def checkpoint_page(self, page: Page) -> Job[list[CheckpointRow]]:
        """A page of checkpoints."""
        return self._engine.read(partial(checkpoints.checkpoint_page, page))

    def remove_checkpoint(self, checkpoint_id: str, agent_id: str, now: int) -> Job[None]:
        """Delete a checkpoint."""
        return self._engine.write(partial(checkpoints.remove, checkpoint_id, agent_id, now))

    # Permissions.

    def save_grant(self, grant: Row) -> Job[None]:
        """Store a grant."""
        self._linker.acted()
        return self._engine.write(partial(grants.save_grant, grant))

    def find_grants(self, session: str, digests: Sequence[str], now: int) -> Job[dict[str, str]]:
        """Valid grants, their bodies by digest."""
        return self._engine.read(partial(grants.find_grants, session, digests, now))

    def grants(self, session: str, now: int) -> Job[list[tuple[str, str]]]:
        """A session's valid grants."""
        return self._engine.read(partial(grants.all_grants, session, now))

    def remove_grant(self, session: str, key: str, digest: str, now: int) -> Job[bool]:
        """Delete a grant; whether there was one."""
        self._linker.acted()
        return self._engine.write(*grants.remove_grants(session, key, digest, now))
