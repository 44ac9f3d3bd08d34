"""A run of a Haystack agent, without the gate and with its hooks."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from adapters.frameworks.lives_haystack import ScriptedGenerator
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import tool

from askfirst import Gate
from askfirst.adapters.haystack import hooks


@tool
def charge(cents: int) -> str:
    """Charge a card."""
    return f"charged {cents}"


def work(gate: Gate | None) -> Callable[[], Awaitable[object]]:
    """One run, with a new key."""
    made: Any = None if gate is None else hooks(gate)
    agent = Agent(chat_generator=ScriptedGenerator([5]), tools=[charge], hooks=made)

    async def run() -> None:
        messages = [ChatMessage.from_user("charge")]
        done = await agent.run_async(messages=messages, hook_context={"key": secrets.token_hex(8)})
        assert "charged 5" in str(done["last_message"].text)

    return run
