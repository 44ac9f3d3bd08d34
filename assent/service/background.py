"""What the service does by itself: expire, remind, follow agents' requests and tell of them, call
back, hear of other processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from assent.errors import ServiceError, StoreError
from assent.service.callbacks import CallbackWorker
from assent.service.case import Case
from assent.service.cases import Cases, Untold
from assent.service.heads import EVERY_SECONDS, HeadPusher
from assent.service.metrics import COUNTING_SECONDS, Metrics
from assent.service.rate import CaseRate
from assent.service.spending import Spending
from assent.service.streaming import RENEW_SECONDS, OpenStreams

logger = logging.getLogger("assent.service")
SWEEP_SECONDS = 0.5
HINT_SECONDS = 0.2
FORGET_SECONDS = 60.0
HINT_OVERLAP = 5_000
"""Milliseconds that are looked at again: clocks differ, and commits come late."""
LONGEST_PAUSE = 5.0
"""Seconds between two tries at most, while they fail."""
LONGEST_SILENCE = 300.0
"""Seconds between two warnings at most, while the store is away."""

OnCase = Callable[[Case], Awaitable[None]]


class Background:
    """The tasks of one process; any number of processes may run them on one database."""

    def __init__(
        self,
        cases: Cases,
        callbacks: CallbackWorker,
        rate: CaseRate,
        metrics: Metrics,
        spending: Spending,
        streams: OpenStreams,
        on_case: OnCase | None = None,
        heads: HeadPusher | None = None,
    ) -> None:
        self._cases = cases
        self._callbacks = callbacks
        self._rate = rate
        self._metrics = metrics
        self._spending = spending
        self._streams = streams
        self._on_case = on_case
        self._heads = heads
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        works = [
            (self._sweep, SWEEP_SECONDS),
            (self._adopt, SWEEP_SECONDS),
            (self._link, SWEEP_SECONDS),
            (self._call_back, SWEEP_SECONDS),
            (self._rate.catch_up, SWEEP_SECONDS),
            (self._hear, HINT_SECONDS),
            (self._count, COUNTING_SECONDS),
            (self._streams.renew, RENEW_SECONDS),
            (self._spending.forget, FORGET_SECONDS),
        ]
        if self._on_case is not None:
            works.append((partial(self._tell, self._on_case), HINT_SECONDS))
        if self._heads is not None:
            works.append((partial(self._push, self._heads), EVERY_SECONDS))
        outage = Outage(asyncio.get_running_loop().time)
        self._tasks = [asyncio.create_task(_forever(work, pause, outage)) for work, pause in works]

    async def stop(self) -> None:
        """Stop where it stands; what is under way is finished by whoever comes next."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._callbacks.stop()

    async def _sweep(self) -> bool:
        return await self._cases.sweep()

    async def _link(self) -> bool:
        """Link acts into the audit trail, whosever they are."""
        await self._cases.link()
        return False

    async def _push(self, heads: HeadPusher) -> bool:
        """Push the head of the audit trail; what fails is tried again the next time."""
        try:
            await heads.push()
        except ServiceError as error:
            logger.warning("%s: will try again", error)
        return False

    async def _adopt(self) -> bool:
        return bool(await self._cases.adopt())

    async def _tell(self, on_case: OnCase) -> bool:
        """Let the host hear of a case; where it fails, the others are told all the same, and this one again."""
        taken = await self._cases.take_untold()
        if taken is None:
            return False
        try:
            await on_case(taken.case)
        except Exception as error:
            await self._not_told(taken, error)
        else:
            await self._cases.told(taken)
        return True

    async def _not_told(self, taken: Untold, error: Exception) -> None:
        """Note a notice that failed, and say so once. What the error says may hold a secret of the host's."""
        self._metrics.notice_failed()
        tries = await self._cases.not_told(taken, type(error).__name__)
        level = logging.ERROR if tries <= 1 else logging.DEBUG
        said = "on_case failed for %s: %s at %s; it will be told again, and assent doctor shows it"
        logger.log(level, said, taken.case.case_id, type(error).__name__, _place(error))

    async def _call_back(self) -> bool:
        return await self._callbacks.work()

    async def _count(self) -> bool:
        self._metrics.open_cases = await self._cases.store.open_count()
        return False

    async def _hear(self) -> bool:
        """Wake those who follow cases that another process has changed."""
        followers = self._cases.followers
        if followers.any:
            for case_id, _ in await self._cases.store.recent(self._cases.now() - HINT_OVERLAP):
                followers.wake(case_id)
        return False


def _place(error: Exception) -> str:
    """Where an error was raised: a file's name and a line."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "an unknown place" if at is None else f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"


class Outage:
    """What is logged while the store is away: that it is, at growing intervals that it still is, and its return."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failing: set[object] = set()
        self._silence = 1.0
        self._quiet_until = 0.0

    def failed(self, task: object, error: StoreError) -> None:
        """A task could not reach the store."""
        begins = not self._failing
        self._failing.add(task)
        if begins:
            self._silence = 1.0
        elif self._now() < self._quiet_until:
            return
        logger.warning("%s: will try again", error)
        self._quiet_until = self._now() + self._silence
        self._silence = min(2 * self._silence, LONGEST_SILENCE)

    def worked(self, task: object) -> None:
        """A task did what it had to do. It is over when every task that failed has done so."""
        if task in self._failing:
            self._failing.remove(task)
            if not self._failing:
                logger.warning("the store can be reached again")


async def _forever(work: Callable[[], Awaitable[bool]], pause: float, outage: Outage) -> None:
    """Work again and again, at once if there may be more.

    The longer it takes, and the more often it has failed, the longer the pause.
    """
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
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
            await asyncio.sleep(min(wanted, longest))  # a moment at which all stood still is over after that
