"""PydanticAIModel through the real SDKs, against local servers that check what they are sent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from kit.patience import PATIENCE
from kit.provider_servers import (
    ANTHROPIC_MODEL,
    API_KEY,
    AnthropicServer,
    Json,
    OpenAIServer,
    Reply,
    WireServer,
    anthropic_body,
    anthropic_call,
    anthropic_complaints,
    anthropic_error,
    anthropic_model,
    anthropic_reply,
    anthropic_text,
    anthropic_thinking,
    openai_body,
    openai_call,
    openai_complaints,
    openai_error,
    openai_model,
    openai_reply,
    openai_text,
)

from askfirst.errors import ModelError
from askfirst.messages import (
    AssistantMessage,
    Delta,
    FilePart,
    ImagePart,
    Message,
    RestartDelta,
    TextDelta,
    TextPart,
    ThinkingDelta,
    ThinkingPart,
    ToolCall,
    ToolCallDelta,
    ToolResultMessage,
    UnknownPart,
    Usage,
    UserMessage,
)
from askfirst.models import ModelRequest, ModelSettings, PydanticAIModel, ToolSchema

pytestmark = pytest.mark.anyio

HELLO = UserMessage("hello")
PNG = b"\x89PNG\r\n\x1a\n"
PNG_BASE64 = "iVBORw0KGgo="
ADD = ToolSchema("add", "Adds numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})
Call = tuple[str, str, Sequence[str]]


@dataclass(frozen=True)
class Wire:
    """One provider: how its server talks, how its models are made, what its requests look like."""

    server: type[WireServer]
    model: Callable[..., PydanticAIModel]
    text: Callable[..., list[Json]]
    calls: Callable[..., list[list[Json]]]
    reply: Callable[..., Reply]
    error: Callable[..., Reply]
    body: Callable[[ModelRequest], Any]
    complaints: Callable[[Json], list[str]]


def _openai_calls(*calls: Call) -> list[list[Json]]:
    return [openai_call(index, call, name, *pieces) for index, (call, name, pieces) in enumerate(calls)]


def _anthropic_calls(*calls: Call) -> list[list[Json]]:
    return [anthropic_call(call, name, *pieces) for call, name, pieces in calls]


OPENAI = Wire(
    OpenAIServer,
    openai_model,
    openai_text,
    _openai_calls,
    openai_reply,
    openai_error,
    openai_body,
    openai_complaints,
)
ANTHROPIC = Wire(
    AnthropicServer,
    anthropic_model,
    anthropic_text,
    _anthropic_calls,
    anthropic_reply,
    anthropic_error,
    anthropic_body,
    anthropic_complaints,
)


@pytest.fixture(params=[OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
def wire(request: pytest.FixtureRequest) -> Wire:
    return request.param


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits that were asked for; none of them is waited for."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def record(delay: float, result: object = None) -> object:
        if delay > 0:
            waits.append(delay)
        return await sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", record)
    return waits


async def ask(
    model: PydanticAIModel, *messages: Message, **request: Any
) -> tuple[list[Delta], AssistantMessage]:
    """One turn: its deltas, and its message, which must come last and once."""
    items = [item async for item in model.stream(ModelRequest(messages or (HELLO,), **request))]
    deltas = [item for item in items if not isinstance(item, AssistantMessage)]
    message = items[-1]
    assert isinstance(message, AssistantMessage)
    assert len(deltas) == len(items) - 1
    return deltas, message


async def fail(model: PydanticAIModel, *messages: Message) -> tuple[list[object], ModelError]:
    """A turn that fails: what was said until then, and the error."""
    said: list[object] = []
    stream = model.stream(ModelRequest(messages or (HELLO,)))
    try:
        while True:
            said.append(await anext(stream))
    except ModelError as error:
        return said, error


async def body_of(wire: Wire, *messages: Message) -> Json:
    """What a transcript becomes on the wire; it must be fit to be sent."""
    body = await wire.body(ModelRequest(messages))
    assert wire.complaints(body) == []
    return body


def texts(deltas: Sequence[object]) -> list[str]:
    return [delta.text for delta in deltas if isinstance(delta, TextDelta)]


# What is said.


async def test_text_streams_in_pieces(wire: Wire) -> None:
    async with wire.server(wire.reply(wire.text("Hel", "lo", " you"))) as server:
        deltas, message = await ask(wire.model(server))
    assert texts(deltas) == ["Hel", "lo", " you"]
    assert message.content == (TextPart("Hello you"),)
    assert message.stop_reason == "end"


async def test_instructions_tools_and_settings_are_sent(wire: Wire) -> None:
    temperature = 0.5 if wire is OPENAI else None  # newer Claude models have none
    settings = ModelSettings(temperature=temperature, max_tokens=77, extra={"stop_sequences": ["STOP"]})
    async with wire.server(wire.reply(wire.text("ok"))) as server:
        await ask(wire.model(server), instructions="Be brief.", tools=(ADD,), settings=settings)
    (body,) = server.requests
    if wire is OPENAI:
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert body["tools"][0]["function"]["name"] == "add"
        assert body["tools"][0]["function"]["description"] == "Adds numbers."
        assert body["tools"][0]["function"]["parameters"]["properties"] == {"a": {"type": "integer"}}
        assert (body["temperature"], body["max_completion_tokens"], body["stop"]) == (0.5, 77, ["STOP"])
    else:
        assert [block["text"] for block in body["system"]] == ["Be brief."]
        assert body["tools"] == [
            {"name": "add", "description": "Adds numbers.", "input_schema": ADD.parameters},
        ]
        assert (body["max_tokens"], body["stop_sequences"]) == (77, ["STOP"])


async def test_thinking_is_signed_and_sent_back() -> None:
    thinking = anthropic_thinking("Two ", "and two.", signature="sig-123")
    called = anthropic_reply(thinking, anthropic_call("t1", "add", '{"a": 2}'), stop="tool_use")
    async with AnthropicServer(called, anthropic_reply(anthropic_text("4"))) as server:
        model = anthropic_model(server)
        deltas, message = await ask(model)
        assert [delta.text for delta in deltas if isinstance(delta, ThinkingDelta)] == ["Two ", "and two."]
        part = message.content[0]
        assert isinstance(part, ThinkingPart)
        assert (part.text, part.signature) == ("Two and two.", "sig-123")
        await ask(model, HELLO, message, ToolResultMessage("t1", "add", "4"))
    sent = server.requests[1]["messages"][1]["content"]
    assert sent[0] == {"type": "thinking", "thinking": "Two and two.", "signature": "sig-123"}
    assert sent[1]["type"] == "tool_use"


async def test_thinking_goes_back_after_its_transcript_was_stored() -> None:
    signed = anthropic_reply(anthropic_thinking("hm", signature="sig"), anthropic_text("hi"))
    async with AnthropicServer(signed, anthropic_reply(anthropic_text("ok"))) as server:
        model = anthropic_model(server)
        _, message = await ask(model)
        stored = AssistantMessage.model_validate_json(message.model_dump_json())
        await ask(model, HELLO, stored, HELLO)
    assert server.requests[1]["messages"][1]["content"][0]["signature"] == "sig"


async def test_thinking_of_one_provider_is_no_thinking_to_another(wire: Wire) -> None:
    foreign = ThinkingPart("secret steps", signature="sig", provider={"name": "elsewhere"})
    body = await body_of(wire, HELLO, AssistantMessage([foreign, TextPart("done")]), HELLO)
    assert "signature" not in json.dumps(body)


async def test_parallel_tool_calls_in_pieces(wire: Wire) -> None:
    calls = wire.calls(
        ("c1", "add", ['{"a"', ': [1, {"b": ', '"ü"}]}']), ("c2", "sub", ["{}"]), ("c3", "add", [])
    )
    finish = {"finish": "tool_calls"} if wire is OPENAI else {"stop": "tool_use"}
    async with wire.server(wire.reply(wire.text("Right."), *calls, **finish)) as server:
        deltas, message = await ask(wire.model(server))
    assert message.stop_reason == "tool_use"
    assert message.text == "Right."
    assert message.tool_calls == [
        ToolCall("c1", "add", {"a": [1, {"b": "ü"}]}),
        ToolCall("c2", "sub", {}),
        ToolCall("c3", "add", {}),
    ]
    pieces = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    assert [piece.args for piece in pieces if piece.id == "c1" and piece.args] == [
        '{"a"',
        ': [1, {"b": ',
        '"ü"}]}',
    ]
    assert {(piece.id, piece.name) for piece in pieces} == {("c1", "add"), ("c2", "sub"), ("c3", "add")}


async def test_next_turn_answers_every_call(wire: Wire) -> None:
    finish = {"finish": "tool_calls"} if wire is OPENAI else {"stop": "tool_use"}
    calls = wire.reply(*wire.calls(("c1", "add", ['{"a": 1}']), ("c2", "sub", [])), **finish)
    async with wire.server(calls, wire.reply(wire.text("done"))) as server:
        model = wire.model(server)
        _, message = await ask(model, tools=(ADD,))
        results = [ToolResultMessage(call.id, call.name, f"{call.id}!") for call in message.tool_calls]
        _, answer = await ask(model, HELLO, message, *results)
    assert answer.text == "done"
    sent = server.requests[1]["messages"]
    if wire is OPENAI:
        assert [call["function"]["arguments"] for call in sent[1]["tool_calls"]] == ['{"a":1}', "{}"]
        assert sent[2:] == [
            {"role": "tool", "tool_call_id": "c1", "content": "c1!"},
            {"role": "tool", "tool_call_id": "c2", "content": "c2!"},
        ]
    else:
        assert [block["input"] for block in sent[1]["content"]] == [{"a": 1}, {}]
        assert [block["tool_use_id"] for block in sent[2]["content"]] == ["c1", "c2"]
        assert sent[2]["content"][0]["content"] == [{"type": "text", "text": "c1!"}]
        assert sent[2]["content"][0]["is_error"] is False


async def test_usage_counts_the_cache_as_input(wire: Wire) -> None:
    counted_by_openai = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60},
    }
    counted_by_anthropic = {
        "input_tokens": 10,
        "output_tokens": 20,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 30,
    }
    usage = counted_by_openai if wire is OPENAI else counted_by_anthropic
    async with wire.server(wire.reply(wire.text("hi"), usage=usage)) as server:
        _, message = await ask(wire.model(server))
    written = 0 if wire is OPENAI else 30
    assert message.usage == Usage(
        input_tokens=100, output_tokens=20, cache_read_tokens=60, cache_write_tokens=written
    )


async def test_length_stop_reason_outweighs_calls(wire: Wire) -> None:
    finish = {"finish": "length"} if wire is OPENAI else {"stop": "max_tokens"}
    cut = wire.reply(wire.text("so"), *wire.calls(("c1", "add", ['{"a": 1'])), **finish)
    async with wire.server(wire.reply(wire.text("so"), **finish), cut) as server:
        model = wire.model(server)
        assert (await ask(model))[1].stop_reason == "length"
        _, message = await ask(model)
    assert message.stop_reason == "length"
    assert message.tool_calls == [ToolCall("c1", "add", {}, malformed='{"a": 1')]


async def test_content_filter_is_an_error_that_no_retry_helps(wire: Wire) -> None:
    finish = {"finish": "content_filter"} if wire is OPENAI else {"stop": "refusal"}
    async with wire.server(wire.reply(wire.text("I"), **finish)) as server:
        said, error = await fail(wire.model(server))
    assert texts(said) == ["I"]
    assert "content filter" in str(error)
    assert not error.retryable
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "raw", ['{"a": ', "[1]", '"x"', "null", '{"a": NaN}', '{"a": 1e999}', "rm -rf", '{"a": "\\ud800"}']
)
async def test_malformed_arguments_are_kept_and_can_be_sent_back(wire: Wire, raw: str) -> None:
    finish = {"finish": "tool_calls"} if wire is OPENAI else {"stop": "tool_use"}
    wrong = wire.reply(*wire.calls(("c1", "add", [raw[:2], raw[2:]])), **finish)
    async with wire.server(wrong, wire.reply(wire.text("sorry"))) as server:
        model = wire.model(server)
        deltas, message = await ask(model)
        assert message.tool_calls == [ToolCall("c1", "add", {}, malformed=raw)]
        assert "".join(delta.args for delta in deltas if isinstance(delta, ToolCallDelta)) == raw
        result = ToolResultMessage("c1", "add", "the arguments are no JSON object", is_error=True)
        _, answer = await ask(model, HELLO, message, result)
    assert answer.text == "sorry"
    turn = server.requests[1]["messages"][1]
    sent = (
        json.loads(turn["tool_calls"][0]["function"]["arguments"]) if wire is OPENAI else turn["content"][0]
    )
    assert (sent if wire is OPENAI else sent["input"]) == {"INVALID_JSON": raw}


async def test_half_characters_are_made_whole() -> None:
    """A provider may split an emoji's two halves over two pieces; JSON lets it."""
    pieces = openai_reply(openai_text("a\ud83d", "\ude00b\ud800"))
    async with OpenAIServer(pieces) as server:
        deltas, message = await ask(openai_model(server))
    assert message.text == "a\U0001f600b\ufffd"
    for delta in deltas:
        delta.model_dump_json()


# What is sent.


async def test_images_and_files_of_a_person(wire: Wire) -> None:
    message = UserMessage(
        [
            TextPart("Look:"),
            ImagePart(media_type="image/png", data=PNG),
            ImagePart(media_type="image/png", url="https://example.com/a.png"),
            FilePart(media_type="application/pdf", data=b"%PDF", name="report.pdf"),
            FilePart(media_type="text/csv", data="a,ü\n".encode(), name="table.csv"),
        ]
    )
    content = (await body_of(wire, message))["messages"][0]["content"]
    if wire is OPENAI:
        assert content[0] == {"type": "text", "text": "Look:"}
        assert content[1]["image_url"]["url"] == f"data:image/png;base64,{PNG_BASE64}"
        assert content[2]["image_url"]["url"] == "https://example.com/a.png"
        assert content[3]["file"]["file_data"].startswith("data:application/pdf;base64,")
        assert "a,ü\n" in content[4]["text"]
        assert "table.csv" in content[4]["text"]
    else:
        assert content[0] == {"type": "text", "text": "Look:"}
        assert content[1]["source"] == {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}
        assert content[2]["source"] == {"type": "url", "url": "https://example.com/a.png"}
        assert content[3]["source"]["media_type"] == "application/pdf"
        assert content[4]["source"] == {"type": "text", "media_type": "text/plain", "data": "a,ü\n"}


async def test_image_from_a_tool(wire: Wire) -> None:
    shot = ToolResultMessage(
        "c1",
        "shoot",
        [TextPart("Here:"), ImagePart(media_type="image/png", data=PNG)],
        details={"x": "private"},
    )
    turn = AssistantMessage([ToolCall("c1", "shoot", {})], stop_reason="tool_use")
    body = await body_of(wire, HELLO, turn, shot, UserMessage("What is it?"))
    sent = body["messages"]
    if wire is OPENAI:
        assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user", "user"]
        assert "Here:" in sent[2]["content"]
        assert f"base64,{PNG_BASE64}" in json.dumps(sent[3])
        assert sent[4]["content"] == "What is it?"
    else:
        assert [block["type"] for block in sent[2]["content"][0]["content"]] == ["text", "image"]
        assert sent[2]["content"][0]["content"][1]["source"]["data"] == PNG_BASE64
    assert "private" not in json.dumps(body)


async def test_error_result_reaches_the_provider(wire: Wire) -> None:
    turn = AssistantMessage([ToolCall("c1", "add", {})], stop_reason="tool_use")
    broken = [TextPart("no such file"), ImagePart(media_type="image/png", data=PNG)]
    plain = await body_of(wire, HELLO, turn, ToolResultMessage("c1", "add", "no such file", is_error=True))
    mixed = await body_of(wire, HELLO, turn, ToolResultMessage("c1", "add", broken, is_error=True))
    if wire is OPENAI:
        assert plain["messages"][2]["content"] == '{"error":"no such file"}'
        assert len(mixed["messages"]) == 3
        assert "(image/png left out)" in mixed["messages"][2]["content"]
    else:
        block = plain["messages"][2]["content"][0]
        assert (block["is_error"], block["content"]) == (True, [{"type": "text", "text": "no such file"}])
        assert "(image/png left out)" in mixed["messages"][2]["content"][0]["content"][0]["text"]


async def test_results_come_before_what_a_person_said_meanwhile(wire: Wire) -> None:
    turn = AssistantMessage([ToolCall("c1", "add", {}), ToolCall("c2", "add", {})], stop_reason="tool_use")
    first, second = ToolResultMessage("c1", "add", "1"), ToolResultMessage("c2", "add", "2")
    body = await body_of(wire, HELLO, turn, first, UserMessage("hurry"), second)
    assert json.dumps(body).index("hurry") > json.dumps(body).index("c2", json.dumps(body).rindex("c1"))


async def test_what_no_model_is_to_see_is_left_out(wire: Wire) -> None:
    unknown = UnknownPart.model_validate({"type": "hologram", "secret": 1})
    body = await body_of(
        wire,
        UserMessage([TextPart("one"), unknown]),
        AssistantMessage("half an answ", stop_reason="error", error="it broke"),
        UserMessage("two"),
        AssistantMessage([]),
        AssistantMessage([TextPart(" \n"), ThinkingPart("hm", signature="s"), unknown]),
        UserMessage([unknown]),
        AssistantMessage("cut sh", stop_reason="aborted"),
        UserMessage(" "),
    )
    sent = json.dumps(body)
    users = ["user"] * (3 if wire is OPENAI else 1)  # pydantic-ai joins them for Anthropic
    assert [message["role"] for message in body["messages"]] == [*users, "assistant", "user"]
    assert "half an answ" not in sent
    assert "hologram" not in sent
    assert sent.count("(empty message)") == 2


@pytest.mark.parametrize("content", ["", " \n", []])
async def test_empty_tool_result(wire: Wire, content: Any) -> None:
    turn = AssistantMessage([ToolCall("c1", "add", {})], stop_reason="tool_use")
    for is_error in (False, True):
        await body_of(wire, HELLO, turn, ToolResultMessage("c1", "add", content, is_error=is_error))


async def test_thinking_at_the_end_of_a_turn_is_left_out() -> None:
    origin = {"name": "anthropic"}
    thinking = ThinkingPart("and then", signature="sig", provider=origin)
    turn = AssistantMessage([TextPart("well"), thinking], stop_reason="aborted")
    body = await body_of(ANTHROPIC, HELLO, turn, HELLO)
    assert body["messages"][1]["content"] == [{"type": "text", "text": "well"}]


async def test_file_that_the_provider_cannot_read() -> None:
    async with AnthropicServer() as server:
        file = FilePart(media_type="application/zip", data=b"PK")
        _, error = await fail(anthropic_model(server), UserMessage([file]))
    assert "application/zip" in str(error)
    assert not error.retryable
    assert server.requests == []


# Failures.


async def test_rate_limit_waits_as_long_as_asked(wire: Wire, slept: list[float]) -> None:
    async with wire.server(wire.error(429, retry_after="7"), wire.reply(wire.text("hi"))) as server:
        deltas, message = await ask(wire.model(server))
    assert message.text == "hi"
    assert texts(deltas) == ["hi"]
    assert [7 <= wait <= 7.7 for wait in slept] == [True]
    assert len(server.requests) == 2


async def test_backs_off_more_each_time(wire: Wire, slept: list[float]) -> None:
    errors = [wire.error(status) for status in (500, 503, 529, 429)]
    async with wire.server(*errors, wire.reply(wire.text("hi"))) as server:
        _, message = await ask(wire.model(server))
    assert message.text == "hi"
    bounds = [(0.5, 1.5), (1, 2), (2, 3), (4, 5)]
    assert [low <= wait <= high for wait, (low, high) in zip(slept, bounds, strict=True)] == [True] * 4


async def test_long_wait_is_left_to_the_caller(wire: Wire, slept: list[float]) -> None:
    async with wire.server(wire.error(429, retry_after="3600")) as server:
        _, error = await fail(wire.model(server))
    assert (error.retryable, error.retry_after, error.status) == (True, 3600.0, 429)
    assert slept == []


async def test_rate_limit_for_good(wire: Wire, slept: list[float]) -> None:
    """As many requests as attempts: the SDKs' own retries are off."""
    from pydantic_ai.exceptions import ModelRateLimitError

    async with wire.server(*[wire.error(429, "slow down")] * 9) as server:
        _, error = await fail(wire.model(server, attempts=3))
    assert (error.retryable, error.status, error.retry_after) == (True, 429, None)
    assert str(error) == "the provider answered with status 429: slow down"
    assert isinstance(error.__cause__, ModelRateLimitError)
    assert len(server.requests) == 3
    assert len(slept) == 2


async def test_exhausted_quota_is_no_rate_limit() -> None:
    async with OpenAIServer(openai_error(429, "pay first", code="insufficient_quota")) as server:
        _, error = await fail(openai_model(server))
    assert (error.retryable, error.status) == (False, 429)


async def test_refused_request_is_not_sent_again(wire: Wire, slept: list[float]) -> None:
    unanswered = AssistantMessage([ToolCall("c1", "add", {})], stop_reason="tool_use")
    async with wire.server(wire.reply(wire.text("never"))) as server:
        _, error = await fail(wire.model(server), HELLO, unanswered, UserMessage("well?"))
    assert (error.retryable, error.status) == (False, 400)
    assert "c1" in str(error)
    assert len(server.requests) == 1
    assert slept == []


async def test_wrong_key_is_not_told(wire: Wire) -> None:
    told = f"Incorrect API key: {API_KEY} and sk-abcdefghij0123"
    async with wire.server(wire.error(401, told), wire.error(400, told)) as server:
        model = wire.model(server)
        _, refused = await fail(model)
        _, rejected = await fail(model)
    assert (refused.retryable, refused.status) == (False, 401)
    assert str(refused) == "the provider refused the credentials with status 401"
    assert str(rejected) == "the provider answered with status 400: Incorrect API key: *** and ***"


async def test_message_is_one_sentence(wire: Wire) -> None:
    async with wire.server(wire.error(400, "first\n\n  second " + "x" * 1000)) as server:
        _, error = await fail(wire.model(server))
    assert "first second xxx" in str(error)
    assert len(str(error)) == 300


async def test_provider_may_forbid_a_retry(wire: Wire) -> None:
    async with wire.server(wire.error(500, x_should_retry="false")) as server:
        _, error = await fail(wire.model(server))
    assert (error.retryable, error.status) == (False, 500)
    assert len(server.requests) == 1


async def test_broken_stream_starts_anew(wire: Wire) -> None:
    cut = wire.reply(wire.text("Hel", "lo"), then="cut")
    async with wire.server(cut, wire.error(500), wire.reply(wire.text("Hi ", "there"))) as server:
        deltas, message = await ask(wire.model(server))
    assert [type(delta) for delta in deltas] == [TextDelta, TextDelta, RestartDelta, TextDelta, TextDelta]
    assert message.text == "Hi there"
    (restart,) = [delta for delta in deltas if isinstance(delta, RestartDelta)]
    assert "connection" in restart.reason
    assert len(server.requests) == 3


async def test_stream_that_always_breaks(wire: Wire) -> None:
    async with wire.server(*[wire.reply(wire.text("Hel"), then="cut")] * 3) as server:
        said, error = await fail(wire.model(server, attempts=3))
    assert [type(item) for item in said] == [TextDelta, RestartDelta, TextDelta, RestartDelta, TextDelta]
    assert (error.retryable, error.status) == (True, None)


async def test_connection_lost_before_anything_was_said(wire: Wire) -> None:
    async with wire.server(Reply(then="cut"), wire.reply(wire.text("hi"))) as server:
        deltas, message = await ask(wire.model(server))
    assert message.text == "hi"
    assert texts(deltas) == ["hi"]
    assert not any(isinstance(delta, RestartDelta) for delta in deltas)


async def test_no_server_at_all(wire: Wire) -> None:
    async with wire.server() as server:
        model = wire.model(server, attempts=2)
    _, error = await fail(model)
    assert error.retryable
    assert "connection" in str(error)


async def test_stream_that_just_stops_is_no_answer() -> None:
    short = anthropic_reply(anthropic_text("Hel"), then="break")
    async with AnthropicServer(short, anthropic_reply(anthropic_text("Hello"))) as server:
        deltas, message = await ask(anthropic_model(server))
    assert message.text == "Hello"
    assert [type(delta) for delta in deltas] == [TextDelta, RestartDelta, TextDelta]


async def test_error_inside_a_stream(wire: Wire) -> None:
    error = {"type": "overloaded_error", "message": "too much"}
    of_openai = f"data: {json.dumps({'error': {**error, 'code': 'server_error'}})}\n\n"
    of_anthropic = f"event: error\ndata: {json.dumps({'type': 'error', 'error': error})}\n\n"
    started = wire.reply(wire.text("Hel"), then="cut")
    broken = Reply(events=(*started.events, of_openai if wire is OPENAI else of_anthropic))
    async with wire.server(broken, wire.reply(wire.text("Hello"))) as server:
        deltas, message = await ask(wire.model(server))
    assert message.text == "Hello"
    (restart,) = [delta for delta in deltas if isinstance(delta, RestartDelta)]
    assert "too much" in restart.reason


async def test_answer_that_is_no_json(wire: Wire) -> None:
    async with wire.server(Reply(events=("data: {oops\n\n",)), wire.reply(wire.text("hi"))) as server:
        _, message = await ask(wire.model(server))
    assert message.text == "hi"


async def test_timeout(wire: Wire) -> None:
    async with wire.server(Reply(then="hang")) as server:
        with pytest.raises(ModelError, match="did not answer in time") as caught:
            await ask(wire.model(server, attempts=1), settings=ModelSettings(timeout=0.005))
    assert caught.value.retryable


async def test_all_models_of_a_fallback_failed() -> None:
    from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError, ModelRateLimitError
    from pydantic_ai.models.test import TestModel

    from askfirst.models.pydantic_ai_errors import model_error

    busy = ModelHTTPError.for_category(
        ModelRateLimitError, status_code=429, model_name="a", headers={"Retry-After": "9"}
    )
    error = model_error(FallbackExceptionGroup("all failed", [busy, RuntimeError("odd")]), TestModel())
    assert (error.retryable, error.retry_after) == (True, 9.0)
    assert "status 429" in str(error)
    assert "odd" in str(error)


@pytest.mark.parametrize("error", [httpx2.ReadError("reset"), ConnectionResetError("reset")])
def test_transport_error_that_nobody_mapped(error: Exception) -> None:
    from pydantic_ai.models.test import TestModel

    from askfirst.models.pydantic_ai_errors import model_error

    mapped = model_error(error, TestModel())
    assert mapped.retryable
    assert str(mapped) == "the connection to the provider failed: reset"


async def test_paused_turn_cannot_be_resumed() -> None:
    async with AnthropicServer(anthropic_reply(anthropic_text("wait"), stop="pause_turn")) as server:
        _, error = await fail(anthropic_model(server))
    assert not error.retryable
    assert "paused" in str(error)


# Leaving early.


async def test_closing_the_stream_leaves_the_provider(wire: Wire) -> None:
    async with wire.server(wire.reply(wire.text("Hel"), then="hang")) as server:
        async with aclosing(wire.model(server).stream(ModelRequest((HELLO,)))) as stream:
            assert await anext(stream) == TextDelta(text="Hel")
            assert not server.left.is_set()
        await asyncio.wait_for(server.left.wait(), PATIENCE)


async def test_cancelling_leaves_the_provider(wire: Wire) -> None:
    heard = asyncio.Event()

    async def listen(model: PydanticAIModel) -> None:
        async for _ in model.stream(ModelRequest((HELLO,))):
            heard.set()

    async with wire.server(wire.reply(wire.text("Hel"), then="hang")) as server:
        task = asyncio.create_task(listen(wire.model(server)))
        await asyncio.wait_for(heard.wait(), PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), PATIENCE)
    assert len(server.requests) == 1


def test_one_model_in_two_event_loops(wire: Wire) -> None:
    """A script may call ``asyncio.run`` twice; the connections of one loop are no use in another."""
    models: list[PydanticAIModel] = []

    async def once(port: int) -> int:
        async with wire.server(wire.reply(wire.text("hi")), port=port) as server:
            models.append(models[0] if models else wire.model(server, attempts=1))
            assert (await ask(models[0]))[1].text == "hi"
        return server.port

    port = asyncio.run(once(0))
    assert asyncio.run(once(port)) == port


async def test_connections_are_kept_while_the_model_is_entered(wire: Wire) -> None:
    async with wire.server(*[wire.reply(wire.text("hi"))] * 4) as server:
        model = wire.model(server)
        await ask(model)
        await ask(model)
        assert server.connections == 2
        async with model as entered:
            assert entered is model
            await ask(model)
            await ask(model)
        assert server.connections == 3


# Making one.


def _run(code: str) -> str:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("missing", ["pydantic_ai", "stamina"])
def test_missing_extra(missing: str) -> None:
    said = _run(
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from askfirst.errors import MissingExtra\n"
        "from askfirst.models import PydanticAIModel\n"
        "try: PydanticAIModel('test')\n"
        "except MissingExtra as error: print(error.extra, '|', error)"
    )
    assert said == "models | PydanticAIModel needs the 'models' extra: pip install 'askfirst[models]'"


def test_importing_askfirst_imports_no_sdk() -> None:
    heavy = _run(
        "import sys, askfirst.models; "
        "print([m for m in ('pydantic_ai', 'stamina', 'openai', 'anthropic') if m in sys.modules])"
    )
    assert heavy == "[]"


def test_missing_sdk_says_what_to_install() -> None:
    said = _run(
        "import sys; sys.modules['openai'] = None\n"
        "from askfirst.models import PydanticAIModel\n"
        "try: PydanticAIModel('openai:gpt-5')\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    assert said.startswith("ImportError")
    assert "openai" in said


def test_unknown_name_and_missing_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ModelError, match="Unknown model: nobody:nothing"):
        PydanticAIModel("nobody:nothing")
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY"):
        PydanticAIModel(f"anthropic:{ANTHROPIC_MODEL}")


async def test_model_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", API_KEY)
    async with AnthropicServer(anthropic_error(500), anthropic_reply(anthropic_text("hi"))) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        model = PydanticAIModel(f"anthropic:{ANTHROPIC_MODEL}")
        assert model.name == f"anthropic:{ANTHROPIC_MODEL}"
        assert (await ask(model))[1].text == "hi"
        assert (await ask(PydanticAIModel("test")))[1].text == "success (no tool calls)"


def test_name_of_a_model_object() -> None:
    from pydantic_ai.models.test import TestModel

    assert PydanticAIModel(TestModel()).name == "test:test"


def test_at_least_one_attempt() -> None:
    from pydantic_ai.models.test import TestModel

    with pytest.raises(ValueError, match="at least 1"):
        PydanticAIModel(TestModel(), attempts=0)


async def test_sdk_retries_can_be_asked_for() -> None:
    async with OpenAIServer(openai_error(500, retry_after_ms="1"), openai_reply(openai_text("hi"))) as server:
        settings = ModelSettings(extra={"max_retries": 1})
        _, message = await ask(openai_model(server, attempts=1), settings=settings)
    assert message.text == "hi"
    assert len(server.requests) == 2


# The servers' rules, which these tests and others rest on.

OK_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
OK_USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
OK_RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "1"}
USER = {"role": "user", "content": "hi"}


def says(*calls: Json) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def tool(id: str) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": "1"}


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([USER, says(OK_CALL), tool("c1"), USER], None),
        ([], "at least one message"),
        ([{"role": "robot", "content": "x"}], "unknown"),
        ([{"role": "user", "content": []}], "empty list"),
        ([{"role": "user", "content": [{"type": "video"}]}], "not allowed"),
        ([{"role": "user", "content": None}], "must be a string"),
        ([USER, {"role": "assistant", "content": None}], "needs content or tool_calls"),
        ([USER, says(OK_CALL)], "without a tool message"),
        ([USER, says(OK_CALL), USER, tool("c1")], "without a tool message"),
        ([USER, tool("c1")], "must answer"),
        ([USER, says(OK_CALL), tool("c1"), tool("c1")], "must answer"),
        ([USER, says(OK_CALL, OK_CALL), tool("c1"), tool("c1")], "same id twice"),
        ([USER, says({**OK_CALL, "function": {"name": "f", "arguments": {}}}), tool("c1")], "a string"),
        (
            [USER, says({**OK_CALL, "function": {"name": "f g", "arguments": ""}}), tool("c1")],
            "function name",
        ),
        ([USER, says({**OK_CALL, "id": "c" * 41}), tool("c" * 41)], "1 to 40"),
    ],
)
def test_openai_rules(messages: list[Json], complaint: str | None) -> None:
    complaints = openai_complaints({"model": "m", "messages": messages})
    assert complaints == [] if complaint is None else complaint in "; ".join(complaints)


def turn(role: str, *blocks: Json) -> Json:
    return {"role": role, "content": list(blocks)}


TEXT = {"type": "text", "text": "x"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([USER, turn("assistant", THOUGHT, OK_USE), turn("user", OK_RESULT), turn("user", TEXT)], None),
        ([], "at least one message"),
        ([turn("assistant", TEXT), USER], "first message must be the user's"),
        ([USER, turn("assistant", TEXT)], "final message must be the user's"),
        ([turn("robot", TEXT), USER], "unknown"),
        ([turn("user"), USER], "must have content"),
        ([turn("user", {"type": "text", "text": " "})], "non-whitespace"),
        ([turn("user", OK_USE)], "not allowed"),
        ([turn("user", {"type": "image"})], "source"),
        ([USER, turn("assistant", OK_USE), USER], "no tool_result for tool_use t1"),
        ([USER, turn("assistant", OK_USE), USER, turn("user", OK_RESULT)], "must come first"),
        ([turn("user", OK_RESULT)], "no tool_use for tool_result t1"),
        ([USER, turn("assistant", OK_USE), turn("user", OK_RESULT, OK_RESULT)], "single tool_result"),
        ([USER, turn("assistant", OK_USE), turn("user", OK_RESULT)] * 2, "unique"),
        ([USER, turn("assistant", {**OK_USE, "input": "{}"}), turn("user", OK_RESULT)], "an object"),
        ([USER, turn("assistant", {**OK_USE, "id": "t 1"}), USER], "should match"),
        ([USER, turn("assistant", {**OK_USE, "name": ""}), turn("user", OK_RESULT)], "no tool name"),
        ([USER, turn("assistant", {**THOUGHT, "signature": ""}, TEXT), USER], "signature"),
        ([USER, turn("assistant", TEXT, THOUGHT), USER], "cannot be thinking"),
        (
            [
                USER,
                turn("assistant", OK_USE),
                turn("user", {**OK_RESULT, "is_error": True, "content": [IMAGE]}),
            ],
            "must be text if is_error",
        ),
    ],
)
def test_anthropic_rules(messages: list[Json], complaint: str | None) -> None:
    complaints = anthropic_complaints({"model": "m", "max_tokens": 1, "messages": messages})
    assert complaints == [] if complaint is None else complaint in "; ".join(complaints)


# OpenAI's Responses, which is what an ``openai:`` name stands for.


def _responses_stream(*items: Json) -> str:
    base: Json = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 14,
    }
    events: list[Json] = [
        {"type": "response.created", "response": {**base, "status": "in_progress", "output": []}}
    ]
    for index, item in enumerate(items):
        started = {**item, "arguments": ""} if item["type"] == "function_call" else item
        events.append({"type": "response.output_item.added", "output_index": index, "item": started})
        if item["type"] == "function_call":
            at = {"item_id": item["id"], "output_index": index}
            events.append(
                {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]}
            )
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    done = {**base, "status": "completed", "output": list(items), "usage": usage}
    events.append({"type": "response.completed", "response": done})
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in numbered)


async def test_responses_get_their_ids_and_reasoning_back() -> None:
    import openai
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "status": "completed"}
    stream = _responses_stream(reasoning, {**call, "arguments": '{"a":1}'})
    bodies: list[Json] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=stream)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(handle)) as client:
        sdk = openai.AsyncOpenAI(api_key=API_KEY, http_client=client)
        model = PydanticAIModel(OpenAIResponsesModel("gpt-5", provider=OpenAIProvider(openai_client=sdk)))
        _, message = await ask(model)
        assert [(part.name, part.args) for part in message.tool_calls] == [("add", {"a": 1})]
        assert message.usage == Usage(input_tokens=9, output_tokens=5, cache_read_tokens=4)
        stored = AssistantMessage.model_validate_json(message.model_dump_json())
        await ask(model, HELLO, stored, ToolResultMessage("c1", "add", "2"))
    kinds = {item.get("type", item.get("role")): item for item in bodies[1]["input"]}
    assert (kinds["reasoning"]["id"], kinds["reasoning"]["encrypted_content"]) == ("rs_1", "sealed")
    assert (kinds["function_call"]["id"], kinds["function_call"]["call_id"]) == ("fc_1", "c1")
    assert kinds["function_call_output"]["output"] == "2"
