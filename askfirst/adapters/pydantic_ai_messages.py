"""What Pydantic AI's messages say of the calls in them."""

from __future__ import annotations

from collections.abc import Sequence

from askfirst.adapters.missing import needs

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
    """Which message makes the call: ids of calls may come again in later messages."""
    for place, message in reversed(list(enumerate(messages))):
        if isinstance(message, ModelResponse) and any(
            it.tool_call_id == call.tool_call_id for it in message.tool_calls
        ):
            return f"{place}.{int(message.timestamp.timestamp() * 1000)}"
    return ""
