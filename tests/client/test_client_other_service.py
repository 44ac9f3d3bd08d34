"""The client against a service that is not ours, over real sockets, with its bugs switched on one by one.

However the service misbehaves, the client ends with what the service says in the end, or with an error that
names the trouble, and never with an answer that nobody gave. Time runs a thousand times as fast on both sides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit import other_service_bugs as bugs
from kit.other_service import KEY, SECRET, OtherCase, OtherService, QuickClock, Reply, listening
from kit.patience import PATIENCE
from kit.running_service import listening as served

from askfirst.client import CallbackReceiver, HitlClient, ReviewOutcome
from askfirst.delivery.base import Notice
from askfirst.errors import (
    InvalidOffer,
    ReviewContradiction,
    ReviewError,
    ReviewRefused,
    ReviewUnreachable,
    ReviewUnreadable,
)

pytestmark = pytest.mark.anyio

HOUR, MINUTES = 3600.0, 300.0
GIVEN_UP = MINUTES + 1200.0
"""By then a client that hears nothing of such a case has said so."""
ANSWER = {"feedback": "only to the old address"}


@dataclass
class Rig:
    """A service with its bug, a client, and what the person was told."""

    service: OtherService
    client: HitlClient
    clock: QuickClock
    told: list[Notice] = field(default_factory=list[Notice])
    news: asyncio.Queue[Notice] = field(default_factory=asyncio.Queue[Notice])

    def ask(self, timeout: float = PATIENCE, **json: Any) -> asyncio.Task[Any]:
        """Order something, and wait for what comes of it; the order itself has so many seconds to be answered."""
        return asyncio.create_task(
            self.client.request(
                "POST", f"{self.service.url}/orders", json={"order": 7, **json}, timeout=timeout
            )
        )

    async def outcome(self, decide: Callable[[OtherCase], object] | None = None) -> Any:
        """What comes of an order, about which the person decides as soon as the agent waits."""
        asking = self.ask()
        if decide is not None:
            decide(await self.service.case())
        async with asyncio.timeout(PATIENCE):
            return await asking

    def approve(self, case: OtherCase) -> None:
        self.service.decide(case, "approve", ANSWER)

    @property
    def kinds(self) -> list[str]:
        return [notice.kind for notice in self.told]


@asynccontextmanager
async def rig(service: type[OtherService] = OtherService, **options: Any) -> AsyncGenerator[Rig]:
    """A client and a service of the given kind; ``options`` are the client's."""
    clock = QuickClock()

    async def tell(notice: Notice) -> None:
        at.told.append(notice)
        at.news.put_nowait(notice)

    async with (
        listening(service(clock.now)) as served,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=1.0) as http,
        HitlClient(http, deliver=tell, clock=clock, **options) as client,
    ):
        at = Rig(served, client, clock)
        yield at


def is_the_truth(outcome: Any, case: OtherCase) -> None:
    """The outcome is what the service has, and not more."""
    assert isinstance(outcome, ReviewOutcome)
    assert (outcome.status, outcome.case_id) == (case.status, case.case_id)
    if case.status == "completed":
        assert (outcome.action, outcome.data) == (
            case.facts["result"]["action"],
            case.facts["result"]["data"],
        )


def lasting(bug: type[Any]) -> type[Any]:
    """The same bug, for ever, in a case that is open for a few minutes."""
    return type(f"Lasting{bug.__name__}", (bug,), {"first": None, "lifetime": MINUTES})


def made(bug: type[Any], **attributes: Any) -> type[Any]:
    return type(bug.__name__, (bug,), attributes)


# A service that keeps to the protocol, though it is not ours.

TRANSPORTS = {"events": OtherService, "polls": bugs.Polls}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("end", ["completed", "expired", "cancelled"])
async def test_every_end_by_every_transport(transport: str, end: str) -> None:
    async with rig(TRANSPORTS[transport]) as at:
        ends = {
            "completed": at.approve,
            "expired": at.service.expire,
            "cancelled": lambda case: at.service.cancel(case, "sold out"),
        }
        outcome = await at.outcome(ends[end])
        case = at.service.nth(0)
        is_the_truth(outcome, case)
        assert (outcome.expired, outcome.cancelled) == (end == "expired", end == "cancelled")
        assert outcome.reason == ("sold out" if end == "cancelled" else None)
        assert outcome.default_action == ("skip" if end == "expired" else None)
        first = at.told[0]
        assert (first.kind, first.review_url) == ("review", case.offer["review_url"])
        assert "Ship order 7?" in first.text
    assert at.kinds[1:] == (
        [] if end == "completed" else [end]
    )  # told beside, and at the latest when we close


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_page_is_never_fetched_and_nothing_is_ever_answered(transport: str) -> None:
    """Though the client could: it has the link, and the token with which a button's press is submitted."""
    async with rig(TRANSPORTS[transport]) as at:
        submit = {"submit_url": f"{at.service.url}/submit", "submit_token": "t" * 43}
        at.service.fields = {**submit, "reminder_at": at.service.stamp(at.clock.now() + 60)}
        asking = at.ask()
        await at.service.until(
            lambda: at.clock.now() > at.service.nth(0).created + 300 if at.service.cases else False
        )
        case = at.service.nth(0)
        at.service.expire(case)
        assert (await asking).expired
        asked = {(each.method, each.path.replace(case.case_id, "id")) for each in at.service.requests}
        assert asked <= {("POST", "/orders"), ("GET", "/cases/id"), ("GET", "/cases/id/events")}


async def test_what_is_no_202_is_handed_back_as_it_is() -> None:
    async with rig() as at:
        answer = await at.client.request("GET", f"{at.service.url}/status")
        assert answer.status_code == 200
        assert answer.json() == {"fine": True}
        assert (await at.client.request("GET", f"{at.service.url}/nowhere")).status_code == 404
        assert at.told == []


async def test_a_202_of_another_sort_is_handed_back_as_it_is() -> None:
    class Asynchronous(OtherService):
        async def opened(self, case: OtherCase) -> Reply:
            return Reply.of({"status": "accepted", "job": 7}, 202)

    async with rig(Asynchronous) as at:
        answer = await at.outcome()
        assert (answer.status_code, answer.json()) == (202, {"status": "accepted", "job": 7})
        assert at.told == []


async def test_a_stream_is_followed_and_the_case_hardly_polled() -> None:
    async with rig() as at:
        asking = at.ask()
        case = await at.service.case()
        await asyncio.sleep(0)
        at.service.open_page(case)
        at.service.work_on(case, current_step=2, total_steps=3, completed_fields=4, total_fields=8)
        at.approve(case)
        is_the_truth(await asking, case)
        assert case.streams == 1
        assert case.last_event_ids == [None]


async def test_polls_are_as_far_apart_as_the_service_asks() -> None:
    async with rig(bugs.Polls) as at:
        asking = at.ask()
        case = await at.service.case()
        begin = at.clock.now()
        await at.service.until(lambda: case.polls == 5)
        assert at.clock.now() - begin >= 3 * 30
        at.approve(case)
        is_the_truth(await asking, case)
        asked = [each for each in at.service.requests if each.path == f"/cases/{case.case_id}"]
        assert [each.headers.get("if-none-match") for each in asked[1:4]] == ['"v1"'] * 3


# A 202 that cannot be used.

BROKEN: dict[str, dict[str, Any]] = {
    **{f"no {name}": {name: None} for name in ("case_id", "review_url", "poll_url", "type", "prompt")},
    "an unknown type": {"type": "vote"},
    "a prompt that is too long": {"prompt": "x" * 501},
    "a prompt that is no text": {"prompt": {"text": "Ship?"}},
    "an id that is a path": {"case_id": "../../admin"},
    "a page over plain http": {"review_url": "http://service.example/review?token=t"},
    "a page that is a script": {"review_url": "javascript:alert(1)"},
    "polls over plain http": {"poll_url": "http://service.example/cases/1"},
    "polls at another host": {"poll_url": "https://elsewhere.example/cases/1"},
    "polls at another port": {"poll_url": "http://127.0.0.1:1/cases/1"},
    "polls at the same host by another name": {"poll_url": "http://localhost:1/cases/1"},
    "a poll address with a user in it": {"poll_url": "https://127.0.0.1@elsewhere.example/cases/1"},
    "events at another host": {"events_url": "https://elsewhere.example/events"},
    "submits at another host": {"submit_url": "https://elsewhere.example/submit", "submit_token": "t" * 43},
    "a submit address without its token": {"submit_url": "https://127.0.0.1/submit"},
}
ODD: dict[str, dict[str, Any]] = {
    **{f"no {name}": {name: None} for name in ("created_at", "expires_at", "spec_version")},
    "an unknown version": {"spec_version": "9.9"},
    "a time that is none": {"expires_at": "tomorrow"},
    "an action that is none": {"default_action": "launch"},
    "a reminder that is no time": {"reminder_at": ["soon"]},
    "events at a number": {"events_url": 7},
    "a field that does not exist": {"approved": True},
    "a form with fields and steps": {"context": {"form": {"fields": [], "steps": []}}},
    "inline actions that are a text": {"inline_actions": "approve", "submit_url": 7, "submit_token": "short"},
    "a policy that is none": {"verification_policy": {"mode": "sometimes"}},
}


@pytest.mark.parametrize("fault", ODD)
async def test_an_odd_offer_is_waited_for_all_the_same(fault: str) -> None:
    class Odd(OtherService):
        def wanted(self, case: OtherCase) -> dict[str, Any]:
            told = super().wanted(case)
            hitl = {**told["hitl"], **ODD[fault]}
            return {**told, "hitl": {name: value for name, value in hitl.items() if value is not None}}

    async with rig(Odd) as at:
        is_the_truth(await at.outcome(at.approve), at.service.nth(0))
        assert at.told[0].buttons == ()


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_broken_offer_is_refused_and_nobody_is_told(fault: str) -> None:
    class Broken(OtherService):
        def wanted(self, case: OtherCase) -> dict[str, Any]:
            told = super().wanted(case)
            hitl = {**told["hitl"], **BROKEN[fault]}
            return {**told, "hitl": {name: value for name, value in hitl.items() if value is not None}}

    async with rig(Broken) as at:
        with pytest.raises(InvalidOffer) as caught:
            await at.outcome()
        (name,) = list(BROKEN[fault])[:1]
        assert any(path.startswith((f"hitl.{name}", "hitl")) for path in caught.value.faults)
        assert at.told == []
        assert [asked.path for asked in at.service.requests] == ["/orders"]
        case = at.service.nth(0)
        token = case.offer["review_url"].partition("token=")[2]
        assert token not in f"{caught.value!r} {caught.value} {caught.value.faults}"


async def test_everything_wrong_is_listed_at_once() -> None:
    async with rig() as at:
        at.service.fields = {
            "poll_url": "https://elsewhere.example/1",
            "prompt": "x" * 501,
            "type": "vote",
            "case_id": "../1",
        }
        with pytest.raises(InvalidOffer) as caught:
            await at.outcome()
        assert {"hitl.poll_url", "hitl.prompt", "hitl.type", "hitl.case_id"} <= set(caught.value.faults)


@pytest.mark.parametrize("hitl", [[], "yes", 7, True], ids=repr)
async def test_a_hitl_that_is_no_object_is_refused(hitl: Any) -> None:
    class Odd(OtherService):
        def wanted(self, case: OtherCase) -> dict[str, Any]:
            return {**super().wanted(case), "hitl": hitl}

    async with rig(Odd) as at:
        with pytest.raises(InvalidOffer):
            await at.outcome()
        assert at.told == []


# Polls that go wrong for a while.

PASSING = [
    bugs.PollsAreCut,
    bugs.PollsEndEarly,
    bugs.PollsAreDropped,
    bugs.PollsFail,
    bugs.PollsHang,
    bugs.PollsDrip,
    bugs.PollsAreHuge,
    bugs.NotModifiedAtFirst,
    made(bugs.PollsSay, says=b"this is not JSON"),
    made(bugs.PollsSay, says=b""),
    made(bugs.PollsSay, says=b"[]"),
    made(bugs.PollsSay, says=b'"completed"'),
    made(bugs.PollsSay, says={"status": "approved"}),
    made(bugs.PollsSay, says={"result": None}),
    made(bugs.PollsSay, says={"result": {"data": {}}}),
    made(bugs.PollsSay, says={"status": None}),
]


def by_docstring(bug: type[Any]) -> str:
    said = getattr(bug, "says", None)
    return bug.__name__ if said is None else f"{bug.__name__} {said!r}"


@pytest.mark.parametrize("bug", PASSING, ids=by_docstring)
async def test_bad_polls_are_outlived(bug: type[Any]) -> None:
    async with rig(bug) as at:
        outcome = await at.outcome(at.approve)
        case = at.service.nth(0)
        is_the_truth(outcome, case)
        assert case.polls > 3


@pytest.mark.parametrize(
    "says", [{"completed_at": None}, {"verdict": "yes"}, {"case_id": None}, {"responded_by": "Ada"}], ids=repr
)
async def test_odd_polls_are_taken_at_once(says: dict[str, Any]) -> None:
    async with rig(lasting(made(bugs.PollsSay, says=says))) as at:
        outcome = await at.outcome(at.approve)
        is_the_truth(outcome, at.service.nth(0))
        assert at.service.nth(0).polls <= 3


LASTING = [
    bugs.PollsAreCut,
    bugs.PollsFail,
    bugs.PollsHang,
    bugs.PollsDrip,
    bugs.NotModifiedAtFirst,
    made(bugs.PollsSay, says=b"this is not JSON"),
    made(bugs.PollsSay, says={"result": None}),
]


@pytest.mark.parametrize("bug", LASTING, ids=by_docstring)
async def test_bad_polls_for_ever_end_in_an_error(bug: type[Any]) -> None:
    """Silence counts when the case is past its time, nonsense sooner; after no more polls than a service can bear."""
    async with rig(lasting(bug)) as at:
        begin = at.clock.now()
        with pytest.raises((ReviewUnreachable, ReviewUnreadable)) as caught:
            await at.outcome(at.approve)
        if caught.type is ReviewUnreachable:
            assert at.clock.now() - begin >= MINUTES
        if (
            bug is not bugs.PollsDrip
        ):  # what never ends is cut for its length or for its time, whichever is first
            assert (caught.type is ReviewUnreadable) is issubclass(bug, bugs.PollsSay)
        assert 1 < at.service.nth(0).polls <= GIVEN_UP / 10


# What must be told apart, and what cannot be true.


@pytest.mark.parametrize("status", [401, 403, 404, 410])
async def test_refusals_are_told_apart(status: int) -> None:
    async with rig(made(bugs.PollsRefuse, status=status)) as at:
        with pytest.raises(ReviewRefused) as caught:
            await at.outcome(at.approve)
        assert caught.value.http_status == status
        case = at.service.nth(0)
        assert case.polls == 1


async def test_being_told_to_slow_down_for_ever_ends_in_an_error() -> None:
    async with rig(lasting(bugs.PollsAreRateLimited)) as at:
        with pytest.raises(ReviewUnreachable, match="429"):
            await at.outcome(at.approve)
        case = at.service.nth(0)
        assert case.polls <= GIVEN_UP / 120 + 1


@pytest.mark.parametrize(
    "says",
    ["soon", "", "-5", "0", "1e9", "nan", "999999999999", "31536000", "Mon, 99 Foo 2026 00:00:00 GMT", "1.5"],
)
async def test_any_retry_after_is_survived(says: str) -> None:
    async with rig(made(bugs.RetryAfter, says=says)) as at:
        asking = at.ask()
        case = await at.service.case()
        begin, polls = at.clock.now(), case.polls
        await at.service.until(lambda: case.polls == polls + 2)
        assert at.clock.now() - begin >= 20, "it polls more often than a poll may"
        at.approve(case)
        is_the_truth(await asking, case)


async def test_retry_after_may_be_a_date() -> None:
    async with rig(bugs.RetryAfterDate) as at:
        asking = at.ask()
        case = await at.service.case()
        begin, polls = at.clock.now(), case.polls
        await at.service.until(lambda: case.polls == polls + 2)
        assert at.clock.now() - begin >= 55
        at.approve(case)
        is_the_truth(await asking, case)


async def test_a_poll_of_another_case_is_a_contradiction() -> None:
    async with rig(made(bugs.PollsSay, says={"case_id": "case-of-another"})) as at:
        with pytest.raises(ReviewContradiction, match="case"):
            await at.outcome(at.approve)


@pytest.mark.parametrize("bug", [bugs.TakesItBack, bugs.TakesItBackWhenAsked])
async def test_completed_and_then_pending_is_refused(bug: type[Any]) -> None:
    async with rig(bug) as at:
        with pytest.raises(ReviewContradiction, match=r"completed, and now .* pending"):
            await at.outcome(at.approve)


async def test_a_case_that_goes_backwards_is_waited_for_all_the_same() -> None:
    async with rig(bugs.GoesBack) as at:
        outcome = await at.outcome(at.approve)
        is_the_truth(outcome, at.service.nth(0))
        assert at.service.nth(0).polls > 4


async def test_tags_that_lie_hide_nothing_for_good() -> None:
    async with rig(bugs.TagsLie) as at:
        is_the_truth(await at.outcome(at.approve), at.service.nth(0))


async def test_a_redirect_to_another_host_is_not_followed() -> None:
    async with listening(OtherService()) as elsewhere:
        for bug in (lasting(bugs.PollsRedirect), bugs.StreamsRedirect):
            async with rig(made(bug, target=elsewhere.url.replace("127.0.0.1", "localhost"))) as at:
                try:
                    is_the_truth(await at.outcome(at.approve), at.service.nth(0))
                    assert isinstance(at.service, bugs.StreamsRedirect)
                except ReviewError:
                    assert isinstance(at.service, bugs.PollsRedirect)
        assert elsewhere.connections == 0


async def test_a_service_that_never_answers_the_request_itself_is_the_callers_to_handle() -> None:
    class Mute(OtherService):
        async def opened(self, case: OtherCase) -> Reply:
            await asyncio.Event().wait()
            return Reply()

    async with rig(Mute) as at:
        with pytest.raises(httpx2.ReadTimeout):
            await at.ask(timeout=1.0)
        assert at.told == []


# Clocks that disagree.


@pytest.mark.parametrize("hours", [-30, -3, 3, 30])
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_service_whose_clock_is_wrong_is_believed_about_its_cases(transport: str, hours: int) -> None:
    class Skewed(TRANSPORTS[transport]):
        def __init__(self, now: Callable[[], float]) -> None:
            super().__init__(lambda: now() + hours * HOUR)

    async with rig(Skewed) as at:
        is_the_truth(await at.outcome(at.approve), at.service.nth(0))


# Streams.

BAD_STREAMS = [
    bugs.StreamsAreCut,
    bugs.StreamsEndInAnEvent,
    bugs.StreamsAreSilent,
    bugs.StreamsStopHalfway,
    bugs.StreamsNeverBegin,
    bugs.StreamsOnlyBeat,
    bugs.StreamsNeverEndALine,
    bugs.StreamsAskForPatience,
    bugs.StreamsFail,
    made(bugs.StreamsFail, status=404),
    made(bugs.StreamsFail, status=429),
    bugs.StreamsArePages,
    bugs.EventsAreMuddled,
    bugs.EventsMisnameTheirState,
    bugs.EventsRepeatThemselves,
]


@pytest.mark.parametrize("end", ["completed", "cancelled"])
@pytest.mark.parametrize("bug", BAD_STREAMS, ids=lambda bug: f"{bug.__name__} {getattr(bug, 'status', '')}")
async def test_whatever_a_stream_says_the_outcome_is_the_truth(bug: type[Any], end: str) -> None:
    async with rig(bug) as at:
        asking = at.ask()
        case = await at.service.case()
        await at.service.until(lambda: case.polls > 0 and case.streams > 0)
        assert not asking.done(), "nobody has decided anything yet"
        at.approve(case) if end == "completed" else at.service.cancel(case, "sold out")
        async with asyncio.timeout(PATIENCE):
            is_the_truth(await asking, case)


async def test_a_stream_that_was_cut_goes_on_where_it_was() -> None:
    async with rig(made(bugs.StreamsAreCut, first=1)) as at:
        asking = at.ask()
        case = await at.service.case()
        await at.service.until(lambda: case.streams == 2)
        assert case.last_event_ids[:2] == [None, "1"]
        at.approve(case)
        is_the_truth(await asking, case)


async def test_muddled_events_are_told_once_and_in_their_order() -> None:
    async with rig(bugs.EventsAreMuddled) as at:
        asking = at.ask()
        case = await at.service.case()
        await at.service.until(lambda: case.polls > 0)
        at.approve(case)
        is_the_truth(await asking, case)
    assert at.kinds.count("review") == 1
    assert at.kinds.count("reminder") <= 1
    assert [
        notice.body for notice in at.told if "opened" in notice.body
    ] == []  # that is older than what is known


async def test_an_end_of_another_case_ends_nothing() -> None:
    async with rig(bugs.EventsAreOfAnother) as at:
        try:
            outcome = await at.outcome(lambda case: at.service.cancel(case, "sold out"))
        except ReviewContradiction:
            return
        is_the_truth(outcome, at.service.nth(0))


# Rounds.


@pytest.mark.parametrize("bug", [bugs.RoundsGoInCircles, bugs.RoundsBiteTheirTail])
async def test_rounds_in_a_circle_are_a_contradiction(bug: type[Any]) -> None:
    async with rig(bug) as at:
        with pytest.raises(ReviewContradiction, match="in circles"):
            await at.outcome()


async def test_a_round_that_is_not_there_leaves_the_last_that_is() -> None:
    async with rig(bugs.RoundsLeadNowhere) as at:
        outcome = await at.outcome()
        is_the_truth(outcome, at.service.nth(0))
        assert (outcome.action, outcome.rounds) == ("edit", 1)


async def test_rounds_without_end_are_a_contradiction() -> None:
    async with rig(bugs.RoundsNeverEnd) as at:
        with pytest.raises(ReviewContradiction, match="100 rounds"):
            await at.outcome()


async def test_rounds_of_a_strange_service_are_followed() -> None:
    async with rig() as at:
        asking = at.ask()
        first = await at.service.case()
        following = at.service.open(previous_case_id=first.case_id)
        at.service.decide(first, "edit", {"feedback": "shorter"}, next_case_id=following.case_id)
        assert (await at.news.get()).round == 1
        second = await at.news.get()
        assert (second.case_id, second.round) == (following.case_id, 2)
        assert "Round 2" in second.text
        at.approve(following)
        outcome = await asking
        is_the_truth(outcome, following)
        assert outcome.rounds == 2


# Reminders.


async def test_reminders_in_the_past_twice_and_in_disorder_are_sent_once_each() -> None:
    async with rig(bugs.Polls) as at:
        now = at.clock.now()
        soon, later = at.service.stamp(now + 300), at.service.stamp(now + 600)
        at.service.fields = {"reminder_at": [later, soon, later, at.service.stamp(now - HOUR), soon]}
        asking = at.ask()
        case = await at.service.case()
        await at.service.until(lambda: at.clock.now() > now + 900)
        at.approve(case)
        is_the_truth(await asking, case)
        assert at.kinds.count("reminder") in (2, 3)  # what is past when the case is opened may count as due


# Callbacks.


@asynccontextmanager
async def called(bug: type[OtherService] = bugs.Polls) -> AsyncGenerator[Rig]:
    """A client that can be called back, and whose polls are five minutes apart."""
    async with (
        served(lambda url: CallbackReceiver(SECRET, url=f"{url}/webhooks/hitl")) as (_, receiver),
        rig(bug, callback=receiver, poll_interval=300.0) as at,
    ):
        yield at


async def test_a_callback_brings_the_outcome_at_once() -> None:
    async with called() as at:
        asking = at.ask()
        await at.service.until(lambda: len(at.service.cases) == 1)
        case = at.service.nth(0)
        assert case.callback_url is not None
        at.approve(case)
        await at.service.call_back(case)
        is_the_truth(await asking, case)
        assert (at.service.calls, case.polls) == ([200], 1)


@pytest.mark.parametrize("bug", [bugs.CallsAreForged, bugs.CallsAreUnsigned])
async def test_a_forged_callback_is_refused_and_wakes_nobody(bug: type[OtherService]) -> None:
    async with called(bug) as at:
        asking = at.ask()
        await at.service.until(lambda: len(at.service.cases) == 1)
        case = at.service.nth(0)
        at.approve(case)
        await at.service.call_back(case)
        assert (at.service.calls, case.polls) == ([401], 0)
        is_the_truth(await asking, case)  # by its poll, later


async def test_a_callback_that_lies_only_makes_the_client_ask() -> None:
    async with called() as at:
        asking = at.ask()
        await at.service.until(lambda: len(at.service.cases) == 1)
        case = at.service.nth(0)
        lie = (
            f'{{"event": "review.completed", "case_id": "{case.case_id}", "result": {{"action": "reject"}}}}'
        )
        assert await at.service.post(case, lie.encode(), at.service.signature(lie.encode())) == 200
        await at.service.until(lambda: case.polls > 0)
        assert not asking.done()
        at.approve(case)
        is_the_truth(await asking, case)


async def test_a_callback_that_comes_again_and_late_changes_nothing() -> None:
    async with called() as at:
        asking = at.ask()
        await at.service.until(lambda: len(at.service.cases) == 1)
        case = at.service.nth(0)
        at.approve(case)
        for _ in range(3):
            await at.service.call_back(case)
        is_the_truth(await asking, case)
        polls = case.polls
        await at.service.call_back(case)
        assert at.service.calls == [200] * 4
        assert case.polls == polls


async def test_a_callback_for_a_case_of_nobody_is_not_taken() -> None:
    async with called() as at:
        asking = at.ask()
        await at.service.until(lambda: len(at.service.cases) == 1)
        stranger = at.service.open({"hitl_callback_url": at.service.nth(0).callback_url})
        at.approve(stranger)
        await at.service.call_back(stranger)
        assert at.service.calls == [404]
        assert not asking.done()
        at.approve(at.service.nth(0))
        is_the_truth(await asking, at.service.nth(0))


async def test_lost_callbacks_are_made_up_for_by_polls() -> None:
    async with called() as at:
        is_the_truth(await at.outcome(at.approve), at.service.nth(0))
        assert at.service.calls == []


# What is said about it.


async def test_no_secret_is_in_any_log_or_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    for bug in (made(bugs.PollsRefuse, status=401), bugs.TakesItBack, bugs.PollsSay, bugs.StreamsAreCut):
        async with rig(bug) as at:
            try:
                said.append(repr(await at.outcome(at.approve)))
            except ReviewError as error:
                said.append(f"{error} {error!r}")
            token = at.service.nth(0).offer["review_url"].partition("token=")[2]
            text = caplog.text + " ".join(said)
            for secret in (token, KEY, ANSWER["feedback"]):
                assert secret not in text


# No bug is forgotten.


def test_every_bug_is_tried() -> None:
    """Each is named in this module."""
    source = Path(__file__).read_text()
    every = {
        name for name, each in vars(bugs).items() if isinstance(each, type) and issubclass(each, OtherService)
    }
    assert [
        name for name in sorted(every - {"OtherService", "Streams"}) if f"bugs.{name}" not in source
    ] == []
