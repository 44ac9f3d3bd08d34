"""LangChain and LangGraph: the gate before tools of `create_agent` and of plain graphs, and a resumer for workers.

The gate interrupts the graph while a person decides. The value that the graph is resumed with decides nothing: the
gate reads the decision from its store. So an early, repeated or forged resume only interrupts again.
"""

# The framework is not installed where types are checked, so what comes from it is unknown there.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from askfirst.adapters.framework import instance_from, needs
from askfirst.adapters.gated_call import Codec, GatedTools, NotRun, Start, ToolsGiven
from askfirst.adapters.langgraph_calls import call_of
from askfirst.errors import Pending, ResumeFailed
from askfirst.gate.gate import Gate
from askfirst.gate.outcomes import Ran
from askfirst.messages import JsonObject
from askfirst.workers.continuations import Continuation
from askfirst.workers.resumers import Resumer

with needs("langgraph"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import ToolMessage, message_to_dict, messages_from_dict
    from langchain_core.runnables import Runnable, RunnableConfig
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
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

    ``tools`` are the names of the tools that a person decides on, or a mapping from names to options of
    `Gate.guarded`. The gate's policy decides on all other tools. Without ``tools`` and without a policy, a person
    decides on every call. The agent needs a checkpointer.
    """

    def __init__(self, gate: Gate, tools: ToolsGiven = None, *, resumer: str = RESUMER) -> None:
        super().__init__()
        self._gated = GatedTools.of(gate, "langgraph", tools, resumer, (GraphBubbleUp,))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Put a call to the gate; LangChain calls this."""
        if not self._gated.has(request.tool_call["name"]):
            return handler(request)
        call = call_of(self._gated, request)
        if isinstance(call, NotRun):
            return _result(request, call)

        def body(start: Start) -> Result:
            return handler(_with(request, start))

        while isinstance(outcome := call.run_sync(body, _CODEC), Pending):
            _interrupt(outcome)
        return _result(request, outcome)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """`wrap_tool_call` for `ainvoke` and `astream`."""
        if not self._gated.has(request.tool_call["name"]):
            return await handler(request)
        call = call_of(self._gated, request)
        if isinstance(call, NotRun):
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
    """A resumer that continues a graph's thread when people have decided.

    ``graph`` is the compiled graph, or a function (sync or async) that returns it; ``config`` is merged into the
    configuration that the graph is called with.
    """

    async def resume(continuation: Continuation) -> Any:
        compiled = await instance_from(graph, Runnable)
        given = dict(config or {})
        configurable = {**given.get("configurable", {}), "thread_id": continuation.thread_id}
        run: RunnableConfig = cast(RunnableConfig, {**given, "configurable": configurable})
        state = await compiled.aget_state(run)
        if state.next:  # no resume value: it could be taken as the answer to an interrupt of the tool's own
            return await compiled.ainvoke(None, run)
        if not state.created_at:
            raise ResumeFailed(f"the graph's checkpointer has no thread {continuation.thread_id!r}")
        return state

    return resume


def _interrupt(pending: Pending) -> None:
    """Interrupt the graph. The value that it is resumed with is ignored: the gate asks its store again."""
    interrupt({"type": INTERRUPT, "case": pending.case, "key": pending.key})


def _with(request: ToolCallRequest, start: Start) -> ToolCallRequest:
    return request.override(tool_call={**request.tool_call, "args": start.args})


def _result(request: ToolCallRequest, outcome: Ran[tuple[Result, str | None]] | NotRun) -> Result:
    call = request.tool_call
    if isinstance(outcome, NotRun):
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
