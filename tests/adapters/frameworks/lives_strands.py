"""One life of a Strands agent: ``python lives_strands.py VERB``; see kit.framework_races."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kit.framework_races import answer, at_the_line, go_on, say, write_effect
from strands import Agent, tool
from strands.models.model import Model
from strands.session import FileSessionManager
from strands.types.tools import ToolContext
from strands.vended_interventions.hitl import HumanInTheLoop

from askfirst import Gate
from askfirst.adapters.strands import AskfirstPlugin, strands_resumer
from askfirst.checkpointer.connect import checkpointer_from_url

NAME = "Strands"
UNSUPPORTED: dict[str, str] = {}
THREAD = "shop"
OURS = os.environ.get("LIFE_SIDE", "ours") == "ours"


class ScriptedModel(Model):
    """Calls the tool once for each price, then says what came of it."""

    def __init__(self, prices: list[int], tool_name: str = "charge") -> None:
        self.prices = prices
        self.tool_name = tool_name

    def update_config(self, **model_config: Any) -> None:
        return

    def get_config(self) -> Any:
        return {}

    async def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError
        yield {}

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        yield {"messageStart": {"role": "assistant"}}
        results = [it["toolResult"] for it in messages[-1]["content"] if "toolResult" in it]
        if results:
            said = " / ".join(part["text"] for result in results for part in result["content"])
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": said}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}
            return
        for number, cents in enumerate(self.prices, 1):
            use = {"toolUseId": f"call_{number}", "name": self.tool_name}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"cents": cents})}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use"}}


@tool(context=True)
def charge(cents: int, tool_context: ToolContext) -> str:
    """Charge a card.

    Args:
        cents: how much
    """
    write_effect(tool_context.tool_use["toolUseId"], cents)
    return f"charged {cents}"


def make_agent(gate: Gate | None, thread: str = THREAD) -> Agent:
    prices = [5, 6][: int(os.environ.get("LIFE_CALLS", "1"))]
    side: dict[str, Any] = (
        {"interventions": [HumanInTheLoop()]} if gate is None else {"plugins": [AskfirstPlugin(gate)]}
    )
    return Agent(
        model=ScriptedModel(prices),
        tools=[charge],
        callback_handler=None,
        session_manager=FileSessionManager(thread, storage_dir=os.environ["LIFE_FOLDER"]),
        **side,
    )


def alter() -> None:
    """Change the arguments wherever the session's files have them."""
    for path in Path(os.environ["LIFE_FOLDER"]).rglob("*.json"):
        text = path.read_text("utf-8")
        path.write_text(text.replace('"cents": 5', '"cents": 9999'), "utf-8")


async def respond(agent: Agent) -> Any:
    """Respond yes to what the agent waits for, as its own documentation has it."""
    waiting = list(agent._interrupt_state.interrupts.values())
    if os.environ.get("LIFE_ONLY"):
        waiting = waiting[:1]
    at_the_line()
    yes = [{"interruptResponse": {"interruptId": it.id, "response": "y"}} for it in waiting]
    return await agent.invoke_async(yes)


async def main(verb: str) -> None:
    if verb == "alter":
        alter()
        return
    if not OURS:
        agent = make_agent(None)
        result = await (agent.invoke_async("Charge it.") if verb == "ask" else respond(agent))
        say(paused=result.stop_reason == "interrupt", text=str(result))
        return
    async with checkpointer_from_url(os.environ["LIFE_STORE"], lease_seconds=1) as store, Gate(store) as gate:
        if verb == "ask":
            result = await make_agent(gate).invoke_async("Charge it.")
            say(paused=result.stop_reason == "interrupt", text=str(result))
            return
        if verb == "early":
            result = await respond(make_agent(gate))
            say(paused=result.stop_reason == "interrupt", text=str(result))
            return
        if verb == "press":
            await answer(gate)
        last: list[Any] = []
        resume = strands_resumer(lambda thread: make_agent(gate, thread))

        async def resumer(continuation: Any) -> None:
            if (ended := await resume(continuation)) is not None:  # None: another process has gone on already
                last.append(ended)

        await go_on(store, {"strands": resumer})
        result = last[-1] if last else None
        say(paused=result is not None and result.stop_reason == "interrupt", text=str(result))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
