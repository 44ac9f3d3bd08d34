"""Tools: from a function, or from a model and a function, to what a model may call."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from kit.tool_calls import call, properties
from pydantic import BaseModel, Field

from askfirst import (
    Tool,
    ToolContext,
    tool,
)
from askfirst.errors import InvalidTool

pytestmark = pytest.mark.anyio


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


async def test_a_parameter_of_any_type_takes_anything() -> None:
    @tool
    def echo(x: Any) -> Any:
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


def _yielding() -> Iterator[str]:
    """One by one."""
    yield "a"


async def _yielding_async() -> AsyncIterator[str]:
    """One by one."""
    yield "a"


class _Yielding:
    def __call__(self) -> Iterator[str]:
        """One by one."""
        yield "a"


@pytest.mark.parametrize(
    "function",
    [_yielding, _yielding_async, functools.partial(_yielding), _Yielding()],
    ids=["sync", "async", "partial", "object"],
)
def test_a_generator_is_no_tool(function: Callable[..., Any]) -> None:
    """Its body would never run, and the model be told that it had."""
    for make in (tool, lambda it: Tool("count", BaseModel, it)):
        with pytest.raises(InvalidTool, match="it is a generator"):
            make(function)
