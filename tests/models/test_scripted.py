"""ScriptedModel says what it was told to say, in the pieces a real model would use."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from askfirst.errors import ModelError, ScriptExhausted
from askfirst.messages import (
    AssistantMessage,
    Delta,
    Message,
    TextDelta,
    TextPart,
    ThinkingDelta,
    ThinkingPart,
    ToolCall,
    ToolCallDelta,
    Usage,
    UserMessage,
)
from askfirst.models import ModelRequest, ScriptedModel

pytestmark = pytest.mark.anyio

HELLO = UserMessage("hello")
CALL = ToolCall("c1", "add", {"a": 1, "b": [2, {"c": "ü"}]})


async def ask(model: ScriptedModel, *messages: Message) -> tuple[list[Delta], AssistantMessage]:
    """One turn: its deltas, and its message, which must come last and once."""
    items = [item async for item in model.stream(ModelRequest(messages or (HELLO,)))]
    deltas = [item for item in items if not isinstance(item, AssistantMessage)]
    message = items[-1]
    assert isinstance(message, AssistantMessage)
    assert len(deltas) == len(items) - 1
    return deltas, message


async def test_text() -> None:
    deltas, message = await ask(ScriptedModel(["Hello there,  friend."]))
    assert message == AssistantMessage("Hello there,  friend.", stop_reason="end")
    assert len(deltas) == 3
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == message.text


@pytest.mark.parametrize("text", ["", " ", "\n", " a ", "a\n\nb\n", "word"])
async def test_deltas_join_to_the_text_whatever_its_spaces(text: str) -> None:
    deltas, message = await ask(ScriptedModel([text]))
    assert message.text == text
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text


async def test_tool_call() -> None:
    deltas, message = await ask(ScriptedModel([CALL]))
    assert message == AssistantMessage([CALL], stop_reason="tool_use")
    assert {(delta.id, delta.name) for delta in deltas if isinstance(delta, ToolCallDelta)} == {("c1", "add")}
    assert json.loads(_args(deltas, "c1")) == CALL.args


async def test_malformed_call_streams_what_the_model_wrote() -> None:
    deltas, message = await ask(ScriptedModel([ToolCall("c1", "add", {}, malformed='{"a": ')]))
    assert message.tool_calls[0].malformed == '{"a": '
    assert _args(deltas, "c1") == '{"a": '


async def test_list_of_text_thinking_and_calls() -> None:
    other = ToolCall("c2", "sub", {})
    turn = ["I add. ", ThinkingPart("hm, well"), CALL, other]
    deltas, message = await ask(ScriptedModel([turn]))
    assert message == AssistantMessage([TextPart("I add. "), *turn[1:]], stop_reason="tool_use")
    assert "".join(delta.text for delta in deltas if isinstance(delta, ThinkingDelta)) == "hm, well"
    assert json.loads(_args(deltas, "c1")) == CALL.args
    assert json.loads(_args(deltas, "c2")) == {}


async def test_list_of_text_alone_ends_the_turn() -> None:
    _, message = await ask(ScriptedModel([["one ", "two"]]))
    assert message.text == "one two"
    assert message.stop_reason == "end"


async def test_message_is_given_as_it_is() -> None:
    whole = AssistantMessage("cut", stop_reason="length", usage=Usage(input_tokens=7))
    deltas, message = await ask(ScriptedModel([whole]))
    assert message == whole
    assert deltas == [TextDelta(text="cut")]


async def test_function_of_the_messages() -> None:
    def echo(messages: list[Message]) -> str:
        last = messages[-1]
        assert isinstance(last, UserMessage)
        return f"you said {last.text}"

    _, message = await ask(ScriptedModel([echo]), UserMessage("first"), UserMessage("second"))
    assert message.text == "you said second"


async def test_async_function() -> None:
    async def call(messages: list[Message]) -> ToolCall:
        return ToolCall("c9", "count", {"messages": len(messages)})

    _, message = await ask(ScriptedModel([call]), HELLO, HELLO)
    assert message.tool_calls == [ToolCall("c9", "count", {"messages": 2})]


async def test_function_that_raises() -> None:
    error = ModelError("overloaded", retryable=True)

    def fail(messages: Sequence[Message]) -> str:
        raise error

    model = ScriptedModel([fail, "better now"])
    with pytest.raises(ModelError) as caught:
        await ask(model)
    assert caught.value is error
    assert (await ask(model))[1].text == "better now"


async def test_requests_are_kept_as_they_were_sent() -> None:
    model = ScriptedModel(["one", "two"])
    await ask(model, HELLO)
    await ask(model, HELLO, AssistantMessage("one"), UserMessage("again"))
    assert model.requests == [[HELLO], [HELLO, AssistantMessage("one"), UserMessage("again")]]


async def test_function_cannot_change_what_was_recorded() -> None:
    def meddle(messages: list[Message]) -> str:
        messages.clear()
        return "ok"

    model = ScriptedModel([meddle])
    await ask(model, HELLO)
    assert model.requests == [[HELLO]]


async def test_exhausted_script() -> None:
    model = ScriptedModel(["only"])
    await ask(model)
    with pytest.raises(ScriptExhausted, match="1 turn and was asked for one more") as caught:
        await ask(model, UserMessage("more"))
    assert caught.value.turns == 1
    assert not caught.value.retryable
    assert model.requests[-1] == [UserMessage("more")]


def test_name() -> None:
    assert ScriptedModel([]).name == "scripted"
    assert ScriptedModel([], name="demo").name == "demo"


def _args(deltas: Sequence[Delta], id: str) -> str:
    return "".join(delta.args for delta in deltas if isinstance(delta, ToolCallDelta) and delta.id == id)
