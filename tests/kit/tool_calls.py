"""Calling one tool, and reading its schema as a model gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from askfirst import (
    Agent,
    Tool,
)
from askfirst.messages import (
    ToolCall,
    ToolResultMessage,
    decode,
    encode,
)
from askfirst.models import ScriptedModel


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
