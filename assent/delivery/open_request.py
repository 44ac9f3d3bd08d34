"""A request that waits for an answer, wherever it is kept."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Protocol

from assent.channels import HitlChannel
from assent.checkpointer.base import Checkpointer
from assent.clock import Clock
from assent.delivery.first import first_of
from assent.errors import HitlNoPendingRequest, HitlStaleAnswer
from assent.messages import call_digest
from assent.requests import ApproveRequest, HitlRequest, StoredRequest

VIA = "terminal"
_CHANNEL_SECONDS = 0.1
"""How often a channel is asked whether its request still waits; it has no other way to tell."""
_CLOCK_SECONDS = 1.0
"""How often a store is asked whether a deadline has passed for it too."""


class OpenRequest(Protocol):
    """What a surface needs of a request that it shows."""

    @property
    def request(self) -> HitlRequest:
        """What is asked."""
        ...

    async def is_open(self) -> bool:
        """Whether it is still this that is asked."""
        ...

    async def answer(self, answer: Any) -> None:
        """Answer it; an answer to what was not shown does not count (`HitlStaleAnswer`)."""
        ...

    async def closed(self) -> str:
        """Wait until it is open no longer; how that came, in words."""
        ...


class OnChannel:
    """A request that an agent in this process waits for."""

    def __init__(self, channel: HitlChannel, request: HitlRequest, by: str) -> None:
        self._channel = channel
        self._request = request
        self._by = by

    @property
    def request(self) -> HitlRequest:
        """What is asked."""
        return self._request

    async def is_open(self) -> bool:
        """Whether the channel waits for this, not for the same call with other arguments."""
        return self._channel.pending == self._request

    async def answer(self, answer: Any) -> None:
        """Answer it through the channel, which also checks edited arguments."""
        if not await self.is_open():
            raise HitlStaleAnswer(self._request.question_id)
        request = self._request
        await self._channel.answer(request.question_id, answer, by=self._by, via=VIA, digest=_shown(request))

    async def closed(self) -> str:
        """Wait until the channel waits for something else, or nothing."""
        while await self.is_open():  # noqa: ASYNC110  (a channel has no event for this)
            await asyncio.sleep(_CHANNEL_SECONDS)
        store, thread_id = self._channel.checkpointer, self._request.thread_id
        stored = None if store is None else await store.request(thread_id, self._request.question_id)
        return "nobody waits for it here any more" if stored is None else _how(stored)


class InStore:
    """A request that is kept in a store, whether or not somebody waits for it."""

    def __init__(self, checkpointer: Checkpointer, stored: StoredRequest, by: str, clock: Clock) -> None:
        self._checkpointer = checkpointer
        self._stored = stored
        self._by = by
        self._clock = clock

    @property
    def request(self) -> HitlRequest:
        """What is asked."""
        return self._stored.request

    async def is_open(self) -> bool:
        """Whether it is pending, not past its deadline, and not the same call with other arguments."""
        now = await self._now()
        return now is not None and now.status == "pending" and now.request == self.request

    async def answer(self, answer: Any) -> None:
        """Settle it, bound in the same transaction to the round and to the very words that were shown."""
        stored = self._stored
        await self._checkpointer.settle(
            stored.thread_id,
            stored.question_id,
            answer,
            by=self._by,
            via=VIA,
            digest=_shown(stored.request),
            round=stored.round,
        )

    async def closed(self) -> str:
        """Wait until it is settled, or its deadline passes."""
        if await self.is_open():
            await first_of(self._settled(), self._expired())
        now = await self._now()
        return "it is gone" if now is None else _how(now)

    async def _settled(self) -> None:
        with suppress(HitlNoPendingRequest):
            await self._checkpointer.settled(self._stored.thread_id, self._stored.question_id)

    async def _expired(self) -> None:
        deadline = self.request.expires_at
        if deadline is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self._clock.sleep(max(deadline - self._clock.now(), 0))
            while await self.is_open():
                await self._clock.sleep(_CLOCK_SECONDS)

    async def _now(self) -> StoredRequest | None:
        try:
            return await self._checkpointer.expire(self._stored.thread_id, self._stored.question_id)
        except HitlNoPendingRequest:
            return None


def _shown(request: HitlRequest) -> str | None:
    """The digest of what was drawn, not the one that the request says it has."""
    payload = request.payload
    if isinstance(payload, ApproveRequest) and payload.digest is not None:
        return call_digest(payload.tool_name, payload.args)
    return request.digest


def _how(stored: StoredRequest) -> str:
    if stored.status == "answered":
        via = "" if stored.via is None else f" ({stored.via})"
        return f"it was answered by {stored.answered_by or 'somebody else'}{via}"
    if stored.status == "pending":
        return "it is asked anew"
    how = "its time is over" if stored.status == "timed_out" else f"it was {stored.status}"
    return how if stored.reason is None else f"{how} ({stored.reason})"
