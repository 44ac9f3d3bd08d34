"""A run of a Pydantic AI agent, without the gate and with its capability."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from askfirst import Gate
from askfirst.adapters.pydantic_ai import AskfirstGate


def charge(cents: int) -> str:
    """Charge the customer."""
    return f"charged {cents}"


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool, then say that it is done."""
    if any(isinstance(it, ModelResponse) for it in messages):
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("charge", {"cents": 5}, "call_1")])


def work(gate: Gate | None) -> Callable[[], Awaitable[object]]:
    """One run, in a new conversation."""
    capabilities: list[Any] = [] if gate is None else [AskfirstGate(gate)]
    agent: Agent[None, Any] = Agent(
        FunctionModel(scripted),
        tools=[charge],
        output_type=[str, DeferredToolRequests],
        capabilities=capabilities,
    )

    async def run() -> None:
        result = await agent.run("charge", conversation_id=secrets.token_hex(8))
        assert result.output == "done"

    return run
