"""Many waits in one process, and a long one: connections are shared, and reminders sent once each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from kit.other_service import KEY, OtherService, QuickClock, listening
from kit.other_service_network import URL, Network
from kit.patience import PATIENCE

from askfirst.client import HitlClient
from askfirst.client.connections import MOST_POLLS
from askfirst.client.polling import STUCK, USUAL
from askfirst.delivery.base import Notice
from askfirst.hitl.testing import FakeClock

pytestmark = pytest.mark.anyio

WAITS = 200
SHARED = MOST_POLLS
"""How many connections the polls of one service may take."""
HOUR = 3600.0


class Quiet(OtherService):
    """A service without streams of events."""

    follows = False


async def unheard(notice: Notice) -> None:
    """Takes a notice; the test is the person."""


@pytest.mark.parametrize("kind", [OtherService, Quiet])
async def test_two_hundred_waits_share_their_connections(kind: type[OtherService]) -> None:
    clock = QuickClock(100)
    async with (
        listening(kind(clock.now)) as service,
        HitlClient(deliver=unheard, auth=_bearer, clock=clock) as client,
    ):
        asking = [
            asyncio.create_task(client.request("POST", f"{service.url}/orders", json={"order": number}))
            for number in range(WAITS)
        ]
        await service.until(lambda: len(service.cases) == WAITS)
        ordering = service.most
        polled = service.cases.values()
        if kind is Quiet:
            await service.until(lambda: all(case.polls >= 3 for case in polled))
            assert service.live <= SHARED
            # Most polls take a connection that is there; on a busy machine some of these have been idle too long.
            assert service.connections - ordering < WAITS
        else:
            await service.until(lambda: all(case.streams for case in polled))
            assert WAITS <= service.live <= WAITS + SHARED
            assert [case.streams for case in polled] == [1] * WAITS
        for number, case in enumerate(polled):
            service.decide(case, "approve" if number % 2 else "reject", {"feedback": f"number {number}"})
        async with asyncio.timeout(PATIENCE):
            outcomes = await asyncio.gather(*asking)
        by_case = {outcome.case_id: outcome for outcome in outcomes}
        assert len(by_case) == WAITS
        for case in polled:
            outcome = by_case[case.case_id]
            assert {"action": outcome.action, "data": outcome.data} == case.facts["result"]


class Counting(Network):
    """A network that notes which cases are polled, and never answers a poll."""

    def __init__(self, service: OtherService, clock: FakeClock) -> None:
        super().__init__(service, clock)
        self.polls = "silent"
        self.polled: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            self.polled.append(request.url.path)
        return await super().handle_async_request(request)


async def test_waiting_for_ones_turn_is_no_failed_poll() -> None:
    """Polls that hang take all connections. The time-out of those behind them begins with their own turn."""
    clock = FakeClock()
    service = Quiet(clock.now)
    network = Counting(service, clock)
    http = httpx2.AsyncClient(transport=network, headers={"Authorization": f"Bearer {KEY}"})
    async with http, HitlClient(http, deliver=unheard, clock=clock) as client:
        asking = [
            asyncio.create_task(client.request("POST", f"{URL}/orders", json={"order": number}))
            for number in range(3 * SHARED)
        ]
        while len(service.cases) < len(asking):
            await clock.advance(0)
        await clock.advance(USUAL)
        assert len(network.polled) == SHARED
        await clock.advance(STUCK)
        assert len(network.polled) == 2 * SHARED
        await clock.advance(STUCK - 1)
        assert len(network.polled) == len(set(network.polled)) == 2 * SHARED
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def _bearer(request: httpx2.Request) -> httpx2.Request:
    request.headers["Authorization"] = f"Bearer {KEY}"
    return request


# A day of reminders.


class Day:
    """A wait on a clock that is turned by hand, and the hours at which the person was reminded."""

    def __init__(self, client: HitlClient, service: OtherService, clock: FakeClock) -> None:
        self.service = service
        self.clock = clock
        self.begin = clock.now()
        self.reminded: list[float] = []
        self.said: list[str] = []
        self._client = client

    async def hear(self, notice: Notice) -> None:
        self.said.append(notice.kind)
        if notice.kind == "reminder":
            assert notice.review_url is not None
            self.reminded.append(round((self.clock.now() - self.begin) / HOUR, 1))

    def ask(self, *hours: float) -> asyncio.Task[Any]:
        """Order something that is to be reminded of at these hours."""
        at = [self.service.stamp(self.begin + hour * HOUR) for hour in hours]
        self.service.fields = {"reminder_at": at[0] if len(at) == 1 else at}
        return asyncio.create_task(self._client.request("POST", f"{URL}/orders", json={}))

    async def until(self, hour: float) -> None:
        while self.clock.now() < self.begin + hour * HOUR:
            await self.clock.advance(min(120.0, self.begin + hour * HOUR - self.clock.now()))
            for _ in range(5):  # a poll takes some turns of the loop
                await self.clock.advance(0)


@asynccontextmanager
async def day(kind: type[OtherService]) -> AsyncGenerator[Day]:
    clock = FakeClock()
    service = kind(clock.now)
    service.lifetime = 30 * HOUR
    http = httpx2.AsyncClient(transport=Network(service, clock), headers={"Authorization": f"Bearer {KEY}"})

    async def hear(notice: Notice) -> None:
        await today.hear(notice)

    async with http, HitlClient(http, deliver=hear, clock=clock, poll_interval=300) as client:
        today = Day(client, service, clock)
        yield today


both = pytest.mark.parametrize("kind", [OtherService, Quiet])


@both
async def test_a_day_of_reminders_once_each(kind: type[OtherService]) -> None:
    async with day(kind) as today:
        asking = today.ask(*range(1, 25))
        await today.until(24.5)
        assert today.reminded == list(range(1, 25))
        today.service.decide(today.service.nth(0), "approve")
        await today.until(25)
        assert (await asking).action == "approve"


@both
async def test_none_after_the_end(kind: type[OtherService]) -> None:
    async with day(kind) as today:
        asking = today.ask(*range(1, 25))
        await today.until(12.5)
        today.service.decide(today.service.nth(0), "approve")
        await today.until(48)
        assert (await asking).action == "approve"
        assert today.reminded == list(range(1, 13))


@both
async def test_none_while_somebody_is_at_work_on_it(kind: type[OtherService]) -> None:
    async with day(kind) as today:
        asking = today.ask(1, 2, 3)
        await today.until(1.5)
        today.service.open_page(today.service.nth(0))
        await today.until(2.5)
        assert today.reminded == [1, 2], "a page that was opened is not an answer"
        today.service.work_on(today.service.nth(0), completed_fields=1, total_fields=2)
        await today.until(4)
        assert today.reminded == [1, 2]
        today.service.decide(today.service.nth(0), "approve")
        await today.until(5)
        assert (await asking).action == "approve"


async def test_what_the_service_reminds_of_too_is_said_once() -> None:
    async with day(OtherService) as today:
        asking = today.ask(1, 2)
        for hour in (1, 2):
            await today.until(hour)
            today.service.remind(today.service.nth(0))
            await today.until(hour + 0.5)
        assert today.reminded == [1, 2]
        today.service.expire(today.service.nth(0))
        await today.until(4)
        assert (await asking).expired
        assert today.said[-1] == "expired"


async def test_one_time_is_as_good_as_a_list() -> None:
    async with day(Quiet) as today:
        asking = today.ask(1)
        await today.until(3)
        assert today.reminded == [1]
        today.service.decide(today.service.nth(0), "approve")
        await today.until(4)
        assert (await asking).action == "approve"
