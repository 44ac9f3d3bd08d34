"""A tool call of a LangGraph graph at the gate: all its arguments, their schema, and its key."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
# (LangChain is installed in the environment of this adapter's tests only)

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from askfirst.adapters.framework import needs
from askfirst.adapters.gated_call import GatedCall, GatedTools, NotRun
from askfirst.agent.arguments import faults
from askfirst.agent.verdicts import not_run
from askfirst.display import MOST_STEPS, step_args
from askfirst.errors import HitlError
from askfirst.messages import JsonObject

with needs("langgraph"):
    from langchain_core.tools import BaseTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config
    from langgraph.prebuilt.tool_node import ToolCallRequest


def call_of(tools: GatedTools, request: ToolCallRequest) -> GatedCall | NotRun:
    """A call at the gate, under a key that stays the same when the graph is resumed; `NotRun` for invalid
    arguments."""
    call = request.tool_call
    args = _whole_args(request)
    if isinstance(args, str):
        return NotRun(not_run(call["name"], f"its arguments are invalid ({args})"))
    thread = get_config().get("configurable", {}).get("thread_id")
    if not thread:
        raise HitlError("the gate needs a thread: give the graph a checkpointer and a thread_id")
    return tools.call(
        call["name"],
        args,
        thread=str(thread),
        call_id=f"{_message_id(request)}:{call['id']}",
        schema=None if request.tool is None else _schema(request.tool),
        before=_steps(request),
    )


def _schema(tool: BaseTool) -> Mapping[str, Any]:
    return convert_to_openai_tool(tool)["function"]["parameters"]


def _whole_args(request: ToolCallRequest) -> JsonObject | str:
    """The arguments with the tool's defaults, as a person sees them and as they run; or a text with their faults."""
    args: JsonObject = dict(request.tool_call["args"])
    model: Any = None if request.tool is None else request.tool.tool_call_schema
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return args
    try:
        read = model.model_validate(args).model_dump(mode="json", warnings=False)
    except ValidationError as error:
        return "; ".join(faults(error))
    return {**{name: value for name, value in read.items() if name not in args}, **args}


def _messages(request: ToolCallRequest) -> list[Any]:
    state = request.state
    messages: Any = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", state)
    return messages if isinstance(messages, list) else []


_WHO = {"human": "person", "ai": "agent", "tool": "tool"}


def _steps(request: ToolCallRequest) -> list[JsonObject]:
    """What the graph's messages say of the time before the call. System messages are left out."""
    steps: list[JsonObject] = []
    asking = _message_of(request)
    for message in _messages(request)[-MOST_STEPS:]:
        who, calls = _WHO.get(message.type), getattr(message, "tool_calls", None) or []
        if who is None:
            continue
        if who == "tool":
            failed = getattr(message, "status", None) == "error"
            steps.append({"who": who, "text": _text(message), "tool": message.name, "failed": failed})
        elif text := _text(message):
            steps.append({"who": who, "text": text})
        if message is asking:
            break
        steps += [{"who": who, "text": step_args(it["args"]), "tool": it["name"]} for it in calls]
    return steps


def _text(message: Any) -> str:
    if isinstance(message.content, str):
        return message.content.strip()
    parts = [it if isinstance(it, str) else it.get("text", "") for it in message.content]
    return "\n".join(it for it in parts if it).strip()


def _message_id(request: ToolCallRequest) -> str:
    """The id of the message with the call, because a call's id may be used again in a later message."""
    message = _message_of(request)
    return "" if message is None else str(message.id)


def _message_of(request: ToolCallRequest) -> Any:
    """The last message with the call; None if the graph's state has none."""
    for message in reversed(_messages(request)):
        calls = getattr(message, "tool_calls", None) or []
        if any(it["id"] == request.tool_call["id"] for it in calls):
            return message
    return None
