"""Assent: the human-in-the-loop layer for AI agents.

The public names, loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assent.lazy import exports

if TYPE_CHECKING:
    from assent.agent.agent import Agent
    from assent.agent.checkpoint import RunCheckpoint
    from assent.agent.middleware import BeforeToolCallResult, Middleware, ModelCallContext, ToolCallContext
    from assent.agent.result import AgentResult
    from assent.agent.runner import (
        StreamEnvelope,
        run_agent,
        run_agent_resume,
        run_agent_resume_stream,
        run_agent_stream,
    )
    from assent.agent.spec import AgentSpec
    from assent.agent.subagents import subagent_tool
    from assent.agent.tools import Tool, ToolContext, ToolResult, tool
    from assent.approvals import ApprovalResponse, PendingApproval
    from assent.errors import AssentError, HitlControlException
    from assent.events import AgentEvent
    from assent.tracers import OTelTracer, TraceEvent, Tracer

__version__ = "0.1.0"

_HOMES = {
    "Agent": "agent.agent",
    "AgentEvent": "events",
    "AgentResult": "agent.result",
    "AgentSpec": "agent.spec",
    "ApprovalResponse": "approvals",
    "AssentError": "errors",
    "BeforeToolCallResult": "agent.middleware",
    "HitlControlException": "errors",
    "Middleware": "agent.middleware",
    "ModelCallContext": "agent.middleware",
    "OTelTracer": "tracers",
    "PendingApproval": "approvals",
    "RunCheckpoint": "agent.checkpoint",
    "StreamEnvelope": "agent.runner",
    "Tool": "agent.tools",
    "ToolCallContext": "agent.middleware",
    "ToolContext": "agent.tools",
    "ToolResult": "agent.tools",
    "TraceEvent": "tracers",
    "Tracer": "tracers",
    "run_agent": "agent.runner",
    "run_agent_resume": "agent.runner",
    "run_agent_resume_stream": "agent.runner",
    "run_agent_stream": "agent.runner",
    "subagent_tool": "agent.subagents",
    "tool": "agent.tools",
}

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentResult",
    "AgentSpec",
    "ApprovalResponse",
    "AssentError",
    "BeforeToolCallResult",
    "HitlControlException",
    "Middleware",
    "ModelCallContext",
    "OTelTracer",
    "PendingApproval",
    "RunCheckpoint",
    "StreamEnvelope",
    "Tool",
    "ToolCallContext",
    "ToolContext",
    "ToolResult",
    "TraceEvent",
    "Tracer",
    "run_agent",
    "run_agent_resume",
    "run_agent_resume_stream",
    "run_agent_stream",
    "subagent_tool",
    "tool",
]

__getattr__, __dir__ = exports(globals(), _HOMES)
