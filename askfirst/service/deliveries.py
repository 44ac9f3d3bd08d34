"""The deliveries of a service: their settings, and the worker that sends the messages about cases from an outbox."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from pydantic_core import from_json

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import Clock, SystemClock
from askfirst.concurrency import cancel_all, finish
from askfirst.delivery.base import NoticeKind, Sent
from askfirst.errors import DeliveryError
from askfirst.ids import fresh_write_id
from askfirst.service.button_listener import ButtonListener
from askfirst.service.case import Case, case_of, lets_a_call_run, review_url
from askfirst.service.cases import Cases
from askfirst.service.context import Settings
from askfirst.service.notices import ended_of, notice_of
from askfirst.service.page_data import asker_name
from askfirst.service.places import Places
from askfirst.service.risk_patterns import RiskPatterns, shipped_patterns
from askfirst.service.schedule import Schedule
from askfirst.service.transitions import entry
from askfirst.store import case_queues, deliveries
from askfirst.store.case_rows import CaseRow, DeliveryRow, TokenRow
from askfirst.store.deliveries import Taken
from askfirst.store.rows import RequestRow

logger = logging.getLogger("askfirst.service")
AT_ONCE = 4
"""How many messages of one delivery this process sends at the same time."""
LEASE_MILLISECONDS = 120_000
"""The lease on a message. If this process dies, another process sends the message after it."""
SECONDS = 90.0
"""The time-out of one attempt. It is shorter than the lease, so that no other process begins meanwhile."""
FIRST_PAUSE, LONGEST_PAUSE = 5_000, 900_000
"""The back-off after a failure, in milliseconds."""
PERMANENT_PAUSE = 300_000
"""The least back-off after a permanent failure, in milliseconds: a person has to remove its cause first."""
UPDATE_TRIES = 100
"""How often an update of a message is attempted: for about a day. A message that asks is retried while its case is
open."""
_PAGE = 100
_SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of messages: the service's name, and the address of its pages; None if there are no pages.

    ``patterns`` are the risk patterns: they raise the risk in a message as they do on the pages. ``language`` chooses
    among the tools' words that are given in several languages.
    """

    name: str
    base_url: str | None
    patterns: RiskPatterns = field(default_factory=shipped_patterns)
    language: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> Sender:
        """The sender of a service with these settings."""
        return cls(settings.name, settings.base_url, settings.risk_patterns, settings.language)


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Where, when and in whose name messages are sent. They are checked before the store is open.

    Raises `DeliveryError` if the schedule names an unknown place.
    """

    places: Places
    schedule: Schedule
    sender: Sender

    def __post_init__(self) -> None:
        self.schedule.check(self.places.at)

    def opened(
        self,
        cases: Cases,
        store: SqlCheckpointer,
        clock: Clock | None,
        on_outcome: Callable[[str, str], None] | None = None,
    ) -> tuple[DeliveryWorker | None, list[ButtonListener]]:
        """The `DeliveryWorker` of an open store, and its listeners to button presses; none without places."""
        if not self.places.names:
            return None, []
        opened = Places([place.stored_in(store, clock or SystemClock()) for place in self.places])
        listeners = [ButtonListener(cases, place) for place in opened if place.has_buttons]
        return DeliveryWorker(cases, opened, self.schedule, self.sender, on_outcome), listeners


class DeliveryWorker:
    """Plans, sends, updates and retries the messages about cases. Any number of processes may do so on one database.

    Each message is a row of an outbox: it is stored before it is sent, and taken under a lease. A message that fails
    is retried with back-off while its case is open. The work happens in background tasks, so a slow delivery delays
    neither other deliveries nor HTTP requests.
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
        """Set when a message is finished, so that the next one can be taken."""

    async def work(self) -> bool:
        """Plan the messages of new cases, and start sending messages that are due; True if there may be more."""
        planned = await self._plan()
        taken = 0
        for name in self._places.names:
            taken += await self._take(name)
        return bool(planned or taken)

    async def stop(self) -> None:
        """Cancel the messages under way. Another process takes them when their leases have expired."""
        await cancel_all(self._under_way)

    async def _plan(self) -> int:
        found = await self._cases.engine.read(partial(deliveries.unplanned, _PAGE))
        for case_id in found:
            await finish(self._cases.engine.write(partial(deliveries.plan, case_id, self._planned_rows)))
        return len(found)

    def _planned_rows(self, row: CaseRow, request: RequestRow | None) -> list[DeliveryRow]:
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
            task = asyncio.create_task(self._attempt(each))
            self._under_way[task] = name
            task.add_done_callback(self._ended)
        return len(taken)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self.woken.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "the outcome of a message could not be stored, so it will be sent again: %s",
                type(error).__name__,
            )

    def _token(self, row: DeliveryRow, case: CaseRow) -> TokenRow:
        return self._cases.links.for_message(case.case_id, _salt(row))

    # One message.

    async def _attempt(self, taken: Taken) -> None:
        row = taken.row
        make = self._update if row.state in deliveries.UPDATES else self._send
        try:
            async with asyncio.timeout(SECONDS):
                await make(taken, case_of(taken.case, taken.request))
        except DeliveryError as error:
            await self._store_failure(row, error)
        except (
            Exception
        ) as error:  # a bug in a delivery; the error's text may contain a secret, so it is not kept
            problem = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
            await self._store_failure(row, DeliveryError(row.place, problem))

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
            with_facts=place.facts,
            patterns=self._sender.patterns,
            language=self._sender.language,
            key_name=await asker_name(self._cases.engine, case),
            follows=_sent(row, taken.first) or await self._earlier_round(row, case),
        )
        sent = await place.delivery.send(notice)
        now = self._cases.now()
        where = json.dumps({"delivery": sent.delivery, "place": dict(sent.place)})
        act = entry(now, _SERVICE, "delivered", case, {"via": row.place, "kind": row.kind})
        await self._store_change(row, partial(deliveries.sent, row, where, now, entry=act))
        self._report(row, "sent")

    async def _earlier_round(self, row: DeliveryRow, case: Case) -> Sent | None:
        """The message about the previous round in the same place; None if there is none."""
        if case.previous_case_id is None:
            return None
        rows = await self._cases.engine.read(partial(deliveries.of_case, case.previous_case_id))
        return next((_sent(each, each.sent) for each in rows if each.place == row.place and each.sent), None)

    async def _update(self, taken: Taken, case: Case) -> None:
        row, place = taken.row, self._places.at(taken.row.place)
        sent = _sent(row, row.sent)
        if sent is not None:
            ended = ended_of(case, await self._outcome_sentence(taken.case, case))
            await place.delivery.update(sent, replace(ended, is_again=row.state == "again"))
        await self._store_change(row, partial(deliveries.updated, row))
        self._report(row, "updated")

    async def _outcome_sentence(self, row: CaseRow, case: Case) -> str | None:
        """A sentence if the approved call has run; None if it has not, or not yet."""
        if not lets_a_call_run(case):
            return None
        effect = await self._cases.engine.read(partial(case_queues.effect_of, row))
        return None if effect is None else "The call has run."

    async def _store_failure(self, row: DeliveryRow, error: DeliveryError) -> None:
        now = self._cases.now()
        is_update = row.state in deliveries.UPDATES
        again: int | None = now + _pause(row.attempts, error)
        if is_update and row.attempts >= UPDATE_TRIES:
            again = None
        level = logging.WARNING if row.attempts <= 1 else logging.DEBUG
        what = "update" if is_update else row.kind
        logger.log(level, "the %s message of case %s: %s; see askfirst deliveries", what, row.case_id, error)
        await self._store_change(row, partial(deliveries.failed, row, str(error), again))
        self._report(row, "failed")

    async def _store_change(self, row: DeliveryRow, change: Callable[..., Any]) -> None:
        write_id = fresh_write_id()
        landed = partial(deliveries.noted, row.delivery_id, write_id)
        await finish(self._cases.engine.write(partial(change, write_id=write_id), landed))

    def _report(self, row: DeliveryRow, outcome: str) -> None:
        if self._on_outcome is not None:
            self._on_outcome(row.name, outcome)


def _salt(row: DeliveryRow) -> str:
    """The salt of a message's link. It is the same for every attempt, so a repeated message has the same link."""
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
