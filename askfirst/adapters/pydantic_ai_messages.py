"""Pydantic AI's messages: which calls have no result, and which message has a call."""

from __future__ import annotations

from collections.abc import Sequence

from askfirst.adapters.framework import needs

with needs("pydantic-ai"):
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart


def open_calls(messages: Sequence[ModelMessage]) -> list[ToolCallPart]:
    """The calls of the last response that have no result."""
    done: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return [it for it in message.tool_calls if it.tool_call_id not in done]
        done |= {it.tool_call_id for it in message.parts if isinstance(it, ToolReturnPart)}
    return []


def place_of(messages: Sequence[ModelMessage], call: ToolCallPart) -> str:
    """A name for the message with the call, because a call's id may be used again in a later message."""
    for place, message in reversed(list(enumerate(messages))):
        if isinstance(message, ModelResponse) and any(
            it.tool_call_id == call.tool_call_id for it in message.tool_calls
        ):
            return f"{place}.{int(message.timestamp.timestamp() * 1000)}"
    return ""
