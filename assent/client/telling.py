"""Telling a person about a case, through every delivery there is, beside the waiting and never in its way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

from assent.client import notices
from assent.client.wait_state import WaitState
from assent.clock import Clock
from assent.delivery.base import Deliver, Delivery, Ended, Notice, OnPress, PressDelivery, Sent
from assent.delivery.first import first_of
from assent.delivery.given import PlainFunction, given_deliveries
from assent.delivery.patience import pause_after
from assent.errors import DeliveryError
from assent.protocol import PollAnswer, State

logger = logging.getLogger("assent.client")

SECONDS = 60.0
"""For one attempt to send something."""
_LONGEST_PAUSE = 300.0
_CLOSING_TRIES = 4
_BETWEEN_PROGRESS = 30.0
"""Between two notices about fields of the same step; a new step is always told."""


def labelled(deliver: Deliver | Sequence[Deliver]) -> dict[str, Delivery]:
    """The deliveries, each by a label that is the same in every process: its name, and its number among equals."""
    found: dict[str, Delivery] = {}
    for delivery in given_deliveries(deliver):
        label, number = delivery.name, 1
        while label in found:
            number += 1
            label = f"{delivery.name}#{number}"
        found[label] = delivery
    return found


class Teller:
    """All deliveries of a client, and what is on its way through them."""

    def __init__(self, deliver: Deliver | Sequence[Deliver], clock: Clock) -> None:
        self.deliveries = labelled(deliver)
        self.clock = clock
        self._under_way: set[asyncio.Task[Any]] = set()

    async def listen(self, on_press: OnPress, stack: AsyncExitStack) -> None:
        """Hear the buttons of those deliveries that have some, until the stack is left."""
        for label, delivery in self.deliveries.items():
            if isinstance(delivery, PressDelivery):
                try:
                    await stack.enter_async_context(delivery.listening(on_press))
                except DeliveryError as error:
                    logger.warning("nobody hears the buttons of %s: %s", label, error)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let something be told in the background."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def finish(self, seconds: float) -> None:
        """Give what is on its way so much time; what is not done then is left undone."""
        if self._under_way:
            _, late = await asyncio.wait(set(self._under_way), timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                logger.warning("%d messages about reviews that ended were not sent", len(late))
                await asyncio.wait(late)


class Telling:
    """What is told about one case. ``posted`` hears of each message that asked, with its delivery's label."""

    def __init__(self, teller: Teller, state: WaitState, posted: Callable[[str, Sent], None]) -> None:
        self._teller = teller
        self._posted = posted
        self._sent = list(state.sent)
        self._over = asyncio.Event()
        self._lanes = {label: asyncio.Lock() for label in teller.deliveries}
        self._tasks: list[asyncio.Task[None]] = []
        self._last_progress: tuple[str, tuple[State, int | None], float] | None = None

    def ask(self, notice: Notice) -> None:
        """Send the link to whoever does not have it yet."""
        has_it = {label for label, _ in self._sent}
        for label in self._lanes:
            if label not in has_it:
                self._start(self._send(label, notice, until_taken=True))

    async def asked(self) -> None:
        """Wait until the link is sent, as long as one attempt may take."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=SECONDS)

    def remind(self, notice: Notice) -> None:
        """Send the link again."""
        for label in self._lanes:
            self._start(self._send(label, notice, until_taken=True))

    def progress(self, state: WaitState, answer: PollAnswer) -> None:
        """Tell how it goes on, unless that is nothing new, or too much of it."""
        notice = notices.progress(state, answer)
        if notice is None:
            return
        now = self._teller.clock.now()
        step = None if answer.progress is None else answer.progress.current_step
        if self._last_progress is not None:
            body, where, at = self._last_progress
            if body == notice.body or (where == (answer.status, step) and now - at < _BETWEEN_PROGRESS):
                return
        self._last_progress = notice.body, (answer.status, step), now
        for label in self._lanes:
            self._start(self._send(label, notice, until_taken=False))

    def close(self, ended: Ended) -> asyncio.Task[None]:
        """The case has ended: let every message that asked say so, and send no other any more."""
        self._over.set()
        self._posted = _nothing  # what is sent just now is updated, and nobody stores it any more
        return self._teller.start(self._close(list(self._tasks), ended))

    def stop(self) -> None:
        """Nobody waits here any more, though the case goes on."""
        self._over.set()
        self._posted = _nothing
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._teller.start(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _send(self, label: str, notice: Notice, *, until_taken: bool) -> None:
        delivery, tries = self._teller.deliveries[label], 0
        async with self._lanes[label]:
            while not self._over.is_set():
                tries += 1
                try:
                    async with asyncio.timeout(SECONDS):
                        sent = await delivery.send(notice)
                except Exception as error:
                    if tries == 1:
                        _report(label, notice.kind, notice.case_id, error)
                    if not until_taken or (isinstance(error, DeliveryError) and error.permanent):
                        return
                    pause = pause_after(tries, error, longest=_LONGEST_PAUSE)
                    await first_of(self._over.wait(), self._teller.clock.sleep(pause))
                else:
                    self._note(label, sent, notice)
                    return

    def _note(self, label: str, sent: Sent, notice: Notice) -> None:
        """Remember a message that asked; of a plain function's one is enough, for it cannot update any."""
        again = any(label == other for other, _ in self._sent)
        plain = isinstance(self._teller.deliveries[label], PlainFunction)
        if notice.review_url is not None and not (again and plain):
            self._sent.append((label, sent))
            self._posted(label, sent)

    async def _close(self, sending: list[asyncio.Task[None]], ended: Ended) -> None:
        if sending:
            await asyncio.wait(sending)  # a message that is being sent is updated too
        await asyncio.gather(*(self._update(label, sent, ended) for label, sent in self._sent))

    async def _update(self, label: str, sent: Sent, ended: Ended) -> None:
        delivery = self._teller.deliveries.get(label)
        if delivery is None:
            return  # it was there when the wait began, in another process
        for tries in range(1, _CLOSING_TRIES + 1):
            try:
                async with asyncio.timeout(SECONDS):
                    await delivery.update(sent, ended)
                return
            except Exception as error:
                if tries == 1:
                    _report(label, ended.kind, ended.case_id, error)
                if isinstance(error, DeliveryError) and error.permanent:
                    return
                if tries < _CLOSING_TRIES:
                    await self._teller.clock.sleep(pause_after(tries, error, longest=_LONGEST_PAUSE))


def _nothing(label: str, sent: Sent) -> None:
    pass


def _report(label: str, kind: str, case_id: str, error: Exception) -> None:
    """Say once that something did not get through; only our own errors are known to hold no secret."""
    why = str(error) if isinstance(error, DeliveryError) else type(error).__name__
    logger.warning("the %s notice of case %s did not get through %s: %s", kind, case_id, label, why)
