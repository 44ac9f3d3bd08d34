"""Answering our own agents' requests right in the terminal, beside the event loop's other work."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from assent.channels import HitlChannel
from assent.checkpointer.base import Checkpointer
from assent.clock import Clock, SystemClock
from assent.delivery.dialogue import Dialogue
from assent.delivery.first import first_of
from assent.delivery.keyboard import Keyboard, Left, keyboard_here
from assent.delivery.open_request import InStore, OnChannel, OpenRequest
from assent.errors import (
    DeliveryError,
    HitlAborted,
    HitlDetached,
    HitlInvalidAnswer,
    HitlNoPendingRequest,
    HitlStaleAnswer,
)

_LOOK_SECONDS = 1.0
"""How often a store is asked for new requests."""
_keyboards: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""Whoever puts a question holds it: there is one keyboard."""


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
    person = asyncio.create_task(_sit_at(channel, keyboard_here(), by or _account(), idle))
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
    keyboard, by, clock = keyboard_here(), by or _account(), clock or SystemClock()
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


def _account() -> str:
    """Who the operating system says we are, where it says so; variables of the environment may say anything."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return getpass.getuser()
