"""Notifier: people are told, and their presses taken, from any process that has the store; no HTTP is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import Clock
from askfirst.delivery.base import Deliver
from askfirst.service.background import ADOPT_SECONDS, HINT_SECONDS, SWEEP_SECONDS, Outage, forever
from askfirst.service.cases import Cases
from askfirst.service.person import Authorize
from askfirst.service.places import Place, Places, given_places
from askfirst.service.schedule import Schedule
from askfirst.service.teller import Sender
from askfirst.service.telling import Telling
from askfirst.store.requests import OPENED


class Notifier:
    """Tells people of every request in a store: ``Gate(url, notify=Notifier([Place("phone", …)]))``.

    ``deliver`` and ``schedule`` are as for `create_app`, ``authorize`` too. ``base_url`` is where ``askfirst serve``
    has its pages; without it messages have no link, and people decide by buttons, or with ``askfirst answer``.
    Several processes may do this on one store, and a service beside them: each message is sent by one.
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
    ) -> None:
        sender = Sender(name, None if base_url is None else base_url.rstrip("/"))
        self._telling = Telling(Places(given_places(deliver)), schedule or Schedule(), sender)
        self._authorize = authorize
        self._secret = secret
        self._clock = clock

    @asynccontextmanager
    async def telling(self, store: SqlCheckpointer) -> AsyncGenerator[None]:
        """Within this context, people are told of what is asked in an open store."""
        cases = Cases(store, clock=self._clock, authorize=self._authorize, secret=self._secret)
        teller, listeners = self._telling.on(cases, store, self._clock)
        if teller is None:
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
            forever(teller.work, HINT_SECONDS, outage, woken=teller.woken),
            *(listener.run() for listener in listeners),
        ]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await teller.stop()
