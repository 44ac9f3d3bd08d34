"""The client reads what the protocol's checklist reads and no more: against services that say the least, say more
than is known, or say it oddly, through every way there is to wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kit.little_services import (
    Bare,
    BareWithEvents,
    Chatty,
    HandsOnThePress,
    Inline,
    NamesAnId,
    NamesByList,
    NamesTheChannel,
    Unreadable,
)
from kit.other_service import KEY, SECRET, OtherCase, OtherService, QuickClock, listening
from kit.patience import PATIENCE
from kit.running_service import listening as served
from kit.warm_python import warm_python

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.client import CallbackReceiver, HitlClient, HitlClientSync, ReviewOutcome
from askfirst.delivery.base import Notice
from askfirst.errors import ReviewUnreadable

pytestmark = pytest.mark.anyio

QUICK: dict[str, Any] = {"poll_interval": 0.02, "min_poll_interval": 0.02}
PRESS: dict[str, Any] = {
    "submitted_via": "telegram_inline_button",
    "submitted_by": {"platform": "telegram", "platform_user_id": "123456789", "display_name": "Alex"},
}


class Person:
    """Who is asked, and remembers it."""

    def __init__(self) -> None:
        self.told: list[Notice] = []
        self.is_asked = asyncio.Event()

    async def __call__(self, notice: Notice) -> None:
        self.told.append(notice)
        self.is_asked.set()


@asynccontextmanager
async def rig(
    service: type[OtherService], **options: Any
) -> AsyncGenerator[tuple[OtherService, HitlClient, Person]]:
    person = Person()
    async with (
        listening(service()) as there,
        HitlClient(deliver=person, token=KEY, **{**QUICK, **options}) as client,
    ):
        yield there, client, person


def order(client: HitlClient, service: OtherService, **options: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(client.request("POST", f"{service.url}/orders", json={"order": 7}, **options))


def approve(service: OtherService, case: OtherCase) -> None:
    service.decide(case, "approve", {"feedback": "fine"})


def expire(service: OtherService, case: OtherCase) -> None:
    service.expire(case)


def cancel(service: OtherService, case: OtherCase) -> None:
    service.cancel(case, "withdrawn")


ENDS: dict[str, tuple[Callable[[OtherService, OtherCase], None], str, str]] = {
    "approved": (approve, "completed", "approve"),
    "expired": (expire, "expired", "skip"),
    "cancelled": (cancel, "cancelled", "cancelled"),
}


def is_right(outcome: Any, end: str) -> None:
    _, status, action = ENDS[end]
    assert isinstance(outcome, ReviewOutcome)
    assert (outcome.status, outcome.action) == (status, action)
    assert outcome.data == ({"feedback": "fine"} if end == "approved" else {})


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("service", [Bare, BareWithEvents, Chatty])
async def test_a_case_is_waited_for(service: type[OtherService], end: str) -> None:
    async with rig(service) as (there, client, person), asyncio.timeout(PATIENCE):
        asking = order(client, there)
        ENDS[end][0](there, await there.case())
        is_right(await asking, end)
        assert person.told[0].review_url == there.nth(0).offer["review_url"]


async def test_the_five_fields_are_enough() -> None:
    async with rig(Bare) as (there, client, person), asyncio.timeout(PATIENCE):
        asking = order(client, there)
        case = await there.case()
        assert set(there.wanted(case)) == {"hitl"}
        assert set(there.wanted(case)["hitl"]) == {"case_id", "review_url", "poll_url", "type", "prompt"}
        approve(there, case)
        outcome = await asking
        assert (outcome.more, outcome.offer_more) == ({}, {})
        (notice,) = [each for each in person.told if each.kind == "review"]
        assert notice.expires_at is None  # the service named no time, so none is told
        assert "Ship order 7?" in notice.body


async def test_what_is_not_known_is_kept_and_ignored() -> None:
    async with rig(Chatty) as (there, client, _), asyncio.timeout(PATIENCE):
        there.fields |= {"default_action": "reject", "context": {"form": {"fields": [], "x_new": 1}}}
        asking = order(client, there)
        case = await there.case()
        there.decide(case, "approve", {"own": {"x": 1}}, responded_by={"name": "Alex"}, next_round="none")
        outcome = await asking
        assert outcome.data == {"own": {"x": 1}}  # the person's data are as they came
        assert outcome.responded_by is not None
        assert outcome.responded_by.name == "Alex"
        new = {"in": "0.9", "x_new": {"in": "0.9"}}
        assert outcome.more["x_new"]
        assert outcome.more["next_round"] == "none"
        assert outcome.more["result"] == outcome.more["responded_by"] == {"x_new": {"in": "0.9"}}
        assert outcome.offer_more == {"x_new": {"in": "0.9"}}
        assert new not in outcome.more.values()


@pytest.mark.parametrize("service", [BareWithEvents, Chatty])
async def test_an_event_alone_ends_the_wait(service: type[OtherService]) -> None:
    """Polls come once in five minutes then: it is the event that tells."""
    async with rig(service, poll_interval=300.0) as (there, client, _), asyncio.timeout(PATIENCE):
        asking = order(client, there)
        await there.until(lambda: bool(there.cases) and there.nth(0).streams > 0)
        approve(there, there.nth(0))
        is_right(await asking, "approved")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("service", [Bare, Chatty])
async def test_a_callback_wakes_the_wait(service: type[OtherService], end: str) -> None:
    async with served(lambda url: CallbackReceiver(SECRET, url=f"{url}/hook")) as (url, receiver):
        made = type("Silent", (service,), {"follows": False})
        async with (
            rig(made, callback=receiver, poll_interval=300.0) as (there, client, person),
            asyncio.timeout(PATIENCE),
        ):
            asking = order(client, there)
            await person.is_asked.wait()
            case = there.nth(0)
            assert case.callback_url == f"{url}/hook"
            ENDS[end][0](there, case)
            await there.call_back(case)
            is_right(await asking, end)
            assert there.calls == [200]


_DIES = """
import asyncio, sys
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.client import HitlClient, durable
durable.CLAIM_SECONDS = 0.5
async def tell(notice):
    print("told", flush=True)
async def main(url, store, key):
    async with checkpointer_from_url(store) as kept, HitlClient(
        deliver=tell, token=key, store=kept, poll_interval=0.02, min_poll_interval=0.02
    ) as client:
        await client.request("POST", url, json={"order": 7}, key="order-7")
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("service", [Bare, BareWithEvents, Chatty])
async def test_a_wait_goes_on_after_a_crash(service: type[OtherService], tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/waits.db"
    async with listening(service()) as there, asyncio.timeout(PATIENCE):
        dying = await asyncio.create_subprocess_exec(
            *warm_python(), "-c", _DIES, f"{there.url}/orders", store, KEY, stdout=asyncio.subprocess.PIPE
        )
        assert dying.stdout is not None
        assert await dying.stdout.readline() == b"told\n"
        await there.case()
        dying.kill()
        await dying.wait()
        approve(there, there.nth(0))
        async with (
            checkpointer_from_url(store) as kept,
            HitlClient(deliver=Person(), token=KEY, store=kept, **QUICK) as client,
        ):
            ended = [each async for each in client.resume_waits()]
        ((key, outcome),) = ended
        assert key == "order-7"
        is_right(outcome, "approved")
        assert len(there.cases) == 1
        assert bool(outcome.offer_more) is (service is Chatty)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("service", [Bare, BareWithEvents, Chatty])
async def test_a_script_waits_in_the_same_way(service: type[OtherService], end: str) -> None:
    told: list[Notice] = []

    def run(url: str) -> Any:
        with HitlClientSync(deliver=told.append, token=KEY, **QUICK) as client:
            return client.request("POST", f"{url}/orders", json={"order": 7})

    async with listening(service()) as there, asyncio.timeout(PATIENCE):
        asking = asyncio.create_task(asyncio.to_thread(run, there.url))
        ENDS[end][0](there, await there.case())
        is_right(await asking, end)
        assert told[0].review_url == there.nth(0).offer["review_url"]


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("service", [HandsOnThePress, NamesTheChannel, NamesAnId, NamesByList])
async def test_an_inline_answer_ends_the_wait_however_it_is_signed(
    service: type[Inline], follows: bool
) -> None:
    made = type(service.__name__, (service,), {"follows": follows})
    async with rig(made) as (there, client, person), asyncio.timeout(PATIENCE):
        asking = order(client, there)
        case = await there.case()
        await person.is_asked.wait()
        pressed = await client.submit(case.case_id, "approve", **PRESS)
        assert pressed.kind == "done"
        outcome = await asking
        assert (outcome.status, outcome.action) == ("completed", "approve")
        assert outcome.responded_by is None  # nothing of it is a name or an address of the protocol's
        told_by = case.facts["responded_by"]
        kept = (
            {name: each for name, each in told_by.items() if each} if isinstance(told_by, dict) else told_by
        )
        assert outcome.more["responded_by"] in (told_by, kept)
        assert json.dumps(outcome.more)


async def test_answers_that_cannot_be_read_end_the_wait_with_an_error() -> None:
    clock = QuickClock()
    async with (
        listening(Unreadable(clock.now)) as there,
        HitlClient(deliver=Person(), token=KEY, clock=clock) as client,
        asyncio.timeout(PATIENCE),
    ):
        begun = clock.now()
        with pytest.raises(ReviewUnreadable) as caught:
            await client.request("POST", f"{there.url}/orders", json={"order": 7})
        case = there.nth(0)
        assert caught.value.case_id == case.case_id
        assert "could not be read" in str(caught.value)
        assert case.polls == 6
        assert clock.now() - begun < 86_400  # long before the case's time is up


async def test_a_wait_that_could_not_be_read_can_be_gone_on_with(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/waits.db"
    async with (
        listening(Unreadable()) as there,
        asyncio.timeout(PATIENCE),
        checkpointer_from_url(store) as kept,
        HitlClient(deliver=Person(), token=KEY, store=kept, **QUICK) as client,
    ):
        with pytest.raises(ReviewUnreadable):
            await order(client, there, key="order-7")
        there.poll = lambda case, asked: OtherService.poll(there, case, asked)  # type: ignore[method-assign]
        approve(there, there.nth(0))
        outcome = await order(client, there, key="order-7")
        is_right(outcome, "approved")
        assert len(there.cases) == 1


async def test_now_and_then_an_answer_may_be_unreadable() -> None:
    class Stumbles(Bare):
        async def poll(self, case: OtherCase, asked: Any) -> Any:
            if case.polls % 6:
                return await Unreadable.poll(self, case, asked)  # type: ignore[arg-type]
            if case.polls > 20:
                approve(self, case)
            return await super().poll(case, asked)

        nonsense = Unreadable.nonsense[:5]

    async with rig(Stumbles) as (there, client, _), asyncio.timeout(PATIENCE):
        is_right(await order(client, there), "approved")
