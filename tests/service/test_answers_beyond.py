"""Answers that hold more than their type defines, as the protocol's schemas let them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from kit.published_protocol import PUBLISHED, needs_published
from kit.running_service import BROWSER, Agent, serving

from askfirst.errors import InvalidReview
from askfirst.requests import ApproveRequest, ConfirmRequest, HitlRequest
from askfirst.service.adoption import adopted_case, answer_of
from askfirst.service.answers import clean_answer
from askfirst.service.case import Case
from askfirst.store.rows import RequestRow

pytestmark = pytest.mark.anyio

FORM = {"form": {"fields": [{"key": "name", "label": "Name", "type": "text", "required": True}]}}
ANSWERS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("selection", {}, "select", {"selected_ids": ["a", "b"], "selected_count": 2}),
    ("selection", {"items": [{"id": "a"}]}, "select", {"selected": ["a"], "ranking": {"a": 1}}),
    ("approval", {}, "edit", {"decision": "needs_revision", "edit_instructions": ["Shorter", "Warmer"]}),
    (
        "approval",
        {},
        "approve",
        {"decision": "approved", "feedback": "Ready", "conditions": [{"by": "Friday"}]},
    ),
    ("approval", {}, "reject", {"decision": "rejected", "score": 2.5, "final": True, "none": "x"}),
    ("confirmation", {}, "confirm", {"confirmed_items": ["e1"], "confirmed_count": 1, "all_confirmed": True}),
    ("confirmation", {}, "cancel", {"cancelled_by": {"role": "owner"}}),
    ("escalation", {}, "retry", {"modified_params": {"a": 1}, "attempts": 3}),
    ("escalation", {}, "abort", {"reason": "enough", "severity": "high"}),
    ("input", FORM, "submit", {"name": "Ada", "source": "page", "tags": ["x", {"y": [1]}]}),
]


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncGenerator[Agent]:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        yield await served.agent()


@pytest.mark.parametrize(("type", "context", "action", "data"), ANSWERS)
async def test_what_is_beyond_is_kept_shown_and_handed_on(
    agent: Agent, type: str, context: Any, action: str, data: Any
) -> None:
    case = await agent.open(type, context=context)
    done = await case.say(action, data)
    assert done.status_code == 200, done.text
    assert (await case.poll())["result"] == {"action": action, "data": data}
    page = (await case.visit(**BROWSER)).text
    assert "Also sent, beyond what was asked for" in page


def _published() -> list[tuple[str, str, dict[str, Any]]]:
    found: list[tuple[str, str, dict[str, Any]]] = []
    for file in sorted((PUBLISHED / "examples").glob("*.json")) if PUBLISHED.is_dir() else []:
        types: list[str] = []
        for step in json.loads(file.read_text()).get("steps", []):
            body = step.get("response", {}).get("body", {})
            if isinstance(body, dict) and "hitl" in body:
                types.append(body["hitl"]["type"])
            if isinstance(body, dict) and "result" in body:
                found.append((types[-1], body["result"]["action"], body["result"]["data"]))
    return found


@needs_published
async def test_every_published_answer_is_taken(agent: Agent) -> None:
    published = _published()
    assert len(published) >= 4
    for kind, action, data in published:
        case = await agent.open(kind)
        done = await case.say(action, data)
        assert done.status_code == 200, (kind, action, done.text)
        assert (await case.poll())["result"]["data"] == data


@pytest.mark.parametrize(
    ("type", "action", "data"),
    [
        ("selection", "select", {}),
        ("selection", "select", {"selected_ids": []}),
        ("approval", "edit", {}),
        ("approval", "edit", {"edit_instructions": []}),
        ("approval", "approve", {"more": json.loads("[" * 60 + "]" * 60)}),
        ("approval", "approve", {f"x{number}": number for number in range(50_000)}),
        ("approval", "approve", {"more": "x" * 3_000_000}),
        ("approval", "approve", {"feedback": 7}),
    ],
    ids=["no choice", "an empty choice", "no edit", "an empty edit", "deep", "many", "long", "odd"],
)
async def test_what_says_nothing_or_is_too_much_is_refused(
    agent: Agent, type: str, action: str, data: Any
) -> None:
    case = await agent.open(type)
    assert (await case.say(action, data)).status_code in (413, 422)
    assert (await case.poll())["status"] != "completed"


def _case(payload: Any) -> tuple[HitlRequest, Case]:
    request = HitlRequest(question_id="q", payload=payload, created_at=1.0)
    facts = ("t", "q", 1, None, payload.kind, request.model_dump_json(), None, "pending", 1000, None)
    return request, adopted_case(RequestRow(*facts, *[None] * 6))


def test_an_agent_of_ours_gets_what_it_asked_for_and_no_more() -> None:
    request, case = _case(ApproveRequest(tool_name="pay", tool_call_id="q", args={"cents": 1}))
    data = {"feedback": "fine", "edited_args": {"cents": 99}, "decision": "edit", "conditions": ["x"]}
    answer: Any = answer_of(request, "approve", clean_answer(case, "approve", data))
    assert (answer.decision, answer.edited_args, answer.reason) == ("approve", None, "fine")
    with pytest.raises(InvalidReview, match="edits or with feedback"):
        clean_answer(case, "edit", {"edit_instructions": ["more"]})
    request, case = _case(ConfirmRequest(prompt="Sure?"))
    assert answer_of(request, "cancel", clean_answer(case, "cancel", {"confirm": True})) is False
