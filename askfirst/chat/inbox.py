"""A durable queue of people's messages to agents: in order, one at a time for each thread, each handled once."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from askfirst.checkpointer.base import CheckpointKeeper, StoredCheckpoint
from askfirst.clock import Clock
from askfirst.errors import CheckpointNotFound, CheckpointNotPendingError

AGENT_ID = "askfirst.chat.inbox"
CLAIM_SECONDS = 60.0
"""How long the claim on a message lasts without renewal: after that, another worker takes the message over."""
KEPT_SECONDS = 86_400.0
"""How long a handled message is remembered, so that a second delivery of it is ignored."""
_PAGE = 100


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message that this process has claimed."""

    id: str
    thread_id: str
    text: str
    conversation: dict[str, Any]
    claim: str

    @property
    def run_id(self) -> str:
        """The id of the run that the message begins: the same in every process that handles it."""
        return hashlib.sha256(f"{self.thread_id}\0{self.id}".encode()).hexdigest()[:32]


class Inbox:
    """The queued messages of all threads, in a store that every worker shares."""

    def __init__(self, store: CheckpointKeeper, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def put(self, thread_id: str, message_id: str, text: str, conversation: dict[str, Any]) -> bool:
        """Store a message; False if it is stored already, so that a second delivery changes nothing."""
        id_ = _id(thread_id, message_id)
        if await self._store.get_checkpoint(id_, AGENT_ID) is not None:
            return False
        body: dict[str, Any] = {"text": text, "conversation": conversation}
        with suppress(CheckpointNotPendingError):  # another worker stored and claimed it meanwhile
            await self._store.save_checkpoint(id_, AGENT_ID, body, thread_id=thread_id)
            return True
        return False

    async def threads(self) -> list[str]:
        """The threads with messages that are not handled yet, in this process or another."""
        found: dict[str, None] = {}
        for state in ("resolving", "pending"):
            after: str | None = None
            while True:
                page = await self._store.list_checkpoints(AGENT_ID, state=state, limit=_PAGE, after=after)
                found |= {each.thread_id: None for each in page if each.thread_id is not None}
                if len(page) < _PAGE:
                    break
                after = page[-1].cursor
        return list(found)

    async def take(self, thread_id: str) -> QueuedMessage | None:
        """Claim the oldest message of a thread; None if there is none, or if another worker handles one."""
        at_work = await self._store.list_checkpoints(
            AGENT_ID, thread_id=thread_id, state="resolving", limit=1
        )
        first = at_work or await self._store.list_checkpoints(
            AGENT_ID, thread_id=thread_id, state="pending", limit=1
        )
        if not first:
            return None
        claim = secrets.token_hex(8)
        try:
            taken = await self._store.claim_checkpoint(
                first[0].checkpoint_id, AGENT_ID, by=claim, ttl_seconds=CLAIM_SECONDS
            )
        except (CheckpointNotFound, CheckpointNotPendingError):
            return None
        return _queued(taken, claim)

    async def done(self, taken: QueuedMessage) -> None:
        """Mark a message as handled."""
        with suppress(CheckpointNotFound, CheckpointNotPendingError):  # another worker has taken it over
            await self._store.resolve_checkpoint(taken.id, AGENT_ID, by=taken.claim)

    async def release(self, taken: QueuedMessage) -> None:
        """Release the claim on a message that cannot be handled now."""
        with suppress(CheckpointNotFound, CheckpointNotPendingError):
            await self._store.release_checkpoint(taken.id, AGENT_ID, by=taken.claim)

    async def delete_queued(self, thread_id: str) -> int:
        """Delete up to 100 messages of a thread that nobody has claimed; returns how many were found."""
        waiting = await self._store.list_checkpoints(
            AGENT_ID, thread_id=thread_id, state="pending", limit=_PAGE
        )
        for each in waiting:
            with suppress(CheckpointNotPendingError):
                await self._store.delete_checkpoint(each.checkpoint_id, AGENT_ID)
        return len(waiting)

    async def forget_old(self) -> None:
        """Delete messages that were handled longer ago than `KEPT_SECONDS`."""
        oldest = self._clock.now() - KEPT_SECONDS
        while True:
            page = await self._store.list_checkpoints(AGENT_ID, state="resolved", limit=_PAGE)
            old = [each for each in page if each.updated_at < oldest]
            for each in old:
                await self._store.delete_checkpoint(each.checkpoint_id, AGENT_ID)
            if len(old) < _PAGE:
                return

    @asynccontextmanager
    async def renewing(self, taken: QueuedMessage) -> AsyncGenerator[None]:
        """Renew the claim on a message while it is handled."""
        task = asyncio.create_task(self._renew(taken))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _renew(self, taken: QueuedMessage) -> None:
        while True:
            await asyncio.sleep(CLAIM_SECONDS / 3)
            with suppress(CheckpointNotFound, CheckpointNotPendingError):
                await self._store.renew_checkpoint(
                    taken.id, AGENT_ID, by=taken.claim, ttl_seconds=CLAIM_SECONDS
                )


def _id(thread_id: str, message_id: str) -> str:
    return f"said-{hashlib.sha256(f'{thread_id}{chr(0)}{message_id}'.encode()).hexdigest()[:32]}"


def _queued(taken: StoredCheckpoint, claim: str) -> QueuedMessage:
    body: Any = taken.body
    return QueuedMessage(
        taken.checkpoint_id, taken.thread_id or "", body["text"], body["conversation"], claim
    )
