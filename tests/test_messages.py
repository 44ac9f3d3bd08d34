"""The transcript's types: what they hold, how they are written, what they refuse."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from kit.message_strategies import messages

from askfirst.errors import AskfirstError, InvalidMessage
from askfirst.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResultMessage,
    UnknownPart,
    Usage,
    UserMessage,
    decode,
    encode,
    text_of,
)

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
CALL = ToolCall("c1", "add", {"a": 1})


# Making them.


def test_positional_and_keyword_construction_agree() -> None:
    assert TextPart("hi") == TextPart(text="hi")
    assert ThinkingPart("hm", signature="s") == ThinkingPart(text="hm", signature="s")
    assert ToolCall("c1", "add", {"a": 1}) == ToolCall(id="c1", name="add", args={"a": 1})
    assert UserMessage("hi") == UserMessage(content=[TextPart("hi")])
    assert AssistantMessage("hi") == AssistantMessage(content=(TextPart("hi"),), stop_reason="end")
    assert ToolResultMessage("c1", "add", "2") == ToolResultMessage(
        tool_call_id="c1", tool_name="add", content=[TextPart("2")], is_error=False, details=None
    )


def test_a_bare_part_is_a_content_of_one() -> None:
    assert AssistantMessage(CALL).content == (CALL,)
    assert UserMessage(ImagePart(media_type="image/png", data=PNG)).content[0].data == PNG


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (TextPart("a"), "text"),
        (ThinkingPart("a"), "text"),
        (CALL, "args"),
        (ImagePart(media_type="image/png", url="u"), "url"),
        (FilePart(media_type="text/csv", data=b"a"), "data"),
        (UnknownPart(type="new", more=1), "more"),
        (UserMessage("a"), "content"),
        (AssistantMessage("a"), "stop_reason"),
        (ToolResultMessage("a", "b", "c"), "is_error"),
        (Usage(), "input_tokens"),
    ],
)
def test_values_are_frozen(value: Any, field: str) -> None:
    before = value.model_dump()
    with pytest.raises(ValueError, match="frozen"):
        setattr(value, field, None)
    assert value.model_dump() == before


def test_text_joins_the_text_parts_only() -> None:
    said = AssistantMessage([ThinkingPart("hm"), TextPart("a"), CALL, UnknownPart(type="new"), TextPart("b")])
    assert said.text == text_of(said.content) == "ab"
    assert said.tool_calls == [CALL]
    assert (
        UserMessage([TextPart("x"), ImagePart(media_type="image/png", url="u"), TextPart("y")]).text == "xy"
    )
    assert ToolResultMessage("c", "t", "done").text == "done"


def test_usage_adds_up() -> None:
    one = Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4)
    assert one + one == Usage(input_tokens=2, output_tokens=4, cache_read_tokens=6, cache_write_tokens=8)
    assert one + Usage() == one


# The encoding.


@pytest.mark.parametrize(
    ("message", "written"),
    [
        (UserMessage("hi"), '{"role":"user","content":[{"type":"text","text":"hi"}]}'),
        (
            UserMessage(
                [
                    TextPart("ü\n", provider={"id": 1}),
                    ImagePart(media_type="image/png", data=PNG),
                    FilePart(media_type="text/csv", url="https://x/y", name="y"),
                ]
            ),
            (
                '{"role":"user","content":[{"type":"text","text":"ü\\n","provider":{"id":1}},'
                '{"media_type":"image/png","data":"iVBORw0KGgoA_w==","type":"image"},'
                '{"media_type":"text/csv","url":"https://x/y","type":"file","name":"y"}]}'
            ),
        ),
        (
            AssistantMessage(
                [
                    ThinkingPart("hm", signature="s"),
                    TextPart("a"),
                    ToolCall("c1", "add", {"b": 1.0, "a": 2**70}),
                ],
                stop_reason="tool_use",
                usage=Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4),
            ),
            (
                '{"role":"assistant","content":[{"type":"thinking","text":"hm","signature":"s"},'
                '{"type":"text","text":"a"},'
                '{"type":"tool_call","id":"c1","name":"add","args":{"b":1.0,"a":1180591620717411303424}}],'
                '"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2,"cache_read_tokens":3,'
                '"cache_write_tokens":4}}'
            ),
        ),
        (
            AssistantMessage(ToolCall("c1", "add", {}, malformed="{"), stop_reason="error", error="why"),
            (
                '{"role":"assistant","content":[{"type":"tool_call","id":"c1","name":"add","args":{},'
                '"malformed":"{"}],"stop_reason":"error","usage":{"input_tokens":0,"output_tokens":0,'
                '"cache_read_tokens":0,"cache_write_tokens":0},"error":"why"}'
            ),
        ),
        (
            ToolResultMessage("c1", "add", "no", is_error=True, details={"hitl": {"decision": None}}),
            (
                '{"role":"tool","tool_call_id":"c1","tool_name":"add","content":[{"type":"text","text":"no"}],'
                '"is_error":true,"details":{"hitl":{"decision":null}}}'
            ),
        ),
    ],
    ids=["user", "parts", "assistant", "malformed", "tool"],
)
def test_the_encoding_is_this_and_no_other(message: Message, written: str) -> None:
    """What is stored today is read by every later version: a change here is a change of the format."""
    assert encode(message) == written
    assert decode(written) == message


@given(messages)
def test_round_trip_is_exact(message: Message) -> None:
    written = encode(message)
    again = decode(written)
    assert again == message
    assert type(again) is type(message)
    assert encode(again) == written
    assert decode(written.encode()) == message


@given(messages)
def test_the_encoding_is_pydantics_own(message: Message) -> None:
    assert encode(message) == message.model_dump_json()


@given(messages)
def test_round_trip_through_parsed_json(message: Message) -> None:
    assert decode(json.loads(encode(message))) == message


@given(messages)
def test_the_encoding_is_plain_json(message: Message) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(encode(message).encode().decode(), parse_constant=refuse)


@pytest.mark.parametrize(
    "written",
    [
        '{"role":"user","content":[],"from_the_future":{"a":[1,null,"ü"]}}',
        '{"role":"user","content":[],"from_the_future":null}',
        '{"role":"user","content":[{"type":"text","text":"a","colour":"red","gone":null}]}',
        '{"role":"user","content":[{"type":"hologram","depth":3,"gone":null,"inner":{"type":"text"}}]}',
        '{"role":"tool","tool_call_id":"a","tool_name":"b","content":[{"type":"video"}],"is_error":false}',
    ],
)
def test_what_a_newer_version_wrote_survives(written: str) -> None:
    assert encode(decode(written)) == written


def test_unknown_output_part_survives_between_known_ones() -> None:
    parts = [TextPart("a"), UnknownPart(type="audio", data="zz"), CALL]
    again = decode(encode(AssistantMessage(parts)))
    assert list(again.content) == parts
    assert isinstance(again.content[1], UnknownPart)


def test_a_part_of_the_other_side_is_unknown_here() -> None:
    """A model cannot make a person speak, nor a person call a tool: such parts are kept and mean nothing."""
    (part,) = decode('{"role":"user","content":[{"type":"tool_call","id":"a","name":"b","args":{}}]}').content
    assert isinstance(part, UnknownPart)
    message = decode('{"role":"assistant","content":[{"type":"image","media_type":"image/png","url":"u"}]}')
    assert isinstance(message.content[0], UnknownPart)


# Bad data.

USER = '{"role":"user","content":%s}'
SAID = '{"role":"assistant","content":%s}'
DONE = '{"role":"tool","tool_call_id":"a","tool_name":"b","content":[],"is_error":%s}'


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ("", ""),
        ("{", ""),
        ("[]", ""),
        ("null", ""),
        ('"user"', ""),
        (b"\xff\xfe", ""),
        ("{}", ""),
        ('{"role":"robot","content":[]}', ""),
        ('{"role":1,"content":[]}', ""),
        ('{"role":"user"}', "content"),
        (USER % "null", "content"),
        (USER % "7", "content"),
        (USER % '{"type":"text"}', "content"),
        (USER % "[7]", "content[0]"),
        (USER % "[{}]", "content[0]"),
        (USER % '[{"type":"text","text":"a"},{"type":7}]', "content[1]"),
        (USER % '[{"type":"text"}]', "content[0].text"),
        (USER % '[{"type":"text","text":7}]', "content[0].text"),
        (USER % '[{"type":"text","text":"a","provider":[]}]', "content[0].provider"),
        (USER % '[{"type":"image","url":"u"}]', "content[0].media_type"),
        (USER % '[{"type":"image","media_type":"image/png"}]', "content[0]"),
        (USER % '[{"type":"image","media_type":"image/png","url":"u","data":""}]', "content[0]"),
        (USER % '[{"type":"file","media_type":"a/b","data":"***"}]', "content[0].data"),
        (SAID % '[{"type":"tool_call","id":"a","name":"b"}]', "content[0].args"),
        (SAID % '[{"type":"tool_call","id":"a","name":"b","args":[]}]', "content[0].args"),
        (SAID % '[{"type":"tool_call","id":"a","name":"b","args":"{}"}]', "content[0].args"),
        (SAID % '[{"type":"tool_call","id":null,"name":"b","args":{}}]', "content[0].id"),
        (SAID % '[],"stop_reason":"bored"', "stop_reason"),
        (SAID % '[],"usage":{"input_tokens":"many"}', "usage.input_tokens"),
        (SAID % '[],"usage":[]', "usage"),
        (DONE % '"perhaps"', "is_error"),
        (DONE % "false" + "x", ""),
        (DONE % 'false,"details":7', "details"),
        ('{"role":"tool","tool_name":"b","content":[]}', "tool_call_id"),
    ],
)
def test_bad_data_names_the_path(data: str | bytes, path: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        decode(data)
    assert caught.value.path == path
    assert caught.value.problem
    assert str(caught.value) == (f"{path}: {caught.value.problem}" if path else caught.value.problem)
    assert isinstance(caught.value, AskfirstError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("data", [7, None, [], "x", {"role": "user", "content": object()}])
def test_bad_objects(data: Any) -> None:
    with pytest.raises(InvalidMessage):
        decode(data)


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"x": math.nan}, "args.x"),
        ({"x": [1, {"y": -math.inf}]}, "args.x[1].y"),
        ({"float": {"list": [math.nan]}}, "args.float.list[0]"),
        ({"x": object()}, "args.x"),
        ({"x": (1, {2})}, "args.x"),
        ({7: 1}, "args[7]"),
        ({"x": "\ud800"}, "args"),
        ({"x": [{"\udfff": 1}]}, "args"),
        ([], "args"),
        (None, "args"),
    ],
)
def test_arguments_that_are_no_json(args: Any, path: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        ToolCall("a", "b", args)
    assert caught.value.path == path


def test_details_that_are_no_json() -> None:
    with pytest.raises(InvalidMessage) as caught:
        ToolResultMessage("a", "b", "c", details={"x": [{"y": math.nan}]})
    assert caught.value.path == "details.x[0].y"


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_have(constant: str) -> None:
    for template in (
        '{"role":"user","content":[],"extra":%s}',
        '{"role":"assistant","content":[{"type":"tool_call","id":"a","name":"b","args":{"x":[%s]}}]}',
        '{"role":"user","content":[{"type":"new","x":%s}]}',
    ):
        with pytest.raises(InvalidMessage):
            decode(template % constant)
    assert decode(USER % f'"{constant}"').text == constant
    unknown = UserMessage("a", extra=float(constant))
    with pytest.raises(InvalidMessage):
        encode(unknown)


@pytest.mark.parametrize("half", ["\ud800", "a\udfffb"])
def test_half_characters_are_refused(half: str) -> None:
    with pytest.raises(InvalidMessage, match=r"content\[0\]\.text"):
        UserMessage(half)
    for make in (
        lambda: TextPart(half),
        lambda: ThinkingPart("a", signature=half),
        lambda: ToolCall(half, "b", {}),
        lambda: ToolCall("a", half, {}),
        lambda: ToolCall("a", "b", {}, malformed=half),
        lambda: ImagePart(media_type="image/png", url=half),
        lambda: FilePart(media_type="a/b", url="u", name=half),
        lambda: UnknownPart(type=half),
        lambda: AssistantMessage((), stop_reason="error", error=half),
        lambda: ToolResultMessage(half, "b", ()),
        lambda: ToolResultMessage("a", half, ()),
    ):
        with pytest.raises(InvalidMessage):
            make()
    for data in (USER % json.dumps(half), USER % f'"{half}"', {"role": "user", "content": half}):
        with pytest.raises(InvalidMessage):
            decode(data)


@pytest.mark.parametrize("depth", [10, 170, 190, 250, 2000])
def test_what_can_be_written_can_be_read(depth: int) -> None:
    """A parser has a limit to nesting; what is beyond it is refused before it gets into a transcript."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    try:
        message = AssistantMessage(ToolCall("a", "b", {"x": value}))
    except InvalidMessage:
        assert depth > 170
    else:
        assert decode(encode(message)) == message


def test_several_problems_are_counted() -> None:
    with pytest.raises(InvalidMessage, match=r"^content\[0\]\.text: .* \(and 1 more\)$"):
        decode(USER % '[{"type":"text"},{"type":"text"}]')


def test_an_error_does_not_repeat_the_data() -> None:
    with pytest.raises(InvalidMessage) as caught:
        decode(USER % '[{"type":"text","text":["hunter2"]}]')
    assert "hunter2" not in str(caught.value)
