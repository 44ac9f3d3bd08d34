"""Assent: the human-in-the-loop layer for AI agents.

The public names, loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assent.agent.agent import Agent
    from assent.agent.middleware import (
        BeforeToolCallResult,
        Middleware,
        ModelCallContext,
        ToolCallContext,
    )
    from assent.agent.result import AgentResult
    from assent.agent.spec import AgentSpec
    from assent.agent.tools import Tool, ToolContext, ToolResult, tool
    from assent.errors import AssentError, HitlControlException
    from assent.events import AgentEvent

__version__ = "0.1.0"

_HOMES = {
    "Agent": "agent.agent",
    "AgentEvent": "events",
    "AgentResult": "agent.result",
    "AgentSpec": "agent.spec",
    "AssentError": "errors",
    "BeforeToolCallResult": "agent.middleware",
    "HitlControlException": "errors",
    "Middleware": "agent.middleware",
    "ModelCallContext": "agent.middleware",
    "Tool": "agent.tools",
    "ToolCallContext": "agent.middleware",
    "ToolContext": "agent.tools",
    "ToolResult": "agent.tools",
    "tool": "agent.tools",
}

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentResult",
    "AgentSpec",
    "AssentError",
    "BeforeToolCallResult",
    "HitlControlException",
    "Middleware",
    "ModelCallContext",
    "Tool",
    "ToolCallContext",
    "ToolContext",
    "ToolResult",
    "tool",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'assent' has no attribute {name!r}")
    value = getattr(import_module(f"assent.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
