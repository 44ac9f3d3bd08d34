"""Telling people: messages about cases, planned, sent, updated and tried again from an outbox in the store."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from pydantic_core import from_json

from askfirst.concurrency import finish
from askfirst.delivery.base import NoticeKind, Sent
from askfirst.errors import DeliveryError
from askfirst.ids import fresh_write_id
from askfirst.service.case import Case, case_of, lets_a_call_run, review_url
from askfirst.service.cases import Cases
from askfirst.service.notices import ended_of, notice_of
from askfirst.service.places import Places
from askfirst.service.schedule import Schedule
from askfirst.service.transitions import entry
from askfirst.store import case_queues, deliveries
from askfirst.store.case_rows import CaseRow, DeliveryRow, TokenRow
from askfirst.store.deliveries import Taken
from askfirst.store.rows import RequestRow

logger = logging.getLogger("askfirst.service")
AT_ONCE = 4
"""Concurrent messages of one delivery in this process."""
LEASE_MILLISECONDS = 120_000
"""The lease on a message: another process sends it after that if this one dies."""
SECONDS = 90.0
"""For one attempt; shorter than the lease, so that no other process begins meanwhile."""
FIRST_PAUSE, LONGEST_PAUSE = 5_000, 900_000
"""The back-off after a failure, in milliseconds."""
PERMANENT_PAUSE = 300_000
"""After a failure that somebody has to put right first."""
UPDATE_TRIES = 100
"""How often it is tried to update a message, about a day long; one that asks is tried while its case is open."""
_PAGE = 100
_TELLER = "service"


@dataclass(frozen=True, slots=True)
class Sender:
    """In whose name messages are sent: the service's name, and the address of its pages, None if there are none."""

    name: str
    base_url: str | None


class Teller:
    """Plans, sends and updates the messages about cases; any number of processes may, on one database.

    Each message is a row that is stored before it is sent, and taken under a lease. One that fails is tried again
    with back-off while its case is open. A delivery that is slow or away delays no other, and no request: all of it
    happens beside them.
    """

    def __init__(
        self,
        cases: Cases,
        places: Places,
        schedule: Schedule,
        sender: Sender,
        on_outcome: Callable[[str, str], None] | None = None,
    ) -> None:
        schedule.check(places.at)
        self._cases = cases
        self._places = places
        self._schedule = schedule
        self._sender = sender
        self._on_outcome = on_outcome
        self._under_way: dict[asyncio.Task[None], str] = {}
        self.woken = asyncio.Event()
        """Set when a message is under way no more: there may be room for another."""

    async def work(self) -> bool:
        """Plan messages for new cases, and start those that are due; True if there may be more."""
        planned = await self._plan()
        taken = 0
        for name in self._places.names:
            taken += await self._take(name)
        return bool(planned or taken)

    async def stop(self) -> None:
        """Cancel what is under way; another process takes it up after its lease."""
        under_way = list(self._under_way)
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)

    async def _plan(self) -> int:
        found = await self._cases.engine.read(partial(deliveries.unplanned, _PAGE))
        for case_id in found:
            await finish(self._cases.engine.write(partial(deliveries.plan, case_id, self._rows)))
        return len(found)

    def _rows(self, row: CaseRow, request: RequestRow | None) -> list[DeliveryRow]:
        return self._schedule.rows(case_of(row, request), self._places.names, self._cases.now())

    async def _take(self, name: str) -> int:
        free = AT_ONCE - Counter(self._under_way.values())[name]
        now = self._cases.now()
        if not free or not await self._cases.engine.read(partial(deliveries.is_due, name, now)):
            return 0
        take = partial(
            deliveries.take, name, now, now + LEASE_MILLISECONDS, free, fresh_write_id(), self._token
        )
        taken = await finish(self._cases.engine.write(take))
        for each in taken:
            task = asyncio.create_task(self._make(each))
            self._under_way[task] = name
            task.add_done_callback(self._ended)
        return len(taken)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self.woken.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a message could not be noted, and will be sent again: %s", type(error).__name__)

    def _token(self, row: DeliveryRow, case: CaseRow) -> TokenRow:
        return self._cases.links.for_message(case.case_id, _salt(row))

    # One message.

    async def _make(self, taken: Taken) -> None:
        row = taken.row
        make = self._update if row.state in deliveries.UPDATES else self._send
        try:
            async with asyncio.timeout(SECONDS):
                await make(taken, case_of(taken.case, taken.request))
        except DeliveryError as error:
            await self._failed(row, error)
        except Exception as error:  # a bug of a delivery: its text may hold a secret
            problem = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
            await self._failed(row, DeliveryError(row.place, problem))

    async def _send(self, taken: Taken, case: Case) -> None:
        row, place = taken.row, self._places.at(taken.row.place)
        base_url, link = self._sender.base_url, None
        if base_url is not None:
            token = self._cases.links.message_token(case.case_id, _salt(row))
            link = review_url(base_url, case.case_id, token)
        notice = notice_of(
            case,
            cast(NoticeKind, row.kind),
            service=self._sender.name,
            link=link,
            with_buttons=place.has_buttons,
            follows=_sent(row, taken.first) or await self._earlier_round(row, case),
        )
        sent = await place.delivery.send(notice)
        now = self._cases.now()
        where = json.dumps({"delivery": sent.delivery, "place": dict(sent.place)})
        act = entry(now, _TELLER, "delivered", case, {"via": row.place, "kind": row.kind})
        await self._note(row, partial(deliveries.sent, row, where, now, entry=act))
        self._say(row, "sent")

    async def _earlier_round(self, row: DeliveryRow, case: Case) -> Sent | None:
        """The message about the round before this one in the same place, if there is one."""
        if case.previous_case_id is None:
            return None
        rows = await self._cases.engine.read(partial(deliveries.of_case, case.previous_case_id))
        return next((_sent(each, each.sent) for each in rows if each.place == row.place and each.sent), None)

    async def _update(self, taken: Taken, case: Case) -> None:
        row, place = taken.row, self._places.at(taken.row.place)
        sent = _sent(row, row.sent)
        if sent is not None:
            ended = ended_of(case, await self._came_of(taken.case, case))
            await place.delivery.update(sent, replace(ended, is_again=row.state == "again"))
        await self._note(row, partial(deliveries.updated, row))
        self._say(row, "updated")

    async def _came_of(self, row: CaseRow, case: Case) -> str | None:
        """What came of the call that was approved, where it is known already."""
        if not lets_a_call_run(case):
            return None
        effect = await self._cases.engine.read(partial(case_queues.effect_of, row))
        return None if effect is None else "The call has run."

    async def _failed(self, row: DeliveryRow, error: DeliveryError) -> None:
        now = self._cases.now()
        is_update = row.state in deliveries.UPDATES
        again: int | None = now + _pause(row.attempts, error)
        if is_update and row.attempts >= UPDATE_TRIES:
            again = None
        level = logging.WARNING if row.attempts <= 1 else logging.DEBUG
        what = "update" if is_update else row.kind
        logger.log(level, "the %s message of case %s: %s; see askfirst deliveries", what, row.case_id, error)
        await self._note(row, partial(deliveries.failed, row, str(error), again))
        self._say(row, "failed")

    async def _note(self, row: DeliveryRow, change: Callable[..., Any]) -> None:
        write_id = fresh_write_id()
        landed = partial(deliveries.noted, row.delivery_id, write_id)
        await finish(self._cases.engine.write(partial(change, write_id=write_id), landed))

    def _say(self, row: DeliveryRow, outcome: str) -> None:
        if self._on_outcome is not None:
            self._on_outcome(row.name, outcome)


def _salt(row: DeliveryRow) -> str:
    """The salt of a message's link: the same whenever the message is sent."""
    return row.delivery_id.removeprefix("dlv_")[:32]


def _sent(row: DeliveryRow, text: str | None) -> Sent | None:
    if text is None:
        return None
    said: Mapping[str, Any] = from_json(text)
    return Sent(said["delivery"], row.case_id, said["place"])


def _pause(attempts: int, error: DeliveryError) -> int:
    grown = min(FIRST_PAUSE * 2 ** min(attempts - 1, 20), LONGEST_PAUSE)
    if error.permanent:
        grown = max(grown, PERMANENT_PAUSE)
    return max(grown, round(1000 * (error.retry_after or 0)))
