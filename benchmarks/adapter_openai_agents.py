"""A run of an agent of the OpenAI Agents SDK, without the gate and with gated tools and a key."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from adapters.frameworks.openai_script import ScriptedModel
from agents import Agent, Runner, function_tool

from askfirst import Gate
from askfirst.adapters import openai_agents


@function_tool
def charge(cents: int) -> str:
    """Charge the customer."""
    return f"charged {cents}"


def work(gate: Gate | None) -> Callable[[], Awaitable[object]]:
    """One run, with a new key."""
    model = ScriptedModel([("charge", {"cents": 5}, "call_1")])
    tools = [charge] if gate is None else openai_agents.gated(gate, [charge])
    agent: Agent[Any] = Agent("desk", model=model, tools=[*tools])

    async def run() -> None:
        result: Any
        if gate is None:
            result = await Runner.run(agent, "charge")
        else:
            result = await openai_agents.run(agent, "charge", gate=gate, key=secrets.token_hex(8))
        assert result.final_output == "charged 5"

    return run
