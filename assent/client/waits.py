"""Waits that outlive their process: kept in a store, each in the hands of one process at a time.

A wait is kept as two checkpoints. One is its *claim*: whoever works on the wait holds it and renews it, and a
process that dies lets it lapse, so that another takes the wait over. The other says how far the wait is; only
the holder of the claim writes it. What has ended is kept for a while, so that the same key never sends its
request again, not even if the process dies before it has used the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from assent.checkpointer.base import CheckpointKeeper, CheckpointState, StoredCheckpoint
from assent.client.claims import CLAIMS, STATES, Claim, TakenOver, claim_id, state_id
from assent.client.wait_secrets import WaitSecrets
from assent.clock import Clock, SystemClock
from assent.errors import CheckpointNotFound, CheckpointNotPendingError, RequestInDoubt, StoreError
from assent.messages import JsonObject

logger = logging.getLogger("assent.client")
T = TypeVar("T")

CLAIM_SECONDS = 60.0
"""How long a dead process keeps its waits from others."""
KEPT_SECONDS = 30 * 86_400.0
"""How long it is remembered that a wait has ended: as long as the protocol recommends to keep cases."""
_OFTEN, _SELDOM = 0.05, 5.0
_PRUNED_AT_ONCE = 20

WaitStatus = Literal["new", "sending", "waiting", "ended"]


@dataclass(frozen=True, slots=True)
class KeptWait:
    """A wait in a list."""

    key: str
    thread_id: str | None = None
    """The thread that the wait is for, where an agent's tool waits."""
    is_held: bool = False
    """Whether somebody works on it, or did until they died a moment ago."""


class Wait:
    """One wait, in this process's hands. Each change is in the store before the method returns.

    ``status`` is ``"new"`` if nothing was sent yet; ``"sending"`` if a request was, and nobody knows what came
    of it; ``"waiting"`` or ``"ended"`` if there is a case. ``digest`` is the request's, ``state`` how far the
    waiting is, or was when the case ended. ``is_read`` is whether a tool has got the outcome.
    """

    def __init__(
        self,
        key: str,
        body: JsonObject | None,
        secrets: WaitSecrets,
        claim: Claim | None = None,
        thread_id: str | None = None,
    ) -> None:
        stored: dict[str, Any] = {"status": "new"} if body is None else body
        self.key = key
        self.thread_id = thread_id
        self.status: WaitStatus = stored["status"]
        self.digest: str | None = stored.get("digest")
        self.state: JsonObject | None = stored.get("state")
        self.is_read: bool = stored.get("is_read", False)
        self._secrets = secrets
        self._claim = claim

    async def sending(self, digest: str) -> None:
        """The request is about to be sent."""
        self.digest = digest
        await self._write("sending", None)

    async def waiting(self, state: JsonObject) -> None:
        """There is a case, and this is how far the waiting is."""
        await self._write("waiting", state)

    async def ended(self, state: JsonObject) -> None:
        """The case has ended. ``state`` is what it takes to ask for its outcome again: no link, no token.

        With a tool's wait there is more to do then: its thread has to go on, see `Waits.settle`.
        """
        await self._write("ended", state)
        if self.thread_id is None:
            await self._held.resolve()

    async def answered(self, *, repeatable: bool) -> None:
        """The request was answered, and there is nothing to wait for.

        A tool may be run again before its result is kept: then a request that may not be repeated stays noted
        as sent.
        """
        if self.thread_id is None or repeatable:
            await self.dropped()
        else:
            await self._write("ended", None)
            await self._held.resolve()

    async def read(self, is_read: bool = True) -> None:
        """A tool has got the outcome, and is about to make its result of it; or it is to get it again."""
        if self.is_read != is_read and self._claim is not None:
            self.is_read = is_read
            await self._write(self.status, self.state)

    async def dropped(self) -> None:
        """There is nothing to wait for after all: the store forgets the wait."""
        await self._held.drop()
        self.status, self.state = "new", None

    @property
    def _held(self) -> Claim:
        if self._claim is None:
            raise StoreError(f"the wait {self.key!r} has ended, and cannot be changed any more")
        return self._claim

    async def _write(self, status: WaitStatus, state: JsonObject | None) -> None:
        body: JsonObject = {"status": status, "digest": self.digest, "state": state, "is_read": self.is_read}
        await self._held.write(await self._secrets.closed(body))
        self.status, self.state = status, state


Work = Callable[[Wait], Awaitable[T]]


class Waits:
    """The waits of a store: any of Assent's checkpointers, open. ``claim_seconds`` is how long a claim lasts."""

    def __init__(
        self, keeper: CheckpointKeeper, *, claim_seconds: float | None = None, clock: Clock | None = None
    ) -> None:
        self._keeper = keeper
        self._secrets = WaitSecrets(keeper)
        self._seconds = claim_seconds or CLAIM_SECONDS
        self._clock = clock or SystemClock()

    async def work_on(self, key: str, work: Work[T], *, thread_id: str | None = None) -> T:
        """Do something with the wait of this key, while nobody else does; gives what ``work`` gives.

        It waits until another process lets go of the wait, or is dead for ``claim_seconds``. A wait that is done
        with is handed over at once and cannot be changed. If another process takes the wait over, because this
        one stood still for too long, ``work`` is cancelled, and called again when its turn comes. A new wait
        belongs to ``thread_id``. Raises `RequestInDoubt` for a tool's request that was sent and answered before.
        """
        while True:
            wait, claim = await self._taken(key, thread_id)
            if claim is None:
                return await _begun(wait, work)
            try:
                done = await claim.during(_begun(wait, work))
            except TakenOver:
                logger.warning("another process has taken over the wait %s; it is waited for", claim.id)
                continue
            if wait.status == "ended":
                await self._prune()
            return done

    async def unread(self, key: str) -> None:
        """A tool is about to be given the outcome, whether one had got it before or not."""

        async def forget(wait: Wait) -> None:
            await wait.read(False)

        if (found := await self.find(key)) is not None and found.is_read:
            await self.work_on(key, forget)

    async def settle(self, key: str) -> None:
        """Be done with a tool's wait: its thread has gone on, or does not need it any more."""
        _, claim = await self._taken(key, None)
        if claim is not None:
            await (claim.drop() if claim.is_blank else claim.resolve())
            await self._prune()

    async def find(self, key: str) -> Wait | None:
        """A wait as it stands now, to be looked at only; None if there is none."""
        body = await self._body(key)
        return None if body is None else Wait(key, body, self._secrets)

    async def is_held(self, key: str) -> bool:
        """Whether somebody works on the wait just now, or did until they died a moment ago."""
        stored = await self._keeper.get_checkpoint(claim_id(key), CLAIMS)
        return stored is not None and self._is_held(stored)

    async def forget(self, key: str) -> None:
        """Remove a wait. Raises `CheckpointNotPendingError` while somebody works on it."""
        await self._keeper.delete_checkpoint(claim_id(key), CLAIMS)
        await self._keeper.delete_checkpoint(state_id(key), STATES)

    async def kept(self) -> AsyncIterator[KeptWait]:
        """The waits that are not done with, the oldest first; also those that somebody works on."""
        for state in cast("tuple[CheckpointState, ...]", ("pending", "resolving")):
            after: str | None = None
            while page := await self._keeper.list_checkpoints(CLAIMS, state=state, after=after):
                for each in page:
                    yield KeptWait(str(each.body["key"]), each.thread_id, self._is_held(each))
                after = page[-1].cursor

    async def _taken(self, key: str, thread_id: str | None) -> tuple[Wait, Claim | None]:
        """The wait and our claim on it, as soon as it is to be had; no claim if it is done with."""
        claim = Claim(self._keeper, key, self._seconds)
        pause = _OFTEN
        while True:
            try:
                stored = await claim.take(thread_id)
                body = await self._body(key)
                claim.is_blank = body is None
                return Wait(key, body, self._secrets, claim, stored.thread_id), claim
            except CheckpointNotPendingError as refused:
                if refused.state == "resolved":
                    return Wait(key, await self._body(key) or {"status": "ended"}, self._secrets), None
            except CheckpointNotFound:
                continue  # somebody dropped it just now
            await asyncio.sleep(pause)
            pause = min(2 * pause, _SELDOM)

    async def _body(self, key: str) -> JsonObject | None:
        stored = await self._keeper.get_checkpoint(state_id(key), STATES)
        return None if stored is None else await self._secrets.opened(stored.body)

    def _is_held(self, stored: StoredCheckpoint) -> bool:
        return stored.state == "resolving" and (stored.claimed_until or 0) > self._clock.now() * 1000

    async def _prune(self) -> None:
        """Remove what ended long ago, some of it at a time; also what no thread has come for."""
        limit = (self._clock.now() - KEPT_SECONDS) * 1000
        try:
            for state in cast("tuple[CheckpointState, ...]", ("resolved", "pending")):
                for each in await self._keeper.list_checkpoints(CLAIMS, state=state, limit=_PRUNED_AT_ONCE):
                    key = str(each.body["key"])
                    if each.updated_at < limit and (await self._body(key) or {}).get("status") != "waiting":
                        await self.forget(key)
        except StoreError as error:
            logger.warning("waits that ended long ago could not be removed: %s", error)


async def _begun(wait: Wait, work: Work[T]) -> T:
    """Work, unless it is about a request whose answer is lost."""
    if wait.status == "ended" and wait.state is None:
        raise RequestInDoubt(wait.key)
    return await work(wait)
