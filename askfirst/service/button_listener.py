"""Listening for button presses in a messenger: in one process at a time, under a lease in the store."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial

from askfirst.concurrency import finish
from askfirst.delivery.base import PendingDelivery, PressDelivery, RequestsDelivery
from askfirst.delivery.text import cut
from askfirst.errors import DeliveryError, StoreError
from askfirst.ids import new_id
from askfirst.service.case import case_of
from askfirst.service.cases import Cases
from askfirst.service.places import Place
from askfirst.service.presses import Presses
from askfirst.store import deliveries, inspect
from askfirst.store.rows import decode_request
from askfirst.visible_text import visible

logger = logging.getLogger("askfirst.service")
LEASE_MILLISECONDS = 30_000
"""The lease on listening. If this process dies, another one listens after it."""
RENEW_SECONDS = 8.0
NOT_YOURS = "You are not on the list of people who may decide here."
NOTHING = "Nothing waits for a decision."
_MOST_PENDING = 20
_LINE_LIMIT = 120


class ButtonListener:
    """Listens for the button presses of one place while this process has the lease, and answers their cases."""

    def __init__(self, cases: Cases, place: Place) -> None:
        self._cases = cases
        self._place = place
        self._presses = Presses(cases)
        self._owner = f"listener_{new_id()}"

    async def run(self) -> None:
        """Listen until cancelled; then release the lease."""
        delivery = self._place.delivery
        if isinstance(delivery, PendingDelivery):
            delivery = delivery.answering_pending(self._pending_text)
        if not isinstance(delivery, PressDelivery):
            return
        if isinstance(delivery, RequestsDelivery) and delivery.takes_requests:
            async with delivery.listening(partial(self._presses.decide, self._place)):
                await (
                    asyncio.Event().wait()
                )  # no lease: presses are HTTP requests, and any process takes them
        try:
            while True:
                try:
                    if await self._take_lease():
                        await self._listen(delivery)
                except (StoreError, DeliveryError) as error:
                    logger.warning("cannot listen for the buttons of %s: %s", self._place.name, error)
                except Exception:
                    logger.exception("cannot listen for the buttons of %s", self._place.name)
                await asyncio.sleep(RENEW_SECONDS)
        finally:
            with suppress(StoreError):
                release = partial(deliveries.stop_listening, self._place.name, self._owner)
                await finish(self._cases.engine.write(release))

    async def _listen(self, delivery: PressDelivery) -> None:
        async with delivery.listening(partial(self._presses.decide, self._place)):
            while await self._take_lease():  # noqa: ASYNC110  (renews the lease; there is no event to wait for)
                await asyncio.sleep(RENEW_SECONDS)

    async def _pending_text(self, account: str) -> str:
        """The open requests and cases as lines of text, for an account on the list of this place."""
        if account not in self._place.deciders:
            return NOT_YOURS
        engine = self._cases.engine
        asked = await engine.read(partial(inspect.request_page, _MOST_PENDING, None))
        opened = await engine.read(partial(inspect.case_page, _MOST_PENDING, None))
        lines = [" ".join(decode_request(each.request).payload.sentences) for each in asked]
        lines += [case_of(each.case).prompt for each in opened]
        return "\n".join(f"• {cut(visible(each), _LINE_LIMIT)}" for each in lines[:_MOST_PENDING]) or NOTHING

    async def _take_lease(self) -> bool:
        """Take the lease, or renew it; False while another process has it."""
        now = self._cases.now()
        listen = partial(deliveries.listen, self._place.name, self._owner, now, now + LEASE_MILLISECONDS)
        return await finish(self._cases.engine.write(listen))
