"""Watch a run: iterate over its events, or subscribe to all of an agent's events."""

from __future__ import annotations

import asyncio

from askfirst import Agent, AgentEvent, ToolContext, tool
from askfirst.events import MessageDeltaEvent, RunEndedEvent, ToolEndedEvent, ToolProgressEvent
from askfirst.messages import TextDelta, ToolCall
from askfirst.models import ScriptedModel


@tool(effect="none")
async def index(folder: str, ctx: ToolContext) -> str:
    """Index a folder."""
    for done in range(1, 5):
        ctx.report(done / 4, f"{done} of 4 files")
        await asyncio.sleep(0)
    return "4 files"


async def main() -> None:
    model = ScriptedModel(
        [["On it. ", ToolCall("c1", "index", {"folder": "notes"})], "All four are indexed."]
    )
    agent = Agent(model=model, tools=[index])
    seen: list[AgentEvent] = []
    unsubscribe = agent.subscribe(seen.append)  # a listener gets the events of every run

    async for event in agent.stream("Index my notes."):  # this run's events; the loop may stop early
        match event:
            case MessageDeltaEvent(delta=TextDelta(text=text)):
                print(text, end="", flush=True)
            case ToolProgressEvent():
                print(f"\n  {event.tool_name}: {event.text}", end="")
            case ToolEndedEvent():
                print(f"\n  {event.tool_name}: {'failed' if event.is_error else 'done'}")
            case RunEndedEvent():
                print(f"\n{event.status}")
            case _:
                pass

    unsubscribe()
    print(f"{len(seen)} events, the last with seq {seen[-1].seq}")


if __name__ == "__main__":
    asyncio.run(main())
