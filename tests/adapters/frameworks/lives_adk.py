"""One life of a Google ADK agent: ``python lives_adk.py VERB``; see kit.framework_races."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types
from kit.framework_races import answer, at_the_line, go_on, say, write_effect

from askfirst import Gate
from askfirst.adapters.adk import AskfirstPlugin, adk_resumer
from askfirst.adapters.adk_confirmations import CONFIRMATION
from askfirst.checkpointer.connect import checkpointer_from_url

NAME = "Google ADK"
WHERE = {"user_id": "ada", "session_id": "order-7"}
OURS = os.environ.get("LIFE_SIDE", "ours") == "ours"


class ScriptedModel(BaseLlm):
    """Calls the tool once for each price, then says what came of it."""

    model: str = "scripted"
    prices: list[int]
    tool_name: str = "charge"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts or []
        if results := [it.function_response for it in last if it.function_response]:
            parts = [types.Part(text=" / ".join(str(it.response) for it in results))]
        else:
            parts = [
                types.Part(function_call=types.FunctionCall(name=self.tool_name, args={"cents": cents}))
                for cents in self.prices
            ]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def charge(cents: int, tool_context: ToolContext) -> str:
    """Charge a card."""
    write_effect(str(cents), cents)
    return f"charged {cents}"


def make_runner(gate: Gate | None) -> Runner:
    prices = [5, 6][: int(os.environ.get("LIFE_CALLS", "1"))]
    tool = FunctionTool(charge, require_confirmation=gate is None)
    agent = LlmAgent(name="shop", model=ScriptedModel(prices=prices), tools=[tool])
    plugins = [] if gate is None else [AskfirstPlugin(gate)]
    return Runner(
        app=App(name="shop", root_agent=agent, plugins=plugins),
        session_service=DatabaseSessionService(f"sqlite+aiosqlite:///{os.environ['LIFE_FOLDER']}/adk.db"),
        auto_create_session=True,
    )


async def run(runner: Runner, message: types.Content) -> list[Any]:
    return [it async for it in runner.run_async(**WHERE, new_message=message)]


def text(said: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=said)])


async def confirm(runner: Runner) -> list[Any]:
    """Confirm what the session asks for, as ADK's documentation has it."""
    session = await runner.session_service.get_session(app_name="shop", **WHERE)
    assert session is not None
    asked = [
        call.id for it in session.events for call in it.get_function_calls() if call.name == CONFIRMATION
    ]
    if os.environ.get("LIFE_ONLY"):
        asked = asked[:1]
    at_the_line()
    yes = {"confirmed": True}
    parts = [
        types.Part(function_response=types.FunctionResponse(id=it, name=CONFIRMATION, response=yes))
        for it in asked
    ]
    return await run(runner, types.Content(role="user", parts=parts))


def alter() -> None:
    """Change the arguments wherever the session's rows have them."""
    with sqlite3.connect(Path(os.environ["LIFE_FOLDER"]) / "adk.db") as database:
        database.execute(
            """UPDATE events SET event_data = replace(event_data, '"cents": 5', '"cents": 9999')"""
        )
        changed = database.execute("SELECT count(*) FROM events WHERE event_data LIKE '%9999%'").fetchone()
    assert changed[0] > 0


def told(events: list[Any]) -> dict[str, Any]:
    """How a run stands: whether it waits, and what was said last."""
    said = [part.text for it in events if it.content for part in it.content.parts or () if part.text]
    waits = any(call.name == CONFIRMATION for it in events for call in it.get_function_calls())
    waits = waits or any("A person has to decide first" in it for it in said)
    return {"paused": waits, "text": said[-1] if said else ""}


async def main(verb: str) -> None:
    if verb == "alter":
        alter()
        return
    if not OURS:
        runner = make_runner(None)
        say(**told(await (run(runner, text("Charge it.")) if verb == "ask" else confirm(runner))))
        return
    async with checkpointer_from_url(os.environ["LIFE_STORE"], lease_seconds=1) as store, Gate(store) as gate:
        runner = make_runner(gate)
        if verb in ("ask", "early"):
            say(**told(await (run(runner, text("Charge it.")) if verb == "ask" else confirm(runner))))
            return
        if verb == "press":
            await answer(gate)
        last: list[Any] = []
        resume = adk_resumer(runner)

        async def resumer(continuation: Any) -> None:
            last.extend(await resume(continuation))

        await go_on(store, {"adk": resumer})
        say(**told(last))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
