"""One delivery's part of a message: tried again until it is through, or given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from assent.clock import Clock
from assent.delivery.first import first_of
from assent.delivery.patience import pause_after
from assent.errors import DeliveryError

logger = logging.getLogger("assent.delivery")

_LONGEST_PAUSE = 60.0
_T = TypeVar("_T")


class Lane(Generic[_T]):
    """Does something over a delivery in the background, up to ``tries`` times.

    ``what`` names it in the warning that is logged when it is given up. ``result`` is there once it is through.
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
        self._over = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Try no more; an attempt that is under way comes to its end first."""
        self._over.set()
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        for tries in range(1, self._tries + 1):
            try:
                self.result = await self._work()
                self.error = None
                return
            except Exception as error:  # one delivery's bug is no other's business
                self.error = _known(self.delivery, error)
            if self.error.permanent or tries == self._tries:
                logger.warning("%s did not get through: %s (tries: %d)", self._what, self.error, tries)
                return
            pause = pause_after(tries, self.error, longest=_LONGEST_PAUSE)
            await first_of(self._over.wait(), self._clock.sleep(pause))
            if self._over.is_set():
                return


def _known(delivery: str, error: Exception) -> DeliveryError:
    """Only our own errors are known to hold no secret; of others the kind must do."""
    return error if isinstance(error, DeliveryError) else DeliveryError(delivery, type(error).__name__)
