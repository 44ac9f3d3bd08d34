"""What an agent is made of, before it lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assent.agent.middleware import Middleware, Onion
from assent.agent.tools import Tool, tool
from assent.errors import InvalidAgent
from assent.models.base import Model, ModelSettings, ToolSchema
from assent.models.pydantic_ai import PydanticAIModel


@dataclass(frozen=True, slots=True, eq=False)
class AgentSpec:
    """The definition of an agent: frozen, shared freely between agents, threads and processes.

    ``model`` is a `Model`, or the name of one (``"anthropic:claude-sonnet-4-5"``, see `PydanticAIModel`).
    ``tools`` are `Tool`s or plain functions. A run that has asked the model ``max_iterations`` times and
    is not done fails.
    """

    id: str
    model: Model | str
    tools: Sequence[Tool | Callable[..., Any]] = ()
    instructions: str = ""
    middleware: Sequence[Middleware] = ()
    settings: ModelSettings = ModelSettings()
    max_iterations: int = 50
    resolved_model: Model = field(init=False, repr=False)
    tools_by_name: dict[str, Tool] = field(init=False, repr=False)
    tool_schemas: tuple[ToolSchema, ...] = field(init=False, repr=False)
    onion: Onion = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.max_iterations, int) or self.max_iterations < 1:
            raise InvalidAgent(f"max_iterations is a whole number of at least 1, not {self.max_iterations!r}")
        tools = tuple(each if isinstance(each, Tool) else tool(each) for each in self.tools)
        by_name = {each.name: each for each in tools}
        if len(by_name) < len(tools):
            twice = next(name for name in by_name if sum(each.name == name for each in tools) > 1)
            raise InvalidAgent(f"two tools are called {twice!r}; give one of them another name")
        for layer in self.middleware:
            if not isinstance(layer, Middleware):
                raise InvalidAgent(f"{layer!r} is no Middleware; derive its class from assent.Middleware")
        model = PydanticAIModel(self.model) if isinstance(self.model, str) else self.model
        object.__setattr__(self, "resolved_model", model)
        object.__setattr__(self, "tools", tools)
        object.__setattr__(self, "middleware", tuple(self.middleware))
        object.__setattr__(self, "tools_by_name", by_name)
        object.__setattr__(self, "tool_schemas", tuple(each.schema for each in tools))
        object.__setattr__(self, "onion", Onion(self.middleware))
