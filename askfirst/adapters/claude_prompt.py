"""Claude Code's permission prompts at the gate: the answers for ``--permission-prompt-tool``, and an MCP server.

If none of Claude Code's own rules decides on a call, Claude Code asks a tool of an MCP server whether the call may
run. Claude Code runs the call itself, and does not report its end. So the ledger's entry for the call stands for the
permission, which is given once.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false
# (the SDK is installed in the environment of this adapter's tests only)

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from askfirst.adapters.claude_code import ClaudeHooks, cancel_request, text_instead
from askfirst.adapters.framework import needs
from askfirst.adapters.gated_call import Start, ToolsGiven
from askfirst.agent.verdicts import not_run
from askfirst.concurrency import finish
from askfirst.errors import Pending
from askfirst.gate.gate import Gate
from askfirst.ids import new_id
from askfirst.messages import JsonObject

TOOL = "approve"
"""The tool's name: ``--permission-prompt-tool mcp__askfirst__approve`` if the server is called ``askfirst``."""


class PermissionPrompts:
    """Answers permission prompts. ``tools`` names the tools that a person decides on; the policy decides on others.

    ``wait`` is how many seconds a prompt waits for the decision, None without limit. After that the call is denied,
    and its request is cancelled.
    """

    def __init__(self, gate: Gate, tools: ToolsGiven = None, *, wait: float | None = None) -> None:
        self._events = ClaudeHooks.of(gate, tools, wait=wait, while_pending="deny", outlives_tool=True)
        self._session = f"prompt:{new_id()}"  # some providers' call ids are unique only within a session

    async def answer(self, name: str, args: Mapping[str, Any], call_id: str | None) -> JsonObject:
        """The answer for Claude Code: ``allow`` with the arguments to run with, or ``deny`` with the reason."""
        if not self._events.tools.has(name):
            return _deny(not_run(name, "nobody is asked about it"))
        call = self._events.tools.call(name, args, thread=self._session, call_id=call_id or new_id())
        try:
            entered = await self._events.enter(call)
        except asyncio.CancelledError:  # Claude Code has ended, or has stopped waiting
            await finish(asyncio.ensure_future(cancel_request(call, "Claude Code stopped waiting")))
            raise
        if isinstance(entered, Start):
            await call.finish(entered, "Claude Code was told that it may run")
            return {"behavior": "allow", "updatedInput": entered.args}
        if isinstance(entered, Pending):
            await cancel_request(call, "nobody decided while Claude Code waited")
            return _deny(not_run(name, "nobody decided in time"))
        return _deny(text_instead(name, entered))


def permission_server(prompts: PermissionPrompts) -> Any:
    """An `MCPServer` with the tool ``approve``; ``await server.run_stdio_async()`` serves it."""
    with needs("mcp"):
        from mcp.server import MCPServer

    server = MCPServer("askfirst", instructions="Asks people whether a call may run.")

    @server.tool(name=TOOL, structured_output=False)
    async def approve(tool_name: str, input: dict[str, Any], tool_use_id: str | None = None) -> str:
        """Ask a person whether a call may run. For --permission-prompt-tool, not for the model."""
        return json.dumps(await prompts.answer(tool_name, input, tool_use_id))

    return server


def _deny(message: str) -> JsonObject:
    return {"behavior": "deny", "message": message}
