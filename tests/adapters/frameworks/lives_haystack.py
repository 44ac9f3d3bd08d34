"""One life of a Haystack agent: ``python lives_haystack.py VERB``; see kit.framework_races."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Any

from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.human_in_the_loop import AlwaysAskPolicy, BlockingConfirmationStrategy, ConfirmationHook
from haystack.hooks.human_in_the_loop.dataclasses import ConfirmationUIResult
from haystack.tools import tool
from kit.framework_races import answer, at_the_line, say, write_effect

from askfirst import Gate
from askfirst.adapters.haystack import hooks
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.errors import Pending

NAME = "Haystack"
UNSUPPORTED: dict[str, str] = {
    "one of two answered": "tools run when all are decided",
    "resumed without an answer": "nothing is resumed",
    "arguments altered in storage": "nothing is stored",
}
OURS = os.environ.get("LIFE_SIDE", "ours") == "ours"


@component
class ScriptedGenerator:
    """Calls the tool once for each price, then says what came of it."""

    def __init__(self, prices: list[int], tool_name: str = "charge") -> None:
        self.prices, self.tool_name = prices, tool_name
        self.runs = 0

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **kwargs: Any) -> dict[str, Any]:
        results = [it for message in messages for it in message.tool_call_results]
        if results:
            said = " / ".join(it.text for it in messages[1:] if it.text and it.is_from("user"))
            return {
                "replies": [
                    ChatMessage.from_assistant(" / ".join([*(str(it.result) for it in results), said]))
                ]
            }
        self.runs += 1  # the ids of real models are new in every run
        calls = [
            ToolCall(self.tool_name, {"cents": cents}, id=f"call_{id(self)}_{self.runs}_{number}")
            for number, cents in enumerate(self.prices)
        ]
        return {"replies": [ChatMessage.from_assistant(tool_calls=calls)]}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self, messages: list[ChatMessage], tools: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        return self.run(messages, tools)


@tool
def charge(cents: Annotated[int, "how much"]) -> str:
    """Charge a card."""
    write_effect("charge", cents)
    return f"charged {cents}"


class Yes:
    """A person at a console, who says yes."""

    def get_user_confirmation(self, *_: Any) -> ConfirmationUIResult:
        at_the_line()
        return ConfirmationUIResult("confirm")


def make_agent(gate: Gate | None) -> Agent:
    prices = [5, 6][: int(os.environ.get("LIFE_CALLS", "1"))]
    asks = BlockingConfirmationStrategy(confirmation_policy=AlwaysAskPolicy(), confirmation_ui=Yes())  # type: ignore[arg-type]
    own = {"before_tool": [ConfirmationHook({"*": asks})]}
    return Agent(
        chat_generator=ScriptedGenerator(prices),
        tools=[charge],
        hooks=own if gate is None else hooks(gate, wait=0),  # type: ignore[arg-type]
    )


async def run(agent: Agent) -> tuple[bool, str]:
    message = ChatMessage.from_user("Charge it.")
    try:
        result = await agent.run_async(messages=[message], hook_context={"key": "order-7"})
    except Pending:
        return True, ""
    return False, str(result["last_message"].text)


async def main(verb: str) -> None:
    if not OURS:
        paused, text = (True, "") if verb == "ask" else await run(make_agent(None))
    else:
        store = checkpointer_from_url(os.environ["LIFE_STORE"], lease_seconds=1)
        async with store as open_store, Gate(open_store) as gate:
            if verb == "press":
                await answer(gate)
            paused, text = await run(make_agent(gate))
    say(paused=paused, text=text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
