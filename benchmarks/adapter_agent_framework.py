"""A run of an agent of Microsoft Agent Framework, without the gate and with its middleware."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from adapters.frameworks.lives_agent_framework import ScriptedClient
from agent_framework import Agent, AgentSession, tool

from askfirst import Gate
from askfirst.adapters.agent_framework import AskfirstMiddleware


@tool
def charge(cents: int) -> str:
    """Charge a card."""
    return f"charged {cents}"


def work(gate: Gate | None) -> Callable[[], Awaitable[object]]:
    """One run in a new session, which is not stored on either side."""
    middleware = [] if gate is None else [AskfirstMiddleware(gate)]
    agent = Agent(client=ScriptedClient([5]), tools=[charge], middleware=middleware)

    async def run() -> None:
        response = await agent.run("charge", session=AgentSession(session_id=secrets.token_hex(8)))
        assert "charged 5" in response.text

    return run
