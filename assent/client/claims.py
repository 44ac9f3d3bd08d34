"""The right to work on a stored wait: held by one process at a time, renewed, and lapsing when it dies."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

from assent.checkpointer.base import CheckpointKeeper, StoredCheckpoint
from assent.errors import CheckpointNotFound, CheckpointNotPendingError, StoreError
from assent.ids import new_id
from assent.messages import JsonObject

logger = logging.getLogger("assent.client")
T = TypeVar("T")

CLAIMS = "assent.client"
"""Under this agent id a store has the claims."""
STATES = "assent.client.state"
"""And under this one how far each wait is."""


def claim_id(key: str) -> str:
    """The checkpoint that is claimed by whoever works on a wait."""
    return f"wait-{_digest(key)}"


def state_id(key: str) -> str:
    """The checkpoint that says how far a wait is."""
    return f"state-{_digest(key)}"


def _digest(key: str) -> str:
    """A key may be of any length and in any letters; an id may not."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]


class TakenOver(Exception):
    """Another process has the wait now."""


class Claim:
    """A claim on a wait, from when it is taken until it is given back, and what may be done under it."""

    def __init__(self, keeper: CheckpointKeeper, key: str, seconds: float) -> None:
        self.id = claim_id(key)
        self.is_blank = False
        """Whether nothing is stored but the claim itself, so that it need not stay."""
        self._state_id = state_id(key)
        self._keeper = keeper
        self._key = key
        self._seconds = seconds
        self._by = f"{getattr(keeper, 'owner', 'client')}:{new_id()[-16:]}"
        self._scope = asyncio.timeout(None)
        self._done = False

    async def take(self, thread_id: str | None) -> StoredCheckpoint:
        """Claim the wait; one that is new belongs to ``thread_id``.

        Raises `CheckpointNotPendingError` if it is held or done with.
        """
        try:
            return await self._claim()
        except CheckpointNotFound:
            await self._keeper.save_checkpoint(self.id, CLAIMS, {"key": self._key}, thread_id=thread_id)
            return await self._claim()

    async def during(self, work: Awaitable[T]) -> T:
        """Wait for the work and renew the claim meanwhile; then give it back. Raises `TakenOver`."""
        renewing: asyncio.Task[None] | None = None
        try:
            async with self._scope:
                renewing = asyncio.create_task(self._keep_renewing())
                return await work
        except TimeoutError:
            if not self._scope.expired():
                raise
            self._done = True
            raise TakenOver from None
        finally:
            if renewing is not None:
                renewing.cancel()
                await asyncio.wait({renewing})
            await self._give_back()

    async def write(self, body: JsonObject) -> None:
        """Store how far the wait is, if it is ours still; if not, this never returns and is cancelled."""
        try:
            await self._renew()
        except (CheckpointNotFound, CheckpointNotPendingError):
            self._lose()
            await asyncio.Event().wait()
        await self._keeper.save_checkpoint(self._state_id, STATES, body)
        self.is_blank = False

    async def resolve(self) -> None:
        """Be done with the wait, for good; how it ended stays."""
        await self._keeper.resolve_checkpoint(self.id, CLAIMS, by=self._by)
        self._done = True

    async def drop(self) -> None:
        """Remove the wait. Raises `CheckpointNotPendingError` if it is another's by now."""
        await self._renew()
        await self._keeper.delete_checkpoint(self._state_id, STATES)
        await self._keeper.release_checkpoint(self.id, CLAIMS, by=self._by)
        self._done = True
        with suppress(CheckpointNotPendingError):  # then somebody else has begun a wait of this key
            await self._keeper.delete_checkpoint(self.id, CLAIMS)

    async def _claim(self) -> StoredCheckpoint:
        return await self._keeper.claim_checkpoint(self.id, CLAIMS, by=self._by, ttl_seconds=self._seconds)

    async def _renew(self) -> None:
        await self._keeper.renew_checkpoint(self.id, CLAIMS, by=self._by, ttl_seconds=self._seconds)

    async def _keep_renewing(self) -> None:
        """Renew until cancelled; after a whole claim's time without success it may be another's."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        while not self._done:
            await asyncio.sleep(self._seconds / 4)
            begun = loop.time()
            try:
                await self._renew()
                until = begun + self._seconds
            except (CheckpointNotFound, CheckpointNotPendingError):
                self._lose()
                return
            except StoreError as error:
                logger.warning("the claim %s could not be renewed, will try again: %s", self.id, error)
                if loop.time() >= until:
                    self._lose()
                    return

    def _lose(self) -> None:
        """Stop the work: somebody else does it."""
        if not self._done:
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def _give_back(self) -> None:
        if self._done:
            return
        try:
            if self.is_blank:
                await self.drop()
            else:
                await self._keeper.release_checkpoint(self.id, CLAIMS, by=self._by)
        except (CheckpointNotFound, CheckpointNotPendingError):
            pass  # another has it already
        except StoreError as error:
            logger.warning("the claim %s could not be given back, and will lapse: %s", self.id, error)
        self._done = True
