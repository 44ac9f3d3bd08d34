"""The client against our own service on a real socket: every end by every way to hear of it."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from kit.client_rig import Person, Rig, rig
from kit.running_service import HandClock
from kit.scripted_server import Said, scripted

from askfirst.client import HitlClient, ReviewOutcome
from askfirst.client.connections import Caller
from askfirst.client.live_case import see_through
from askfirst.client.offer import read_offer
from askfirst.client.wait_state import WaitState
from askfirst.delivery.base import Ended, Notice, OnPress, Press, PressAnswer, Sent
from askfirst.errors import DeliveryError, InvalidOffer, ReviewContradiction, ReviewRefused, StoreError
from askfirst.hitl.testing import FakeClock
from askfirst.protocol import HitlObject

pytestmark = pytest.mark.anyio

QUICK = {"poll_interval": 0.05, "min_poll_interval": 0.05}


async def _unheard(notice: Notice) -> None:
    pass


# What is handed back as it is.


async def test_any_other_answer_is_handed_back_as_it_is(tmp_path: Path) -> None:
    async with rig(tmp_path) as at:
        found = await at.client.request("GET", f"{at.served.url}/healthz")
        assert isinstance(found, httpx2.Response)
        assert found.status_code == 200
        assert (await at.client.request("GET", f"{at.served.url}/nowhere")).status_code == 404
        assert at.person.told == []


@pytest.mark.parametrize("body", [{"status": "accepted"}, {"hitl": None}, [], "hitl", b"no JSON", b""])
async def test_a_202_without_hitl_is_an_answer_like_any_other(body: Any) -> None:
    person = Person()
    async with scripted() as server, HitlClient(deliver=person) as client:
        server.script["/jobs"] = [Said(202, body)]
        answer = await client.request("POST", f"{server.url}/jobs", json={})
        assert isinstance(answer, httpx2.Response)
        assert answer.status_code == 202
        assert person.told == []


# Every end, by events and by polls.


@asynccontextmanager
async def waiting(at: Rig, way: str, **fields: Any) -> AsyncGenerator[tuple[asyncio.Task[Any], Notice]]:
    """A case that the client waits for, by events or by polls alone."""
    if way == "events":
        task = at.ask(**fields)
    else:
        opened = await at.agent.open(**fields)
        body = {"status": "human_input_required", "hitl": dict(opened.hitl)}
        del body["hitl"]["events_url"]
        answer = httpx2.Response(202, json=body, request=httpx2.Request("POST", opened.hitl["poll_url"]))
        task = asyncio.create_task(at.client.handle(answer))
    try:
        yield task, await at.person.got()
    finally:
        task.cancel()


ways = pytest.mark.parametrize("way", ["events", "polls"])


@ways
async def test_completed(tmp_path: Path, way: str) -> None:
    async with rig(tmp_path, **QUICK) as at, waiting(at, way) as (asking, notice):
        assert "Please decide." in notice.text
        assert notice.text.endswith(notice.review_url or "?")
        await at.answer(notice, "reject", {"feedback": "not yet"})
        outcome = await asking
        assert isinstance(outcome, ReviewOutcome)
        assert (outcome.status, outcome.action, outcome.data) == (
            "completed",
            "reject",
            {"feedback": "not yet"},
        )
        assert (outcome.case_id, outcome.rounds) == (notice.case_id, 1)
        assert not outcome.expired
        assert not outcome.cancelled
        assert outcome.submission_context is not None
        assert outcome.submission_context.mode == "browser_submit"
        assert "completed" not in at.person.kinds


@ways
async def test_expired(tmp_path: Path, way: str) -> None:
    clock = HandClock()
    async with (
        rig(tmp_path, service={"clock": clock}, **QUICK) as at,
        waiting(at, way, timeout="1h", default_action="reject") as (asking, _),
    ):
        clock.turn(3600)
        outcome = await asking
        assert (outcome.status, outcome.expired, outcome.action) == ("expired", True, "reject")
        assert outcome.default_action == "reject"
        told = at.person.told[-1]
        assert told.kind == "expired", "the person is told before the agent goes on"
        assert "reject" in told.text
        assert told.review_url is None


@ways
async def test_cancelled(tmp_path: Path, way: str) -> None:
    async with rig(tmp_path, **QUICK) as at, waiting(at, way) as (asking, notice):
        await at.agent.post(f"/v1/reviews/{notice.case_id}/cancel", {"reason": "sold out"})
        outcome = await asking
        assert (outcome.status, outcome.cancelled, outcome.action) == ("cancelled", True, "cancelled")
        assert outcome.reason == "sold out"
        assert at.person.kinds[-1] == "cancelled"
        assert "sold out" in at.person.told[-1].text


async def test_the_person_hears_that_the_page_was_opened_unless_that_is_switched_off(tmp_path: Path) -> None:
    for progress in (True, False):
        async with rig(tmp_path, progress=progress) as at, waiting(at, "events") as (asking, notice):
            await (await at.case(notice)).visit()
            await at.answer(notice, "approve")
            await asking
            assert ("progress" in at.person.kinds) is progress


# Other people's HTTP.


class LikeRequests:
    """As the library requests answers."""

    def __init__(self, body: Any, url: str, headers: Mapping[str, str]) -> None:
        self.status_code = 202
        self.url = url
        self.request = httpx2.Request("POST", url, headers=dict(headers))
        self._body = body

    def json(self) -> Any:
        return self._body


class LikeAiohttp:
    """As aiohttp answers."""

    def __init__(self, body: Any, url: str, headers: Mapping[str, str]) -> None:
        self.status = 202
        self.url = httpx2.URL(url)
        self.request_info = httpx2.Request("POST", url, headers=dict(headers))
        self._body = body

    async def json(self) -> Any:
        return self._body


@pytest.mark.parametrize("kind", [LikeRequests, LikeAiohttp])
async def test_answers_of_other_libraries_and_their_credentials(tmp_path: Path, kind: type[Any]) -> None:
    async with rig(tmp_path) as at, HitlClient(deliver=at.person, **QUICK) as client:
        opened = await at.agent.open()
        body = {"status": "human_input_required", "hitl": opened.hitl}
        answer = kind(body, f"{at.served.url}/v1/reviews", at.agent.headers)
        asking = asyncio.create_task(client.handle(answer))
        await at.answer(await at.person.got(), "approve")
        assert (await asking).action == "approve"


@pytest.mark.parametrize("odd", [None, 202, {"status": 202}, "202"])
async def test_what_is_no_answer_is_refused(odd: Any) -> None:
    async with HitlClient(deliver=_unheard) as client:
        with pytest.raises(TypeError, match="not an HTTP response"):
            await client.handle(odd)


async def test_polls_are_authenticated_like_the_request(tmp_path: Path) -> None:
    async with rig(tmp_path) as at, HitlClient(deliver=at.person, **QUICK) as client:
        body = {"type": "approval", "prompt": "p"}
        url = f"{at.served.url}/v1/reviews"
        asking = asyncio.create_task(client.request("POST", url, json=body, headers=at.agent.headers))
        await at.answer(await at.person.got(), "approve")
        assert (await asking).action == "approve"


async def test_a_handed_in_client_is_used_as_it_is(tmp_path: Path) -> None:
    async with (
        rig(tmp_path) as at,
        httpx2.AsyncClient(base_url=at.served.url, headers=at.agent.headers) as http,
        HitlClient(http, deliver=at.person) as client,
    ):
        asking = asyncio.create_task(
            client.request("POST", "/v1/reviews", json={"type": "approval", "prompt": "p"})
        )
        await at.answer(await at.person.got(), "approve")
        assert (await asking).action == "approve"
    assert http.is_closed  # by its owner


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await HitlClient(deliver=_unheard).request("GET", "https://a.example")


async def test_a_key_needs_a_store() -> None:
    async with HitlClient(deliver=_unheard) as client:
        with pytest.raises(ValueError, match="store"):
            await client.request("GET", "https://a.example", key="k")


async def test_another_agents_case_is_refused(tmp_path: Path) -> None:
    async with rig(tmp_path) as at:
        stranger = await at.served.agent("stranger")
        opened = await at.agent.open()
        answer = LikeRequests(
            {"status": "human_input_required", "hitl": opened.hitl}, at.served.url, stranger.headers
        )
        async with HitlClient(deliver=at.person, **QUICK) as client:
            with pytest.raises(ReviewRefused) as caught:
                await client.handle(answer)
        assert caught.value.http_status == 404


async def test_a_default_that_was_not_declared_is_a_contradiction() -> None:
    async with scripted() as server, HitlClient(deliver=_unheard, **QUICK) as client:
        server.script["/orders"] = [Said(202, server.offer(default_action="reject"))]
        ended = {"status": "expired", "case_id": "review_1", "default_action": "approve"}
        server.script["/reviews/review_1/status"] = [
            Said(200, {**ended, "expired_at": "2026-01-01T00:00:00Z"})
        ]
        with pytest.raises(ReviewContradiction, match="reject"):
            await client.request("POST", f"{server.url}/orders", json={})


# Deliveries.


class Board:
    """A delivery with a memory; it fails as often as it is told to."""

    shows_buttons = True

    def __init__(self, name: str = "board", fails: int = 0, hangs: bool = False) -> None:
        self.name = name
        self.fails = fails
        self.hangs = hangs
        self.sent: list[Notice] = []
        self.updates: list[tuple[Sent, Ended]] = []
        self.on_press: OnPress | None = None
        self.asked = asyncio.Event()
        self.updated = asyncio.Event()

    async def send(self, notice: Notice) -> Sent:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            self.fails -= 1
            raise DeliveryError(self.name, "the board is wet", retry_after=0.01)
        self.sent.append(notice)
        self.asked.set()
        return Sent(self.name, notice.case_id, {"row": len(self.sent)})

    async def update(self, sent: Sent, ended: Ended) -> None:
        self.updates.append((sent, ended))
        self.updated.set()

    @asynccontextmanager
    async def listening(self, on_press: OnPress) -> AsyncGenerator[None]:
        self.on_press = on_press
        yield
        self.on_press = None


async def test_every_message_that_asked_is_updated(tmp_path: Path) -> None:
    boards = [Board(), Board()]
    async with rig(tmp_path, also=lambda person: [person, *boards]) as at:
        asking = at.ask()
        notice = await at.person.got()
        for board in boards:
            await board.asked.wait()
        await at.answer(notice, "approve")
        await asking
        for board in boards:
            await board.updated.wait()
            ((sent, ended),) = board.updates
            assert sent.case_id == ended.case_id == notice.case_id
            assert (ended.kind, ended.action) == ("completed", "approve")


async def test_a_delivery_that_hangs_delays_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, also=lambda person: [Board(hangs=True), person]) as at:
        asking = at.ask()
        await at.answer(await at.person.got(), "approve")
        assert (await asking).action == "approve"
        for task in at.client._desk.deliveries._under_way:  # or it would be waited for at the end
            task.cancel()


async def test_a_delivery_that_fails_is_tried_again_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    board = Board(fails=3)
    async with rig(tmp_path, clock=clock, also=lambda person: [person, board]) as at:
        asking = at.ask()
        notice = await at.person.got()
        while not board.sent:
            await clock.advance(1)
            await asyncio.sleep(0.001)
        await at.answer(notice, "approve")
        await asking
    said = [record.getMessage() for record in caplog.records if record.name == "askfirst.client"]
    assert len(said) == 1
    assert "the board is wet" in said[0]
    assert _token(notice) not in caplog.text


async def test_a_function_that_raises_loses_nothing_and_its_words_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(notice: Notice) -> None:
        raise RuntimeError(f"cannot send {notice.review_url}")

    async with rig(tmp_path, also=lambda person: [broken, person]) as at:
        asking = at.ask()
        notice = await at.person.got()
        await at.answer(notice, "approve")
        assert (await asking).action == "approve"
    assert "RuntimeError" in caplog.text
    assert _token(notice) not in caplog.text


async def test_a_press_of_a_button_decides(tmp_path: Path) -> None:
    board = Board()
    async with rig(tmp_path, also=lambda person: board, service={"inline": True}) as at:
        asking = at.ask()
        await board.asked.wait()
        (notice,) = board.sent
        assert [button.action for button in notice.buttons] == ["approve", "reject"]
        assert board.on_press is not None
        press = Press(notice.case_id, "reject", "telegram_inline_button", "telegram", "7", "Ada")
        answer = await board.on_press(press)
        assert answer.kind == "done"
        outcome = await asking
        assert outcome.action == "reject"
        assert outcome.submission_context.submitted_by.display_name == "Ada"
        late = await board.on_press(press)
        assert late == PressAnswer("closed", late.text)
    assert board.on_press is None


async def test_one_who_cannot_listen_is_reported_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(Board):
        @asynccontextmanager
        async def listening(self, on_press: OnPress) -> AsyncGenerator[None]:
            raise DeliveryError("deaf", "it hears nothing")
            yield

    async with rig(tmp_path, also=lambda person: [Deaf("deaf"), person]) as at:
        asking = at.ask()
        await at.answer(await at.person.got(), "approve")
        assert (await asking).action == "approve"
    assert "it hears nothing" in caplog.text


# Secrets.


def _token(notice: Notice) -> str:
    return parse_qs(urlsplit(notice.review_url or "").query)["token"][0]


async def test_links_are_forgotten_and_secrets_are_said_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with rig(tmp_path, also=lambda person: person) as at:
        asking = at.ask()
        notice = await at.person.got()
        token, key = _token(notice), at.agent.headers["Authorization"].partition(" ")[2]
        assert token not in repr(notice)
        await at.answer(notice, "approve", {"feedback": "for nobody's eyes"})
        outcome = await asking
        assert outcome.data["feedback"] not in repr(outcome)
        case_id = notice.case_id
        at.person.told.clear()
        del notice
        await asyncio.sleep(0)  # what ran beside the wait gets to its end
        gc.collect()
        known = [each for each in gc.get_objects() if isinstance(each, HitlObject | Notice)]
        assert [each for each in known if each.case_id == case_id] == []
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("askfirst"))
    for secret in (token, key, "for nobody's eyes"):
        assert secret not in ours


async def test_nobody_is_told_of_an_offer_that_cannot_be_used() -> None:
    person = Person()
    async with scripted() as server, HitlClient(deliver=person) as client:
        server.script["/orders"] = [Said(202, server.offer(poll_url="https://elsewhere.example/1"))]
        with pytest.raises(InvalidOffer) as caught:
            await client.request("POST", f"{server.url}/orders", json={})
        assert set(caught.value.faults) == {"hitl.poll_url"}
        assert [each.path for each in server.heard] == ["/orders"]
        assert person.told == []


async def test_a_store_that_fails_loses_no_outcome(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be stored on the way is reported, and the wait goes on."""
    tried: list[WaitState] = []

    async def keep(state: WaitState) -> None:
        tried.append(state)
        raise StoreError("the disk is full")

    async with rig(tmp_path) as at:
        opened = await at.agent.open()
        offer = read_offer(202, at.served.url, {"status": "human_input_required", "hitl": opened.hitl})
        assert offer is not None
        caller = Caller.of(at.agent.headers)
        going = asyncio.create_task(see_through(at.client._desk, WaitState(offer), caller, keep))
        await at.answer(await at.person.got(), "approve")
        _, outcome = await going
        assert outcome.action == "approve"
    assert tried
    assert "the disk is full" in caplog.text
