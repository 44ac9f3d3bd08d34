"""Listening to the buttons of a messenger: one process at a time, by a lease in the store."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial

from askfirst.concurrency import finish
from askfirst.delivery.base import PressDelivery
from askfirst.errors import DeliveryError, StoreError
from askfirst.ids import new_id
from askfirst.service.cases import Cases
from askfirst.service.places import Place
from askfirst.service.presses import Presses
from askfirst.store import deliveries

logger = logging.getLogger("askfirst.service")
LEASE_MILLISECONDS = 30_000
"""Another process listens after that if this one dies."""
RENEW_SECONDS = 8.0


class ButtonListener:
    """Listens to the presses of one place while this process has the lease, and takes them to their cases."""

    def __init__(self, cases: Cases, place: Place) -> None:
        self._cases = cases
        self._place = place
        self._presses = Presses(cases)
        self._owner = f"listener_{new_id()}"

    async def run(self) -> None:
        """Listen until cancelled; then the lease is released."""
        delivery = self._place.delivery
        if not isinstance(delivery, PressDelivery):
            return
        try:
            while True:
                try:
                    if await self._lease():
                        await self._listen(delivery)
                except (StoreError, DeliveryError) as error:
                    logger.warning("the buttons of %s are not listened to: %s", self._place.name, error)
                except Exception:
                    logger.exception("the buttons of %s are not listened to", self._place.name)
                await asyncio.sleep(RENEW_SECONDS)
        finally:
            with suppress(StoreError):
                release = partial(deliveries.stop_listening, self._place.name, self._owner)
                await finish(self._cases.engine.write(release))

    async def _listen(self, delivery: PressDelivery) -> None:
        async with delivery.listening(partial(self._presses.decide, self._place)):
            while await self._lease():  # noqa: ASYNC110  (it renews a lease, and waits for nothing)
                await asyncio.sleep(RENEW_SECONDS)

    async def _lease(self) -> bool:
        """Take the lease, or renew it; False while another process has it."""
        now = self._cases.now()
        listen = partial(deliveries.listen, self._place.name, self._owner, now, now + LEASE_MILLISECONDS)
        return await finish(self._cases.engine.write(listen))
