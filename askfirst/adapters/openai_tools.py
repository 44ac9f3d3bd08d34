"""Function tools of the OpenAI Agents SDK that are invoked through the gate."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, cast

from askfirst.adapters.framework import needs
from askfirst.adapters.gated_call import GatedCall, GatedTools, Start, with_defaults
from askfirst.adapters.results import result_codec
from askfirst.adapters.run_key import run_key
from askfirst.agent.verdicts import not_run
from askfirst.errors import HitlError, Pending
from askfirst.gate.outcomes import Ran
from askfirst.messages import JsonObject

with needs("openai-agents"):
    from agents import FunctionTool, Tool
    from agents.run_context import RunContextWrapper
    from agents.tool import ToolOutputFileContent, ToolOutputImage, ToolOutputText
    from agents.tool_context import ToolContext

_PARTS = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)
_CODEC = result_codec(*_PARTS)


@dataclass(frozen=True)
class GatedTool:
    """Invokes a tool through the gate; it replaces the tool's ``on_invoke_tool``."""

    given: GatedTools
    tool: FunctionTool

    def call(self, key: str, agent: str, call_id: str, args: JsonObject | None) -> GatedCall:
        """A call at the gate, with the tool's defaults; ``key`` names the run, ``agent`` is the agent that calls."""
        schema = self.tool.params_json_schema
        return self.given.call(
            self.tool.name,
            with_defaults(args or {}, schema),
            thread=key,
            call_id=f"{agent}:{call_id}",
            schema=schema,
            agent_path=(agent,) if agent else (),
        )

    async def needs_approval(self, ctx: RunContextWrapper[Any], params: dict[str, Any], call_id: str) -> bool:
        """Whether the run is interrupted for a call; the SDK calls this."""
        return await self.given.gate.asks(self.call(_key(), "", call_id, params).action)

    async def __call__(self, ctx: ToolContext[Any], arguments: str) -> Any:
        """Put a call to the gate, and run its body once it is approved; the SDK calls this."""
        args = arguments_in(arguments)
        if args is None:
            return not_run(self.tool.name, "its arguments are not a JSON object")

        async def body(start: Start) -> Any:
            return await self.tool.on_invoke_tool(ctx, json.dumps(start.args))

        name = "" if ctx.agent is None else ctx.agent.name
        outcome = await self.call(_key(), name, ctx.tool_call_id, args).run(body, _CODEC)
        if isinstance(outcome, Pending):
            raise outcome  # nobody has decided: the run stops, and its stored state stays as it is
        return _with_note(*outcome.result) if isinstance(outcome, Ran) else outcome.text


def with_gate(given: GatedTools, tool: Tool) -> Tool:
    """The tool with the gate before it; the tool itself if its calls do not go through the gate."""
    is_agent = getattr(tool, "_is_agent_tool", False)
    if not isinstance(tool, FunctionTool) or is_agent:
        if given.tools is not None and tool.name in given.tools:
            raise HitlError(
                f"{tool.name} cannot be gated: only function tools can, so gate the tools of an inner agent"
            )
        return tool
    if not given.has(tool.name):
        return tool
    invoker = GatedTool(given, tool)
    return replace(tool, on_invoke_tool=invoker, needs_approval=invoker.needs_approval)


def arguments_in(text: str | None) -> JsonObject | None:
    """The arguments of a call, parsed from the model's text; None if they are not a JSON object."""
    try:
        read: Any = json.loads(text or "{}")
    except ValueError:
        return None
    return cast(JsonObject, read) if isinstance(read, dict) else None


def _key() -> str:
    key = run_key()
    if key is None:
        raise HitlError(
            "the run has no key: run the agent with askfirst.adapters.openai_agents.run(agent, input, gate=…, key=…)"
        )
    return key


def _with_note(result: Any, note: str | None) -> Any:
    """A result with the note for the model before it."""
    if note is None:
        return result
    if isinstance(result, list):
        return [ToolOutputText(text=note), *cast("list[Any]", result)]
    return [ToolOutputText(text=note), result] if isinstance(result, _PARTS) else f"{note}\n{result}"
