"""Edited arguments are checked by the tool's schema wherever nobody knows the tool itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.channel_rigs import STORED, Rig, asked, open_rig
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, ValidationError

from askfirst import Agent, tool
from askfirst.errors import HitlInvalidAnswer
from askfirst.json_schema import MOST_BYTES, bare_schema, schema_faults
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.requests import ApproveRequest, HitlRequest, fit_answer


class Part(BaseModel):
    """Something with parts."""

    name: str
    pages: Annotated[int, Field(ge=1)] = 1
    parts: list[Part] = []


class Order(BaseModel):
    """One field of every kind that tools take."""

    model_config = ConfigDict(extra="forbid")

    amount: Annotated[int, Field(gt=0, le=100, description="How much.")]
    to: Annotated[str, Field(min_length=2, max_length=5, pattern="^[a-z]+$")]
    price: Annotated[float, Field(ge=0, lt=10)] = 1.5
    dozen: Annotated[int, Field(multiple_of=12)] = 12
    urgent: bool = False
    size: Literal["small", "large"] = "small"
    fixed: Literal["only"] = "only"
    either: int | list[str] | None = None
    day: date | None = None
    at: datetime | None = None
    clock: time | None = None
    lasts: timedelta | None = None
    id: UUID | None = None
    site: AnyUrl | None = None
    cost: Decimal = Decimal(1)
    tags: Annotated[list[str], Field(max_length=2)] = []
    pair: tuple[int, str] = (1, "a")
    many: tuple[int, ...] = ()
    by_name: dict[str, int] = {}
    part: Part | None = None
    title: str = ""
    anything: Any = None


SCHEMA = bare_schema(Order.model_json_schema())
assert SCHEMA is not None
GOOD = json.loads(Order(amount=5, to="ada", part=Part(name="a", parts=[Part(name="b")])).model_dump_json())

FAULTS: dict[str, tuple[Any, str]] = {
    "amount": (0, "amount: must be more than 0"),
    "to": ("ADA", "to: does not have the expected form"),
    "price": (10, "price: must be less than 10.0"),
    "dozen": (13, "dozen: must be a multiple of 12"),
    "urgent": ("perhaps", "urgent: must be true or false"),
    "size": ("huge", "size: must be one of 'small' or 'large'"),
    "fixed": ("other", "fixed: must be one of 'only'"),
    "either": ({}, "either: does not fit"),
    "day": ("soon", "day: must be a date such as 2026-05-01"),
    "at": ("soon", "at: must be a time such as 2026-05-01T10:00:00Z"),
    "clock": ("soon", "clock: must be a time of day such as 10:00:00"),
    "lasts": ("long", "lasts: must be a duration such as PT1H30M"),
    "id": ("mine", "id: must be a UUID"),
    "site": ("there", "site: must be an address such as https://a.example"),
    "tags": (["a", "b", "c"], "tags: must have at most 2 entries"),
    "pair": ([1], "pair.1: is missing"),
    "many": (["x"], "many.0: must be a whole number"),
    "by_name": ({"a": []}, "by_name.a: must be a whole number"),
    "part": ({"name": "a", "parts": [{"name": 1}]}, "part.parts.0.name: must be text"),
    "title": (None, "title: must be text"),
    "unheard_of": (1, "unheard_of: is not known here"),
}


def faults(args: dict[str, Any]) -> list[str]:
    assert SCHEMA is not None
    return [f"{'.'.join(place)}: {why}" for place, why in schema_faults(SCHEMA, args)]


def test_what_fits_has_no_faults() -> None:
    assert faults(GOOD) == []
    assert faults({"amount": 1, "to": "bob"}) == []


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named_by_its_place_and_without_the_value(name: str) -> None:
    value, said = FAULTS[name]
    assert faults({**GOOD, name: value}) == [said]


def test_all_faults_at_once() -> None:
    wrong = {name: value for name, (value, _) in FAULTS.items()}
    assert set(faults({**GOOD, **wrong})) == {said for _, said in FAULTS.values()}
    assert faults({"to": "ada"}) == ["amount: is missing"]


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 120),
    st.floats(-3, 20, allow_nan=False),
    st.sampled_from(
        ["", "a", "ada", "small", "5", "2026-05-01", "10:00", "PT1H", "true", "https://a.example"]
    ),
)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "pages", "a"]), inner)
    ),
)


@given(changed=st.dictionaries(st.sampled_from(sorted(Order.model_fields)), values, max_size=3))
def test_the_schema_and_the_tools_own_model_agree(changed: dict[str, Any]) -> None:
    """To the letter, where the schema says it all: text that is a number counts as one for both."""
    args = {**GOOD, **changed}
    try:
        Order.model_validate(args)
        fits = True
    except ValidationError:
        fits = False
    if fits or "cost" not in changed:  # of a Decimal, the schema says no more than "a number, or text"
        assert (faults(args) == []) == fits, (changed, faults(args))


class Noted(BaseModel):
    """Says much."""

    title: Annotated[str, Field(description="long", examples=["x"])] = "a default"
    description: int = 3
    most: float = float("inf")
    part: Part = Part(name="a")


def test_of_a_schema_what_checks_is_kept_and_the_defaults_of_arguments() -> None:
    part = {"type": "integer", "minimum": 1}
    parts = {"type": "array", "items": {"$ref": "#/$defs/Part"}}
    assert bare_schema(Noted.model_json_schema()) == {
        "properties": {
            "title": {"type": "string", "default": "a default"},
            "description": {"type": "integer", "default": 3},
            "most": {"type": "number"},  # JSON has no infinity
            "part": {"$ref": "#/$defs/Part", "default": {"name": "a", "pages": 1, "parts": []}},
        },
        "$defs": {
            "Part": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "pages": part, "parts": parts},
                "required": ["name"],
            }
        },
        "type": "object",
    }


def test_defaults_that_are_too_large_are_not_kept_nor_are_some_of_them() -> None:
    fields = {f"f{n}": {"type": "string", "default": "x" * 300} for n in range(20)}
    kept = bare_schema({"type": "object", "properties": fields})
    assert kept is not None
    assert kept["properties"] == {name: {"type": "string"} for name in fields}


def test_many_arguments_keep_their_defaults_beside_what_checks() -> None:
    fields = {f"limit_{n}": {"type": "integer", "default": n} for n in range(60)}
    kept = bare_schema({"type": "object", "properties": fields})
    assert kept is not None
    assert len(json.dumps(kept, separators=(",", ":"))) > MOST_BYTES
    assert kept["properties"] == fields


def test_a_large_schema_is_kept_without_what_nests_in_it() -> None:
    inner = {f"field_{n}": {"type": "string", "minLength": n} for n in range(60)}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "part": {"$ref": "#/$defs/Part"},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
        },
        "required": ["count"],
        "$defs": {"Part": {"type": "object", "properties": inner}},
    }
    kept = bare_schema(schema)
    assert kept is not None
    assert len(json.dumps(kept)) < 300
    assert schema_faults(kept, {"count": 1, "part": {"field_9": 0}, "parts": [1]}) == []
    assert schema_faults(kept, {"count": "x", "parts": 1}) == [
        (("count",), "must be a whole number"),
        (("parts",), "must be a list"),
    ]


def test_one_that_is_still_too_large_is_not_stored() -> None:
    properties = {f"a_rather_long_name_{n}": {"type": "string"} for n in range(MOST_BYTES // 20)}
    assert bare_schema({"type": "object", "properties": properties}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/Gone"}}},
        {"type": "object", "properties": {"a": {"anyOf": []}}},
        {"type": "object", "properties": []},
        {"type": "nonsense"},
        {},
    ],
)
def test_a_schema_that_makes_no_sense_refuses_nothing(schema: Any) -> None:
    assert schema_faults(schema, {"a": 1}) == []


def test_a_pattern_of_pythons_own_is_left_to_the_tool_and_a_slow_one_is_quick() -> None:
    def with_pattern(pattern: str) -> dict[str, Any]:
        return {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}

    assert schema_faults(with_pattern("^(?=x)"), {"a": "y"}) == []
    assert schema_faults(with_pattern("^(a+)+$"), {"a": "a" * 5000 + "!"}) != []


# With a request.


@tool(requires_approval=True)
async def pay(amount: Annotated[int, Field(ge=1, le=100)], to: str = "Ada") -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


EDIT = {"decision": "edit", "edited_args": {"amount": 0, "to": 7}}
SAID = ("amount: must be at least 1", "to: must be text")


@pytest.fixture(params=STORED)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(request.param, tmp_path) as rig:
        yield rig


@pytest.mark.anyio
@pytest.mark.parametrize("channel", [True, False], ids=["channel", "no channel"])
async def test_whoever_settles_without_the_agent_is_told_what_does_not_fit(rig: Rig, channel: bool) -> None:
    model = ScriptedModel([ToolCall("c1", "pay", {"amount": 5}), "done"])
    if channel:
        agent = rig.agent(model=model, tools=[pay])
        task = rig.start(agent.prompt("go"))
        await asked(agent.channel)
    else:
        agent = Agent(model=model, tools=[pay], checkpointer=rig.checkpointer, thread_id="t")
        assert (await agent.prompt("go")).status == "paused"
    with pytest.raises(HitlInvalidAnswer) as caught:
        await rig.checkpointer.settle("t", "c1", EDIT)
    assert caught.value.faults == SAID
    [open_still] = await rig.checkpointer.pending()
    assert open_still.question_id == "c1"
    await rig.checkpointer.settle("t", "c1", {"decision": "edit", "edited_args": {"amount": 7}})
    result = await (task if channel else agent.resume())
    assert result.text == "done"
    assert "paid 7 to Ada" in str(result.messages)


def test_a_request_of_an_earlier_version_has_no_schema_and_takes_any_edit() -> None:
    payload = ApproveRequest(tool_name="pay", tool_call_id="c1", args={"amount": 5})
    request = HitlRequest(question_id="c1", payload=payload, created_at=0.0)
    assert "args_schema" not in request.model_dump_json()
    assert fit_answer(request, EDIT)


def test_the_schema_is_in_no_repr() -> None:
    payload = ApproveRequest(tool_name="pay", tool_call_id="c1", args={}, args_schema=pay.args_schema)
    assert "maximum" not in repr(payload)
    assert "maximum" in payload.model_dump_json()


def test_arguments_that_have_to_stay_as_they_are_shown() -> None:
    schema = {"const": {"cents": 5, "lines": ["a"]}}
    shown = {"cents": 5, "lines": ["a"]}
    assert schema_faults(schema, shown, shown) == []
    assert schema_faults(schema, {**shown, "cents": 3}, shown)
