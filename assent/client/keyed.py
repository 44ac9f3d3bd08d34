"""Requests with a key: sent once, and waited for by whichever process is there."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from assent.client.caller import Caller
from assent.client.desk import Desk
from assent.client.live import LiveCase
from assent.client.offer import Offer
from assent.client.outcome import ReviewOutcome
from assent.client.polling import PollFailed
from assent.client.results import outcome_of
from assent.client.review import ask_once, ask_until_answered, see_through
from assent.client.wait_state import WaitState
from assent.client.waits import Wait, Waits
from assent.digests import canonical_json
from assent.errors import (
    InvalidMessage,
    InvalidOutcome,
    RequestInDoubt,
    ReviewContradiction,
    ReviewError,
    ReviewRefused,
    ReviewUnreadable,
)
from assent.protocol import is_final

_REPEATABLE = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
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
    """A request that may be sent: how, and what it is known by."""

    send: Callable[[], Awaitable[tuple[httpx2.Response, Offer | None]]]
    """Gives the response, and what that asks of a person."""
    caller: Caller
    digest: str
    repeatable: bool
    """Whether sending it twice does no more than sending it once."""


def may_repeat(method: str) -> bool:
    """Whether HTTP says that a request of this method does the same when it comes twice."""
    return method.upper() in _REPEATABLE


def request_digest(method: str, url: str, options: Mapping[str, Any]) -> str:
    """What a request is known by: two of one key have to be the same."""
    described = {name: _plain(options[name]) for name in _DESCRIBED if options.get(name) is not None}
    try:
        told = canonical_json([method.upper(), url, described])
    except (InvalidMessage, TypeError):  # files, streams, objects of the host's
        told = repr([method.upper(), url, sorted(described)]).encode()
    return hashlib.sha256(told).hexdigest()


def _plain(value: object) -> object:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value


class Keyed:
    """The waits of a store, as this client goes on with them."""

    def __init__(self, desk: Desk, waits: Waits) -> None:
        self._desk = desk
        self.waits = waits

    async def request(self, key: str, sending: Sending) -> httpx2.Response | ReviewOutcome:
        """Send a request unless it was sent under this key before, and wait for what comes of it."""

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
            for task in going_on:
                task.cancel()
            if going_on:
                await asyncio.wait(going_on)

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
        """None once there is a case, from this or an earlier time; else the response, and the wait is gone."""
        if wait.digest is not None and wait.digest != sending.digest:
            raise ReviewError(f"key {wait.key!r} belongs to another request; use a new key for a new one")
        if wait.status in ("waiting", "ended"):
            return None
        first = wait.status == "new"
        if not first and not sending.repeatable:
            raise RequestInDoubt(wait.key)
        await wait.sending(sending.digest)
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
        """Whether the service says that the case has ended; if it says nothing, then not yet."""
        try:
            return is_final((await ask_once(self._desk, state, caller)).status)
        except PollFailed:
            return False

    async def _outcome(self, wait: Wait, caller: Caller, *, at_once: bool) -> ReviewOutcome:
        """Wait until the review has ended; or, of one that has, ask again how it did."""
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
    """Whether the wait stays stored, to be gone on with when its credentials or its service are mended.

    A tool's wait that cannot be read ends: the agent is to be told, and its thread has to go on.
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
