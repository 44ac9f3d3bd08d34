"""A channel asks one thing at a time: an agent and its subagents take turns at it, wherever they ask from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from askfirst import Agent, AgentSpec, Tool, subagent_tool, tool
from askfirst.hitl import (
    ConfirmToolCallMiddleware,
    HitlChannel,
    HitlConcurrencyError,
    InMemoryChannel,
    ask_user_tool,
)
from askfirst.hitl.testing import ScriptedChannel
from askfirst.messages import Message, ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

Child = Callable[[str, HitlChannel], AgentSpec]


@tool(requires_approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@tool
def send(cents: int) -> str:
    """Send."""
    return f"sent {cents}"


def last_result(messages: Sequence[Message]) -> str:
    return messages[-1].text


def asks_at_the_gate(name: str, channel: HitlChannel) -> AgentSpec:
    return AgentSpec(name, ScriptedModel([ToolCall("c1", "pay", {"cents": 5}), last_result]), [pay])


def asks_in_middleware(name: str, channel: HitlChannel) -> AgentSpec:
    model = ScriptedModel([ToolCall("c1", "send", {"cents": 5}), last_result])
    return AgentSpec(name, model, [send], middleware=[ConfirmToolCallMiddleware(channel)])


def asks_in_a_body(name: str, channel: HitlChannel) -> AgentSpec:
    questions = {"questions": [{"key": "colour", "prompt": "Which?"}]}
    return AgentSpec(
        name, ScriptedModel([ToolCall("c1", "ask_user", questions), last_result]), [ask_user_tool(channel)]
    )


ANSWERS = {
    asks_at_the_gate: ({"decision": "approve"}, "paid 5"),
    asks_in_middleware: ({"decision": "approve"}, "sent 5"),
    asks_in_a_body: ({"colour": "red"}, 'The user answered: {"colour": "red"}'),
}


def parent(channel: HitlChannel | None, tools: Sequence[Tool]) -> Agent:
    calls = [ToolCall(f"call_{each.name}", each.name, {"prompt": "Go."}) for each in tools]
    return Agent(model=ScriptedModel([calls, "Done."]), tools=tools, channel=channel)


def said(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


@pytest.mark.parametrize("child", ANSWERS)
async def test_subagents_take_turns_wherever_they_ask_from(child: Child) -> None:
    answer, outcome = ANSWERS[child]
    channel = ScriptedChannel([answer] * 3)
    agent = parent(channel, [subagent_tool(child(name, channel)) for name in ("ann", "bob", "cid")])
    result = await agent.prompt("Go.")
    assert (result.status, said(result.messages)) == ("completed", [outcome] * 3)
    assert len({request.thread_id for request in channel.history}) == 3


async def test_subagents_with_one_channel_of_their_own_take_turns_at_that() -> None:
    own = ScriptedChannel([{"decision": "approve"}] * 2)
    tools = [subagent_tool(asks_at_the_gate(name, own), channel=own) for name in ("ann", "bob")]
    result = await parent(None, tools).prompt("Go.")
    assert said(result.messages) == ["paid 5"] * 2


async def test_the_subagents_of_one_with_a_channel_of_its_own_take_turns() -> None:
    own = ScriptedChannel([{"decision": "approve"}] * 2)
    below = [asks_at_the_gate(name, own) for name in ("ann", "bob")]
    calls = [ToolCall(f"call_{each.id}", each.id, {"prompt": "Go."}) for each in below]
    middle = AgentSpec("middle", ScriptedModel([calls, "Both are paid."]), subagents=below)
    result = await parent(None, [subagent_tool(middle, channel=own)]).prompt("Go.")
    assert (said(result.messages), len(own.history)) == (["Both are paid."], 2)


@pytest.mark.parametrize("child", ANSWERS)
async def test_who_is_in_line_stops_waiting_with_the_one_who_asks(child: Child) -> None:
    channel = InMemoryChannel()
    agent = parent(channel, [subagent_tool(child(name, channel)) for name in ("ann", "bob")])
    running = asyncio.create_task(agent.prompt("Go."))
    heard = 0
    async for _ in channel.subscribe():
        heard += 1
        break
    await agent.detach()
    result = await running
    assert (result.status, heard, channel.pending) == ("suspended", 1, None)


async def test_a_channel_that_no_agent_takes_turns_at_refuses_a_second_question() -> None:
    channel = InMemoryChannel()
    asking = asyncio.create_task(channel.confirm("Deploy?"))
    async for request in channel.subscribe():
        with pytest.raises(HitlConcurrencyError):
            await channel.confirm("And this?")
        await channel.answer(request.question_id, True)
        break
    assert await asking is True
