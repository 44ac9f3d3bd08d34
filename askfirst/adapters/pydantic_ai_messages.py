"""Pydantic AI's messages: which calls have no result, and which message has a call."""

from __future__ import annotations

from collections.abc import Sequence

from askfirst.adapters.framework import needs
from askfirst.display import MOST_STEPS, step_args
from askfirst.messages import JsonObject

with needs("pydantic-ai"):
    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )


def open_calls(messages: Sequence[ModelMessage]) -> list[ToolCallPart]:
    """The calls of the last response that have no result."""
    done: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return [it for it in message.tool_calls if it.tool_call_id not in done]
        done |= {it.tool_call_id for it in message.parts if isinstance(it, ToolReturnPart)}
    return []


def steps_before_call(messages: Sequence[ModelMessage], call: ToolCallPart) -> list[JsonObject]:
    """What the messages say of the time before a call. System prompts are left out."""
    steps: list[JsonObject] = []
    last = next((it for it in reversed(messages) if isinstance(it, ModelResponse)), None)
    for message in messages[-MOST_STEPS:]:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                if part.tool_call_id == call.tool_call_id and message is last:
                    return steps
                steps.append({"who": "agent", "text": step_args(part.args_as_dict()), "tool": part.tool_name})
            elif isinstance(part, TextPart) and part.content.strip():
                steps.append({"who": "agent", "text": part.content.strip()})
            elif isinstance(part, ToolReturnPart):
                text, failed = part.model_response_str(), part.outcome in ("failed", "retried")
                steps.append({"who": "tool", "text": text, "tool": part.tool_name, "failed": failed})
            elif isinstance(part, UserPromptPart):
                steps.append({"who": "person", "text": _said(part)})
    return steps


def _said(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    return "\n".join(it for it in part.content if isinstance(it, str))


def place_of(messages: Sequence[ModelMessage], call: ToolCallPart) -> str:
    """A name for the message with the call, because a call's id may be used again in a later message."""
    for place, message in reversed(list(enumerate(messages))):
        if isinstance(message, ModelResponse) and any(
            it.tool_call_id == call.tool_call_id for it in message.tool_calls
        ):
            return f"{place}.{int(message.timestamp.timestamp() * 1000)}"
    return ""
