"""What an agent is made of, before it lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from assent.agent.middleware import Middleware, Onion
from assent.agent.subagents import SubagentTool, subagent_tool
from assent.agent.tools import Tool, tool
from assent.errors import InvalidAgent
from assent.models.base import Model, ModelSettings, ToolSchema
from assent.models.pydantic_ai import PydanticAIModel
from assent.permissions.decision import PermissionPolicy
from assent.permissions.guardrails import ActionGuardrail, AnswerGuardrail, Guardrail
from assent.requests import approval_seconds

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
                raise InvalidAgent(f"{each!r} is no tool; give a function, or what @tool makes of one")
        for guardrail in self.guardrails:
            if not isinstance(guardrail, ActionGuardrail | AnswerGuardrail) and not callable(guardrail):
                raise InvalidAgent(f"{guardrail!r} is no guardrail; give a function of a PendingAction")
        for subagent in self.subagents:
            if not isinstance(subagent, AgentSpec):
                raise InvalidAgent(f"{subagent!r} is no subagent; give an AgentSpec")
        for layer in self.middleware:
            if not isinstance(layer, Middleware):
                raise InvalidAgent(f"{layer!r} is no Middleware; derive its class from assent.Middleware")


def _resolved(model: Model | str) -> Model:
    if isinstance(model, str):
        return PydanticAIModel(model)
    if isinstance(model, type) or not callable(getattr(model, "stream", None)):
        raise InvalidAgent(
            f"{model!r} is no model; give a Model, such as ScriptedModel, or a provider's name for one"
        )
    return model
