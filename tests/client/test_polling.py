"""One poll, and the time between two."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit.client_rig import Person, rig, until
from kit.scripted_server import Said, Scripted, scripted

from askfirst.client import HitlClient
from askfirst.client.connections import Caller
from askfirst.client.polling import (
    MOST_BYTES,
    SLOWEST,
    USUAL,
    Allowance,
    Pace,
    Polled,
    PollFailed,
    poll,
    seconds_of,
)
from askfirst.errors import ReviewContradiction, ReviewRefused
from askfirst.hitl.testing import FakeClock

pytestmark = pytest.mark.anyio

PATH = "/reviews/review_1/status"
PENDING = {"status": "pending", "case_id": "review_1"}
DONE = {
    "status": "completed",
    "case_id": "review_1",
    "completed_at": "2026-01-01T00:00:00Z",
    "result": {"action": "approve", "data": {}},
}


async def ask(server: Scripted, http: httpx2.AsyncClient, **options: Any) -> Polled:
    return await poll(
        http,
        server.url + PATH,
        case_id="review_1",
        now=0.0,
        may_call=lambda url: url.startswith(f"{server.url}/"),
        caller=Caller({"X-Agent": "me"}),
        **options,
    )


async def polled(*said: Said, **options: Any) -> Polled:
    async with scripted() as server, httpx2.AsyncClient() as http:
        server.script[PATH] = list(said)
        return await ask(server, http, **options)


async def test_an_answer_with_its_tag_and_its_advice() -> None:
    found = await polled(Said(200, PENDING, {"ETag": '"1"', "Retry-After": "45"}))
    assert found.answer is not None
    assert (found.answer.status, found.etag, found.retry_after) == ("pending", '"1"', 45.0)


async def test_a_tag_is_sent_back_and_304_means_that_nothing_changed() -> None:
    async with scripted() as server, httpx2.AsyncClient() as http:
        server.script[PATH] = [Said(304, headers={"ETag": '"1"'})]
        found = await ask(server, http, etag='"1"')
        assert found.answer is None
        assert server.heard[0].headers["if-none-match"] == '"1"'
        assert server.heard[0].headers["x-agent"] == "me"


async def test_304_to_one_who_sent_no_tag_is_no_answer() -> None:
    with pytest.raises(PollFailed, match="304"):
        await polled(Said(304))


@pytest.mark.parametrize("status", [401, 403, 404, 410])
async def test_refusals_are_told_apart(status: int) -> None:
    with pytest.raises(ReviewRefused) as caught:
        await polled(Said(status, b"x" * 200_000))
    assert (caught.value.http_status, caught.value.case_id) == (status, "review_1")


@pytest.mark.parametrize("status", [201, 202, 204, 400, 405, 500, 502, 504])
async def test_anything_else_may_be_better_next_time(status: int) -> None:
    with pytest.raises(PollFailed, match=str(status)) as caught:
        await polled(Said(status, headers={"Retry-After": "9"}))
    assert caught.value.demanded is None


@pytest.mark.parametrize("status", [429, 503])
async def test_a_service_in_need_demands_its_time(status: int) -> None:
    with pytest.raises(PollFailed, match=str(status)) as caught:
        await polled(Said(status, headers={"Retry-After": "120"}))
    assert caught.value.demanded == 120.0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no JSON",
        b"[]",
        b'"x"',
        {},
        {**PENDING, "status": "approved"},
        {**DONE, "result": None},
    ],
)
async def test_an_answer_that_cannot_be_used_quotes_nothing(body: Any) -> None:
    with pytest.raises(PollFailed) as caught:
        await polled(Said(200, body))
    assert "approve" not in str(caught.value)


async def test_a_claim_is_remembered_though_it_cannot_be_used() -> None:
    with pytest.raises(PollFailed) as caught:
        await polled(Said(200, {"status": "completed", "case_id": "review_1"}))
    assert caught.value.claimed == "completed"


async def test_an_answer_about_another_case_is_a_contradiction() -> None:
    with pytest.raises(ReviewContradiction):
        await polled(Said(200, {**DONE, "case_id": "review_2"}))


async def test_an_answer_without_end_is_cut_off() -> None:
    with pytest.raises(PollFailed, match="too long"):
        await polled(Said(200, b" " * (MOST_BYTES + 1)))


async def test_nobody_there() -> None:
    async with scripted() as server, httpx2.AsyncClient() as http:
        server.url = "http://127.0.0.1:1"
        with pytest.raises(PollFailed, match="ConnectError"):
            await ask(server, http)


async def test_a_redirect_stays_with_the_service() -> None:
    async with scripted() as server, scripted() as elsewhere, httpx2.AsyncClient() as http:
        elsewhere.script["/x"] = [Said(200, DONE)]
        server.script["/there"] = [Said(200, PENDING)]
        server.script[PATH] = [
            Said(307, headers={"Location": "/there"}),
            Said(302, headers={"Location": f"{elsewhere.url}/x"}),
            Said(301),
        ]
        found = await ask(server, http)
        assert found.answer is not None
        for _ in range(2):
            with pytest.raises(PollFailed, match="redirects"):
                await ask(server, http)
        assert elsewhere.heard == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("30", 30.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("-5", None),
        ("1.5", None),
        ("1e9", None),
        ("nan", None),
        ("soon", None),
        ("", None),
        ("999999999999", None),
        ("٣", None),
        (format_datetime(datetime.fromtimestamp(1090, UTC), usegmt=True), 90.0),
        (format_datetime(datetime.fromtimestamp(900, UTC), usegmt=True), 0.0),
        ("Mon, 99 Foo 2026 00:00:00 GMT", None),
    ],
)
def test_retry_after_in_seconds_as_a_date_and_as_nonsense(text: str | None, seconds: float | None) -> None:
    assert seconds_of(text, 1000.0) == seconds


async def test_a_date_counts_from_the_services_own_time() -> None:
    its = datetime(2030, 1, 1, tzinfo=UTC)
    headers = {
        "Date": format_datetime(its, usegmt=True),
        "Retry-After": format_datetime(its.replace(minute=1), usegmt=True),
    }
    assert (await polled(Said(200, PENDING, headers))).retry_after == 60.0


# The time between two.


def test_the_usual_pace_keeps_within_the_protocols_bounds() -> None:
    pace = Pace.chosen(None, USUAL)
    assert pace.after_answer(None, streaming=False) == 30
    assert pace.after_answer(5, streaming=False) == 30
    assert pace.after_answer(100, streaming=False) == 100
    assert pace.after_answer(9999, streaming=False) == SLOWEST
    assert pace.after_answer(None, streaming=True) == SLOWEST
    assert Pace.chosen(1, USUAL).interval == 30
    assert Pace.chosen(9999, USUAL).interval == SLOWEST


def test_a_quicker_pace_is_a_choice() -> None:
    assert Pace.chosen(None, 1.0).after_answer(30, streaming=False) == 1.0
    assert Pace.chosen(5, 1.0).interval == 5.0
    for odd in (0, -1, 301):
        with pytest.raises(ValueError, match="min_poll_interval"):
            Pace.chosen(None, odd)


def test_failures_are_answered_with_growing_patience() -> None:
    pace = Pace.chosen(None, USUAL)
    longest = [max(pace.after_failure(failures, None) for _ in range(300)) for failures in (1, 2, 3, 9)]
    assert longest[0] <= 60 < longest[1] <= 120 < longest[2] <= 240 < longest[3] <= SLOWEST
    assert min(pace.after_failure(9, None) for _ in range(300)) < 60, "not all at the same time"
    assert all(pace.after_failure(1, 120) >= 120 for _ in range(50))
    assert pace.after_failure(1, 1e9) == 3600


def test_no_more_than_sixty_a_minute() -> None:
    allowance, now, begun = Allowance(), 1000.0, []
    for _ in range(200):
        now = allowance.next(now)
        allowance.use(now)
        begun.append(now)
        now += 0.1
    assert all(later - earlier > 59.99 for earlier, later in zip(begun, begun[60:], strict=False))


# Both together.


async def test_patience_over_a_day_on_the_clock() -> None:
    clock, person = FakeClock(), Person()
    async with scripted() as server, HitlClient(deliver=person, clock=clock) as client:
        server.script["/orders"] = [Said(202, server.offer(expires_at="2099-01-01T00:00:00Z"))]
        server.script[PATH] = [Said(200, PENDING, {"ETag": '"1"'}), *[Said(304)] * 3, Said(200, DONE)]
        asking = asyncio.create_task(client.request("POST", f"{server.url}/orders", json={}))
        await person.got()
        for polls in range(1, 6):
            await clock.advance(29)
            assert len(server.of(PATH)) == polls - 1
            await clock.advance(1)
            await until(lambda polls=polls: len(server.of(PATH)) == polls and _answered(client, clock))
        assert (await asking).action == "approve"
        assert [each.headers.get("if-none-match") for each in server.of(PATH)] == [None, *['"1"'] * 4]
        assert server.connections <= 2


def _answered(client: HitlClient, clock: FakeClock) -> bool:
    """Whether the last poll is over: the next is planned, or the wait has ended."""
    return all(live._waiting._plan.at > clock.now() for live in client._desk.live.values())


async def test_our_service_says_304_until_something_happens(tmp_path: Path) -> None:
    async with rig(tmp_path) as at:
        opened = await at.agent.open()

        async def ask_ours(etag: str | None) -> Polled:
            return await poll(
                at.http,
                opened.hitl["poll_url"],
                case_id=opened.case_id,
                now=0.0,
                may_call=lambda url: False,
                caller=Caller.of(at.agent.headers),
                etag=etag,
            )

        first = await ask_ours(None)
        assert first.retry_after == 30
        assert (await ask_ours(first.etag)).answer is None
        await opened.say("approve")
        last = await ask_ours(first.etag)
        assert last.answer is not None
        assert last.answer.status == "completed"
