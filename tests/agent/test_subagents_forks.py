"""Forks of a thread whose subagents have begun: what they did is not done again unasked."""

from __future__ import annotations

import pytest
from kit.deeds import Deeds, approve, call, completed, delegate, deny, pending_ids, script
from kit.transcripts import results

from askfirst import Agent, AgentSpec
from askfirst.checkpointer.base import StoredEffect
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.ids import child_thread_id

pytestmark = pytest.mark.anyio

DOUBT = "d0:escalate:1"


def agent_on(store: SqlCheckpointer, deeds: Deeds, thread_id: str) -> Agent:
    """An agent whose subagent pays at once, then asks whether to write."""
    model = script([call("c0", "pay", "5")], [call("c1", "mail", "Ada")], "worked")
    worker = AgentSpec("worker", model, tools=[deeds.tool("pay"), deeds.asks("mail")])
    boss = AgentSpec("boss", script([delegate("d0", "worker")], "done"), subagents=[worker])
    return Agent.from_spec(boss, checkpointer=store, thread_id=thread_id)


async def forked(store: SqlCheckpointer, deeds: Deeds) -> Agent:
    """An agent on a fork of a thread whose subagent has paid and waits, which has been resumed."""
    assert pending_ids(await agent_on(store, deeds, "t").prompt("go")) == ["d0/c1"]
    await store.fork("t", "fork")
    agent = agent_on(store, deeds, "fork")
    assert pending_ids(await agent.resume()) == [DOUBT]
    assert deeds.done == ["pay 5"]
    return agent


async def test_a_subagent_that_has_begun_is_not_begun_on_a_fork_unasked(
    checkpointer: SqlCheckpointer,
) -> None:
    deeds = Deeds()
    agent = await forked(checkpointer, deeds)
    result = await agent.resume_with(deny(DOUBT))
    assert "unknown" in completed(result)["d0"]
    assert deeds.done == ["pay 5"]
    assert await checkpointer.load(child_thread_id("fork", "d0")) is None
    original = await agent_on(checkpointer, deeds, "t").resume_with(approve("d0/c1"))
    assert completed(original) == {"d0": "worked"}


async def test_a_retry_begins_it_anew_and_is_asked_for_once(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    agent = await forked(checkpointer, deeds)
    assert pending_ids(await agent.resume_with(approve(DOUBT))) == ["d0/c1"]
    assert deeds.done == ["pay 5", "pay 5"]
    fresh = agent_on(checkpointer, deeds, "fork")
    assert pending_ids(await fresh.resume()) == ["d0/c1"]
    assert completed(await fresh.resume_with(approve("d0/c1"))) == {"d0": "worked"}
    assert deeds.done == ["pay 5", "pay 5", "mail Ada"]
    stored = await checkpointer.load("fork")
    assert stored is not None
    assert stored.effects == {}


async def test_a_person_may_abort_the_fork(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    agent = await forked(checkpointer, deeds)
    await checkpointer.settle("fork", DOUBT, "abort")
    assert (await agent.resume()).status == "aborted"
    assert deeds.done == ["pay 5"]


async def test_a_subagent_that_is_done_is_in_doubt_where_its_result_is_cut_off(
    checkpointer: SqlCheckpointer,
) -> None:
    deeds = Deeds()
    agent = agent_on(checkpointer, deeds, "t")
    await agent.prompt("go")
    assert completed(await agent.resume_with(approve("d0/c1"))) == {"d0": "worked"}
    await checkpointer.fork("t", "before", upto=1)
    await checkpointer.fork("t", "called", upto=2)
    await checkpointer.fork("called", "again")
    await checkpointer.fork("t", "after", upto=3)
    doubt = {"d0": StoredEffect("d0", "worker", "", "once", 1)}
    for thread_id, effects in (("before", {}), ("called", doubt), ("again", doubt), ("after", {})):
        stored = await checkpointer.load(thread_id)
        assert stored is not None
        assert stored.effects == effects
    assert pending_ids(await agent_on(checkpointer, deeds, "again").resume()) == [DOUBT]


async def test_a_subagent_that_has_not_begun_is_begun_on_the_fork(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    worker = AgentSpec("worker", script([call("c0", "pay", "5")], "worked"), tools=[deeds.tool("pay")])
    turn = [call("x", "mail", "Ada"), delegate("d0", "worker")]
    boss = AgentSpec("boss", script(turn, "done"), tools=[deeds.asks("mail")], subagents=[worker])
    await Agent.from_spec(boss, checkpointer=checkpointer, thread_id="t").prompt("go")
    await checkpointer.fork("t", "fork")
    agent = Agent.from_spec(boss, checkpointer=checkpointer, thread_id="fork")
    assert pending_ids(await agent.resume()) == ["x"]
    result = await agent.resume_with(approve("x"))
    assert results(result.messages)["d0"].text == "worked"
    assert deeds.done == ["mail Ada", "pay 5"]
