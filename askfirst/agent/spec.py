"""AgentSpec, the frozen definition of an agent, and its middleware hooks as an onion."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel

from askfirst.agent.subagents import SubagentTool, subagent_tool
from askfirst.agent.tools import Tool, tool
from askfirst.errors import InvalidAgent
from askfirst.events import AgentEvent
from askfirst.messages import AssistantMessage, JsonObject, Message, ToolCall, ToolResultMessage
from askfirst.models.base import Model, ModelRequest, ModelSettings, ToolSchema
from askfirst.models.pydantic_ai import PydanticAIModel
from askfirst.permissions.decision import PermissionPolicy
from askfirst.permissions.guardrails import ActionGuardrail, AnswerGuardrail, Guardrail
from askfirst.requests import approval_seconds

# Middleware: hooks around the model and the tools, as a small onion.
#
# The first in an agent's list is the outermost: its ``before_…`` runs first and its ``after_…`` last.


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

    __slots__ = (
        "_after_model",
        "_before_model",
        "after_tool_call",
        "around_model",
        "before_tool_call",
        "on_event",
    )

    def __init__(self, layers: Sequence[Middleware]) -> None:
        self.around_model = False
        """Whether any hook is called around a model call."""
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
        self.around_model = bool(self._before_model or self._after_model)

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


ToolGate = Literal["batch", "each"]


@dataclass(frozen=True, slots=True, eq=False)
class AgentSpec:
    """The definition of an agent: frozen, shared freely between agents, threads and processes.

    ``model`` is a `Model`, or the name of one (``"anthropic:claude-sonnet-4-5"``, see `PydanticAIModel`).
    ``tools`` are `Tool`s or plain functions, ``subagents`` other specs that become tools by `subagent_tool`.
    ``policy`` and ``guardrails`` decide what runs, what does not, and what a person is asked about. A run that
    has asked the model ``max_iterations`` times and is not done fails.

    ``tool_gate="batch"`` starts no tool of a message before all its calls are settled; ``"each"`` starts what
    is settled while the rest waits. ``approval_timeout`` is how long people have to decide about a call (seconds, or
    a text such as ``"24h"``), where neither the policy's rule nor the tool says so; then it is denied.
    ``description`` is what a caller is told of the agent as a subagent.
    """

    id: str
    model: Model | str
    tools: Sequence[Tool | Callable[..., Any]] = ()
    instructions: str = ""
    policy: PermissionPolicy | None = None
    guardrails: Sequence[Guardrail] = ()
    middleware: Sequence[Middleware] = ()
    subagents: Sequence[AgentSpec] = ()
    max_iterations: int = 50
    settings: ModelSettings = ModelSettings()
    tool_gate: ToolGate = "batch"
    description: str = ""
    approval_timeout: float | str | None = None
    resolved_model: Model = field(init=False, repr=False)
    tools_by_name: dict[str, Tool] = field(init=False, repr=False)
    tool_schemas: tuple[ToolSchema, ...] = field(init=False, repr=False)
    onion: Onion = field(init=False, repr=False)
    delegates: bool = field(init=False, repr=False)
    """Whether a tool of this agent is another agent."""

    def __post_init__(self) -> None:
        self._check()
        self._check_parts()
        own = tuple([each if isinstance(each, Tool) else tool(each) for each in self.tools])
        tools = (*own, *[subagent_tool(each) for each in self.subagents])
        by_name = {each.name: each for each in tools}
        if len(by_name) < len(tools):
            twice = next(name for name in by_name if sum(each.name == name for each in tools) > 1)
            raise InvalidAgent(f"two tools are called {twice!r}; give one of them another name")
        object.__setattr__(self, "resolved_model", _resolved(self.model))
        object.__setattr__(self, "tools", own)
        object.__setattr__(self, "middleware", tuple(self.middleware))
        object.__setattr__(self, "guardrails", tuple(self.guardrails))
        object.__setattr__(self, "subagents", tuple(self.subagents))
        object.__setattr__(self, "delegates", any(isinstance(each, SubagentTool) for each in tools))
        object.__setattr__(self, "tools_by_name", by_name)
        object.__setattr__(self, "tool_schemas", tuple([each.schema for each in tools]))
        object.__setattr__(self, "onion", Onion(self.middleware))

    def _check(self) -> None:
        if not isinstance(self.max_iterations, int) or self.max_iterations < 1:
            raise InvalidAgent(f"max_iterations is a whole number of at least 1, not {self.max_iterations!r}")
        if self.tool_gate not in ("batch", "each"):
            raise InvalidAgent(f"tool_gate is batch or each, not {self.tool_gate!r}")
        try:
            object.__setattr__(self, "approval_timeout", approval_seconds(self.approval_timeout))
        except ValueError as error:
            raise InvalidAgent(str(error)) from None
        if self.policy is not None and not callable(getattr(self.policy, "evaluate", None)):
            raise InvalidAgent(f"the policy {self.policy!r} has no evaluate(action)")

    def _check_parts(self) -> None:
        for each in self.tools:
            if not isinstance(each, Tool) and not callable(each):
                raise InvalidAgent(f"{each!r} is not a tool; give a function, or what @tool makes of one")
        for guardrail in self.guardrails:
            if not isinstance(guardrail, ActionGuardrail | AnswerGuardrail) and not callable(guardrail):
                raise InvalidAgent(f"{guardrail!r} is not a guardrail; give a function of a PendingAction")
        for subagent in self.subagents:
            if not isinstance(subagent, AgentSpec):
                raise InvalidAgent(f"{subagent!r} is not a subagent; give an AgentSpec")
        for layer in self.middleware:
            if not isinstance(layer, Middleware):
                raise InvalidAgent(
                    f"{layer!r} is not a Middleware; derive its class from askfirst.Middleware"
                )


def _resolved(model: Model | str) -> Model:
    if isinstance(model, str):
        return PydanticAIModel(model)
    if isinstance(model, type) or not callable(getattr(model, "stream", None)):
        raise InvalidAgent(
            f"{model!r} is not a model; give a Model, such as ScriptedModel, or a provider's name for one"
        )
    return model


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts on a thread: an agent at its place in a tree of agents, and on whose behalf it works."""

    spec: AgentSpec
    path: tuple[str, ...]
    """The ids of the agents from the root of the tree to this one."""
    call_path: tuple[str, ...] = ()
    """The ids of the calls that led from the root to this agent."""
    principal: str = "*"
    policy: PermissionPolicy | None = None
    """The agent's own policy, else its caller's."""
    resumer: str | None = None
    """The resumer that goes on with the tree's root thread when a request is settled; None if nobody does."""
    root_thread_id: str | None = None

    @classmethod
    def root(
        cls, spec: AgentSpec, principal: str, thread_id: str | None = None, resumer: str | None = None
    ) -> Actor:
        """An agent that works for no other."""
        return cls(spec, (spec.id,), (), principal, spec.policy, resumer, thread_id)

    def subagent(self, spec: AgentSpec, call_id: str) -> Actor:
        """The agent that works on one of this agent's calls."""
        policy = self.policy if spec.policy is None else spec.policy
        return Actor(
            spec,
            (*self.path, spec.id),
            (*self.call_path, call_id),
            self.principal,
            policy,
            self.resumer,
            self.root_thread_id,
        )
