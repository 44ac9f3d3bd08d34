"""The background tasks of a service: sweeps, adoption of requests, deliveries, callbacks, audit chain, metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from askfirst.concurrency import cancel_all
from askfirst.errors import ServiceError, StoreError
from askfirst.service.audit import PUSH_INTERVAL_SECONDS, HeadPusher
from askfirst.service.budgets import RENEW_SECONDS
from askfirst.service.button_listener import ButtonListener
from askfirst.service.callbacks import CallbackWorker
from askfirst.service.case import Case
from askfirst.service.cases import Cases, OnCaseCall
from askfirst.service.context import Quotas
from askfirst.service.deliveries import DeliveryWorker
from askfirst.service.observability import COUNTING_SECONDS, Metrics
from askfirst.store import cases as case_store
from askfirst.store import continuations
from askfirst.store.requests import OPENED

logger = logging.getLogger("askfirst.service")
SWEEP_SECONDS = 0.5
ADOPT_SECONDS = 5.0
"""The polling interval for new requests, in seconds. The store's wake-ups usually come sooner."""
HINT_SECONDS = 0.2
"""The polling interval for changes by other processes, and for messages that are due, in seconds."""
FORGET_SECONDS = 60.0
HINT_OVERLAP = 5_000
"""Changes of the last milliseconds are read again, because clocks differ and a commit may come late."""
LONGEST_PAUSE = 5.0
"""The longest pause between two attempts while a task fails, in seconds."""
LONGEST_SILENCE = 300.0
"""The longest interval between two warnings while the store cannot be reached, in seconds."""

OnCase = Callable[[Case], Awaitable[None]]
Work = Callable[[], Awaitable[bool]]
"""One run of a background task: does the work that is due; returns True if there may be more."""


class Background:
    """The background tasks of one process. Any number of processes may run them on one database."""

    def __init__(
        self,
        cases: Cases,
        quotas: Quotas,
        metrics: Metrics,
        callbacks: CallbackWorker | None = None,
        on_case: OnCase | None = None,
        heads: HeadPusher | None = None,
        deliveries: DeliveryWorker | None = None,
        listeners: Sequence[ButtonListener] = (),
    ) -> None:
        self._cases = cases
        self._quotas = quotas
        self._metrics = metrics
        self._callbacks = callbacks
        self._on_case = on_case
        self._heads = heads
        self._deliveries = deliveries
        self._listeners = listeners
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks."""
        works: list[tuple[Work, float]] = [
            (self._cases.sweep, SWEEP_SECONDS),
            (self._link, SWEEP_SECONDS),
            (self._wake_followers, HINT_SECONDS),
            (self._update_counts, COUNTING_SECONDS),
            (self._quotas.streams.renew, RENEW_SECONDS),
            (self._quotas.spending.forget, FORGET_SECONDS),
        ]
        if self._callbacks is not None:
            works.append((self._callbacks.work, SWEEP_SECONDS))
        if self._on_case is not None:
            works.append((partial(self._call_on_case, self._on_case), HINT_SECONDS))
        if self._heads is not None:
            works.append((partial(self._push, self._heads), PUSH_INTERVAL_SECONDS))
        outage = Outage(asyncio.get_running_loop().time)
        self._tasks = [asyncio.create_task(forever(work, pause, outage)) for work, pause in works]
        rate = self._quotas.rate
        catching_up = forever(rate.catch_up, SWEEP_SECONDS, outage, due=rate.keeps)
        self._tasks += [
            asyncio.create_task(catching_up),
            asyncio.create_task(self._adopt_when_opened(outage)),
        ]
        if self._deliveries is not None:
            delivering = forever(self._deliveries.work, HINT_SECONDS, outage, woken=self._deliveries.woken)
            self._tasks.append(asyncio.create_task(delivering))
        self._tasks += [asyncio.create_task(listener.run()) for listener in self._listeners]

    async def stop(self) -> None:
        """Stop the tasks. Another process, or this service after a restart, takes up the work under way."""
        await cancel_all(self._tasks)
        if self._callbacks is not None:
            await self._callbacks.stop()
        if self._deliveries is not None:
            await self._deliveries.stop()

    async def _link(self) -> bool:
        """Link new acts, of all processes, into the audit chain."""
        await self._cases.link()
        return False

    async def _push(self, heads: HeadPusher) -> bool:
        """Push the head of the audit chain. A failed push is retried at the next interval."""
        try:
            await heads.push()
        except ServiceError as error:
            logger.warning("%s: will try again", error)
        return False

    async def _adopt_when_opened(self, outage: Outage) -> None:
        """Adopt requests as cases, as soon as the store signals that requests were opened."""
        with self._cases.engine.hub.waiting(OPENED) as opened:
            await forever(self._adopt, ADOPT_SECONDS, outage, woken=opened)

    async def _adopt(self) -> bool:
        return bool(await self._cases.adopt())

    async def _call_on_case(self, on_case: OnCase) -> bool:
        """Call ``on_case`` for one case. If it raises, the call is retried with back-off; other cases go on."""
        taken = await self._cases.take_on_case_call()
        if taken is None:
            return False
        try:
            await on_case(taken.case)
        except Exception as error:
            await self._on_case_failed(taken, error)
        else:
            await self._cases.on_case_succeeded(taken)
        return True

    async def _on_case_failed(self, taken: OnCaseCall, error: Exception) -> None:
        """Record that ``on_case`` failed. Log it once, without the error's text, which may contain a secret."""
        self._metrics.notice_failed()
        tries = await self._cases.on_case_failed(taken, type(error).__name__)
        level = logging.ERROR if tries <= 1 else logging.DEBUG
        said = "on_case failed for %s: %s at %s; it will be called again; askfirst doctor shows such cases"
        logger.log(level, said, taken.case.case_id, type(error).__name__, _raised_at(error))

    async def _update_counts(self) -> bool:
        self._metrics.open_cases = await self._cases.engine.read(case_store.open_count)
        self._metrics.continuations = await self._cases.engine.read(continuations.counts)
        return False

    async def _wake_followers(self) -> bool:
        """Wake the followers of cases that another process has changed."""
        followers = self._cases.followers
        if followers.any:
            recent = partial(case_store.recent, self._cases.now() - HINT_OVERLAP)
            for case_id, _ in await self._cases.engine.read(recent):
                followers.wake(case_id)
        return False


def _raised_at(error: Exception) -> str:
    """The place where an error was raised: the file's name and the line."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "an unknown place" if at is None else f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"


class Outage:
    """Logs an outage of the store: at once, then at growing intervals, and when the store can be reached again."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failing: set[object] = set()
        self._silence = 1.0
        self._quiet_until = 0.0

    def failed(self, task: object, error: StoreError) -> None:
        """Note that a task could not reach the store; log it if a warning is due."""
        begins = not self._failing
        self._failing.add(task)
        if begins:
            self._silence = 1.0
        elif self._now() < self._quiet_until:
            return
        logger.warning("%s; the service keeps trying", error)
        self._quiet_until = self._now() + self._silence
        self._silence = min(2 * self._silence, LONGEST_SILENCE)

    def worked(self, task: object) -> None:
        """Note that a task reached the store. The outage ends when every task that failed has reached it again."""
        if task in self._failing:
            self._failing.remove(task)
            if not self._failing:
                logger.warning("the store can be reached again")


async def forever(
    work: Work,
    pause: float,
    outage: Outage,
    *,
    due: asyncio.Event | None = None,
    woken: asyncio.Event | None = None,
) -> None:
    """Run ``work`` again and again: with a pause between two runs, or without one if there may be more work.

    The pause grows with the time that the work takes, and with failures in a row. Setting ``woken`` ends the pause,
    unless the work has failed. With ``due``, the work runs only while that event is set.
    """
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        if due is not None:
            await due.wait()
        if woken is not None:
            woken.clear()
        begin, more = loop.time(), False
        try:
            more = await work()
            outage.worked(work)
            failures = 0
        except StoreError as error:
            outage.failed(work, error)
            failures += 1
        except Exception:
            logger.exception("a task of the service failed; it will try again")
            failures += 1
        if not more:
            longest = max(pause, LONGEST_PAUSE)
            wanted = max(pause * 2 ** min(failures, 10), 4 * (loop.time() - begin))
            wait = min(wanted, longest)  # limited, so that one slow run does not delay the next for long
            await (asyncio.sleep(wait) if woken is None or failures else _wait_for(woken, wait))


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but at most this many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
