"""The callback receiver: what it believes, what it answers, and whom it wakes."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from kit.patience import PATIENCE
from kit.running_service import SECRET, listening, serving, until
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from askfirst.client import callback
from askfirst.client.callback import CallbackReceiver
from askfirst.client.client import HitlClient
from askfirst.client.outcome import ReviewOutcome
from askfirst.delivery.base import Notice
from askfirst.errors import InvalidSecret
from askfirst.hitl.testing import FakeClock
from askfirst.protocol import new_callback_secret, sign_callback, webhook_headers
from askfirst.service.callbacks import callback_secret

pytestmark = pytest.mark.anyio

KEY = new_callback_secret()
PATH = "/webhooks/hitl"


def body(case_id: str = "review_1", **facts: Any) -> bytes:
    said = {"event": "review.completed", "case_id": case_id, "timestamp": "2026-01-01T00:00:00Z", **facts}
    return json.dumps(said).encode()


def signed(data: bytes, secret: str = KEY, **more: str) -> dict[str, str]:
    return {"content-type": "application/json", "x-hitl-signature": sign_callback(data, secret), **more}


@asynccontextmanager
async def received(
    secret: Any = KEY, kind: type[CallbackReceiver] = CallbackReceiver, **options: Any
) -> AsyncGenerator[tuple[CallbackReceiver, httpx2.AsyncClient]]:
    """A receiver that uvicorn serves alone, and one who posts to it."""

    def make(url: str) -> CallbackReceiver:
        return kind(secret, url=f"{url}{PATH}", **options)

    async with listening(make) as (url, receiver), httpx2.AsyncClient(base_url=url) as http:
        yield receiver, http


async def test_a_callback_wakes_whoever_waits() -> None:
    async with received() as (receiver, http):
        with (
            receiver.heard("review_1") as one,
            receiver.heard("review_1") as two,
            receiver.heard("review_2") as no,
        ):
            data = body()
            answer = await http.post(PATH, content=data, headers=signed(data))
            async with asyncio.timeout(PATIENCE):
                await one.wait()
                await two.wait()
    assert answer.status_code == 200
    assert not no.is_set()


async def test_a_wrong_signature_is_refused_before_anything_is_read() -> None:
    async with received() as (receiver, http):
        with receiver.heard("review_1") as woken:
            data = body()
            for headers in (
                {"content-type": "application/json"},
                signed(data, new_callback_secret()),
                signed(data[:-1] + b" }"),
                signed(data, **{"x-hitl-signature": sign_callback(data, KEY).removeprefix("sha256=")}),
                signed(data, **{"x-hitl-signature": "sha256=" + "\xe9" * 64}),
            ):
                answer = await http.post(
                    PATH, content=data, headers={k: v.encode("latin-1") for k, v in headers.items()}
                )
                assert answer.status_code == 401
            # Bytes that are no JSON at all are refused for the signature, not for what they are.
            assert (await http.post(PATH, content=b"\xff{", headers=signed(data))).status_code == 401
            assert not woken.is_set()


async def test_replays_and_attempts_again_wake_nobody_twice() -> None:
    clock = FakeClock(time.time())
    async with received(clock=clock) as (receiver, http):
        data = body()
        with receiver.heard("review_1") as woken:
            named = webhook_headers(data, KEY, message_id="m1", timestamp=int(clock.now()))
            assert (await http.post(PATH, content=data, headers=signed(data, **named))).status_code == 200
            await until(_is_set(woken))
            woken.clear()
            replays = [
                (data, named),  # the very same
                (
                    data,
                    webhook_headers(data, KEY, message_id="m1", timestamp=int(clock.now()) + 60),
                ),  # tried again
                (data, {}),  # taken from the wire, without the headers that age
            ]
            other = body(reason="another body under the same id")
            replays.append((other, webhook_headers(other, KEY, message_id="m1", timestamp=int(clock.now()))))
            for content, more in replays:
                answer = await http.post(PATH, content=content, headers=signed(content, **more))
                assert answer.status_code == 200
                assert "already" in answer.text
            # One that is woken by `call_soon` would be by now: this one is, and was asked for later.
            fresh = body(reason="fresh")
            await http.post(PATH, content=fresh, headers=signed(fresh))
            await until(_is_set(woken))


def _is_set(event: asyncio.Event) -> Any:
    async def check() -> bool:
        return event.is_set()

    return check


async def test_standard_webhooks_are_checked_where_they_are_there() -> None:
    clock = FakeClock(1_800_000_000.0)
    async with received(clock=clock) as (receiver, http):
        with receiver.heard("review_1"):
            data = body()
            now = int(clock.now())
            good = webhook_headers(data, KEY, message_id="m1", timestamp=now)
            for bad in (
                webhook_headers(data, KEY, message_id="m1", timestamp=now - 301),
                webhook_headers(data, KEY, message_id="m1", timestamp=now + 301),
                webhook_headers(data, new_callback_secret(), message_id="m1", timestamp=now),
                {**good, "webhook-id": "m2"},
                {"webhook-id": "m1"},
            ):
                answer = await http.post(PATH, content=data, headers=signed(data, **bad))
                assert answer.status_code == 401
            assert (await http.post(PATH, content=data, headers=signed(data, **good))).status_code == 200


async def test_a_secret_that_is_no_standard_webhooks_one() -> None:
    async with received("a plain old secret") as (receiver, http):
        with receiver.heard("review_1"):
            data = body()
            headers = signed(data, "a plain old secret", **{"webhook-id": "m1"})
            assert (await http.post(PATH, content=data, headers=headers)).status_code == 200


async def test_a_case_that_nobody_waits_for() -> None:
    async with received() as (receiver, http):
        data = body()
        assert (await http.post(PATH, content=data, headers=signed(data))).status_code == 404
        # The service was quicker than the agent that reads its 202: it is told as soon as it listens.
        with receiver.heard("review_1") as woken:
            assert woken.is_set()
        with receiver.heard("review_1") as woken:
            assert not woken.is_set()
        # A callback that found nobody is no replay when it comes again.
        with receiver.heard("review_1") as woken:
            assert (await http.post(PATH, content=data, headers=signed(data))).text == "Thank you."
        assert (
            await http.post(PATH, content=body(reason="x"), headers=signed(body(reason="x")))
        ).status_code == 404


async def test_what_else_may_come() -> None:
    async with received() as (receiver, http):
        with receiver.heard("review_1") as woken:
            data = body()
            assert (await http.get(PATH)).status_code == 405
            assert (await http.get(PATH)).headers["allow"] == "POST"
            assert (await http.post("/", content=data, headers=signed(data))).status_code == 404
            assert (await http.post("/elsewhere", content=data, headers=signed(data))).status_code == 404
            plain = signed(data, **{"content-type": "text/plain"})
            assert (await http.post(PATH, content=data, headers=plain)).status_code == 415
            for odd in (b"no json", b"[]", b"{}", body(event="review.opened"), body(case_id=7), body("")):
                assert (await http.post(PATH, content=odd, headers=signed(odd))).status_code == 400
            charset = signed(data, **{"content-type": "application/json; charset=utf-8"})
            assert not woken.is_set()
            assert (await http.post(PATH, content=data, headers=charset)).status_code == 200


async def test_too_much_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback, "MOST_BYTES", 1000)
    async with received() as (_, http):
        data = body(reason="x" * 1000)
        assert (await http.post(PATH, content=data, headers=signed(data))).status_code == 413

        async def chunks() -> AsyncIterator[bytes]:  # its length is not announced
            yield data

        assert (await http.post(PATH, content=chunks(), headers=signed(data))).status_code == 413


def added(receiver: CallbackReceiver) -> FastAPI:
    app = FastAPI()
    app.add_route(PATH, receiver, methods=["POST"])
    return app


@pytest.mark.parametrize(
    ("routed", "prefix"),
    [
        (lambda receiver: Starlette(routes=[Route(PATH, receiver)]), ""),
        (lambda receiver: Starlette(routes=[Mount("/webhooks", receiver)]), ""),
        (lambda receiver: Starlette(routes=[Mount("/", receiver)]), ""),
        (lambda receiver: Starlette(routes=[Mount("/agents/7", added(receiver))]), "/agents/7"),
        (added, ""),
    ],
)
async def test_it_can_be_a_route_of_any_application(routed: Any, prefix: str) -> None:
    receiver = CallbackReceiver(KEY, url=f"https://agent.example/agents/7{PATH}")
    async with listening(lambda _: routed(receiver)) as (url, _), httpx2.AsyncClient(base_url=url) as http:
        with receiver.heard("review_1") as woken:
            data = body()
            answer = await http.post(prefix + PATH, content=data, headers=signed(data))
            assert answer.status_code == 200
            await until(_is_set(woken))
        assert (await http.post(f"{prefix}{PATH}/x", content=data, headers=signed(data))).status_code == 404


async def test_it_can_be_mounted_with_a_slash_at_the_end() -> None:
    receiver = CallbackReceiver(KEY, url=f"https://agent.example{PATH}/")
    app = Starlette(routes=[Mount(PATH, receiver)])
    async with listening(lambda _: app) as (url, _), httpx2.AsyncClient(base_url=url) as http:
        with receiver.heard("review_1"):
            data = body()
            assert (await http.post(f"{PATH}/", content=data, headers=signed(data))).status_code == 200


def test_the_url_goes_into_requests() -> None:
    receiver = CallbackReceiver(KEY, url="https://agent.example/webhooks/hitl")
    assert receiver.added_to({"a": 1}) == {"a": 1, "hitl_callback_url": receiver.url}
    given = {"hitl_callback_url": "https://own.example"}
    for other in (None, [1], "text", given):
        assert receiver.added_to(other) == other


def test_only_services_whose_secret_is_known_are_told() -> None:
    receiver = CallbackReceiver(
        {"a.example": KEY, "127.0.0.1:8000": "another secret"}, url="https://agent.example/webhooks/hitl"
    )
    for url in ("https://a.example/v1/x", "https://a.example:8443/", "http://127.0.0.1:8000/x"):
        assert "hitl_callback_url" in receiver.added_to({}, url)
    for url in ("https://b.example/", "http://127.0.0.1:9000/", "https://xa.example"):
        assert receiver.added_to({}, url) == {}


async def test_each_hosts_secret_is_good() -> None:
    other = new_callback_secret()
    async with received({"a.example": KEY, "b.example": other}) as (receiver, http):
        with receiver.heard("review_1"), receiver.heard("review_2"):
            for case_id, secret in (("review_1", KEY), ("review_2", other)):
                data = body(case_id)
                assert (await http.post(PATH, content=data, headers=signed(data, secret))).status_code == 200
            data = body()
            strange = signed(data, new_callback_secret())
            assert (await http.post(PATH, content=data, headers=strange)).status_code == 401


@pytest.mark.parametrize("secret", ["", {}, {"a.example": ""}])
def test_no_secret_is_no_receiver(secret: Any) -> None:
    with pytest.raises(InvalidSecret):
        CallbackReceiver(secret, url="https://agent.example/webhooks/hitl")


@pytest.mark.parametrize("url", ["http://agent.example/webhooks/hitl", "agent.example", "ftp://localhost/x"])
def test_no_url_is_no_receiver(url: str) -> None:
    with pytest.raises(ValueError, match="https://"):
        CallbackReceiver(KEY, url=url)


async def test_our_service_calls_it_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secrets: dict[str, str] = {"127.0.0.1": "not known yet"}
    async with serving("sqlite://") as served:
        agent = await served.agent()
        secrets["127.0.0.1"] = callback_secret(SECRET, agent.key_id)
        async with received(secrets) as (receiver, _):
            where = receiver.added_to({}, served.url)
            approved, cancelled = [await agent.open("approval", **where) for _ in range(2)]
            with receiver.heard(approved.case_id) as one, receiver.heard(cancelled.case_id) as two:
                await approved.say("approve", {"feedback": "a sensitive remark"})
                await cancelled.cancel()
                async with asyncio.timeout(PATIENCE):
                    await one.wait()
                    await two.wait()
    assert secrets["127.0.0.1"] not in caplog.text + repr(receiver)
    assert "a sensitive remark" not in caplog.text


@dataclass
class Answer:
    """A 202 as an HTTP library of one's own gives it."""

    url: str
    body: dict[str, Any]
    status_code: int = 202

    def json(self) -> dict[str, Any]:
        return self.body


async def _outcome(secret: str | None, **pace: float) -> ReviewOutcome:
    """How a review ends for a client that is called back, with this secret or the right one."""
    async with serving("sqlite://") as served:
        agent = await served.agent()
        right = callback_secret(SECRET, agent.key_id)
        asked = asyncio.Event()

        async def deliver(notice: Notice) -> None:
            asked.set()

        async with (
            received(secret or right) as (receiver, _),
            httpx2.AsyncClient(headers=agent.headers) as http,
            HitlClient(http, deliver=deliver, callback=receiver, **pace) as client,
        ):
            opened = await agent.open("approval", **receiver.added_to({}))
            # Without its events: what wakes the client is the callback, or nothing.
            hitl = {name: value for name, value in opened.hitl.items() if name != "events_url"}
            answer = Answer(served.url, {"status": "human_input_required", "hitl": hitl})
            waiting = asyncio.create_task(client.handle(answer))
            await asked.wait()
            await opened.say("approve")
            async with asyncio.timeout(PATIENCE):
                outcome = await waiting
    assert isinstance(outcome, ReviewOutcome)
    return outcome


async def test_a_client_that_is_called_back_does_not_wait_for_its_next_poll() -> None:
    assert (await _outcome(None, poll_interval=300)).action == "approve"


async def test_callbacks_that_are_lost_are_made_up_for_by_polling() -> None:
    wrong = new_callback_secret()
    assert (await _outcome(wrong, poll_interval=0.1, min_poll_interval=0.1)).action == "approve"


class Noting(CallbackReceiver):
    """Notes that it was called, whether anybody waits by then or not."""

    calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += scope["type"] == "http"
        await super().__call__(scope, receive, send)

    async def was_called(self) -> bool:
        return self.calls > 0


async def test_the_client_names_its_receiver_in_requests() -> None:
    async with serving("sqlite://") as served:
        agent = await served.agent()

        async def deliver(notice: Notice) -> None:
            if notice.review_url is not None:
                page, _, query = notice.review_url.partition("?")
                await served.http.post(f"{page}/respond?{query}", json={"action": "approve"})

        async with (
            received(callback_secret(SECRET, agent.key_id), kind=Noting) as (receiver, _),
            httpx2.AsyncClient(headers=agent.headers) as http,
            HitlClient(http, deliver=deliver, callback=receiver) as client,
        ):
            body = {"type": "approval", "prompt": "Sure?"}
            outcome = await client.request("POST", f"{served.url}/v1/reviews", json=body)
            assert isinstance(outcome, ReviewOutcome)
            assert isinstance(receiver, Noting)
            await until(receiver.was_called)
