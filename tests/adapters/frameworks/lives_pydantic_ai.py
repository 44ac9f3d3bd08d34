"""One life of a Pydantic AI agent: asks, is answered, goes on, each in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from kit.framework_races import answer, at_the_line, go_on, say, write_effect
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, Tool
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from askfirst import Gate
from askfirst.adapters import kept_state
from askfirst.adapters.pydantic_ai import AskfirstGate, kept_conversation, pydantic_ai_resumer
from askfirst.checkpointer.connect import checkpointer_from_url

FOLDER = Path(os.environ["LIFE_FOLDER"])
IS_OURS = os.environ["LIFE_SIDE"] == "ours"
NAME = "Pydantic AI"
OWN = FOLDER / "conversation.json"
"""Where the framework's side keeps its conversation; ours keeps it in the gate's store."""
ASKED = FOLDER / "asked.json"
"""The conversation as it was when the run paused."""


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool once or twice, then say what came of it: told by the messages, as in any process."""
    results = [part for it in messages for part in it.parts if isinstance(part, ToolReturnPart)]
    if results:
        return ModelResponse(parts=[TextPart(" | ".join(str(it.content) for it in results))])
    places = range(int(os.environ["LIFE_CALLS"]))
    return ModelResponse(parts=[ToolCallPart("charge", {"cents": 5 + it}, f"call_{it}") for it in places])


def charge(ctx: RunContext[Any], cents: int) -> str:
    """Charge the customer."""
    write_effect(str(ctx.tool_call_id), cents)
    return f"charged {cents}"


async def main(verb: str) -> None:
    """Do one thing and say how the run stands."""
    store = checkpointer_from_url(os.environ["LIFE_STORE"], lease_seconds=2)
    async with store, Gate(store) as gate:
        agent: Agent[None, Any] = Agent(
            FunctionModel(scripted),
            output_type=[str, DeferredToolRequests],
            tools=[Tool(charge, requires_approval=not IS_OURS)],
            capabilities=[AskfirstGate(gate, ["charge"])] if IS_OURS else [],
        )
        if verb == "ask":
            _save((await agent.run("charge", conversation_id="c1")).conversation)
        elif verb == "alter":
            await alter(store)
        elif IS_OURS and verb in ("press", "go_on"):
            if verb == "press":
                await answer(gate)
            await go_on(store, {"pydantic-ai": pydantic_ai_resumer(agent)})
        else:
            await approve(agent, await kept_conversation(gate, "c1") if IS_OURS else _paused())
        stands = await kept_conversation(gate, "c1") if IS_OURS else _load()
        assert stands is not None
        last = stands.messages[-1]
        say(
            paused=stands.deferred_tool_requests is not None,
            text="".join(part.content for part in last.parts if isinstance(part, TextPart)),
        )


async def approve(agent: Agent[None, Any], conversation: Conversation | None) -> None:
    """Resume with an approval, as the framework has it."""
    assert conversation is not None
    waiting = conversation.deferred_tool_requests
    at_the_line()
    results = None
    if waiting is not None:
        calls = waiting.approvals[:1] if os.environ.get("LIFE_ONLY") else waiting.approvals
        results = DeferredToolResults(approvals={it.tool_call_id: True for it in calls})
    _save((await agent.run(conversation=conversation, deferred_tool_results=results)).conversation)


async def alter(store: Any) -> None:
    """Change the arguments in the stored conversation, as somebody with access to it could."""
    if not IS_OURS:
        OWN.write_text(OWN.read_text().replace('"cents":5', '"cents":9999'))
        return
    known = await kept_state.load(store, "pydantic-ai", "c1")
    assert known.state is not None
    for message in known.state["messages"]:
        for part in message["parts"]:
            if part["part_kind"] == "tool-call":
                part["args"]["cents"] = 9999
    assert await kept_state.keep(store, await kept_state.load(store, "pydantic-ai", "c1"), known.state)


def _save(conversation: Conversation) -> None:
    if IS_OURS:
        return
    data = ConversationTypeAdapter.dump_json(conversation)
    OWN.write_bytes(data)
    if not ASKED.exists():
        ASKED.write_bytes(data)


def _load() -> Conversation:
    return ConversationTypeAdapter.validate_json(OWN.read_bytes())


def _paused() -> Conversation:
    """What an answer goes on with: the conversation as it stands, or the same as before if it comes again."""
    return (
        ConversationTypeAdapter.validate_json(ASKED.read_bytes()) if os.environ.get("LIFE_AGAIN") else _load()
    )


asyncio.run(main(sys.argv[1]))
