"""Answering open requests in the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from askfirst.account import os_account
from askfirst.channels import HitlChannel
from askfirst.checkpointer.base import Checkpointer
from askfirst.clock import Clock, SystemClock
from askfirst.concurrency import first_of
from askfirst.delivery.terminal_dialogue import Dialogue
from askfirst.delivery.terminal_keyboard import Keyboard, Left, keyboard_here
from askfirst.errors import (
    DeliveryError,
    HitlAborted,
    HitlDetached,
    HitlInvalidAnswer,
    HitlNoPendingRequest,
    HitlStaleAnswer,
)
from askfirst.requests import HitlRequest, StoredRequest

# Open requests, of a channel or of a store.


VIA = "terminal"
_CHANNEL_SECONDS = 0.1
"""How often a channel is polled for whether its request is still open."""
_CLOCK_SECONDS = 1.0
"""How often a store is polled for whether a deadline has passed."""


class OpenRequest(Protocol):
    """What a surface needs of a request that it shows."""

    @property
    def request(self) -> HitlRequest:
        """What is asked."""
        ...

    async def is_open(self) -> bool:
        """Whether this very request is still open."""
        ...

    async def answer(self, answer: Any) -> None:
        """Answer it; raises `HitlStaleAnswer` if something else than what was shown is open."""
        ...

    async def closed(self) -> str:
        """Wait until it is settled; returns how, in words."""
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
        await self._channel.answer(
            request.question_id, answer, by=self._by, via=VIA, digest=request.payload.drawn_digest
        )

    async def closed(self) -> str:
        """Wait until the channel waits for something else, or nothing."""
        while await self.is_open():  # noqa: ASYNC110  (a channel has no event for this)
            await asyncio.sleep(_CHANNEL_SECONDS)
        store, thread_id = self._channel.checkpointer, self._request.thread_id
        stored = None if store is None else await store.request(thread_id, self._request.question_id)
        return "nobody waits for it here any more" if stored is None else _how(stored)


class InStore:
    """A stored request, whether or not an agent waits for it."""

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
            digest=stored.request.payload.drawn_digest,
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


def _how(stored: StoredRequest) -> str:
    if stored.status == "answered":
        via = "" if stored.via is None else f" ({stored.via})"
        return f"it was answered by {stored.answered_by or 'somebody else'}{via}"
    if stored.status == "pending":
        return "it is asked anew"
    how = "its time is over" if stored.status == "timed_out" else f"it was {stored.status}"
    return how if stored.reason is None else f"{how} ({stored.reason})"


_LOOK_SECONDS = 1.0
"""How often a store is asked for new requests."""
_keyboards: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""The lock on the keyboard, held while a question is asked."""


@asynccontextmanager
async def answering_in_terminal(channel: HitlChannel, *, by: str | None = None) -> AsyncGenerator[None]:
    """Meanwhile, what an agent asks through this channel is put to the person at the terminal.

    An answer needs a whole line, typed after the question was drawn. Where somebody else answers first, the
    prompt goes away and says so. Ctrl-C at the prompt ends the agent's run: it is aborted, or, where the
    channel's requests are stored and can be answered elsewhere, suspended. ``by`` is who answers; without it,
    the account that the program runs in. Raises `DeliveryError` where there is no terminal, or where the channel
    cannot be followed.
    """
    missing = [f"{name}()" for name in ("subscribe", "interrupt") if not hasattr(channel, name)]
    if missing:
        raise DeliveryError(
            "terminal",
            f"{type(channel).__name__} has no {' and no '.join(missing)}, which the terminal needs to put what is "
            "asked there: derive the channel from InMemoryChannel, or answer it with its own answer()",
            permanent=True,
        )
    idle = asyncio.Event()
    person = asyncio.create_task(_sit_at(channel, keyboard_here(), by or os_account(), idle))
    person.add_done_callback(lambda done: None if done.cancelled() else _stop(channel))
    try:
        yield
        if (
            channel.pending is None and not person.done()
        ):  # a prompt that is still there says how it was closed
            await first_of(idle.wait(), asyncio.wait([person]))
    finally:
        person.cancel()
        await asyncio.wait([person])
    if not person.cancelled():
        person.result()


async def desk_in_terminal(
    checkpointer: Checkpointer, *, by: str | None = None, clock: Clock | None = None
) -> None:
    """Put every open request of a store to the person at the terminal, the oldest first.

    Ctrl-C at a prompt ends it, and what is not answered stays open; while nothing is open, Ctrl-C is the
    program's own. Otherwise as `answering_in_terminal`.
    """
    keyboard, by, clock = keyboard_here(), by or os_account(), clock or SystemClock()
    idle = False
    while True:
        waiting = await checkpointer.pending(limit=1)
        if waiting:
            idle = False
            try:
                await _put(keyboard, InStore(checkpointer, waiting[0], by, clock))
            except Left:
                return
        elif not idle:
            keyboard.column.block("", "nothing is open", style="dim")
            idle = True
        else:
            await clock.sleep(_LOOK_SECONDS)


async def _sit_at(channel: HitlChannel, keyboard: Keyboard, by: str, idle: asyncio.Event) -> None:
    idle.set()
    async for request in channel.subscribe():
        idle.clear()
        try:
            await _put(keyboard, OnChannel(channel, request, by))
        except Left:
            keyboard.column.block("closed", f"{request.question_id}: you left it", label_style="bold red")
            if channel.pending == request:
                _stop(channel)
        idle.set()


def _stop(channel: HitlChannel) -> None:
    """End the run that waits here. A request that others may answer stays open."""
    left = HitlAborted("stopped at the terminal") if channel.checkpointer is None else HitlDetached()
    channel.interrupt(left)


async def _put(keyboard: Keyboard, open_request: OpenRequest) -> None:
    """Put a request to the person until it is settled, by them or by somebody else. Raises `Left`."""
    async with _keyboards.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if not await open_request.is_open():
            return
        dialogue = Dialogue(keyboard, open_request.request)
        dialogue.show()
        while True:
            ended, said = await first_of(dialogue.answer(), open_request.closed())
            try:
                if ended == 0:
                    await open_request.answer(said)
                    dialogue.end("answer", "your answer is sent")
                    return
            except HitlInvalidAnswer as error:
                dialogue.end("error", "; ".join(error.faults))
                continue
            except (HitlStaleAnswer, HitlNoPendingRequest):
                said = await open_request.closed()
            dialogue.end("closed", said)
            return
