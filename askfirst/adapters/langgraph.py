"""LangChain and LangGraph: the gate before tools of `create_agent` and of plain graphs, and going on by a worker.

The gate interrupts the graph while a person decides. Whatever value the graph is resumed with, the gate asks its
store again. So a resume that is early, repeated or forged only interrupts again.
"""

# The framework is not installed where types are checked, so what comes from it is unknown there.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from askfirst.adapters.gated_call import Codec, GatedCall, GatedTools, Start, Told, ToolsGiven
from askfirst.adapters.missing import needs
from askfirst.agent.verdicts import not_run
from askfirst.errors import HitlError, Pending, ResumeFailed
from askfirst.gate.gate import Gate
from askfirst.gate.outcomes import Ran
from askfirst.messages import JsonObject
from askfirst.workers.continuations import Continuation
from askfirst.workers.resumers import Resumer

with needs("langgraph"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import ToolMessage, message_to_dict, messages_from_dict
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.config import get_config
    from langgraph.errors import GraphBubbleUp
    from langgraph.prebuilt import ToolNode
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.types import Command, interrupt

RESUMER = "langgraph"
"""The name under which a worker knows `langgraph_resumer`, unless another is given."""
INTERRUPT = "askfirst"
"""The ``type`` of the gate's interrupts."""

Result = ToolMessage | Command[Any]
_SERDE = JsonPlusSerializer()


class AskfirstMiddleware(AgentMiddleware[Any, Any, Any]):
    """The gate before the tools of an agent: ``create_agent(model, tools, middleware=[AskfirstMiddleware(gate)])``.

    ``tools`` names those that a person decides on, with options of `Gate.guarded` where it is a mapping; all others
    are put to the gate's policy. Without either a person decides on every call. The agent needs a checkpointer.
    """

    def __init__(self, gate: Gate, tools: ToolsGiven = None, *, resumer: str = RESUMER) -> None:
        super().__init__()
        self._gated = GatedTools.of(gate, "langgraph", tools, resumer, (GraphBubbleUp,))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Put a call to the gate; LangChain calls this."""
        if not self._gated.has(request.tool_call["name"]):
            return handler(request)
        call = _call(self._gated, request)
        if isinstance(call, Told):
            return _result(request, call)

        def body(start: Start) -> Result:
            return handler(_with(request, start))

        while isinstance(outcome := call.run_here(body, _CODEC), Pending):
            _interrupt(outcome)
        return _result(request, outcome)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """The same for `ainvoke` and `astream`."""
        if not self._gated.has(request.tool_call["name"]):
            return await handler(request)
        call = _call(self._gated, request)
        if isinstance(call, Told):
            return _result(request, call)

        async def body(start: Start) -> Result:
            return await handler(_with(request, start))

        while isinstance(outcome := await call.run(body, _CODEC), Pending):
            _interrupt(outcome)
        return _result(request, outcome)


def gated(
    gate: Gate,
    tools: Sequence[BaseTool | Callable[..., Any]],
    ask: ToolsGiven = None,
    *,
    resumer: str = RESUMER,
    **node: Any,
) -> ToolNode:
    """A `ToolNode` with the gate before its tools: ``graph.add_node("tools", gated(gate, tools))`` in a plain graph.

    ``ask`` is what `AskfirstMiddleware` takes as ``tools``; further options are those of `ToolNode`.
    """
    middleware = AskfirstMiddleware(gate, ask, resumer=resumer)
    return ToolNode(
        tools,
        wrap_tool_call=middleware.wrap_tool_call,
        awrap_tool_call=middleware.awrap_tool_call,
        **node,
    )


def langgraph_resumer(graph: Any, config: Mapping[str, Any] | None = None) -> Resumer:
    """A resumer that goes on with a graph's thread when people have decided.

    ``graph`` is the compiled graph, or a function (async if need be) that gives it; ``config`` is merged into the
    configuration that it is called with.
    """

    async def resume(continuation: Continuation) -> Any:
        compiled = graph
        if not hasattr(graph, "aget_state"):
            compiled = graph()
            compiled = await compiled if isinstance(compiled, Awaitable) else compiled
        given = dict(config or {})
        configurable = {**given.get("configurable", {}), "thread_id": continuation.thread_id}
        run: RunnableConfig = cast(RunnableConfig, {**given, "configurable": configurable})
        state = await compiled.aget_state(run)
        if state.next:  # without a value: one would be taken for the answer to an interrupt of the tool's own
            return await compiled.ainvoke(None, run)
        if not state.created_at:
            raise ResumeFailed(f"the graph's checkpointer has no thread {continuation.thread_id!r}")
        return state

    return resume


def _interrupt(pending: Pending) -> None:
    """Interrupt the graph; what it is resumed with says nothing, so it is not looked at."""
    interrupt({"type": INTERRUPT, "case": pending.case, "key": pending.key})


def _call(tools: GatedTools, request: ToolCallRequest) -> GatedCall | Told:
    call = request.tool_call
    args = _whole_args(request)
    if isinstance(args, str):
        return Told(not_run(call["name"], f"its arguments are invalid ({args})"))
    thread = get_config().get("configurable", {}).get("thread_id")
    if not thread:
        raise HitlError("the gate needs a thread: give the graph a checkpointer and a thread_id")
    return tools.call(
        call["name"],
        args,
        thread=str(thread),
        call_id=f"{_message_id(request)}:{call['id']}",
        schema=None if request.tool is None else _schema(request.tool),
    )


def _schema(tool: BaseTool) -> Mapping[str, Any]:
    return convert_to_openai_tool(tool)["function"]["parameters"]


def _whole_args(request: ToolCallRequest) -> JsonObject | str:
    """The arguments with the tool's defaults, as a person sees them and as they run; or what is wrong with them."""
    args: JsonObject = dict(request.tool_call["args"])
    model: Any = None if request.tool is None else request.tool.tool_call_schema
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return args
    try:
        read = model.model_validate(args).model_dump(mode="json", warnings=False)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in faults)
    return {**{name: value for name, value in read.items() if name not in args}, **args}


def _message_id(request: ToolCallRequest) -> str:
    """The id of the message that makes the call: ids of calls may come again in later messages."""
    state = request.state
    messages: Any = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", state)
    for message in reversed(messages if isinstance(messages, list) else []):
        calls = getattr(message, "tool_calls", None) or []
        if any(it["id"] == request.tool_call["id"] for it in calls):
            return str(message.id)
    return ""


def _with(request: ToolCallRequest, start: Start) -> ToolCallRequest:
    return request.override(tool_call={**request.tool_call, "args": start.args})


def _result(request: ToolCallRequest, outcome: Ran[tuple[Result, str | None]] | Told) -> Result:
    call = request.tool_call
    if isinstance(outcome, Told):
        return ToolMessage(outcome.text, tool_call_id=call["id"], name=call["name"], status="error")
    result, note = outcome.result
    if note is not None and isinstance(result, ToolMessage) and isinstance(result.content, str):
        return result.model_copy(update={"content": f"{note}\n{result.content}"})
    return result


def _encode(result: Result) -> JsonObject:
    if isinstance(result, ToolMessage):
        return {"message": message_to_dict(result)}
    kind, data = _SERDE.dumps_typed(result)
    return {"serde": kind, "data": base64.b64encode(data).decode()}


def _decode(stored: Any) -> Result:
    if "message" in stored:
        return cast(ToolMessage, messages_from_dict([stored["message"]])[0])
    return _SERDE.loads_typed((stored["serde"], base64.b64decode(stored["data"])))


_CODEC: Codec[Result] = Codec(_encode, _decode)
