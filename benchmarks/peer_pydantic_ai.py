"""The approve cycle as Pydantic AI's users write it. It ships no store for a paused run: in memory only."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from benchmarks.peers import KILOBYTE, Ways


@asynccontextmanager
async def in_memory() -> AsyncIterator[Ways]:
    agent = Agent(FunctionModel(_answer), output_type=[str, DeferredToolRequests])
    agent.tool_plain(requires_approval=True)(charge)

    async def run() -> None:
        paused = await agent.run("go")
        approvals = {call.tool_call_id: True for call in paused.output.approvals}
        result = await agent.run(
            message_history=paused.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals=approvals),
        )
        returned = result.all_messages()[-2].parts[0]
        assert (result.output, returned.content) == ("done", KILOBYTE)

    yield {"pydantic-ai": run}


async def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model without latency; it reports its usage, so that no time is spent on an estimate."""
    usage = RequestUsage(input_tokens=1, output_tokens=1)
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart("done")], usage=usage)
    call = ToolCallPart("charge", {"amount": 5}, tool_call_id=secrets.token_hex(8))
    return ModelResponse(parts=[call], usage=usage)


async def charge(amount: int) -> str:
    """Charge a card."""
    return KILOBYTE
