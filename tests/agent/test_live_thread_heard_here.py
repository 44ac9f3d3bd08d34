"""What people answered through a channel that no store knows of holds as long as the process does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.channel_rigs import Keeper, asked
from kit.deeds import Deeds, call, completed, delegate, script
from kit.patience import PATIENCE

from askfirst import Agent, AgentSpec, Middleware, ModelCallContext
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlStaleAnswer
from askfirst.hitl import CheckpointedChannel, InMemoryChannel
from askfirst.hitl.testing import FakeClock

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}
TWO = [call("c1", "pay", "1"), call("c2", "pay", "2")]


def channel_of(kind: str) -> InMemoryChannel:
    """One that keeps what is asked in this process, or with a keeper of one's own."""
    return (
        InMemoryChannel()
        if kind == "in memory"
        else CheckpointedChannel(checkpointer=Keeper(), thread_id="t")
    )


async def answer_one_and_leave(agent: Agent, channel: InMemoryChannel, answer: Any) -> None:
    """Answer the first question, and detach from the second."""
    first = await asked(channel)
    await channel.answer(first.question_id, answer)
    while channel.pending is None or channel.pending.question_id == first.question_id:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await agent.detach()


@pytest.mark.parametrize("kind", ["in memory", "own"])
@pytest.mark.parametrize("by_child", [False, True], ids=["", "by a child"])
async def test_an_answer_is_not_asked_for_again_after_a_detach(
    checkpointer: SqlCheckpointer, kind: str, by_child: bool
) -> None:
    deeds, channel = Deeds(), channel_of(kind)
    spec = AgentSpec("payer", script(TWO, "paid"), tools=[deeds.asks("pay")])
    if by_child:
        spec = AgentSpec("boss", script(delegate("d0", "payer"), "done"), subagents=[spec])
    agent = Agent.from_spec(spec, channel=channel, checkpointer=checkpointer, thread_id="t")
    run = asyncio.create_task(agent.prompt("go"))
    await answer_one_and_leave(agent, channel, APPROVE)
    assert (await run).status == "suspended"
    async with asyncio.timeout(PATIENCE):
        result = await agent.respond(question_id="c2", answer=APPROVE)
    assert result is not None
    completed(result)
    assert deeds.done == ["pay 1", "pay 2"]


async def test_nor_is_what_was_asked_before_the_model_was(checkpointer: SqlCheckpointer) -> None:
    channel = InMemoryChannel()

    class Careful(Middleware):
        async def before_model(self, ctx: ModelCallContext) -> None:
            assert await channel.confirm("Now?")
            assert await channel.confirm("Really?")

    spec = AgentSpec("careful", script("done"), middleware=[Careful()])
    agent = Agent.from_spec(spec, channel=channel, checkpointer=checkpointer, thread_id="t")
    run = asyncio.create_task(agent.prompt("go"))
    await answer_one_and_leave(agent, channel, True)
    assert (await run).status == "suspended"
    async with asyncio.timeout(PATIENCE):
        result = await agent.respond(answer=True)
    assert result is not None
    completed(result)


async def test_but_not_for_a_thread_of_the_same_name(checkpointer: SqlCheckpointer) -> None:
    deeds, channel = Deeds(), InMemoryChannel()
    spec = AgentSpec("payer", script(TWO, "paid"), tools=[deeds.asks("pay")])
    agent = Agent.from_spec(spec, channel=channel, checkpointer=checkpointer, thread_id="t")
    run = asyncio.create_task(agent.prompt("go"))
    await answer_one_and_leave(agent, channel, APPROVE)
    await run
    await checkpointer.delete("t")
    other = Agent.from_spec(spec, channel=InMemoryChannel(), checkpointer=checkpointer, thread_id="t")
    run = asyncio.create_task(other.prompt("go"))
    assert other.channel is not None
    await asked(other.channel)
    await other.detach()
    await run
    again = asyncio.create_task(agent.resume())
    assert (await asked(channel)).question_id == "c1"
    again.cancel()
    await asyncio.wait([again])
    assert deeds.done == []


@pytest.mark.parametrize("how", ["timed_out", "cancelled"])
async def test_a_late_answer_is_told_how_the_channel_settled_it(
    checkpointer: SqlCheckpointer, how: str
) -> None:
    deeds, clock = Deeds(), FakeClock()
    channel = InMemoryChannel(default_timeout=5, clock=clock)
    spec = AgentSpec("payer", script(TWO, "paid"), tools=[deeds.asks("pay")])
    agent = Agent.from_spec(spec, channel=channel, checkpointer=checkpointer, thread_id="t")
    run = asyncio.create_task(agent.prompt("go"))
    await asked(channel)
    await agent.detach()
    await run
    if how == "timed_out":
        await clock.advance(5)
    else:
        await channel.cancel("c1", "no need")
    with pytest.raises(HitlStaleAnswer) as told:
        await agent.respond(question_id="c1", answer=APPROVE)
    assert told.value.status == how
