"""A channel at the root, and children that ask through it: one at a time, each for itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.channel_rigs import STORED, Rig, asked
from kit.deeds import Deeds, call, completed, delegate, script
from kit.stores import Database
from kit.transcripts import assert_sound

from askfirst import Agent, AgentSpec, subagent_tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlNoPendingRequest, HitlRequestPending
from askfirst.events import AgentEvent, HitlRequestEvent
from askfirst.hitl import CheckpointedChannel, HitlChannel, InMemoryChannel
from askfirst.hitl.testing import ScriptedChannel
from askfirst.ids import child_thread_id

pytestmark = pytest.mark.anyio

APPROVE, DENY = {"decision": "approve"}, {"decision": "deny"}


def worker(deeds: Deeds, name: str) -> AgentSpec:
    return AgentSpec(name, script([call("c1", "pay", name)], f"{name} paid"), tools=[deeds.asks("pay")])


def family(deeds: Deeds, count: int = 3) -> dict[str, Any]:
    """A root with so many children that work, and ask, at the same time."""
    names = [f"w{n}" for n in range(count)]
    turn = [delegate(f"d{n}", name) for n, name in enumerate(names)]
    return {"model": script(turn, "done"), "subagents": [worker(deeds, name) for name in names], "id": "boss"}


async def answer_all(channel: HitlChannel, count: int, answer: Any = APPROVE) -> list[str]:
    """Answer so many requests as they come; returns whom each was asked for."""
    seen: list[str] = []
    async for request in channel.subscribe():
        seen.append(request.payload.args["what"])  # type: ignore[union-attr]
        await channel.answer(request.question_id, answer)
        if len(seen) == count:
            break
    return seen


async def test_children_take_turns_at_the_roots_channel(rig: Rig) -> None:
    deeds = Deeds()
    agent = rig.agent(**family(deeds))
    assert agent.channel is not None
    answering = rig.start(answer_all(agent.channel, 3))
    result = await agent.prompt("go")
    assert sorted(await answering) == ["w0", "w1", "w2"]
    assert completed(result) == {"d0": "w0 paid", "d1": "w1 paid", "d2": "w2 paid"}
    assert sorted(deeds.done) == ["pay w0", "pay w1", "pay w2"]


async def test_a_child_is_told_apart_by_its_path_and_its_thread(rig: Rig) -> None:
    deeds = Deeds()
    agent = rig.agent(**family(deeds, 1))
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    assert agent.channel is not None
    run = rig.start(agent.prompt("go"))
    request = await asked(agent.channel)
    assert request.thread_id == child_thread_id("t", "d0")
    assert request.payload.details == {"agent_path": ["boss", "w0"]}  # type: ignore[union-attr]
    with pytest.raises(HitlRequestPending):
        await agent.prompt("and?")
    assert await agent.respond(answer=DENY) is None
    assert completed(await run) == {"d0": "w0 paid"}
    assert deeds.done == []
    (told,) = [event for event in events if isinstance(event, HitlRequestEvent)]
    assert told.agent_path == ("boss", "w0")


async def test_detaching_suspends_the_whole_tree(rig: Rig) -> None:
    """Those that had not had their turn stop too; later all of them are asked, and each runs once."""
    deeds = Deeds()
    agent = rig.agent(**family(deeds))
    assert agent.channel is not None
    run = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    await agent.detach()
    result = await run
    assert result.status == "suspended"
    assert deeds.done == []
    if rig.kind not in STORED:
        return  # only a store brings children back after a restart; see below for the same process
    later = rig.later(agent, **family(deeds))
    assert later.channel is not None
    answering = rig.start(answer_all(later.channel, 3))
    result = await later.resume()
    await answering
    assert completed(result).keys() == {"d0", "d1", "d2"}
    assert sorted(deeds.done) == ["pay w0", "pay w1", "pay w2"]


async def test_a_detached_tree_goes_on_in_the_same_process() -> None:
    deeds = Deeds()
    channel = InMemoryChannel()
    agent = Agent(channel=channel, **family(deeds))
    run = asyncio.create_task(agent.prompt("go"))
    request = await asked(channel)
    await agent.detach()
    assert (await run).status == "suspended"
    answering = asyncio.create_task(answer_all(channel, 3))
    result = await agent.resume()
    assert request.payload.args["what"] in await answering  # type: ignore[union-attr]
    assert completed(result).keys() == {"d0", "d1", "d2"}
    assert sorted(deeds.done) == ["pay w0", "pay w1", "pay w2"]


async def test_a_child_may_have_a_channel_of_its_own() -> None:
    deeds = Deeds()
    own = ScriptedChannel([APPROVE])
    roots = ScriptedChannel([DENY])
    agent = Agent(
        model=script([delegate("d0", "w0"), delegate("d1", "w1")], "done"),
        tools=[subagent_tool(worker(deeds, "w0"), channel=own)],
        subagents=[worker(deeds, "w1")],
        channel=roots,
    )
    assert (await agent.prompt("go")).status == "completed"
    assert deeds.done == ["pay w0"]
    assert [request.payload.args["what"] for request in own.history] == ["w0"]  # type: ignore[union-attr]
    assert [request.payload.args["what"] for request in roots.history] == ["w1"]  # type: ignore[union-attr]


async def test_a_child_with_a_channel_asks_there_while_the_root_has_none() -> None:
    deeds = Deeds()
    own = ScriptedChannel([APPROVE])
    agent = Agent(
        model=script([delegate("d0", "w0")], "done"), tools=[subagent_tool(worker(deeds, "w0"), channel=own)]
    )
    assert (await agent.prompt("go")).status == "completed"
    assert deeds.done == ["pay w0"]


async def test_aborting_while_children_wait_for_their_turn(rig: Rig) -> None:
    deeds = Deeds()
    agent = rig.agent(**family(deeds))
    assert agent.channel is not None
    run = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    agent.abort()
    result = await run
    assert result.status == "aborted"
    assert_sound(result.messages)
    assert agent.channel.pending is None
    assert deeds.done == []
    if rig.kind in STORED:
        assert await rig.checkpointer.pending() == []


async def test_aborting_what_is_pending_closes_the_whole_tree(rig: Rig) -> None:
    deeds = Deeds()
    agent = rig.agent(**family(deeds))
    assert agent.channel is not None
    run = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    await agent.abort_pending("enough")
    result = await run
    assert (result.status, result.reason) == ("aborted", "enough")
    assert_sound(result.messages)
    assert deeds.done == []
    if rig.kind in STORED:
        assert await rig.checkpointer.pending() == []


async def test_superseding_while_children_wait_for_their_turn(rig: Rig) -> None:
    deeds = Deeds()
    agent = rig.agent(**family(deeds))
    assert agent.channel is not None
    run = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    result = await agent.prompt("never mind", on_pending="supersede")
    assert (result.status, result.text) == ("completed", "done")
    assert (await run).status == "suspended"
    assert deeds.done == []
    assert agent.channel.pending is None
    if rig.kind in STORED:
        assert await rig.checkpointer.pending() == []


async def test_a_stored_tree_that_waits_is_answered_in_another_process(
    database: Database, checkpointer: SqlCheckpointer
) -> None:
    """The one that waits hears of it, on every store, and asks for the next."""
    deeds = Deeds()
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    agent = Agent(channel=channel, **family(deeds, 2))
    run = asyncio.create_task(agent.prompt("go"))
    requests = channel.subscribe()
    for _ in range(2):
        request = await anext(requests)
        assert request.thread_id is not None
        await checkpointer.settle(request.thread_id, request.question_id, APPROVE, by="elsewhere")
    assert completed(await run) == {"d0": "w0 paid", "d1": "w1 paid"}
    assert sorted(deeds.done) == ["pay w0", "pay w1"]


# After a detach, what a child asked can still be reached.


async def detached(rig: Rig, deeds: Deeds) -> Agent:
    """An agent whose child asked, and which waits no longer."""
    agent = rig.agent(**family(deeds, 2))
    assert agent.channel is not None
    run = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    await agent.detach()
    assert (await run).status == "suspended"
    return agent


async def test_what_a_child_asked_is_found_after_a_detach(rig: Rig) -> None:
    agent = await detached(rig, Deeds())
    channel = agent.channel
    assert channel is not None
    for request in (await agent.load_pending_hitl_request(), await channel.open_request()):
        assert request is not None
        assert request.thread_id in (child_thread_id("t", "d0"), child_thread_id("t", "d1"))
    with pytest.raises(HitlRequestPending):
        await agent.prompt("and?")


@pytest.mark.parametrize("through", ["agent", "agent, by id", "channel", "another channel"])
async def test_it_can_be_answered_after_a_detach(rig: Rig, through: str) -> None:
    deeds = Deeds()
    agent = await detached(rig, deeds)
    assert agent.channel is not None
    answering = rig.start(answer_all(agent.channel, 1, DENY))  # what the other child asks, in its turn
    if through.startswith("agent"):
        result = await agent.respond(question_id="c1" if "by id" in through else None, answer=APPROVE)
    else:
        alone = through == "another channel" and rig.kind in STORED
        channel = rig.channel() if alone else agent.channel
        await channel.answer("c1", APPROVE)
        result = await agent.resume()
    await answering
    assert result is not None
    assert completed(result) == {"d0": "w0 paid", "d1": "w1 paid"}
    assert len(deeds.done) == 1


async def test_it_can_be_cancelled_after_a_detach(rig: Rig) -> None:
    deeds = Deeds()
    agent = await detached(rig, deeds)
    assert agent.channel is not None
    await agent.channel.cancel("c1", "no need")
    assert await agent.load_pending_hitl_request() is None
    rig.start(answer_all(agent.channel, 1, DENY))
    assert completed(await agent.resume()).keys() == {"d0", "d1"}
    assert deeds.done == []


@pytest.mark.parametrize("how", ["abort", "supersede"])
async def test_it_can_be_ended_after_a_detach(rig: Rig, how: str) -> None:
    deeds = Deeds()
    agent = await detached(rig, deeds)
    assert agent.channel is not None
    if how == "abort":
        await agent.abort_pending("enough")
    else:
        assert (await agent.prompt("never mind", on_pending="supersede")).status == "completed"
    assert await agent.channel.open_request() is None
    assert await agent.load_pending_hitl_request() is None
    assert_sound(agent.messages)
    with pytest.raises(HitlNoPendingRequest):
        await agent.respond(answer=APPROVE)
    assert deeds.done == []


async def test_a_question_of_a_child_that_is_overdue_is_found_no_more(rig: Rig) -> None:
    deeds = Deeds()
    agent = rig.agent(rig.channel(default_timeout=10), **family(deeds, 1))
    assert agent.channel is not None
    run = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    await agent.detach()
    await run
    await rig.clock.advance(11)
    assert await agent.channel.open_request() is None
    assert await agent.load_pending_hitl_request() is None
    assert completed(await agent.resume()) == {"d0": "w0 paid"}
    assert deeds.done == []
