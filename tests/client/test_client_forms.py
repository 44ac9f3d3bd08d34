"""Forms: announced, followed while they are filled in, and checked when they come back."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from kit.client_rig import Person, rig
from kit.scripted_server import Said, scripted

from askfirst.client import HitlClient, ReviewOutcome, notify
from askfirst.client.notify import CaseNotices, Deliveries
from askfirst.client.offer import read_offer
from askfirst.client.wait_state import WaitState
from askfirst.errors import InvalidOutcome
from askfirst.hitl.testing import FakeClock
from askfirst.protocol import Form, PollResponse, Progress

pytestmark = pytest.mark.anyio

QUICK: Any = {"poll_interval": 0.05, "min_poll_interval": 0.05}


def field(key: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "label": key.title(), "type": "text", **more}


FIELDS = {"fields": [field(f"f{number}") for number in range(6)]}
STEPS = {
    "session_id": "s1",
    "steps": [
        {"title": "Person", "fields": [field("name", required=True), field("town")]},
        {"title": "Wishes", "fields": [field("wish", required=True)]},
        {"title": "Look again", "fields": []},
    ],
}


# What the person reads.


@pytest.mark.parametrize(
    ("form", "line"),
    [
        (FIELDS, "Please fill 6 fields."),
        ({"fields": [field("one")]}, "Please fill 1 field."),
        (STEPS, "3 steps: Person → Wishes → Look again"),
    ],
)
def test_how_much_there_is_to_fill_in(form: dict[str, Any], line: str) -> None:
    assert notify.form_line(Form.read(form)) == line


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (
            {"current_step": 2, "total_steps": 3, "completed_fields": 4, "total_fields": 8},
            "Step 2 of 3, 4 of 8 fields.",
        ),
        ({"completed_fields": 4, "total_fields": 8}, "4 of 8 fields."),
        ({"current_step": 2}, "Step 2."),
        ({}, ""),
    ],
)
def test_how_far_somebody_is(progress: dict[str, int], line: str) -> None:
    assert notify.progress_line(Progress.read(progress)) == line


async def test_a_form_of_our_service_from_the_link_to_the_outcome(tmp_path: Path) -> None:
    async with rig(tmp_path) as at:
        asking = at.ask("input", context={"form": STEPS}, prompt="Tell us about the trip.")
        notice = await at.person.got()
        assert notice.body.endswith("3 steps: Person → Wishes → Look again")
        case = await at.case(notice)
        first = {"step": "1", "intent": "draft", "shown": ["name", "town"]}
        await case.form(**first, **{"f.name": "Ada"})
        assert "Step 1 of 3, 1 of 3 fields." in (await at.person.got("progress")).text
        await at.answer(notice, "submit", {"name": "Ada", "wish": "rain"})
        outcome = await asking
        assert (outcome.action, outcome.data) == ("submit", {"name": "Ada", "wish": "rain"})


def _notices() -> tuple[CaseNotices, WaitState, FakeClock, Person]:
    clock, person = FakeClock(), Person()
    body = {
        "status": "human_input_required",
        "hitl": {
            "spec_version": "0.8",
            "case_id": "review_1",
            "review_url": "https://a.example/r?token=t",
            "poll_url": "https://a.example/p",
            "type": "input",
            "prompt": "Please.",
            "created_at": "2026-02-22T10:00:00Z",
            "expires_at": "2026-02-23T10:00:00Z",
        },
    }
    offer = read_offer(202, "https://a.example/", body)
    assert offer is not None
    state = WaitState(offer)
    return CaseNotices(Deliveries(person, clock), state, lambda label, sent: None), state, clock, person


async def test_progress_is_told_once_and_not_for_every_field() -> None:
    notices, state, clock, person = _notices()

    async def at(step: int, fields: int, seconds: float = 1.0) -> None:
        where = {"current_step": step, "total_steps": 3, "completed_fields": fields, "total_fields": 8}
        said = {"status": "in_progress", "case_id": "review_1", "progress": where}
        notices.progress(state, PollResponse.read(said))
        await clock.advance(seconds)

    for _ in range(3):
        notices.progress(state, PollResponse.read({"status": "opened", "case_id": "review_1"}))
    for fields in range(1, 5):
        await at(1, fields)
    await at(2, 5)
    await at(2, 6, seconds=40)
    await at(2, 7)
    await at(2, 7)
    lines = [notice.body.removeprefix("Somebody is at work on it. ") for notice in person.told]
    assert lines == [
        "The review page was opened.",
        "Step 1 of 3, 1 of 8 fields.",
        "Step 2 of 3, 5 of 8 fields.",
        "Step 2 of 3, 7 of 8 fields.",
    ]


# What comes back.

FORM = {
    "fields": [
        field("kind", required=True),
        field("reason", required=True, conditional={"field": "kind", "operator": "eq", "value": "other"}),
        field("card", required=True, sensitive=True),
        field("note"),
    ]
}


async def ended(data: Any, form: dict[str, Any] = FORM, type: str = "input", action: str = "submit") -> Any:
    """How a case ends whose service says that this was filled in."""
    async with scripted() as server, HitlClient(deliver=Person(), **QUICK) as client:
        server.script["/orders"] = [Said(202, server.offer(type=type, context={"form": form}))]
        result = {"action": action} if data is None else {"action": action, "data": data}
        done = {"status": "completed", "case_id": "review_1", "completed_at": "2026-01-01T00:00:00Z"}
        server.script["/reviews/review_1/status"] = [Said(200, {**done, "result": result})]
        return await client.request("POST", f"{server.url}/orders", json={})


@pytest.mark.parametrize("type", ["input", "x-passport"])
async def test_required_keys_are_there(type: str) -> None:
    outcome = await ended({"kind": "lost", "card": "4111"}, type=type)
    assert isinstance(outcome, ReviewOutcome)
    assert outcome.data["card"] == "4111"


@pytest.mark.parametrize(
    ("data", "missing"),
    [
        (None, {"kind", "card"}),
        ({}, {"kind", "card"}),
        ({"kind": "other", "card": "4111"}, {"reason"}),
        ({"kind": "lost", "card": "  "}, {"card"}),
        ({"kind": None, "card": "4111", "note": "x"}, {"kind"}),
    ],
)
async def test_required_keys_that_are_missing_are_named(data: Any, missing: set[str]) -> None:
    with pytest.raises(InvalidOutcome) as caught:
        await ended(data)
    assert set(caught.value.faults) == {f"result.data.{key}" for key in missing}
    assert "4111" not in f"{caught.value!r}{caught.value}"


@pytest.mark.parametrize(
    ("type", "action"), [("input", "approve"), ("approval", "launch"), ("confirmation", "Confirm")]
)
async def test_what_nobody_could_choose_is_no_outcome(type: str, action: str) -> None:
    with pytest.raises(InvalidOutcome) as caught:
        await ended({}, form={"fields": [field("note")]}, type=type, action=action)
    assert list(caught.value.faults) == ["result.action"]


@pytest.mark.parametrize("type", ["escalation", "x-passport"])
async def test_a_service_may_offer_more_where_the_type_leaves_it_open(type: str) -> None:
    outcome = await ended({}, form={"fields": [field("note")]}, type=type, action="call_support")
    assert outcome.action == "call_support"


async def test_sensitive_values_are_in_no_repr_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    outcome = await ended({"kind": "lost", "card": "4111-2222"})
    assert "4111-2222" not in repr(outcome)
    assert "4111-2222" not in caplog.text
