"""One life of an agent of the OpenAI Agents SDK: asks, is answered, goes on, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from adapters.frameworks.openai_script import ScriptedModel
from agents import Agent, Runner, RunState, function_tool
from agents.tool_context import ToolContext
from kit.framework_races import answer, at_the_line, go_on, say, write_effect

from askfirst import Gate
from askfirst.adapters import kept_state
from askfirst.adapters.openai_agents import gated, kept_run, openai_agents_resumer, run
from askfirst.checkpointer.connect import checkpointer_from_url

FOLDER = Path(os.environ["LIFE_FOLDER"])
IS_OURS = os.environ["LIFE_SIDE"] == "ours"
NAME = "OpenAI Agents"
OWN = FOLDER / "state.json"
"""Where the framework's side keeps its state; ours keeps it in the gate's store."""
ASKED = FOLDER / "asked.json"
"""The state as it was when the run paused."""
CALLS = [("charge", {"cents": 5 + it}, f"call_{it}") for it in range(int(os.environ["LIFE_CALLS"]))]


@function_tool(needs_approval=not IS_OURS)
def charge(ctx: ToolContext[Any], cents: int) -> str:
    """Charge the customer."""
    write_effect(ctx.tool_call_id, cents)
    return f"charged {cents}"


async def main(verb: str) -> None:
    """Do one thing and say how the run stands."""
    store = checkpointer_from_url(os.environ["LIFE_STORE"], lease_seconds=2)
    async with store, Gate(store) as gate:
        tools = gated(gate, [charge]) if IS_OURS else [charge]
        agent: Agent[Any] = Agent("desk", model=ScriptedModel(CALLS), tools=tools)
        if verb == "ask":
            if IS_OURS:
                await run(agent, "charge", gate=gate, key="r1")
            else:
                _save(await Runner.run(agent, "charge"))
        elif verb == "alter":
            await alter(store)
        elif IS_OURS and verb in ("press", "go_on"):
            if verb == "press":
                await answer(gate)
            await go_on(store, {"openai-agents": openai_agents_resumer(agent)})
        else:
            await approve(agent, await _kept(store) if IS_OURS else json.loads(_paused().read_text()))
        if IS_OURS:
            ended = await kept_run(gate, "r1")
            say(paused=ended is None, text="" if ended is None else str(ended.final_output))
        else:
            say(paused="tool_approval_item" in OWN.read_text(), text="")


async def approve(agent: Agent[Any], kept: dict[str, Any]) -> None:
    """Resume with an approval, as the framework has it."""
    state = await RunState.from_json(agent, kept)
    waiting = state.get_interruptions()
    at_the_line()
    for item in waiting[:1] if os.environ.get("LIFE_ONLY") else waiting:
        state.approve(item)
    _save(await Runner.run(agent, state))


async def alter(store: Any) -> None:
    """Change the arguments in the stored state, as somebody with access to it could."""
    if not IS_OURS:
        OWN.write_text(_altered(OWN.read_text()))
        return
    known = await kept_state.load(store, "openai-agents", "r1")
    assert known.state is not None
    assert await kept_state.keep(store, known, json.loads(_altered(json.dumps(known.state))))


def _altered(text: str) -> str:
    """Every place that has the arguments, and the digests that the SDK compares them with taken out."""
    changed = json.loads(text.replace('{\\"cents\\": 5}', '{\\"cents\\": 9999}'))
    assert json.dumps(changed) != text
    changed["context"]["tool_invocations"] = {}
    return json.dumps(changed)


async def _kept(store: Any) -> dict[str, Any]:
    return (await kept_state.load(store, "openai-agents", "r1")).state or {}


def _paused() -> Path:
    return ASKED if os.environ.get("LIFE_AGAIN") else OWN


def _save(result: Any) -> None:
    if IS_OURS:
        return
    text = json.dumps(result.to_state().to_json())
    OWN.write_text(text)
    if not ASKED.exists():
        ASKED.write_text(text)


asyncio.run(main(sys.argv[1]))
