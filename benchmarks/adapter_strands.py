"""A run of a Strands agent, without the gate and with its plugin."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from adapters.frameworks.lives_strands import ScriptedModel
from strands import Agent, tool

from askfirst import Gate
from askfirst.adapters.strands import AskfirstPlugin


@tool
def charge(cents: int) -> str:
    """Charge a card."""
    return f"charged {cents}"


def work(gate: Gate | None) -> Callable[[], Awaitable[object]]:
    """One run of a new agent, without a session manager: it would write files on either side."""

    async def run() -> None:
        plugins: list[Any] = [] if gate is None else [AskfirstPlugin(gate, thread=secrets.token_hex(8))]
        agent = Agent(model=ScriptedModel([5]), tools=[charge], callback_handler=None, plugins=plugins)
        result = await agent.invoke_async("charge")
        assert "charged 5" in str(result)

    return run
