"""One notice through several deliveries, each retried with back-off."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Generic, TypeVar

from askfirst.clock import Clock, SystemClock
from askfirst.concurrency import first_of
from askfirst.delivery.base import Delivery, Ended, Notice, OnPress, PressDelivery, Sent
from askfirst.errors import DeliveryError

# Back-off.


_FIRST_PAUSE = 1.0


def pause_after(tries: int, error: Exception, *, longest: float) -> float:
    """The back-off in seconds: exponential, with jitter, and at least the platform's ``Retry-After``."""
    most = min(_FIRST_PAUSE * 2 ** min(tries, 16), longest)
    pause = random.uniform(most / 2, most)  # noqa: S311
    asked = error.retry_after if isinstance(error, DeliveryError) else None
    return pause if asked is None else max(asked, pause)


# One call of a delivery, with retries.


logger = logging.getLogger("askfirst.delivery")

_LONGEST_PAUSE = 60.0
_T = TypeVar("_T")


class RetriedCall(Generic[_T]):
    """A background task that calls a method of a delivery, with up to ``tries`` attempts and back-off.

    ``what`` names the call in the warning after the last attempt. ``result`` is set on success.
    """

    def __init__(
        self, delivery: str, what: str, work: Callable[[], Awaitable[_T]], *, tries: int, clock: Clock
    ) -> None:
        self.delivery = delivery
        self.result: _T | None = None
        self.error: DeliveryError | None = None
        self._what = what
        self._work = work
        self._tries = tries
        self._clock = clock
        self._stopped = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop retrying, and wait for an attempt under way."""
        self._stopped.set()
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        for tries in range(1, self._tries + 1):
            try:
                self.result = await self._work()
                self.error = None
                return
            except Exception as error:  # a bug in one delivery must not stop the others
                self.error = _without_secrets(self.delivery, error)
            if self.error.permanent or tries == self._tries:
                logger.warning("%s was not delivered: %s (attempts: %d)", self._what, self.error, tries)
                return
            pause = pause_after(tries, self.error, longest=_LONGEST_PAUSE)
            await first_of(self._stopped.wait(), self._clock.sleep(pause))
            if self._stopped.is_set():
                return


def _without_secrets(delivery: str, error: Exception) -> DeliveryError:
    """The error for the log. A `DeliveryError` contains no secret; of any other error only the type is kept."""
    return error if isinstance(error, DeliveryError) else DeliveryError(delivery, type(error).__name__)


PATIENCE_SECONDS = 10.0
"""How long `Several.send` waits for the other deliveries after the first has succeeded."""


class Several:
    """Sends every notice through several deliveries at the same time. The first answer counts, wherever it is given.

    A delivery that fails is retried, up to ``tries`` times, with back-off or after the platform's ``Retry-After``;
    then a warning is logged. Deliveries do not wait for one another. `send` returns when all have succeeded, or
    `PATIENCE_SECONDS` after the first has; the others go on in the background until the case ends. `send` raises
    `DeliveryError` only if none succeeds.
    """

    name = "several"

    def __init__(self, deliveries: Sequence[Delivery], *, tries: int = 5, clock: Clock | None = None) -> None:
        self.deliveries = tuple(deliveries)
        self.shows_buttons = any(delivery.shows_buttons for delivery in deliveries)
        self._tries = tries
        self._clock = clock or SystemClock()
        self._late: dict[str, dict[RetriedCall[Sent], int]] = {}
        """By case: the calls that were still running when `send` returned, each with the index of its delivery."""

    async def send(self, notice: Notice) -> Sent:
        """Send a notice through all deliveries."""
        what = f"the {notice.kind} notice of case {notice.case_id}"
        calls = {
            RetriedCall(
                each.name, what, partial(each.send, notice), tries=self._tries, clock=self._clock
            ): number
            for number, each in enumerate(self.deliveries)
        }
        try:
            await self._wait(list(calls))
        except asyncio.CancelledError:
            for call in calls:
                call.task.cancel()
            raise
        if not any(call.result for call in calls):
            raise self._failed([call.error for call in calls if call.error is not None])
        late = {call: number for call, number in calls.items() if not call.task.done()}
        if late:
            self._late.setdefault(notice.case_id, {}).update(late)
        place: dict[str, str | int] = {}
        for call, number in calls.items():
            if call.result is not None:
                place |= _prefixed(number, call.result)
        return Sent(self.name, notice.case_id, place)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Update every message about the case with its end, and stop retrying those that are not sent yet."""
        late = self._late.pop(ended.case_id, {})
        await asyncio.gather(*(call.stop() for call in late))
        found = self._parts(sent) + [
            (self.deliveries[late[call]], call.result) for call in late if call.result
        ]
        what = f"the end of case {ended.case_id}"
        calls = [
            RetriedCall(
                each.name, what, partial(each.update, part, ended), tries=self._tries, clock=self._clock
            )
            for each, part in found
        ]
        try:
            await asyncio.gather(*(call.task for call in calls))
        finally:
            for call in calls:
                call.task.cancel()

    @asynccontextmanager
    async def listening(self, on_press: OnPress) -> AsyncGenerator[None]:
        """Listen for the buttons of all deliveries that have some. A delivery that fails is logged and left out."""
        async with AsyncExitStack() as stack:
            for delivery in self.deliveries:
                if isinstance(delivery, PressDelivery):
                    try:
                        await stack.enter_async_context(delivery.listening(on_press))
                    except DeliveryError as error:
                        logger.warning("cannot listen for the buttons of %s: %s", delivery.name, error)
            yield

    async def _wait(self, calls: Sequence[RetriedCall[Sent]]) -> None:
        """Wait until all are done, or until `PATIENCE_SECONDS` after the first success."""
        open_tasks = {call.task for call in calls}
        while open_tasks and not any(call.result for call in calls):
            _, open_tasks = await asyncio.wait(open_tasks, return_when=asyncio.FIRST_COMPLETED)
        if open_tasks:
            await first_of(_wait_for_all(open_tasks), self._clock.sleep(PATIENCE_SECONDS))

    def _parts(self, sent: Sent) -> list[tuple[Delivery, Sent]]:
        """Each delivery with its message. A delivery that this process does not have is left out."""
        found: list[tuple[Delivery, Sent]] = []
        for number, delivery in enumerate(self.deliveries):
            if sent.place.get(f"{number}") == delivery.name:
                found.append((delivery, Sent(delivery.name, sent.case_id, _unprefixed(sent.place, number))))
        return found

    def _failed(self, errors: Sequence[DeliveryError]) -> DeliveryError:
        asked = [error.retry_after for error in errors if error.retry_after is not None]
        return DeliveryError(
            self.name,
            "; ".join(map(str, errors)) or "there is no delivery",
            retry_after=min(asked, default=None),
            permanent=all(error.permanent for error in errors),
        )


async def _wait_for_all(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)


def _prefixed(number: int, sent: Sent) -> dict[str, str | int]:
    """The place of one delivery's message, with its number as a prefix: ``{"1": "telegram", "1.chat_id": 7}``."""
    return {f"{number}": sent.delivery, **{f"{number}.{key}": value for key, value in sent.place.items()}}


def _unprefixed(place: Mapping[str, str | int], number: int) -> dict[str, str | int]:
    start = f"{number}."
    return {key.removeprefix(start): value for key, value in place.items() if key.startswith(start)}
