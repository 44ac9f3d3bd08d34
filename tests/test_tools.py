"""Tools: from a function to what a model may call, and from what it returns to what a model is told."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import threading
from collections.abc import Awaitable, Callable
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from assent import (
    Agent,
    BeforeToolCallResult,
    Middleware,
    Tool,
    ToolCallContext,
    ToolContext,
    ToolResult,
    tool,
)
from assent.errors import InvalidTool
from assent.events import AgentEvent, ToolProgressEvent, ToolStartedEvent
from assent.messages import (
    FilePart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResultMessage,
    UnknownPart,
    decode,
    encode,
)
from assent.models import ScriptedModel

pytestmark = pytest.mark.anyio


async def call(tool: Tool | Callable[..., Any], args: dict[str, Any] | None = None) -> ToolResultMessage:
    """The result of one call, made by a scripted agent. It is in the transcript, so it must be storable."""
    agent = Agent(model=ScriptedModel([ToolCall("c1", _name(tool), args or {}), "done"]), tools=[tool])
    result = await agent.prompt("go")
    assert result.status == "completed"
    (message,) = [each for each in result.messages if isinstance(each, ToolResultMessage)]
    assert decode(encode(message)) == message
    return message


def _name(each: Tool | Callable[..., Any]) -> str:
    return each.name if isinstance(each, Tool) else each.__name__


def properties(made: Tool) -> dict[str, Any]:
    found = made.schema.parameters["properties"]
    assert isinstance(found, dict)
    return found


# From a function.


async def test_name_description_and_schema() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    assert isinstance(add, Tool)
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert (add.toolset, add.requires_approval, add.effect, add.execution_mode) == (
        "default",
        False,
        "once",
        "parallel",
    )
    assert add.schema.parameters == {
        "type": "object",
        "properties": {
            "a": {"title": "A", "type": "integer"},
            "b": {"title": "B", "type": "integer", "default": 2},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert (await call(add, {"a": 1})).text == "3"
    assert (await call(add, {"a": 1, "b": 5})).text == "6"


async def test_options() -> None:
    @tool(
        name="plus",
        description="Adds.",
        toolset="maths",
        requires_approval=True,
        effect="none",
        execution_mode="sequential",
    )
    async def add(a: int) -> int:
        """Not this."""
        return a

    assert (add.name, add.description, add.toolset) == ("plus", "Adds.", "maths")
    assert (add.requires_approval, add.effect, add.execution_mode) == (True, "none", "sequential")
    assert (add.schema.name, add.schema.description) == ("plus", "Adds.")


async def test_async_function() -> None:
    @tool
    async def greet(name: str) -> str:
        await asyncio.sleep(0)
        return f"hello {name}"

    assert (await call(greet, {"name": "Ada"})).text == "hello Ada"


async def test_a_plain_function_among_the_tools_is_one() -> None:
    def double(n: int) -> int:
        return 2 * n

    assert (await call(double, {"n": 21})).text == "42"


def scale(factor: int, n: int, unit: str = "", *, ctx: ToolContext) -> str:
    """Scale a number.

    Args:
        n: what to scale
    """
    return f"{factor * n}{unit} {ctx.tool_call_id}"


async def test_partial() -> None:
    triple = tool(functools.partial(scale, 3, unit="kg"))
    assert (triple.name, triple.description) == ("scale", "Scale a number.")
    assert properties(triple) == {"n": {"title": "N", "type": "integer", "description": "what to scale"}}
    assert (await call(triple, {"n": 4})).text == "12kg c1"
    assert (await call(triple, {"n": 4, "unit": "t"})).is_error


async def test_partial_of_an_async_function() -> None:
    async def where(x: int, y: int) -> int:
        assert asyncio.get_running_loop()
        return x - y

    assert (await call(tool(functools.partial(where, y=1)), {"x": 3})).text == "2"


class Shop:
    """A shop."""

    def __init__(self, stock: int) -> None:
        self.stock = stock

    def take(self, count: int) -> int:
        """Take some."""
        self.stock -= count
        return self.stock

    def __call__(self, count: int) -> int:
        return self.stock + count


class AsyncShop(Shop):
    async def __call__(self, count: int) -> int:
        await asyncio.sleep(0)
        return self.stock + count


async def test_bound_method() -> None:
    shop = Shop(10)
    take = tool(shop.take)
    assert (take.name, take.description, list(properties(take))) == ("take", "Take some.", ["count"])
    assert (await call(take, {"count": 3})).text == "7"
    assert shop.stock == 7


@pytest.mark.parametrize("kind", [Shop, AsyncShop])
async def test_callable_object(kind: type[Shop]) -> None:
    made = tool(kind(10))
    assert made.name == kind.__name__
    assert properties(made)["count"]["type"] == "integer"
    assert (await call(made, {"count": 3})).text == "13"


async def test_decorated_function_keeps_its_signature() -> None:
    def loud(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> str:
            return str(function(*args, **kwargs)).upper()

        return wrapper

    @tool
    @loud
    def greet(name: str) -> str:
        return f"hello {name}"

    assert (await call(greet, {"name": "ada"})).text == "HELLO ADA"


async def test_annotations_of_local_types() -> None:
    """This module's annotations are strings, and these types are in no module."""

    class Colour(Enum):
        RED = "red"

    class Point(BaseModel):
        x: int
        y: int = 0

    @tool
    def paint(point: Point, colour: Colour, mode: Literal["fill", "line"] = "fill") -> str:
        return f"{point.x},{point.y} {colour.name} {mode}"

    result = await call(paint, {"point": {"x": 1}, "colour": "red"})
    assert result.text == "1,0 RED fill"
    assert (await call(paint, {"point": {"x": "one"}, "colour": "red"})).is_error


def test_an_annotation_that_nobody_knows() -> None:
    def bad(x: Nowhere) -> None: ...  # noqa: F821

    with pytest.raises(InvalidTool, match="Nowhere"):
        tool(bad)


def google(city: str, days: int = 1) -> None:
    """Forecast the weather.

    Only a guess.

    Args:
        city: where
        days: how far ahead
    """


def numpy(city: str, days: int = 1) -> None:
    """Forecast the weather.

    Only a guess.

    Parameters
    ----------
    city : str
        where
    days : int
        how far ahead
    """


def sphinx(city: str, days: int = 1) -> None:
    """Forecast the weather.

    Only a guess.

    :param city: where
    :param days: how far ahead
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_docstring_styles(function: Callable[..., Any]) -> None:
    made = tool(function)
    assert made.description == "Forecast the weather.\n\nOnly a guess."
    described = {name: field["description"] for name, field in properties(made).items()}
    assert described == {"city": "where", "days": "how far ahead"}


async def test_field_constraints() -> None:
    @tool
    def order(
        count: Annotated[int, Field(gt=0, le=9, description="how many")],
        code: str = Field(pattern="^[A-Z]+$", description="which"),
        tags: Annotated[list[str], Field(max_length=2)] = [],  # noqa: B006
    ) -> str:
        """Order.

        Args:
            count: not this
            tags: labels
        """
        return f"{count}{code}{tags}"

    assert properties(order) == {
        "count": {
            "title": "Count",
            "type": "integer",
            "exclusiveMinimum": 0,
            "maximum": 9,
            "description": "how many",
        },
        "code": {"title": "Code", "type": "string", "pattern": "^[A-Z]+$", "description": "which"},
        "tags": {
            "title": "Tags",
            "type": "array",
            "items": {"type": "string"},
            "maxItems": 2,
            "default": [],
            "description": "labels",
        },
    }
    assert (await call(order, {"count": 1, "code": "A"})).text == "1A[]"
    for bad in ({"count": 0, "code": "A"}, {"count": 1, "code": "a"}, {"count": 1}):
        assert (await call(order, bad)).is_error


@pytest.mark.parametrize(
    "name",
    ["json", "copy", "schema", "model_config", "model_dump_path", "_private", "_", "construct", "self_"],
)
async def test_parameter_names_that_models_use_themselves(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def echo({name}: int) -> int: return {name}", namespace)  # noqa: S102
    made = tool(namespace["echo"])
    assert list(properties(made)) == [name]
    assert (await call(made, {name: 7})).text == "7"
    refused = await call(made, {name: "seven"})
    assert refused.is_error
    assert f"{name}: " in refused.text


async def test_names_that_would_meet_after_renaming() -> None:
    @tool
    def echo(json: int, json_argument: int, _x: int, __x: int) -> list[int]:
        return [json, json_argument, _x, __x]

    args = {"json": 1, "json_argument": 2, "_x": 3, "__x": 4}
    assert list(properties(echo)) == list(args)
    assert (await call(echo, args)).text == "[1,2,3,4]"


async def test_positional_only_and_keyword_only() -> None:
    @tool
    def mix(a: int, b: int = 2, /, c: int = 3, *, d: int, e: int = 5) -> list[int]:
        return [a, b, c, d, e]

    assert mix.schema.parameters["required"] == ["a", "d"]
    assert (await call(mix, {"a": 1, "d": 4})).text == "[1,2,3,4,5]"
    assert (await call(mix, {"a": 9, "b": 8, "c": 7, "d": 6, "e": 0})).text == "[9,8,7,6,0]"


async def test_untyped_parameter_takes_anything() -> None:
    @tool
    def echo(x) -> Any:  # type: ignore[no-untyped-def]
        return x

    assert (await call(echo, {"x": [1, {"a": None}]})).text == '[1,{"a":null}]'


def test_no_parameters() -> None:
    @tool
    def ping() -> str:
        return "pong"

    assert properties(ping) == {}


async def test_undeclared_arguments_are_refused() -> None:
    @tool
    def ping() -> str:
        return "pong"

    assert (await call(ping, {"x": 1})).is_error


def positional(*numbers: int) -> None: ...
def keywords(a: int, **rest: int) -> None: ...


@pytest.mark.parametrize(("function", "culprit"), [(positional, r"\*numbers"), (keywords, r"\*\*rest")])
def test_parameters_without_a_name(function: Callable[..., Any], culprit: str) -> None:
    with pytest.raises(InvalidTool, match=culprit) as caught:
        tool(function)
    assert caught.value.tool_name == function.__name__


def test_a_type_without_json() -> None:
    def bad(lock: threading.Lock) -> None: ...
    def worse(callback: Callable[[], None]) -> None: ...

    for function in (bad, worse):
        with pytest.raises(InvalidTool, match="no JSON form"):
            tool(function)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ü", "x" * 65, "a\n"])
def test_bad_names(name: str) -> None:
    with pytest.raises(InvalidTool, match="1 to 64"):
        Tool(name, BaseModel, lambda _: None)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(InvalidTool, match="<lambda>"):
        tool(lambda: None)
    assert tool(name="nothing")(lambda: None).name == "nothing"


def test_bad_options() -> None:
    def body() -> None: ...

    with pytest.raises(InvalidTool, match="effect is one of once, idempotent, none, not 'twice'"):
        tool(effect="twice")(body)
    with pytest.raises(InvalidTool, match="execution_mode is one of parallel, sequential, not 'alone'"):
        tool(execution_mode="alone")(body)
    with pytest.raises(TypeError):
        tool(colour="red")(body)


def test_a_tool_is_no_function_to_make_a_tool_of() -> None:
    with pytest.raises(InvalidTool, match="already"):
        tool(tool(google))


async def test_calling_a_tool_calls_the_function() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        return a + b

    @tool
    async def later(a: int) -> int:
        return a

    assert add(1) == 3
    assert add(1, b=5) == 6
    assert await later(4) == 4


def test_a_tool_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        tool(google).name = "other"


# By hand.


class Sum(BaseModel):
    a: int
    b: int = 1


async def test_hand_made_tool_with_one_parameter() -> None:
    async def add(args: Sum) -> int:
        return args.a + args.b

    made = Tool("add", Sum, add, "Adds.", effect="none")
    assert made.schema.description == "Adds."
    assert made.schema.parameters["required"] == ["a"]
    assert "title" not in made.schema.parameters
    assert (await call(made, {"a": 1})).text == "2"
    assert (await call(made, {"a": "x"})).is_error


async def test_hand_made_tool_with_two_parameters() -> None:
    def add(args: Sum, context: ToolContext) -> str:
        return f"{args.a + args.b} for {context.tool_call_id} in {threading.current_thread().name[:7]}"

    assert (await call(Tool("add", Sum, add), {"a": 1})).text.startswith("2 for c1 in asyncio")


async def test_hand_made_tool_from_a_builtin() -> None:
    assert (await call(Tool("show", Sum, repr), {"a": 1})).text == "Sum(a=1, b=1)"


def test_parameters_are_a_model() -> None:
    with pytest.raises(InvalidTool, match="pydantic model"):
        Tool("add", dict, print)


# Where bodies run.


async def test_a_sync_body_runs_in_a_thread_and_the_loop_goes_on() -> None:
    started, release = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    @tool
    def block() -> str:
        threads.append(threading.current_thread())
        started.set()
        assert release.wait(30)
        return "released"

    async def bystander() -> None:
        await asyncio.to_thread(started.wait)
        release.set()  # only a loop that is not blocked gets here

    result, _ = await asyncio.gather(call(block), bystander())
    assert result.text == "released"
    assert threads != [threading.current_thread()]


async def test_parallel_sync_bodies_run_at_once() -> None:
    both = threading.Barrier(2, timeout=30)

    @tool
    def meet() -> str:
        both.wait()  # raises unless the other body is there too
        return "met"

    calls = [ToolCall("c1", "meet", {}), ToolCall("c2", "meet", {})]
    result = await Agent(model=ScriptedModel([calls, "done"]), tools=[meet]).prompt("go")
    assert [each.text for each in result.messages if isinstance(each, ToolResultMessage)] == ["met", "met"]


async def test_blocking_in_an_async_body_is_noticed() -> None:
    """The suite's own alarm: without it, the tests above would prove less."""
    import time

    @tool
    async def block() -> None:
        time.sleep(0.001)  # noqa: ASYNC251

    result = await call(block)
    assert result.is_error
    assert "Blocking call to time.sleep" in result.text


# The context.


async def test_context_names_the_call_and_the_thread() -> None:
    seen: list[ToolContext] = []

    @tool
    async def look(a: int, ctx: ToolContext) -> None:
        seen.append(ctx)

    model = ScriptedModel([ToolCall("c7", "look", {"a": 1}), "done"])
    agent = Agent(model=model, tools=[look], thread_id="t1")
    result = await agent.prompt("go")
    (ctx,) = seen
    assert list(properties(look)) == ["a"]
    assert (ctx.tool_call_id, ctx.tool_name) == ("c7", "look")
    assert (ctx.thread_id, ctx.run_id) == ("t1", result.run_id)
    assert not ctx.signal.is_set()


async def test_context_in_any_position() -> None:
    def first(ctx: ToolContext, x: int, /) -> str:
        return f"{ctx.tool_call_id} {x}"

    def optional(x: int, ctx: ToolContext | None = None) -> str:
        return f"{ctx.tool_call_id if ctx else None} {x}"

    def twice(a: ToolContext, x: int, b: ToolContext) -> str:
        return f"{a.tool_call_id if a is b else None} {x}"

    for function in (first, optional, twice):
        made = tool(function)
        assert list(properties(made)) == ["x"]
        assert (await call(made, {"x": 1})).text == "c1 1"


async def test_idempotency_key_is_stable_and_unique() -> None:
    keys: list[str] = []

    @tool
    async def look(ctx: ToolContext) -> None:
        keys.append(ctx.idempotency_key)

    calls = [ToolCall("c1", "look", {}), ToolCall("c2", "look", {})]
    for thread_id in ("t1", "t1", "t2"):
        agent = Agent(model=ScriptedModel([calls, "done"]), tools=[look], thread_id=thread_id)
        await agent.prompt("go")
    assert keys[0:2] == keys[2:4]
    assert len({*keys}) == 4
    assert all(key.isascii() and key.isalnum() and 16 <= len(key) <= 64 for key in keys)


async def progress_of(body: Callable[..., Any]) -> list[tuple[float | None, str]]:
    heard: list[AgentEvent] = []
    made = tool(body)
    agent = Agent(model=ScriptedModel([ToolCall("c1", made.name, {}), "done"]), tools=[made])
    agent.subscribe(heard.append)
    result = await agent.prompt("go")
    assert not [m for m in result.messages if isinstance(m, ToolResultMessage) and m.is_error]
    kinds = [event.type for event in heard if event.type.startswith("tool_")]
    reports = [event for event in heard if isinstance(event, ToolProgressEvent)]
    assert kinds == ["tool_started", *["tool_progress"] * len(reports), "tool_ended"]
    assert {(event.tool_call_id, event.tool_name) for event in reports} == {("c1", made.name)}
    return [(event.fraction, event.text) for event in reports]


def _report(ctx: ToolContext) -> None:
    ctx.report(0.25)
    ctx.report("half")
    ctx.report(0.75, "most")
    ctx.report(1)


REPORTED = [(0.25, ""), (None, "half"), (0.75, "most"), (1.0, "")]


async def test_report_from_the_loop() -> None:
    async def work(ctx: ToolContext) -> None:
        _report(ctx)

    assert await progress_of(work) == REPORTED


async def test_report_from_a_thread() -> None:
    def work(ctx: ToolContext) -> None:
        _report(ctx)

    assert await progress_of(work) == REPORTED


async def test_report_from_another_loop() -> None:
    """A sync body may well run an event loop of its own; listeners still hear in the agent's."""
    heard_in: list[threading.Thread] = []

    @tool
    def work(ctx: ToolContext) -> None:
        async def inner() -> None:
            _report(ctx)

        asyncio.run(inner())

    agent = Agent(model=ScriptedModel([ToolCall("c1", "work", {}), "done"]), tools=[work])
    agent.subscribe(lambda _: heard_in.append(threading.current_thread()))
    await agent.prompt("go")
    assert {*heard_in} == {threading.current_thread()}
    assert await progress_of(work.function) == REPORTED


@pytest.mark.parametrize(
    ("given", "fraction"), [(-1, 0.0), (7, 1.0), (math.inf, 1.0), (-math.inf, 0.0), (math.nan, None)]
)
async def test_fractions_stay_between_nothing_and_all(given: float, fraction: float | None) -> None:
    async def work(ctx: ToolContext) -> None:
        ctx.report(given, "so far")

    assert await progress_of(work) == [(fraction, "so far")]


async def test_reports_reach_async_listeners_before_the_tool_ends() -> None:
    heard: list[str] = []

    async def slow(event: AgentEvent) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        heard.append(event.type)

    @tool
    async def work(ctx: ToolContext) -> None:
        ctx.report(0.5)

    agent = Agent(model=ScriptedModel([ToolCall("c1", "work", {}), "done"]), tools=[work])
    agent.subscribe(slow)
    await agent.prompt("go")
    assert heard.index("tool_progress") < heard.index("tool_ended")


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
