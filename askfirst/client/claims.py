"""Claims: leases on stored waits, held by one process at a time, renewed, and lapsing when it dies."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

from askfirst.checkpointer.base import CheckpointKeeper, StoredCheckpoint
from askfirst.errors import CheckpointNotFound, CheckpointNotPendingError, StoreError
from askfirst.ids import new_id
from askfirst.messages import JsonObject

logger = logging.getLogger("askfirst.client")
T = TypeVar("T")

CLAIMS = "askfirst.client"
"""The agent id of claims in the store."""
STATES = "askfirst.client.state"
"""The agent id of the states of waits."""


def claim_id(key: str) -> str:
    """The checkpoint whose lease is the claim on a wait."""
    return f"wait-{_digest(key)}"


def state_id(key: str) -> str:
    """The checkpoint with the state of a wait."""
    return f"state-{_digest(key)}"


def _digest(key: str) -> str:
    """A hash of the key, which may be any text; an id may not."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]


class TakenOver(Exception):
    """The lease was lost: another process works on the wait now."""


class Claim:
    """A lease on a wait, and the writes that need it."""

    def __init__(self, keeper: CheckpointKeeper, key: str, seconds: float) -> None:
        self.id = claim_id(key)
        self.is_blank = False
        """Whether only the claim itself is stored, so that it can be deleted."""
        self._state_id = state_id(key)
        self._keeper = keeper
        self._key = key
        self._seconds = seconds
        self._by = f"{getattr(keeper, 'owner', 'client')}:{new_id()[-16:]}"
        self._scope = asyncio.timeout(None)
        self._done = False

    async def take(self, thread_id: str | None) -> StoredCheckpoint:
        """Claim the wait; one that is new belongs to ``thread_id``.

        Raises `CheckpointNotPendingError` if another process holds it, or it has ended.
        """
        try:
            return await self._claim()
        except CheckpointNotFound:
            await self._keeper.save_checkpoint(self.id, CLAIMS, {"key": self._key}, thread_id=thread_id)
            return await self._claim()

    async def during(self, work: Awaitable[T]) -> T:
        """Run the work, renew the lease meanwhile (a heartbeat), then release it. Raises `TakenOver`."""
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
            await self._release()

    async def write(self, body: JsonObject) -> None:
        """Store the state of the wait under the lease; if the lease is lost, wait here to be cancelled."""
        try:
            await self._renew()
        except (CheckpointNotFound, CheckpointNotPendingError):
            self._lose()
            await asyncio.Event().wait()
        await self._keeper.save_checkpoint(self._state_id, STATES, body)
        self.is_blank = False

    async def resolve(self) -> None:
        """Leave the wait for good; its state stays stored."""
        await self._keeper.resolve_checkpoint(self.id, CLAIMS, by=self._by)
        self._done = True

    async def drop(self) -> None:
        """Delete the wait. Raises `CheckpointNotPendingError` if the lease is lost."""
        await self._renew()
        await self._keeper.delete_checkpoint(self._state_id, STATES)
        await self._keeper.release_checkpoint(self.id, CLAIMS, by=self._by)
        self._done = True
        with suppress(CheckpointNotPendingError):  # another process has begun a wait of this key
            await self._keeper.delete_checkpoint(self.id, CLAIMS)

    async def _claim(self) -> StoredCheckpoint:
        return await self._keeper.claim_checkpoint(self.id, CLAIMS, by=self._by, ttl_seconds=self._seconds)

    async def _renew(self) -> None:
        await self._keeper.renew_checkpoint(self.id, CLAIMS, by=self._by, ttl_seconds=self._seconds)

    async def _keep_renewing(self) -> None:
        """Renew until cancelled; the lease counts as lost after its whole time without success."""
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
        """Cancel the work, for the lease is lost."""
        if not self._done:
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def _release(self) -> None:
        if self._done:
            return
        try:
            if self.is_blank:
                await self.drop()
            else:
                await self._keeper.release_checkpoint(self.id, CLAIMS, by=self._by)
        except (CheckpointNotFound, CheckpointNotPendingError):
            pass  # the lease was lost already
        except StoreError as error:
            logger.warning("the claim %s could not be released, and will lapse: %s", self.id, error)
        self._done = True
