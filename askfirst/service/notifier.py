"""Notifier: deliver requests to people and take their button presses, in any process with the store, without HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import Clock
from askfirst.concurrency import cancel_all
from askfirst.delivery.base import Deliver
from askfirst.service.background import ADOPT_SECONDS, HINT_SECONDS, SWEEP_SECONDS, Outage, forever
from askfirst.service.cases import Cases
from askfirst.service.deliveries import DeliverySettings, Sender
from askfirst.service.person import Authorize
from askfirst.service.places import Place, Places, given_places
from askfirst.service.risk_patterns import RiskPatterns, patterns_from
from askfirst.service.schedule import Schedule
from askfirst.store.requests import OPENED


class Notifier:
    """Delivers every request of a store to people: ``Gate(url, notify=Notifier([Place("phone", …)]))``.

    ``deliver``, ``schedule``, ``authorize``, ``risk_patterns`` and ``language`` are as for `create_app`. ``base_url``
    is the address of an ``askfirst serve`` on the same store. Without it messages have no link; people then decide by
    buttons, or with ``askfirst answer``. Several processes, and a service beside them, may deliver from one store: a
    lease in the store gives each message to one of them.
    """

    def __init__(
        self,
        deliver: Place | Deliver | Sequence[Place | Deliver],
        *,
        base_url: str | None = None,
        name: str = "Askfirst",
        schedule: Schedule | None = None,
        authorize: Authorize | None = None,
        secret: str | None = None,
        clock: Clock | None = None,
        risk_patterns: RiskPatterns | str | os.PathLike[str] | None = None,
        language: str | None = None,
    ) -> None:
        pages = None if base_url is None else base_url.rstrip("/")
        sender = Sender(name, pages, patterns_from(risk_patterns), language)
        self._deliveries = DeliverySettings(Places(given_places(deliver)), schedule or Schedule(), sender)
        self._authorize = authorize
        self._secret = secret
        self._clock = clock

    @asynccontextmanager
    async def delivering(self, store: SqlCheckpointer) -> AsyncGenerator[None]:
        """Deliver the requests of an open store, and take button presses, until the context ends."""
        cases = Cases(store, clock=self._clock, authorize=self._authorize, secret=self._secret)
        worker, listeners = self._deliveries.opened(cases, store, self._clock)
        if worker is None:
            yield
            return
        outage = Outage(asyncio.get_running_loop().time)

        async def adopt() -> bool:
            return bool(await cases.adopt())

        async def adopting() -> None:
            with cases.engine.hub.waiting(OPENED) as opened:
                await forever(adopt, ADOPT_SECONDS, outage, woken=opened)

        works = [
            adopting(),
            forever(cases.sweep, SWEEP_SECONDS, outage),
            forever(worker.work, HINT_SECONDS, outage, woken=worker.woken),
            *(listener.run() for listener in listeners),
        ]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield
        finally:
            await cancel_all(tasks)
            await worker.stop()
