"""Presses of native buttons: offered where they may be, carried to the service, answered in a sentence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from kit.running_service import HandClock, Opened, serving

from askfirst.client import submit as submitting
from askfirst.client.submit import offered_buttons, submit
from askfirst.delivery.base import PressAnswer
from askfirst.errors import InvalidProtocolObject
from askfirst.protocol import HitlObject, SubmittedBy, VerificationEvidence

pytestmark = pytest.mark.anyio

ADA = {"platform": "telegram", "platform_user_id": "7", "display_name": "Ada"}
POLICY: dict[str, Any] = {
    "mode": "required",
    "required_for": ["inline_submit"],
    "requirements": {"any_of": [{"all_of": [{"proof_type": "proof_of_human"}]}]},
    "binding": {"case_id": True, "action": True, "freshness_seconds": 60, "single_use": True},
    "fallback": {"on_missing": "browser_review", "on_invalid": "browser_review"},
}
TOKEN = "t" * 43


def case(url: str = "https://a.example", **changes: Any) -> HitlObject:
    fields = {
        "spec_version": "0.8",
        "case_id": "review_1",
        "review_url": f"{url}/review/1?token=secret-review-token",
        "poll_url": f"{url}/1/status",
        "type": "approval",
        "prompt": "Sure?",
        "created_at": "2026-01-01T00:00:00Z",
        "expires_at": "2026-01-02T00:00:00Z",
        "submit_url": f"{url}/1/respond",
        "submit_token": TOKEN,
        **changes,
    }
    return HitlObject.read({name: value for name, value in fields.items() if value is not None})


async def press(
    http: httpx2.AsyncClient, hitl: HitlObject, action: str = "approve", **more: Any
) -> PressAnswer:
    return await submit(http, hitl, action, submitted_via="telegram_inline_button", submitted_by=ADA, **more)


# What is offered.


@pytest.mark.parametrize(
    ("changes", "actions"),
    [
        ({}, ["approve", "reject"]),
        ({"type": "confirmation"}, ["confirm", "cancel"]),
        ({"type": "escalation"}, ["retry", "skip", "abort"]),
        ({"type": "selection"}, []),
        ({"type": "input"}, []),
        ({"type": "x-seating"}, []),
        ({"inline_actions": ["reject", "edit"]}, ["reject"]),
        ({"inline_actions": []}, []),
        ({"inline_actions": ["confirm"]}, []),
        ({"submit_url": None, "submit_token": None}, []),
        ({"verification_policy": POLICY}, []),
        ({"verification_policy": {**POLICY, "mode": "step_up"}}, []),
        ({"verification_policy": {**POLICY, "mode": "optional"}}, ["approve", "reject"]),
        ({"verification_policy": {**POLICY, "required_for": ["browser_submit"]}}, ["approve", "reject"]),
    ],
)
def test_buttons(changes: dict[str, Any], actions: list[str]) -> None:
    buttons = offered_buttons(case(**changes))
    assert [button.action for button in buttons] == actions
    assert [button.label for button in buttons] == [action.capitalize() for action in actions]


# Against our service.


def hitl_of(opened: Opened) -> HitlObject:
    return HitlObject.read(opened.hitl)


async def test_a_press_counts_once() -> None:
    async with serving("sqlite://", inline=True) as served:
        agent = await served.agent()
        opened = await agent.open("confirmation")
        hitl = hitl_of(opened)
        # The client's own credentials are not sent with the submit token.
        async with httpx2.AsyncClient(auth=("agent", "password")) as http:
            assert await press(http, hitl, "confirm") == PressAnswer("done", "Sent: confirm.")
            again = await press(http, hitl, "cancel")
        poll = (await agent.get(f"/v1/reviews/{opened.case_id}/status")).json()
    assert again.kind == "closed"
    assert again.review_url is None
    assert poll["result"]["action"] == "confirm"
    assert poll["submission_context"] == {
        "mode": "inline_submit",
        "submitted_via": "telegram_inline_button",
        "submitted_by": ADA,
    }


async def test_a_press_that_comes_too_late() -> None:
    clock = HandClock()
    async with serving("sqlite://", clock=clock, inline=True) as served, httpx2.AsyncClient() as http:
        opened = await (await served.agent()).open("confirmation", timeout="1h")
        clock.turn(3601)
        late = await press(http, hitl_of(opened), "confirm")
    assert late == PressAnswer("closed", "The time to decide is over.")


async def test_a_press_with_data_and_one_that_belongs_on_the_page() -> None:
    async with serving("sqlite://", inline=True) as served, httpx2.AsyncClient() as http:
        agent = await served.agent()
        opened = await agent.open("approval", inline_actions=["reject"])
        hitl = hitl_of(opened)
        # As an agent would that does not look first: the service refuses with 403.
        bold = hitl.model_copy(update={"inline_actions": None})
        refused = await press(http, bold, "approve")
        assert (refused.kind, refused.review_url) == ("to_page", hitl.review_url)
        assert (await press(http, hitl, "reject", data={"feedback": "too dear"})).kind == "done"
        poll = (await agent.get(f"/v1/reviews/{opened.case_id}/status")).json()
    assert poll["result"] == {"action": "reject", "data": {"feedback": "too dear"}}


async def test_a_token_that_is_no_good() -> None:
    async with serving("sqlite://", inline=True) as served, httpx2.AsyncClient() as http:
        opened = await (await served.agent()).open("approval")
        wrong = hitl_of(opened).model_copy(update={"submit_token": TOKEN})
        answer = await press(http, wrong)
    assert answer.kind == "failed"
    assert answer.review_url == wrong.review_url


# What is not even sent, and what goes wrong on the way.


@dataclass
class Raw:
    """A server that answers with these bytes; None means never."""

    answer: bytes | None
    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    here: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            self.here.set()
            if self.answer is None:
                await reader.read()
                return
            writer.write(self.answer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def raw(answer: bytes | None) -> AsyncGenerator[Raw]:
    it = Raw(answer)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield it


def status(line: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {line}", "Content-Length: 0", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"submit_url": None, "submit_token": None},
        {"inline_actions": ["reject"]},
        {"verification_policy": POLICY},
        {"type": "confirmation"},
    ],
)
async def test_what_belongs_on_the_page_is_not_sent(changes: dict[str, Any]) -> None:
    async with raw(status("200 OK")) as server, httpx2.AsyncClient() as http:
        hitl = case(server.url, **changes)
        answer = await press(http, hitl)
    assert (answer.kind, answer.review_url) == ("to_page", hitl.review_url)
    assert server.requests == []


async def test_a_proof_goes_along() -> None:
    proof = VerificationEvidence.read(
        {
            "proof_type": "proof_of_human",
            "provider": "world",
            "format": "jwt",
            "presentation": "secret-proof",
            "binding": {"case_id": "review_1", "action": "approve"},
        }
    )
    async with raw(status("200 OK")) as server, httpx2.AsyncClient() as http:
        hitl = case(server.url, verification_policy=POLICY)
        assert (await press(http, hitl, evidence=[proof])).kind == "done"
    assert f"Bearer {TOKEN}".encode() in server.requests[0]


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (status("204 No Content"), "done", "Sent"),
        (status("422 No"), "to_page", "review page"),
        (status("429 Slow", "Retry-After: 7"), "failed", "in 7 s"),
        (status("429 Slow", "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT"), "failed", "in a moment"),
        (status("404 What"), "failed", "Use the link"),
        (status("302 Found", "Location: https://elsewhere.example/"), "failed", "Use the link"),
        (status("500 Oops"), "failed", "Press again"),
        (b"", "failed", "Press again"),
        (b"HTTP/1.1 lots of nonsense\r\n\r\n", "failed", "Press again"),
    ],
)
async def test_what_else_a_service_may_say(
    answer: bytes, kind: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with raw(answer) as server, httpx2.AsyncClient() as http:
        told = await press(http, case(server.url))
    assert told.kind == kind
    assert text in told.text
    assert TOKEN not in caplog.text
    assert "secret-review-token" not in caplog.text + repr(told)


async def test_a_service_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "SECONDS", 0.05)
    async with raw(None) as server, httpx2.AsyncClient() as http:
        assert (await press(http, case(server.url))).kind == "failed"


async def test_a_press_is_somebodys() -> None:
    async with httpx2.AsyncClient() as http:
        with pytest.raises(InvalidProtocolObject, match="platform_user_id is required"):
            await submit(http, case(), "approve", submitted_via="x-app", submitted_by={"platform": "x-app"})
        with pytest.raises(InvalidProtocolObject, match="submitted_via"):
            await submit(
                http,
                case(),
                "approve",
                submitted_via="carrier pigeon",
                submitted_by=SubmittedBy(platform="x-app", platform_user_id="1"),
            )
