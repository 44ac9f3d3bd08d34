"""What a field says, and schemas of any shape: numbers that are none, amounts that could mean two things, loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit import page_cases as cases
from kit.page_cases import NOW, TOKEN
from kit.running_service import BROWSER, serving
from kit.standing_cases import refund

from askfirst.messages import call_digest
from askfirst.requests import ApproveRequest
from askfirst.service.case import Case
from askfirst.service.pages import read_submission, render_case

HUGE = "1" * 400
"""A whole number of JSON that is larger than any double-precision number."""


def edited(case: Case, text: str) -> tuple[Any, dict[str, str]]:
    """The first argument after an edit, and the faults."""
    read = read_submission(case, {"intent": ["preview"], "arg.0": [text]})
    assert render_case(case, token=TOKEN, base_path="", now=NOW, values=read.data, faults=read.faults)
    return next(iter(read.data["edits"].values())), dict(read.faults)


@pytest.mark.parametrize(
    ("text", "cents"),
    [
        ("40", 4000),
        ("40.5", 4050),
        ("40.00 EUR", 4000),
        ("1,234.50", 123_450),
        ("1 234", 123_400),
        ("-3", -300),
    ],
)
def test_an_amount_as_people_write_it(text: str, cents: int) -> None:
    assert edited(refund(), text) == (cents, {})


@pytest.mark.parametrize(
    "text", ["40,00", "4,0", "1,23,4", "1,2345", "1.234,50", "1 23", ",5", "1e3", "NaN", HUGE]
)
def test_an_amount_that_could_mean_two_things_is_asked_again(text: str) -> None:
    """``40,00`` is forty in much of Europe, and would be four thousand if a comma were left out."""
    value, faults = edited(refund(), text)
    assert faults == {"edits.cents": "must be a number"}
    assert not isinstance(value, int)


def called(schema: Any, value: Any) -> Case:
    args = {"n": value}
    payload = ApproveRequest(
        tool_name="t", tool_call_id="c", args=args, digest=call_digest("t", args), args_schema=schema
    )
    return cases.agent_case(payload)


def test_a_number_larger_than_any_double_is_none() -> None:
    assert edited(called({"properties": {"n": {"type": "integer"}}}, 1), HUGE)[1] == {
        "edits.n": "must be a number"
    }
    assert edited(called(None, [1, 2]), f"1\n{HUGE}")[1] == {"edits.n": "must be a number"}


LOOP = {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": ["n"]},
        {"properties": {"n": {"type": 5}}},
        {"properties": {"n": {"type": ["string", 5, None]}}},
        {"properties": {"n": {"$ref": "#/$defs/a"}}, "$defs": ["a"]},
        {"properties": {"n": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"properties": {"n": LOOP}, "$defs": {"a": LOOP}},
        {"properties": {"n": {"items": LOOP, "enum": 5}}, "$defs": {"a": LOOP}},
    ],
)
@pytest.mark.parametrize("value", ["text", 1, None, [], [{"a": [1]}], {"a": 1}])
def test_a_schema_of_any_shape_leaves_the_page_as_it_is(schema: dict[str, Any], value: Any) -> None:
    """An adapter hands on what a server of somebody else's says."""
    case = called(schema, value)
    assert 'name="arg.0' in render_case(case, token=TOKEN, base_path="", now=NOW, stage="edit")
    assert read_submission(case, {"intent": ["preview"], "arg.0": ["text"]}).intent == "preview"


@pytest.mark.anyio
async def test_the_service_refuses_a_number_that_is_too_large(tmp_path: Path) -> None:
    fields = [{"key": "limit", "label": "Limit", "type": "number", "required": True}]
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        case = await (await served.agent()).open("input", context={"form": {"fields": fields}})
        page = case.hitl["review_url"].replace("?", "/respond?")
        form = {"shown": "limit", "f.limit": HUGE, "step": "1", "intent": "answer"}
        posted = await served.http.post(page, data=form, headers={**BROWSER, "Sec-Fetch-Site": "same-origin"})
        assert posted.status_code == 422
        assert "Enter a number." in posted.text
        body = f'{{"action": "submit", "data": {{"limit": {HUGE}}}}}'
        said = await served.http.post(page, content=body, headers={"Content-Type": "application/json"})
        assert said.status_code == 422
        assert said.json()["faults"] == {"data.limit": "must be a number"}
        assert (await case.poll())["status"] in ("pending", "opened")
