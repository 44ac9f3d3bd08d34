"""Values that are made of what is valid already are the same as those that are checked."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from askfirst.agent.result import CheckpointUsage, RunCheckpoint
from askfirst.approvals import PendingApproval
from askfirst.messages import (
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    Value,
    decode,
    encode,
)

CALL = ToolCall("c", "pay", {"to": "A", "sum": None})
PAIRS: list[tuple[Value, Value]] = [
    (TextPart.of_valid(text="hi"), TextPart("hi")),
    (ToolCall.of_valid(id="c", name="pay", args={"to": "A", "sum": None}), CALL),
    (
        ToolResultMessage.of_valid(
            tool_call_id="c", tool_name="pay", content=(TextPart("hi"),), details=None
        ),
        ToolResultMessage("c", "pay", "hi"),
    ),
    (PendingApproval.of_valid(id="c", tool_call=CALL), PendingApproval(id="c", tool_call=CALL)),
    (CheckpointUsage.of_valid(prompt=3), CheckpointUsage(prompt=3)),
    (
        RunCheckpoint.of_valid(spec_id="a", root_messages=(UserMessage("hi"),), pending=()),
        RunCheckpoint(spec_id="a", root_messages=(UserMessage("hi"),), pending=()),
    ),
]


@pytest.mark.parametrize(("made", "checked"), PAIRS, ids=lambda value: type(value).__name__)
def test_nobody_can_tell_one_from_the_other(made: Value, checked: Value) -> None:
    assert made == checked
    assert list(vars(made)) == list(vars(checked))
    assert repr(made) == repr(checked)
    assert made.model_dump_json() == checked.model_dump_json()
    assert made.model_fields_set == checked.model_fields_set | ({"details"} & made.model_fields_set)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made.model_copy() == checked  # noqa: S301
    with pytest.raises(ValueError, match="frozen"):
        setattr(made, next(iter(vars(made))), 1)


@pytest.mark.parametrize("text", ["", "go", "\0", "naïve", "日本", "🎉"])
def test_a_prompt_is_the_same_however_it_is_made(text: str) -> None:
    message = UserMessage(text)
    assert message == UserMessage((TextPart(text),)) == decode(encode(message))
    assert message.model_fields_set == {"content"}


class Shout(str):
    __slots__ = ()


@pytest.mark.parametrize("bad", ["\ud800", 5, None, b"hi"])
def test_what_is_no_text_is_no_prompt(bad: Any) -> None:
    with pytest.raises(ValueError):
        UserMessage(bad)


def test_a_text_of_a_class_of_its_own_is_a_prompt() -> None:
    assert UserMessage(Shout("hi")) == UserMessage("hi")


def test_defaults_are_not_shared() -> None:
    one, other = TextPart.of_valid(text="a"), TextPart.of_valid(text="b")
    assert one.text == "a"
    assert one.__pydantic_extra__ is not other.__pydantic_extra__


def test_an_encoded_message_has_what_this_version_does_not_know() -> None:
    part = TextPart("hi", lang=None)
    message = AssistantMessage((part,), mood={"good": None})
    assert '"lang":null' in encode(message)
    assert decode(encode(message)) == message
