"""A run of a Google ADK agent, without the gate and with its plugin."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from adapters.frameworks.lives_adk import ScriptedModel, text, told
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService

from askfirst import Gate
from askfirst.adapters.adk import AskfirstPlugin


def charge(cents: int) -> str:
    """Charge a card."""
    return f"charged {cents}"


def work(gate: Gate | None) -> Callable[[], Awaitable[object]]:
    """One run in a new session in memory."""
    agent = LlmAgent(name="shop", model=ScriptedModel(prices=[5]), tools=[charge])
    app = App(name="shop", root_agent=agent, plugins=[] if gate is None else [AskfirstPlugin(gate)])
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)

    async def run() -> None:
        where = {"user_id": "ada", "session_id": secrets.token_hex(8)}
        events = [it async for it in runner.run_async(**where, new_message=text("charge"))]
        assert "charged 5" in told(events)["text"]

    return run
