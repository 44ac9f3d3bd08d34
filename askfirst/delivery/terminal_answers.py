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

# Open requests: of a channel, or of a store.


VIA = "terminal"
_CHANNEL_SECONDS = 0.1
"""The interval at which a channel is polled for whether its request is still open."""
_CLOCK_SECONDS = 1.0
"""The interval at which a store is polled for whether a deadline has passed."""


class OpenRequest(Protocol):
    """An open request as a surface uses it: show it, answer it, and wait for its end."""

    @property
    def request(self) -> HitlRequest:
        """What is asked."""
        ...

    async def is_open(self) -> bool:
        """Whether this request, in this round, is still open."""
        ...

    async def answer(self, answer: Any) -> None:
        """Answer the request; raises `HitlStaleAnswer` if it is not open any more, or was changed."""
        ...

    async def closed(self) -> str:
        """Wait until the request is settled; returns a sentence about how."""
        ...


class OpenOnChannel:
    """An open request of a channel: an agent in this process waits for the answer."""

    def __init__(self, channel: HitlChannel, request: HitlRequest, by: str) -> None:
        self._channel = channel
        self._request = request
        self._by = by

    @property
    def request(self) -> HitlRequest:
        """What is asked."""
        return self._request

    async def is_open(self) -> bool:
        """Whether the channel still waits for this request, and not for the same call with other arguments."""
        return self._channel.pending == self._request

    async def answer(self, answer: Any) -> None:
        """Answer the request through the channel, which also checks edited arguments."""
        if not await self.is_open():
            raise HitlStaleAnswer(self._request.question_id)
        request = self._request
        await self._channel.answer(
            request.question_id, answer, by=self._by, via=VIA, digest=request.payload.recomputed_digest
        )

    async def closed(self) -> str:
        """Wait until the channel does not wait for this request any more."""
        while await self.is_open():  # noqa: ASYNC110  (a channel has no event for this)
            await asyncio.sleep(_CHANNEL_SECONDS)
        store, thread_id = self._channel.checkpointer, self._request.thread_id
        stored = None if store is None else await store.request(thread_id, self._request.question_id)
        return "the agent does not wait for it any more" if stored is None else _how_settled(stored)


class OpenInStore:
    """An open request of a store, whether or not an agent is waiting for the answer."""

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
        """Whether the request is pending, before its deadline, and unchanged."""
        now = await self._current()
        return now is not None and now.status == "pending" and now.request == self.request

    async def answer(self, answer: Any) -> None:
        """Settle the request. The transaction checks the round and the digest of what was shown."""
        stored = self._stored
        await self._checkpointer.settle(
            stored.thread_id,
            stored.question_id,
            answer,
            by=self._by,
            via=VIA,
            digest=stored.request.payload.recomputed_digest,
            round=stored.round,
        )

    async def closed(self) -> str:
        """Wait until the request is settled or its deadline has passed."""
        if await self.is_open():
            await first_of(self._settled(), self._expired())
        now = await self._current()
        return "it was deleted" if now is None else _how_settled(now)

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

    async def _current(self) -> StoredRequest | None:
        try:
            return await self._checkpointer.expire(self._stored.thread_id, self._stored.question_id)
        except HitlNoPendingRequest:
            return None


def _how_settled(stored: StoredRequest) -> str:
    if stored.status == "answered":
        via = "" if stored.via is None else f" ({stored.via})"
        return f"it was answered by {stored.answered_by or 'somebody else'}{via}"
    if stored.status == "pending":
        return "it is asked again, in a new round"
    how = "its time is over" if stored.status == "timed_out" else f"it was {stored.status}"
    return how if stored.reason is None else f"{how} ({stored.reason})"


_POLL_SECONDS = 1.0
"""The interval at which a store is polled for new requests."""
_keyboard_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""For each event loop the lock on the keyboard, held while a request is shown."""


@asynccontextmanager
async def answering_in_terminal(channel: HitlChannel, *, by: str | None = None) -> AsyncGenerator[None]:
    """Within this context, the person at the terminal is asked for answers to the requests of this channel.

    An answer is a whole line, typed after the request was drawn. If somebody answers elsewhere first, the prompt goes
    away and says so. Ctrl-C at the prompt ends the agent's run. The run is aborted, or suspended if the channel's
    requests are stored and can be answered elsewhere. ``by`` is who answers, by default the operating system's
    account. Raises `DeliveryError` if there is no terminal, or if the channel has no ``subscribe`` and ``interrupt``.
    """
    missing = [f"{name}()" for name in ("subscribe", "interrupt") if not hasattr(channel, name)]
    if missing:
        raise DeliveryError(
            "terminal",
            f"{type(channel).__name__} has no {' and no '.join(missing)}, which the terminal needs to show "
            "requests: derive the channel from InMemoryChannel, or answer with the channel's own answer()",
            permanent=True,
        )
    idle = asyncio.Event()
    person = asyncio.create_task(_ask_about_channel(channel, keyboard_here(), by or os_account(), idle))
    person.add_done_callback(lambda done: None if done.cancelled() else _stop(channel))
    try:
        yield
        if (
            channel.pending is None and not person.done()
        ):  # wait until an open prompt has said how its request was settled
            await first_of(idle.wait(), asyncio.wait([person]))
    finally:
        person.cancel()
        await asyncio.wait([person])
    if not person.cancelled():
        person.result()


async def desk_in_terminal(
    checkpointer: Checkpointer, *, by: str | None = None, clock: Clock | None = None
) -> None:
    """Ask the person at the terminal about every open request of a store, the oldest first, until they leave.

    Ctrl-C at a prompt returns, and unanswered requests stay open. While no request is open there is no prompt, and
    Ctrl-C interrupts the program as usual. Everything else is as in `answering_in_terminal`.
    """
    keyboard, by, clock = keyboard_here(), by or os_account(), clock or SystemClock()
    idle = False
    while True:
        waiting = await checkpointer.pending(limit=1)
        if waiting:
            idle = False
            try:
                await _ask_person(keyboard, OpenInStore(checkpointer, waiting[0], by, clock))
            except Left:
                return
        elif not idle:
            keyboard.column.block("", "nothing is open", style="dim")
            idle = True
        else:
            await clock.sleep(_POLL_SECONDS)


async def answer_in_terminal(
    checkpointer: Checkpointer, stored: StoredRequest, *, by: str | None = None, clock: Clock | None = None
) -> None:
    """Ask the person at the terminal about one open request of a store, until it is settled or they leave."""
    asked = OpenInStore(checkpointer, stored, by or os_account(), clock or SystemClock())
    with suppress(Left):
        await _ask_person(keyboard_here(), asked)


async def _ask_about_channel(channel: HitlChannel, keyboard: Keyboard, by: str, idle: asyncio.Event) -> None:
    idle.set()
    async for request in channel.subscribe():
        idle.clear()
        try:
            await _ask_person(keyboard, OpenOnChannel(channel, request, by))
        except Left:
            keyboard.column.block("closed", f"{request.question_id}: you left it", label_style="bold red")
            if channel.pending == request:
                _stop(channel)
        idle.set()


def _stop(channel: HitlChannel) -> None:
    """Stop the run that waits for this channel: abort it, or suspend it if its requests are stored and stay open."""
    left = HitlAborted("stopped at the terminal") if channel.checkpointer is None else HitlDetached()
    channel.interrupt(left)


async def _ask_person(keyboard: Keyboard, open_request: OpenRequest) -> None:
    """Show a request to the person until it is settled, by them or elsewhere. Raises `Left`."""
    async with _keyboard_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
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
