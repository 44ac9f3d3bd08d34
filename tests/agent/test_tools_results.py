"""What a model is told of a body that returned, whatever it returned, or raised."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any

import pytest
from kit.tool_calls import call
from pydantic import BaseModel, field_validator

from askfirst import (
    Agent,
    BeforeToolCallResult,
    Middleware,
    Tool,
    ToolCallContext,
    ToolResult,
    tool,
)
from askfirst.events import ToolStartedEvent
from askfirst.messages import (
    FilePart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResultMessage,
    UnknownPart,
)
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


# What bodies return.


class Answer(BaseModel):
    n: int
    when: date = date(2026, 1, 2)


@dataclasses.dataclass
class Plain:
    n: int
    parts: tuple[int, ...] = (1, 2)


class Opaque:
    def __str__(self) -> str:
        return "opaque!"


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def circle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("ü\n🙂", "ü\n🙂"),
        ("half \ud800", "half ?"),
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (2**70, "1180591620717411303424"),
        (1.5, "1.5"),
        (math.nan, "NaN"),
        ([math.inf, "a"], '[Infinity,"a"]'),
        ({"a": [1, {"b": None}]}, '{"a":[1,{"b":null}]}'),
        ([], "[]"),
        ((1, "b"), '[1,"b"]'),
        ({(1, 2): 3}, '{"1,2":3}'),
        (Answer(n=1), '{"n":1,"when":"2026-01-02"}'),
        ([Answer(n=1)], '[{"n":1,"when":"2026-01-02"}]'),
        (Plain(3), '{"n":3,"parts":[1,2]}'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (Opaque(), '"opaque!"'),
        ({"x": Opaque()}, '{"x":"opaque!"}'),
        (b"bytes", '"bytes"'),
        (b"\xff", "b'\\xff'"),
        (["half \ud800"], "['half \\ud800']"),
        (circle(), "[[...]]"),
        (Unspeakable(), "<Unspeakable>"),
        ({"x": Unspeakable()}, "<dict>"),
    ],
)
async def test_return_values(value: Any, text: str) -> None:
    """Whatever is returned, the body has run: no value may turn its result into an error."""

    @tool
    async def give() -> Any:
        return value

    result = await call(give)
    assert (result.text, result.is_error, result.details) == (text, False, None)
    assert [type(part) for part in result.content] == [TextPart]


PICTURE = ImagePart(media_type="image/png", data=b"\x89PNG")


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (TextPart("a"), (TextPart("a"),)),
        (PICTURE, (PICTURE,)),
        ([TextPart("see"), PICTURE], (TextPart("see"), PICTURE)),
        (
            (FilePart(media_type="text/csv", url="u"), UnknownPart(type="new", x=1)),
            (FilePart(media_type="text/csv", url="u"), UnknownPart(type="new", x=1)),
        ),
        (ToolResult([PICTURE]), (PICTURE,)),
    ],
)
async def test_parts_are_passed_on(value: Any, content: tuple[Any, ...]) -> None:
    @tool
    async def give() -> Any:
        return value

    assert (await call(give)).content == content


async def test_a_part_that_only_models_use_is_shown_as_json() -> None:
    @tool
    async def give() -> Any:
        return [ThinkingPart("hm")]

    assert (await call(give)).text == '[{"type":"thinking","text":"hm"}]'


async def test_tool_result_with_details() -> None:
    @tool
    async def give() -> ToolResult:
        return ToolResult({"n": 1}, details={"rows": [1, date(2026, 1, 2)], "model": Answer(n=2)})

    result = await call(give)
    assert result.text == '{"n":1}'
    assert not result.is_error
    assert result.details == {"rows": [1, "2026-01-02"], "model": {"n": 2, "when": "2026-01-02"}}


async def test_tool_result_that_is_an_error() -> None:
    @tool
    async def give() -> ToolResult:
        return ToolResult("no such row", is_error=True, details={"code": 404})

    result = await call(give)
    assert (result.text, result.is_error, result.details) == ("no such row", True, {"code": 404})


@pytest.mark.parametrize(
    ("details", "kept"),
    [
        ({}, None),
        ({"a": math.nan, "b": Opaque()}, {"a": "NaN", "b": "opaque!"}),
        ({1: 2}, {"1": 2}),
        (Answer(n=1), {"n": 1, "when": "2026-01-02"}),
        ([1], {"text": "[1]"}),
        ({"a": "\ud800"}, {"text": "{'a': '\\ud800'}"}),
        ({"a": Unspeakable()}, {"text": "<dict>"}),
    ],
)
async def test_details_of_any_kind(details: Any, kept: Any) -> None:
    @tool
    async def give() -> ToolResult:
        return ToolResult("ok", details=details)

    result = await call(give)
    assert (result.text, result.is_error, result.details) == ("ok", False, kept)


# What goes wrong.


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such city"), "fail failed: ValueError: no such city"),
        (KeyError("x"), "fail failed: KeyError: 'x'"),
        (TimeoutError(), "fail failed: TimeoutError"),
        (ValueError("half \ud800"), "fail failed: ValueError: half ?"),
        (Silent(), "fail failed: Silent"),
        (ExceptionGroup("both", [ValueError("a")]), "fail failed: ExceptionGroup: both (1 sub-exception)"),
        (asyncio.CancelledError(), "fail failed: CancelledError"),
    ],
)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_raising_body(error: BaseException, text: str, kind: str) -> None:
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    body: Callable[[], Awaitable[None] | None] = fail if kind == "sync" else fail_async
    result = await call(tool(name="fail")(body))
    assert (result.text, result.is_error) == (text, True)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_stop_iteration(kind: str) -> None:
    """The error that no future can carry; ``next`` of something empty raises it."""

    def first() -> Any:
        return next(iter(()))

    async def first_async() -> Any:
        return next(iter(()))

    result = await call(tool(name="first")(first if kind == "sync" else first_async))
    assert result.is_error
    assert "StopIteration" in result.text


async def test_a_validator_that_breaks() -> None:
    class Args(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def look_up(cls, x: int) -> int:
            return {}[x]

    result = await call(Tool("find", Args, lambda args: args), {"x": 1})
    assert result.is_error
    assert "KeyError" in result.text


async def test_arguments_without_json_are_shown_all_the_same() -> None:
    """Listeners are told of every body; what they are told may not break it."""

    class Args(BaseModel):
        wrong: int = None  # type: ignore[assignment]
        number: float = 0
        data: bytes = b""

    shown: list[Any] = []
    edits = {"number": math.nan, "data": b"\xff"}
    made = Tool("work", Args, lambda args: "ok")
    model = ScriptedModel([ToolCall("c1", "work", {}), "done"])
    agent = Agent(model=model, tools=[made], middleware=[Editor(edits)])
    agent.subscribe(lambda e: shown.append(e.args) if isinstance(e, ToolStartedEvent) else None)
    result = await agent.prompt("go")
    assert [m.text for m in result.messages if isinstance(m, ToolResultMessage)] == ["ok"]
    assert shown == [{"text": "wrong=None number=nan data=b'\\xff'"}]


class Editor(Middleware):
    def __init__(self, edits: dict[str, Any]) -> None:
        self.edits = edits

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult:
        return BeforeToolCallResult(edited_args=self.edits)
