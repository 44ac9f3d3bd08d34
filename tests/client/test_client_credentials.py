"""What a client sends to the services it calls stays with them; what it reads of them has a limit."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from kit.scripted_server import Said, Scripted, scripted

from askfirst.client import HitlClient, HitlClientSync, ReviewOutcome
from askfirst.delivery.base import Notice
from askfirst.errors import InvalidOffer, ResponseTooLarge

pytestmark = pytest.mark.anyio

TOKEN, OWN = "the-token-of-the-agent", {"X-Api-Key": "the-key-of-the-agent"}
QUICK: dict[str, Any] = {"poll_interval": 0.02, "min_poll_interval": 0.02}
DONE = {"status": "completed", "case_id": "review_1", "result": {"action": "approve"}}


class NoWait:
    """A clock that does not wait, and knows for how long it was to."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return 1_800_000_000.0 + sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


async def nobody(notice: Notice) -> None:
    """Who reads nothing."""


def knows(server: Scripted) -> bool:
    """Whether anything of the client's credentials reached a server."""
    heard = repr([(each.path, each.headers, each.body) for each in server.heard])
    return TOKEN in heard or OWN["X-Api-Key"] in heard


async def test_token_and_headers_go_with_every_call_to_the_service() -> None:
    async with scripted() as service, HitlClient(deliver=nobody, token=TOKEN, headers=OWN, **QUICK) as client:
        service.script["/work"] = [Said(202, service.offer())]
        service.script["/reviews/review_1/status"] = [Said(200, DONE)]
        outcome = await client.request("POST", f"{service.url}/work", json={})
        assert isinstance(outcome, ReviewOutcome)
        for heard in service.heard:
            assert heard.headers["authorization"] == f"bearer {TOKEN}"  # the server writes small letters
            assert heard.headers["x-api-key"] == OWN["X-Api-Key"]
        assert len(service.heard) == 2


async def test_a_script_has_a_token_too() -> None:
    def run(url: str) -> Any:
        with HitlClientSync(deliver=print, token=TOKEN, headers=OWN, **QUICK) as client:
            assert TOKEN not in repr(client)
            return client.request("GET", f"{url}/work")

    async with scripted() as service:
        service.script["/work"] = [Said(200, {"fine": True})]
        assert (await asyncio.to_thread(run, service.url)).json() == {"fine": True}
        assert service.heard[0].headers["authorization"] == f"bearer {TOKEN}"


@pytest.mark.attack("L9", "credentials led to another host")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_host_takes_no_credentials_along(status: int) -> None:
    async with (
        scripted() as service,
        scripted() as other,
        HitlClient(deliver=nobody, token=TOKEN, headers=OWN, **QUICK) as client,
    ):
        service.script["/work"] = [Said(status, headers={"Location": f"{other.url}/work"})]
        other.script["/work"] = [Said(202, other.offer())]
        other.script["/reviews/review_1/status"] = [Said(200, DONE)]
        outcome = await client.request("GET", f"{service.url}/work", follow_redirects=True)
        assert isinstance(outcome, ReviewOutcome)
        assert len(other.heard) == 2
        assert knows(service)
        assert not knows(other)


@pytest.mark.attack("L9", "credentials led to another host")
async def test_polls_at_another_host_take_no_credentials_along() -> None:
    async with (
        scripted() as service,
        scripted() as other,
        HitlClient(deliver=nobody, token=TOKEN, headers=OWN, allowed_hosts=["127.0.0.1"], **QUICK) as client,
    ):
        offer = service.offer(poll_url=f"{other.url}/status", events_url=f"{other.url}/events")
        service.script["/work"] = [Said(202, offer)]
        other.script["/status"] = [Said(200, DONE)]
        assert isinstance(await client.request("POST", f"{service.url}/work", json={}), ReviewOutcome)
        assert other.of("/status")
        assert not knows(other)


@pytest.mark.attack("L9", "credentials led to another host")
async def test_a_redirected_poll_takes_no_credentials_along() -> None:
    async with (
        scripted() as service,
        scripted() as other,
        HitlClient(deliver=nobody, token=TOKEN, headers=OWN, allowed_hosts=["127.0.0.1"], **QUICK) as client,
    ):
        service.script["/work"] = [Said(202, service.offer())]
        moved = {"Location": f"{other.url}/status"}
        service.script["/reviews/review_1/status"] = [Said(307, headers=moved)]
        other.script["/status"] = [Said(200, DONE)]
        assert isinstance(await client.request("POST", f"{service.url}/work", json={}), ReviewOutcome)
        assert not knows(other)


async def test_credentials_are_in_no_repr_and_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "askfirst")
    async with scripted() as service:
        client = HitlClient(deliver=nobody, token=TOKEN, headers=OWN)
        async with client:
            service.script["/work"] = [Said(503, headers={"Retry-After": "3600"})]
            await client.request("GET", f"{service.url}/work")
        said = repr(client) + repr(vars(client).get("_desk")) + caplog.text
        assert TOKEN not in said
        assert OWN["X-Api-Key"] not in said


@pytest.mark.parametrize(
    "options",
    [
        {"token": ""},
        {"token": "a b"},
        {"token": "a\nX-Evil: 1"},
        {"token": "tök"},
        {"token": "t", "auth": ("a", "b")},
        {"token": "t", "headers": {"authorization": "Basic x"}},
        {"headers": {"X-A": "a\r\nX-Evil: 1"}},
    ],
)
def test_credentials_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"token|line break"):
        HitlClient(deliver=nobody, **options)


# A service in trouble.


@pytest.mark.parametrize(
    ("method", "options", "is_safe"),
    [
        ("GET", {}, True),
        ("PUT", {"json": {}}, True),
        ("DELETE", {}, True),
        ("POST", {"json": {}, "idempotency_key": "k"}, True),
        ("POST", {"json": {}, "headers": {"Idempotency-Key": "k"}}, True),
        ("POST", {"json": {}}, False),
        ("PATCH", {"json": {}}, False),
        ("POST", {"json": {}, "headers": {"Idempotency-Key": "k"}, "repeatable": False}, False),
    ],
)
@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_5xx_is_tried_again_where_that_is_safe(
    method: str, options: dict[str, Any], is_safe: bool, status: int
) -> None:
    clock = NoWait()
    async with scripted() as service, HitlClient(deliver=nobody, clock=clock) as client:
        service.script["/work"] = [Said(status), Said(status), Said(200, {"fine": True})]
        answer: Any = await client.request(method, f"{service.url}/work", **options)
        assert answer.status_code == (200 if is_safe else status)
        assert len(service.heard) == (3 if is_safe else 1)
        assert len(clock.slept) == (2 if is_safe else 0)
        assert all(0.5 * 2**place <= each <= 1.5 * 2**place for place, each in enumerate(clock.slept))


async def test_after_some_tries_the_answer_is_handed_back() -> None:
    clock = NoWait()
    async with scripted() as service, HitlClient(deliver=nobody, clock=clock) as client:
        service.script["/work"] = [Said(503, {"error": "busy"}, {"Retry-After": "7"})]
        answer: Any = await client.request("GET", f"{service.url}/work")
        assert (answer.status_code, answer.json()) == (503, {"error": "busy"})
        assert len(service.heard) == 4
        assert min(clock.slept) >= 7
        service.script["/work"] = [Said(503, headers={"Retry-After": "3600"})]
        assert (await client.request("GET", f"{service.url}/work")).status_code == 503  # type: ignore[union-attr]
        assert len(service.heard) == 5


# What is read.


async def test_a_longer_answer_than_is_wanted_is_not_read() -> None:
    async with scripted() as service, HitlClient(deliver=nobody) as client:
        service.script["/work"] = [Said(200, {"text": "x" * 2_000})]
        with pytest.raises(ResponseTooLarge, match="1000 bytes"):
            await client.request("GET", f"{service.url}/work", max_bytes=1_000)
        answer: Any = await client.request("GET", f"{service.url}/work", max_bytes=10_000)
        assert answer.json() == {"text": "x" * 2_000}


async def test_a_202_that_asks_nobody_is_the_response_it_was() -> None:
    async with scripted() as service, HitlClient(deliver=nobody) as client:
        service.script["/work"] = [Said(202, {"job": 7}, {"X-Job": "7"})]
        answer: Any = await client.request("POST", f"{service.url}/work", json={})
        assert (answer.status_code, answer.json(), answer.headers["x-job"]) == (202, {"job": 7}, "7")
        assert answer.request.method == "POST"


async def test_a_page_on_another_host_is_pointed_out_or_refused() -> None:
    told: list[Notice] = []

    async def tell(notice: Notice) -> None:
        told.append(notice)

    async with scripted() as service:
        service.script["/work"] = [Said(202, service.offer(review_url="https://pages.example/r?token=t"))]
        service.script["/reviews/review_1/status"] = [
            Said(200, {**DONE, "status": "pending"}),
            Said(200, DONE),
        ]
        async with HitlClient(deliver=tell, **QUICK) as client:
            await client.request("POST", f"{service.url}/work", json={})
        host = service.url.removeprefix("http://")
        assert f"The page is on pages.example. That is another host than {host}, which asks." in told[0].body
        async with HitlClient(deliver=tell, allowed_hosts=["pages.example"], **QUICK) as client:
            await client.request("POST", f"{service.url}/work", json={})
        assert "another host" not in told[-1].body
        async with HitlClient(deliver=tell, foreign_pages="refuse", **QUICK) as client:
            with pytest.raises(InvalidOffer, match="review_url"):
                await client.request("POST", f"{service.url}/work", json={})
    with pytest.raises(ValueError, match="foreign_pages"):
        HitlClient(deliver=tell, foreign_pages="ignore")  # type: ignore[arg-type]
