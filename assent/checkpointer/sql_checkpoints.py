"""Checkpoints in SQL: the part of an SQL checkpointer that is a `CheckpointKeeper`."""

from __future__ import annotations

import math
from typing import cast

from assent.checkpointer.base import CheckpointState, StoredCheckpoint
from assent.checkpointer.opened import Opened, decode_body, encode_body
from assent.checkpointer.rows import checked_id, checked_limit
from assent.errors import StoreError
from assent.messages import JsonObject
from assent.store.checkpoint_rows import STATES, CheckpointRow, Holding, Page
from assent.store.finish import finish
from assent.store.rows import fresh_write_id

_LONGEST_SECONDS = 100 * 366 * 86_400
_FIRST = (-(2**62), "")


class SqlCheckpoints(Opened):
    """Checkpoints; the rules are in `CheckpointKeeper`."""

    async def save_checkpoint(
        self, checkpoint_id: str, agent_id: str, body: JsonObject, *, thread_id: str | None = None
    ) -> None:
        """Store a checkpoint as pending, or give the pending one a new body."""
        now = self._now()
        new = CheckpointRow(
            *_checked(checkpoint_id, agent_id, thread_id),
            body=encode_body(body),
            state="pending",
            claimed_by=None,
            claimed_until=None,
            retaken=0,
            created_at=now,
            updated_at=now,
            write_id=fresh_write_id(),
        )
        await finish(self._store.save_checkpoint(new))

    async def claim_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str, ttl_seconds: float
    ) -> StoredCheckpoint:
        """Take a checkpoint for ``ttl_seconds``, if nobody holds it; see `CheckpointKeeper.claim_checkpoint`."""
        claim = self._holding(checkpoint_id, agent_id, thread_id, by, ttl_seconds)
        return _stored(await finish(self._store.claim_checkpoint(claim)))

    async def resolve_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str
    ) -> None:
        """Be done with a checkpoint that ``by`` holds."""
        held = self._holding(checkpoint_id, agent_id, thread_id, by)
        await finish(self._store.resolve_checkpoint(held))

    async def release_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str
    ) -> None:
        """Give back a checkpoint that ``by`` holds."""
        held = self._holding(checkpoint_id, agent_id, thread_id, by)
        await finish(self._store.release_checkpoint(held))

    async def renew_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None, by: str, ttl_seconds: float
    ) -> None:
        """Hold on to a checkpoint that ``by`` holds, for ``ttl_seconds`` from now."""
        held = self._holding(checkpoint_id, agent_id, thread_id, by, ttl_seconds)
        await finish(self._store.renew_checkpoint(held))

    async def get_checkpoint(
        self, checkpoint_id: str, agent_id: str, *, thread_id: str | None = None
    ) -> StoredCheckpoint | None:
        """A checkpoint as it stands now, or None if there is none."""
        _checked(checkpoint_id, agent_id, thread_id)
        row = await self._store.checkpoint(checkpoint_id)
        if row is None or row.agent_id != agent_id or thread_id not in (None, row.thread_id):
            return None
        return _stored(row)

    async def list_checkpoints(
        self,
        agent_id: str,
        *,
        thread_id: str | None = None,
        state: CheckpointState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[StoredCheckpoint]:
        """An agent's checkpoints, oldest first; ``after`` is a `StoredCheckpoint.cursor` to go on from."""
        checked_id("agent_id", agent_id)
        if thread_id is not None:
            checked_id("thread_id", thread_id)
        if state is not None and state not in STATES:
            raise StoreError(
                f"a checkpoint's state is {', '.join(STATES[:-1])} or {STATES[-1]}, not {state!r}"
            )
        page = Page(
            agent_id, thread_id, state, checked_limit(limit), _FIRST if after is None else _place(after)
        )
        return [_stored(row) for row in await self._store.checkpoint_page(page)]

    async def delete_checkpoint(self, checkpoint_id: str, agent_id: str) -> None:
        """Remove a checkpoint, if there is one and nobody holds it."""
        _checked(checkpoint_id, agent_id, None)
        await finish(self._store.remove_checkpoint(checkpoint_id, agent_id, self._now()))

    def _holding(
        self, checkpoint_id: str, agent_id: str, thread_id: str | None, by: str, ttl_seconds: float = 1
    ) -> Holding:
        if not 0 < ttl_seconds <= _LONGEST_SECONDS:
            raise StoreError(f"ttl_seconds is a time of up to 100 years, not {ttl_seconds}")
        _checked(checkpoint_id, agent_id, thread_id)
        now = self._now()
        return Holding(
            checkpoint_id,
            agent_id,
            thread_id,
            by=checked_id("by", by),
            now=now,
            write_id=fresh_write_id(),
            until=now + math.ceil(ttl_seconds * 1000),
        )


def _checked(checkpoint_id: str, agent_id: str, thread_id: str | None) -> tuple[str, str, str | None]:
    checked_id("checkpoint_id", checkpoint_id)
    checked_id("agent_id", agent_id)
    return checkpoint_id, agent_id, None if thread_id is None else checked_id("thread_id", thread_id)


def _stored(row: CheckpointRow) -> StoredCheckpoint:
    return StoredCheckpoint(
        checkpoint_id=row.checkpoint_id,
        agent_id=row.agent_id,
        thread_id=row.thread_id,
        body=decode_body(row.body),
        state=cast(CheckpointState, row.state),
        claimed_by=row.claimed_by,
        claimed_until=row.claimed_until,
        created_at=row.created_at,
        updated_at=row.updated_at,
        retaken=bool(row.retaken),
    )


def _place(cursor: str) -> tuple[int, str]:
    """Where a `StoredCheckpoint.cursor` stands: created at, checkpoint id."""
    created_at, colon, checkpoint_id = cursor.partition(":")
    try:
        place = int(created_at), checked_id("after", checkpoint_id)
    except (ValueError, StoreError):
        place = None
    if place is None or not colon or abs(place[0]) >= 2**62:
        raise StoreError(f"{cursor[:80]!r} is no cursor of a checkpoint")
    return place
