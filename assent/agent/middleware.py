"""Middleware: hooks around the model and the tools, as a small onion.

The first in an agent's list is the outermost: its ``before_…`` runs first and its ``after_…`` last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from assent.agent.tools import Tool
from assent.events import AgentEvent
from assent.messages import AssistantMessage, JsonObject, Message, ToolCall, ToolResultMessage
from assent.models.base import ModelRequest


@dataclass(frozen=True, slots=True)
class ModelCallContext:
    """A model call: ``message`` is None before it and the answer after it."""

    request: ModelRequest
    thread_id: str
    run_id: str
    signal: asyncio.Event
    message: AssistantMessage | None = None


@dataclass(frozen=True, slots=True)
class ToolCallContext:
    """A tool call whose arguments are valid: ``args`` is the tool's parameter model.

    ``result`` is None before the call and what came of it afterwards.
    """

    tool_call: ToolCall
    tool: Tool
    args: BaseModel
    messages: Sequence[Message]
    thread_id: str
    run_id: str
    signal: asyncio.Event
    result: ToolResultMessage | None = None


@dataclass(frozen=True, slots=True)
class BeforeToolCallResult:
    """What ``before_tool_call`` may decide: block the call with a reason, or run it with other arguments.

    ``edited_args`` are validated like the model's own. ``hitl_trace`` records how a person decided; it
    ends up in the result's ``details["hitl"]``.
    """

    block: bool = False
    reason: str | None = None
    edited_args: Mapping[str, Any] | None = field(
        default=None, repr=False
    )  # a person may have typed a secret
    hitl_trace: JsonObject | None = None


class Middleware:
    """Override what you need; each hook by default does nothing.

    A ``before_tool_call`` that raises blocks the call; an ``after_tool_call`` that raises is logged and
    changes nothing, for the tool has run; a model hook that raises fails the run. A
    `HitlControlException` passes through all of them.
    """

    async def before_model(self, ctx: ModelCallContext) -> ModelRequest | None:
        """Before the model is asked; return another request to send that instead."""
        return None

    async def after_model(self, ctx: ModelCallContext) -> AssistantMessage | None:
        """After the model answered, before the answer is in the transcript; return another to keep that."""
        return None

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult | None:
        """Before any tool of the message starts; None lets the call pass."""
        return None

    async def after_tool_call(self, ctx: ToolCallContext) -> ToolResultMessage | None:
        """After the tool ran, before its result is in the transcript; return another to keep that."""
        return None

    async def on_event(self, event: AgentEvent) -> None:
        """Hear an event, like a listener."""


class Onion:
    """An agent's middleware, in order, with the hooks that nobody overrides left out."""

    __slots__ = ("_after_model", "_before_model", "after_tool_call", "before_tool_call", "on_event")

    def __init__(self, layers: Sequence[Middleware]) -> None:
        if not layers:  # as for most agents
            self._before_model = self._after_model = []
            self.before_tool_call = self.after_tool_call = self.on_event = []
            return
        self._before_model = [layer.before_model for layer in layers if _overrides(layer, "before_model")]
        self._after_model = [
            layer.after_model for layer in reversed(layers) if _overrides(layer, "after_model")
        ]
        self.before_tool_call = [
            layer.before_tool_call for layer in layers if _overrides(layer, "before_tool_call")
        ]
        self.after_tool_call = [
            layer.after_tool_call for layer in reversed(layers) if _overrides(layer, "after_tool_call")
        ]
        self.on_event = [layer.on_event for layer in layers if _overrides(layer, "on_event")]

    @property
    def around_model(self) -> bool:
        """Whether any hook is called around a model call."""
        return bool(self._before_model or self._after_model)

    async def before_model(self, ctx: ModelCallContext) -> ModelCallContext:
        """The context with the request that is to be sent."""
        for hook in self._before_model:
            if (request := await hook(ctx)) is not None:
                ctx = replace(ctx, request=request)
        return ctx

    async def after_model(self, ctx: ModelCallContext, message: AssistantMessage) -> AssistantMessage:
        """The answer that is to be kept."""
        for hook in self._after_model:
            message = await hook(replace(ctx, message=message)) or message
        return message


def _overrides(layer: Middleware, hook: str) -> bool:
    return getattr(type(layer), hook) is not getattr(Middleware, hook)
