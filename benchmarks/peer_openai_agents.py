"""The approve cycle as the OpenAI Agents SDK's users write it. It ships no store for a paused run: in memory only."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from benchmarks.peers import KILOBYTE, Ways


@asynccontextmanager
async def in_memory() -> AsyncIterator[Ways]:
    agent = Agent("bench", model=_Model(), tools=[charge])
    config = RunConfig(tracing_disabled=True)

    async def run() -> None:
        paused = await Runner.run(agent, "go", run_config=config)
        state = paused.to_state()
        for interruption in paused.interruptions:
            state.approve(interruption)
        result = await Runner.run(agent, state, run_config=config)
        assert (result.final_output, result.to_input_list()[-2]["output"]) == ("done", KILOBYTE)

    yield {"openai-agents": run}


class _Model(Model):
    """A model without latency: one call of ``charge``, then a text."""

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        last = input[-1] if isinstance(input, list) else {}
        said = _done() if last.get("type") == "function_call_output" else _call()
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def _call() -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=secrets.token_hex(8),
        call_id=secrets.token_hex(8),
        name="charge",
        arguments='{"amount": 5}',
        type="function_call",
    )


def _done() -> ResponseOutputMessage:
    text = ResponseOutputText(text="done", annotations=[], type="output_text")
    return ResponseOutputMessage(
        id=secrets.token_hex(8), content=[text], role="assistant", status="completed", type="message"
    )


@function_tool(needs_approval=True)
async def charge(amount: int) -> str:
    """Charge a card."""
    return KILOBYTE
