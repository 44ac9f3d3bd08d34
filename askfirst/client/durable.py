"""Durable requests: sent once for each key, with waits that outlive their process."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

import httpx2

from askfirst.checkpointer.base import CheckpointKeeper, CheckpointState, StoredCheckpoint
from askfirst.client.claims import CLAIMS, STATES, Claim, TakenOver, claim_id, state_id
from askfirst.client.connections import Caller
from askfirst.client.live_case import Desk, LiveCase, ask_once, ask_until_answered, see_through
from askfirst.client.offer import Offer
from askfirst.client.outcome import ReviewOutcome, outcome_of
from askfirst.client.polling import PollFailed
from askfirst.client.wait_secrets import WaitSecrets
from askfirst.client.wait_state import WaitState
from askfirst.clock import Clock, SystemClock
from askfirst.concurrency import cancel_all
from askfirst.digests import canonical_json
from askfirst.errors import (
    CheckpointNotFound,
    CheckpointNotPendingError,
    InvalidMessage,
    InvalidOutcome,
    RequestInDoubt,
    ReviewContradiction,
    ReviewError,
    ReviewRefused,
    ReviewUnreadable,
    StoreError,
)
from askfirst.messages import JsonObject
from askfirst.protocol import is_final

# Stored waits.
#
# A wait is stored as two checkpoints. One is its *claim*, a lease: the process that works on the wait renews it, and
# after a crash it lapses, so that another process takes the wait over. The other is the wait's state; only the holder
# of the claim writes it. A wait that has ended is kept for a while, so that its key never sends the request again,
# not even if the process dies before it has used the outcome.


logger = logging.getLogger("askfirst.client")
T = TypeVar("T")

CLAIM_SECONDS = 60.0
"""The lease on a wait: how long a dead process keeps it from others."""
KEPT_SECONDS = 30 * 86_400.0
"""How long an ended wait is kept: as long as the protocol recommends to keep cases."""
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
    """Whether a process holds its lease."""


class Wait:
    """One wait, under this process's lease. Each change is committed before the method returns.

    ``status`` is ``"new"`` if nothing was sent yet; ``"sending"`` if a request was, and its response is
    unknown; ``"waiting"`` or ``"ended"`` if there is a case. ``digest`` is the request's, ``state`` how far the
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
        """There is a case; store the state of its wait."""
        await self._write("waiting", state)

    async def ended(self, state: JsonObject) -> None:
        """The case has ended. ``state`` is enough to poll its outcome again, and has no link and no token.

        The wait of a tool is left later, when its thread has gone on: see `Waits.leave`.
        """
        await self._write("ended", state)
        if self.thread_id is None:
            await self._held.resolve()

    async def answered(self, *, repeatable: bool) -> None:
        """The request was answered, and there is nothing to wait for.

        A tool may run again before its result is committed: so a request that may not be repeated stays recorded
        as sent.
        """
        if self.thread_id is None or repeatable:
            await self.dropped()
        else:
            await self._write("ended", None)
            await self._held.resolve()

    async def read(self, is_read: bool = True) -> None:
        """Record whether a tool has got the outcome."""
        if self.is_read != is_read and self._claim is not None:
            self.is_read = is_read
            await self._write(self.status, self.state)

    async def dropped(self) -> None:
        """Delete the wait: there is nothing to wait for."""
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
    """The waits of a store, any open checkpointer of Askfirst. ``claim_seconds`` is the length of a lease."""

    def __init__(
        self, keeper: CheckpointKeeper, *, claim_seconds: float | None = None, clock: Clock | None = None
    ) -> None:
        self._keeper = keeper
        self._secrets = WaitSecrets(keeper)
        self._seconds = claim_seconds or CLAIM_SECONDS
        self._clock = clock or SystemClock()

    async def work_on(self, key: str, work: Work[T], *, thread_id: str | None = None) -> T:
        """Run ``work`` on the wait of this key under its lease; returns the result of ``work``.

        It waits until another process releases the lease, or is dead for ``claim_seconds``. A wait that was left is
        given without a lease, and cannot be changed. If the lease is lost, because this process stood still for
        too long, ``work`` is cancelled, and called again under the next lease. A new wait belongs to ``thread_id``.
        Raises `RequestInDoubt` for a tool's request that was sent and answered before.
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
        """Record that a tool has not got the outcome, so that it gets it again."""

        async def forget(wait: Wait) -> None:
            await wait.read(False)

        if (found := await self.find(key)) is not None and found.is_read:
            await self.work_on(key, forget)

    async def leave(self, key: str) -> None:
        """Leave a tool's wait: its thread has gone on, or does not need it any more."""
        _, claim = await self._taken(key, None)
        if claim is not None:
            await (claim.drop() if claim.is_blank else claim.resolve())
            await self._prune()

    async def find(self, key: str) -> Wait | None:
        """A wait as it stands now, read only; None if there is none."""
        body = await self._body(key)
        return None if body is None else Wait(key, body, self._secrets)

    async def is_held(self, key: str) -> bool:
        """Whether a process holds the lease on a wait."""
        stored = await self._keeper.get_checkpoint(claim_id(key), CLAIMS)
        return stored is not None and self._is_held(stored)

    async def forget(self, key: str) -> None:
        """Delete a wait. Raises `CheckpointNotPendingError` while a process holds its lease."""
        await self._keeper.delete_checkpoint(claim_id(key), CLAIMS)
        await self._keeper.delete_checkpoint(state_id(key), STATES)

    async def kept(self) -> AsyncIterator[KeptWait]:
        """The waits that were not left, the oldest first, leased or not."""
        for state in cast("tuple[CheckpointState, ...]", ("pending", "resolving")):
            after: str | None = None
            while page := await self._keeper.list_checkpoints(CLAIMS, state=state, after=after):
                for each in page:
                    yield KeptWait(str(each.body["key"]), each.thread_id, self._is_held(each))
                after = page[-1].cursor

    async def _taken(self, key: str, thread_id: str | None) -> tuple[Wait, Claim | None]:
        """The wait and our lease on it, as soon as it is free; no lease if the wait was left."""
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
                continue  # deleted concurrently
            await asyncio.sleep(pause)
            pause = min(2 * pause, _SELDOM)

    async def _body(self, key: str) -> JsonObject | None:
        stored = await self._keeper.get_checkpoint(state_id(key), STATES)
        return None if stored is None else await self._secrets.opened(stored.body)

    def _is_held(self, stored: StoredCheckpoint) -> bool:
        return stored.state == "resolving" and (stored.claimed_until or 0) > self._clock.now()

    async def _prune(self) -> None:
        """Delete a few waits that ended long ago, also those whose threads never went on."""
        limit = self._clock.now() - KEPT_SECONDS
        try:
            for state in cast("tuple[CheckpointState, ...]", ("resolved", "pending")):
                for each in await self._keeper.list_checkpoints(CLAIMS, state=state, limit=_PRUNED_AT_ONCE):
                    key = str(each.body["key"])
                    if each.updated_at < limit and (await self._body(key) or {}).get("status") != "waiting":
                        await self.forget(key)
        except StoreError as error:
            logger.warning("waits that ended long ago could not be removed: %s", error)


async def _begun(wait: Wait, work: Work[T]) -> T:
    """Run the work; raises `RequestInDoubt` for a request whose response was lost."""
    if wait.status == "ended" and wait.state is None:
        raise RequestInDoubt(wait.key)
    return await work(wait)


_NEVER_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
    httpx2.InvalidURL,
)
_DESCRIBED = ("params", "json", "content", "data")


@dataclass(frozen=True, slots=True)
class Sending:
    """A request to be sent, and what is known of it."""

    send: Callable[[], Awaitable[tuple[httpx2.Response, Offer | None]]]
    """Sends the request; gives its response, and the offer in it."""
    caller: Caller
    digest: Callable[[], str]
    """Gives the digest of a request with a key; see `request_digest`."""
    repeatable: bool
    """Whether sending it twice does no more than sending it once."""


def request_digest(method: str, url: str, options: Mapping[str, Any]) -> str:
    """The digest of a request: requests with the same key must have the same."""
    described = {name: _plain(options[name]) for name in _DESCRIBED if options.get(name) is not None}
    try:
        told = canonical_json([method.upper(), url, described])
    except (InvalidMessage, TypeError):  # files, streams, other objects
        told = repr([method.upper(), url, sorted(described)]).encode()
    return hashlib.sha256(told).hexdigest()


def _plain(value: object) -> object:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value


class Keyed:
    """The durable waits of a store, continued by this client."""

    def __init__(self, desk: Desk, waits: Waits) -> None:
        self._desk = desk
        self.waits = waits

    async def request(self, key: str, sending: Sending) -> httpx2.Response | ReviewOutcome:
        """Send a request, unless it was sent under this key before, and wait for its response or outcome."""

        async def work(wait: Wait) -> httpx2.Response | ReviewOutcome:
            fresh = wait.status not in ("waiting", "ended")
            response = await self._sent(wait, sending)
            if response is not None:
                return response
            return await self._outcome(wait, sending.caller, at_once=not fresh)

        return await self.waits.work_on(key, work)

    async def begin(
        self, key: str, sending: Sending, *, thread_id: str | None = None
    ) -> httpx2.Response | ReviewOutcome | None:
        """Send a request unless it was sent before, and ask the person, but do not wait for them.

        Gives the response if it asks nobody, the outcome if the review has ended already, else None.
        """

        async def work(wait: Wait) -> httpx2.Response | ReviewOutcome | None:
            fresh = wait.status not in ("waiting", "ended")
            response = await self._sent(wait, sending)
            if response is not None:
                return response
            state, caller = _state(wait), sending.caller
            if wait.status == "waiting" and (fresh or not await self._is_over(state, caller)):
                case = LiveCase(self._desk, state, caller, _keeping(wait), at_once=True)
                await case.tell()
                return None
            try:
                return await self._outcome(wait, caller, at_once=True)
            finally:
                if wait.status == "ended":
                    await wait.read()

        return await self.waits.work_on(key, work, thread_id=thread_id)

    async def handled(self, key: str, offer: Offer, caller: Caller) -> ReviewOutcome:
        """Wait for a case whose request was sent elsewhere, or go on with it if it is known already."""

        async def work(wait: Wait) -> ReviewOutcome:
            known = wait.state is not None and _state(wait).case_id == offer.case_id
            if not known:
                await wait.waiting(self._desk.rounds.begin(offer).to_json())
            return await self._outcome(wait, caller, at_once=known)

        return await self.waits.work_on(key, work)

    async def resume(self, caller: Caller) -> AsyncIterator[tuple[str, ReviewOutcome | ReviewError]]:
        """Go on with every stored wait but those of agents' tools; each comes when it has ended."""
        going_on: set[asyncio.Task[tuple[str, ReviewOutcome | ReviewError | None]]] = set()
        try:
            async for kept in self.waits.kept():
                if kept.thread_id is None:
                    going_on.add(asyncio.create_task(self.go_on(kept.key, caller)))
            while going_on:
                done, _ = await asyncio.wait(going_on, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    going_on.discard(task)
                    key, outcome = task.result()
                    if outcome is not None:
                        yield key, outcome
        finally:
            await cancel_all(going_on)

    async def go_on(self, key: str, caller: Caller) -> tuple[str, ReviewOutcome | ReviewError | None]:
        """Go on with one stored wait until it ends; None if nothing was sent under its key after all."""

        async def work(wait: Wait) -> ReviewOutcome | None:
            if wait.status == "sending":
                raise RequestInDoubt(key)
            return None if wait.status == "new" else await self._outcome(wait, caller, at_once=True)

        try:
            return key, await self.waits.work_on(key, work)
        except ReviewError as error:
            return key, error

    async def _sent(self, wait: Wait, sending: Sending) -> httpx2.Response | None:
        """Send the request unless there is a case already; None if there is one, else the response."""
        digest = sending.digest()
        if wait.digest is not None and wait.digest != digest:
            raise ReviewError(f"key {wait.key!r} belongs to another request; use a new key for a new one")
        if wait.status in ("waiting", "ended"):
            return None
        first = wait.status == "new"
        if not first and not sending.repeatable:
            raise RequestInDoubt(wait.key)
        await wait.sending(digest)
        try:
            response, offer = await sending.send()
        except _NEVER_SENT:
            if first:
                await wait.dropped()
            raise
        if offer is None:
            await wait.answered(repeatable=sending.repeatable)
            return response
        await wait.waiting(self._desk.rounds.begin(offer).to_json())
        return None

    async def _is_over(self, state: WaitState, caller: Caller) -> bool:
        """Whether the service says that the case has ended; False if the poll fails."""
        try:
            return is_final((await ask_once(self._desk, state, caller)).status)
        except PollFailed:
            return False

    async def _outcome(self, wait: Wait, caller: Caller, *, at_once: bool) -> ReviewOutcome:
        """Wait until the review has ended; poll the outcome of one that has."""
        state = _state(wait)
        if wait.status == "ended":
            answer = await ask_until_answered(self._desk, state, caller)
            if not is_final(answer.status):
                raise ReviewContradiction(
                    state.case_id, f"it had ended, and now the service says that it is {answer.status}"
                )
            is_verified = await self._desk.signatures.checked(state.offer, answer)
            return outcome_of(state, answer, is_verified=is_verified)
        try:
            last, outcome = await see_through(self._desk, state, caller, _keeping(wait), at_once=at_once)
        except (ReviewContradiction, InvalidOutcome, ReviewRefused, ReviewUnreadable) as error:
            if not _may_mend(error, wait):
                await wait.ended(_state(wait).without_link().to_json())
            raise
        await wait.ended(last.without_link().to_json())
        return outcome


def _may_mend(error: ReviewError, wait: Wait) -> bool:
    """Whether the wait stays stored, to be resumed with other credentials, or when its service is repaired.

    A tool's wait that cannot be read ends: its thread goes on with the error.
    """
    if isinstance(error, ReviewRefused):
        return error.http_status in (401, 403)
    return isinstance(error, ReviewUnreadable) and wait.thread_id is None


def _state(wait: Wait) -> WaitState:
    return WaitState.from_json(wait.state or {})


def _keeping(wait: Wait) -> Callable[[WaitState], Awaitable[None]]:
    async def keep(state: WaitState) -> None:
        await wait.waiting(state.to_json())

    return keep
