"""Askfirst: the human-in-the-loop layer for AI agents.

The public names, loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from askfirst.lazy import exports

if TYPE_CHECKING:
    from askfirst.agent.agent import Agent
    from askfirst.agent.result import AgentResult, RunCheckpoint
    from askfirst.agent.runner import (
        StreamEnvelope,
        run_agent,
        run_agent_resume,
        run_agent_resume_stream,
        run_agent_stream,
    )
    from askfirst.agent.spec import (
        AgentSpec,
        BeforeToolCallResult,
        Middleware,
        ModelCallContext,
        ToolCallContext,
    )
    from askfirst.agent.subagents import subagent_tool
    from askfirst.agent.tools import Tool, ToolContext, ToolResult, tool
    from askfirst.approvals import ApprovalResponse, PendingApproval
    from askfirst.checkpointer.connect import checkpointer_from_url
    from askfirst.checkpointer.memory import MemoryCheckpointer
    from askfirst.checkpointer.mysql import MySQLCheckpointer
    from askfirst.checkpointer.postgres import PostgresCheckpointer
    from askfirst.checkpointer.sqlite import SQLiteCheckpointer
    from askfirst.client.client import HitlClient
    from askfirst.errors import AskfirstError, Denied, HitlControlException, Pending
    from askfirst.events import AgentEvent
    from askfirst.gate.gate import Gate
    from askfirst.gate.outcomes import Ran
    from askfirst.gate.sync import SyncGate
    from askfirst.hitl.ask_user import ask_user_tool
    from askfirst.hitl.checkpointed import CheckpointedChannel
    from askfirst.hitl.memory import InMemoryChannel
    from askfirst.models.pydantic_ai import PydanticAIModel
    from askfirst.models.scripted import ScriptedModel
    from askfirst.permissions.static import StaticPermissionPolicy
    from askfirst.service.app import create_app
    from askfirst.trace_export import OTelTracer, TraceEvent, Tracer

__version__ = "0.1.0"

_HOMES = {
    "Agent": "agent.agent",
    "AgentEvent": "events",
    "AgentResult": "agent.result",
    "AgentSpec": "agent.spec",
    "ApprovalResponse": "approvals",
    "AskfirstError": "errors",
    "BeforeToolCallResult": "agent.spec",
    "CheckpointedChannel": "hitl.checkpointed",
    "Denied": "errors",
    "Gate": "gate.gate",
    "HitlClient": "client.client",
    "HitlControlException": "errors",
    "InMemoryChannel": "hitl.memory",
    "MemoryCheckpointer": "checkpointer.memory",
    "Middleware": "agent.spec",
    "ModelCallContext": "agent.spec",
    "MySQLCheckpointer": "checkpointer.mysql",
    "OTelTracer": "trace_export",
    "Pending": "errors",
    "PendingApproval": "approvals",
    "PostgresCheckpointer": "checkpointer.postgres",
    "PydanticAIModel": "models.pydantic_ai",
    "Ran": "gate.outcomes",
    "RunCheckpoint": "agent.result",
    "SQLiteCheckpointer": "checkpointer.sqlite",
    "ScriptedModel": "models.scripted",
    "StaticPermissionPolicy": "permissions.static",
    "StreamEnvelope": "agent.runner",
    "SyncGate": "gate.sync",
    "Tool": "agent.tools",
    "ToolCallContext": "agent.spec",
    "ToolContext": "agent.tools",
    "ToolResult": "agent.tools",
    "TraceEvent": "trace_export",
    "Tracer": "trace_export",
    "ask_user_tool": "hitl.ask_user",
    "checkpointer_from_url": "checkpointer.connect",
    "create_app": "service.app",
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
    "AskfirstError",
    "BeforeToolCallResult",
    "CheckpointedChannel",
    "Denied",
    "Gate",
    "HitlClient",
    "HitlControlException",
    "InMemoryChannel",
    "MemoryCheckpointer",
    "Middleware",
    "ModelCallContext",
    "MySQLCheckpointer",
    "OTelTracer",
    "Pending",
    "PendingApproval",
    "PostgresCheckpointer",
    "PydanticAIModel",
    "Ran",
    "RunCheckpoint",
    "SQLiteCheckpointer",
    "ScriptedModel",
    "StaticPermissionPolicy",
    "StreamEnvelope",
    "SyncGate",
    "Tool",
    "ToolCallContext",
    "ToolContext",
    "ToolResult",
    "TraceEvent",
    "Tracer",
    "ask_user_tool",
    "checkpointer_from_url",
    "create_app",
    "run_agent",
    "run_agent_resume",
    "run_agent_resume_stream",
    "run_agent_stream",
    "subagent_tool",
    "tool",
]

__getattr__, __dir__ = exports(globals(), _HOMES)
