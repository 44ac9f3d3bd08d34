"""The Slack side of a service, without the service: agents' cases in a store, a Slack delivery, and its presses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import SystemClock
from askfirst.delivery.base import Press, PressAnswer, Sent
from askfirst.delivery.slack import SlackDelivery
from askfirst.requests import HitlRequest
from askfirst.service.case import Case
from askfirst.service.cases import Cases
from askfirst.service.notices import notice_of
from askfirst.service.places import Decider, Place
from askfirst.service.presses import Presses
from examples.local_slack import ADA, APP_TOKEN, BOT_TOKEN, CHANNEL, TEAM, LocalSlack, People, local_slack
from kit.patience import PATIENCE
from kit.stores import asked

LINK = "https://ask.example/review/1?token=xYzReviewTokenThatNobodyMaySee"
ADA_ACCOUNT = f"slack:{TEAM}:{ADA.id}"


@dataclass
class SlackRig:
    """A workspace, a store with cases, and the delivery between them."""

    slack: LocalSlack
    people: People
    cases: Cases
    place: Place
    presses: list[Press]
    checkpointer: SqlCheckpointer

    async def ask(self, thread: str, request: HitlRequest, link: str | None = LINK) -> tuple[Case, Sent]:
        """Open an agent's request, and post its case."""
        await asked(self.checkpointer, thread, request)
        [case] = await self.cases.adopt()
        return case, await self.post(case, link)

    async def post(self, case: Case, link: str | None = LINK) -> Sent:
        """Post a case."""
        notice = notice_of(case, "review", service="Askfirst", link=link, with_buttons=self.place.has_buttons)
        return await self.place.delivery.send(notice)

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        """Receive presses, and settle their cases."""
        desk = Presses(self.cases)

        async def on_press(press: Press) -> PressAnswer:
            self.presses.append(press)
            return await desk.decide(self.place, press)

        async with self.delivery.listening(on_press):
            await self.slack.until(lambda: self.slack.sockets or self.slack.request_url, PATIENCE)
            yield

    @property
    def delivery(self) -> SlackDelivery:
        assert isinstance(self.place.delivery, SlackDelivery)
        return self.place.delivery

    def text(self, sent: Sent) -> str:
        """What a person reads in a message."""
        return self.slack.text(str(sent.place["channel"]), str(sent.place["ts"]))

    def buttons(self, sent: Sent) -> list[str]:
        return self.people.buttons(str(sent.place["channel"]), str(sent.place["ts"]))

    async def press(self, sent: Sent, button: str, **more: Any) -> Any:
        return await self.people.press(str(sent.place["channel"]), str(sent.place["ts"]), button, **more)

    @property
    def told(self) -> list[str]:
        """The ephemeral messages, which only one person sees."""
        return [each["text"] for each in self.slack.ephemerals]


@asynccontextmanager
async def slack_rig(
    checkpointer: SqlCheckpointer,
    deciders: dict[str, Decider] | None = None,
    *,
    authorize: Any = None,
    **options: Any,
) -> AsyncGenerator[SlackRig]:
    """A rig on a store; ``options`` are those of `SlackDelivery`."""
    async with local_slack(ack_seconds=PATIENCE, trigger_seconds=PATIENCE) as slack:
        ways = options if "signing_secret" in options else {"app_token": APP_TOKEN, **options}
        delivery = SlackDelivery(BOT_TOKEN, CHANNEL, base_url=slack.url, **ways)
        known = {ADA_ACCOUNT: Decider("Ada Lovelace", "ada@example.com")} if deciders is None else deciders
        place = Place("slack", delivery, known).stored_in(checkpointer, SystemClock())
        cases = Cases(checkpointer, authorize=authorize)
        yield SlackRig(slack, People(slack), cases, place, [], checkpointer)
