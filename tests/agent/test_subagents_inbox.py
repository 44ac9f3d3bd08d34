"""Looking at what a tree asks, and answering it, while its run goes on: the run is not disturbed."""

from __future__ import annotations

import asyncio

import pytest
from kit.channel_rigs import Rig, asked
from kit.deeds import Deeds, call, completed, delegate, script
from kit.transcripts import Held, assert_sound

from askfirst import Agent, AgentSpec
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlNoPendingRequest

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}


def payer(deeds: Deeds) -> AgentSpec:
    return AgentSpec("payer", script([call("c1", "pay", "5")], "paid"), tools=[deeds.asks("pay")])


async def test_whoever_looks_while_a_child_waits_changes_nothing(rig: Rig) -> None:
    """The agent goes on from the transcript as it is, not as it was when somebody looked."""
    deeds, model = Deeds(), script([delegate("d0", "payer")], "done", "well")
    agent = rig.agent(id="boss", model=model, subagents=[payer(deeds)])
    assert agent.channel is not None
    run = rig.start(agent.prompt("go"))
    request = await asked(agent.channel)
    assert await agent.load_pending_hitl_request() == request
    assert await agent.respond(answer=APPROVE) is None
    assert completed(await run) == {"d0": "paid"}
    assert [message.role for message in agent.messages] == ["user", "assistant", "tool", "assistant"]
    result = await agent.prompt("and?")
    assert [message.role for message in model.requests[-1]][-2:] == ["assistant", "user"]
    assert result.text == "well"
    assert_sound(result.messages)


async def test_nor_does_an_answer_that_nobody_asked_for(checkpointer: SqlCheckpointer) -> None:
    """It comes while a body is at work, and is refused."""
    deeds, held = Deeds(), Held("slow")
    agent = Agent(
        model=script([call("x1", "slow")], "done", "well"),
        tools=[held.tool],
        subagents=[payer(deeds)],
        checkpointer=checkpointer,
        thread_id="t",
    )
    run = asyncio.create_task(agent.prompt("go"))
    await held.started.wait()
    with pytest.raises(HitlNoPendingRequest):
        await agent.respond(question_id="x0", answer=APPROVE)
    held.release.set()
    result = await run
    assert agent.messages == result.messages
    assert_sound((await agent.prompt("and?")).messages)
