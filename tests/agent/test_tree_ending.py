"""Ending a tree that waits: children first, so that a crash in between leaves nothing open for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from kit.channel_rigs import STORED, Rig, asked
from kit.deeds import Deeds, approve, call, completed, delegate, hitl, pending_ids, script, support
from kit.dying_stores import Died, dying_after
from kit.stores import Database
from kit.transcripts import assert_sound, results

from askfirst import Agent, AgentSpec, Middleware, ToolCallContext
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlNoPendingRequest, HitlRequestPending, HitlStaleAnswer
from askfirst.events import AgentEvent
from askfirst.hitl import CheckpointedChannel
from askfirst.hitl.testing import FakeClock
from askfirst.ids import child_thread_id
from askfirst.messages import TextPart, ToolResultMessage

pytestmark = pytest.mark.anyio

CLERK = child_thread_id("t", "d0")
PAYER = child_thread_id(CLERK, "e0")
APPROVE = {"decision": "approve"}


def family(deeds: Deeds) -> AgentSpec:
    """A boss whose clerk has a payer of its own, which has looked and asks before it pays."""
    model = script([call("c0", "look", "in")], [call("c1", "pay", "5")], "paid")
    payer = AgentSpec("payer", model, tools=[deeds.tool("look"), deeds.asks("pay")])
    clerk = AgentSpec("clerk", script([delegate("e0", "payer")], "filed"), subagents=[payer])
    return AgentSpec("boss", script([delegate("d0", "clerk")], "done", "well"), subagents=[clerk])


async def waiting(store: SqlCheckpointer, deeds: Deeds) -> Agent:
    """Such an agent, which waits for a person."""
    agent = Agent.from_spec(family(deeds), checkpointer=store, thread_id="t")
    assert pending_ids(await agent.prompt("go")) == ["d0/e0/c1"]
    return agent


async def status_of(store: SqlCheckpointer) -> str:
    """How the payer's request stands."""
    stored = await store.request(PAYER, "c1")
    assert stored is not None
    return stored.status


def told(agent: Agent) -> list[str]:
    """What listeners hear of endings."""
    heard: list[str] = []

    def listen(event: AgentEvent) -> None:
        if event.type in ("agent_aborted", "run_ended"):
            heard.append(f"{event.agent_path[-1]} {event.type}")

    agent.subscribe(listen)
    return heard


async def test_a_newer_prompt_supersedes_what_children_ask(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    agent = await waiting(checkpointer, deeds)
    heard = told(agent)
    result = await agent.prompt("never mind", on_pending="supersede")
    assert (result.status, hitl(result, "d0")) == ("completed", {"decision": "superseded"})
    assert await status_of(checkpointer) == "superseded"
    assert heard == ["payer run_ended", "clerk run_ended", "boss run_ended"]
    assert await checkpointer.pending() == []
    for thread_id in ("t", CLERK, PAYER):
        stored = await checkpointer.load(thread_id)
        assert stored is not None
        assert_sound(stored.messages)
        assert not stored.is_leased


async def test_an_abort_aborts_what_children_ask(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    agent = await waiting(checkpointer, deeds)
    heard = told(agent)
    await agent.abort_pending("enough")
    assert await status_of(checkpointer) == "aborted"
    names = ("payer", "clerk", "boss")
    assert heard == [f"{name} {what}" for name in names for what in ("agent_aborted", "run_ended")]
    with pytest.raises(HitlNoPendingRequest):
        await agent.abort_pending("enough")


@asynccontextmanager
async def dying(database: Database, deeds: Deeds, commits: int) -> AsyncGenerator[Agent]:
    """An agent in a process that dies after so many commits; its leases have lapsed by the time we go on."""
    async with database.checkpointer(clock=FakeClock()) as store:
        agent = await waiting(store, deeds)
        with dying_after(store, commits), pytest.raises(Died):
            yield agent


async def end(agent: Agent, how: str) -> None:
    if how == "abort":
        await agent.abort_pending("enough")
    else:
        await agent.prompt("never mind", on_pending="supersede")


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mysql"], indirect=True)
@pytest.mark.parametrize("then", ["abort", "supersede", "resume"])
async def test_whoever_comes_after_a_crash_ends_the_rest(database: Database, then: str) -> None:
    """Two threads are taken, and three ended, the root last; whichever commit is the last, nothing stays open."""
    for how in ("abort", "supersede"):
        for commits in range(5):
            await crash_and_end(database, how, commits, then)


async def crash_and_end(database: Database, how: str, commits: int, then: str) -> None:
    deeds = Deeds()
    async with dying(database, deeds, commits) as agent:
        await end(agent, how)
    async with database.checkpointer() as store:
        agent = Agent.from_spec(family(deeds), checkpointer=store, thread_id="t")
        assert agent.messages == ()
        root = await store.load("t")
        assert root is not None
        assert len(root.messages) == 2  # so it is open still
        if then == "resume":
            asked_still = await agent.load_pending_hitl_request()
            assert (await agent.resume()).status == ("aborted" if asked_still is None else "paused")
        if then != "resume" or await store.pending():
            await end(agent, "abort" if then == "resume" else then)
        assert await store.pending() == []
        assert (await agent.resume()).status == ("completed" if then == "supersede" else "aborted")
        for thread_id in ("t", CLERK, PAYER):
            stored = await store.load(thread_id)
            assert stored is not None
            assert_sound(stored.messages)
        await store.delete("t")
    assert deeds.done == ["look in"]


async def test_an_answer_that_came_first_stands(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    agent = await waiting(checkpointer, deeds)
    await checkpointer.settle(PAYER, "c1", APPROVE)
    with pytest.raises(HitlStaleAnswer) as stale:
        await agent.abort_pending("enough")
    assert stale.value.status == "answered"
    assert completed(await agent.resume()) == {"d0": "filed"}
    assert deeds.done == ["look in", "pay 5"]


async def test_an_answer_that_comes_in_the_middle_of_an_abort(checkpointer: SqlCheckpointer) -> None:
    """It is first, so the abort is told so, and gives back what it had taken."""
    deeds = Deeds()
    agent = await waiting(checkpointer, deeds)
    commit, commits = checkpointer.commit, 0

    async def answered_meanwhile(*args: Any, **options: Any) -> int:
        nonlocal commits
        commits += 1
        if commits == 3:  # the boss and the clerk are taken; now the payer is to be ended
            await checkpointer.settle(PAYER, "c1", APPROVE)
        return await commit(*args, **options)

    with mock.patch.object(checkpointer, "commit", answered_meanwhile), pytest.raises(HitlStaleAnswer):
        await agent.abort_pending("enough")
    assert completed(await agent.resume()) == {"d0": "filed"}
    assert deeds.done == ["look in", "pay 5"]


async def test_so_it_is_where_the_child_waits_in_this_process(checkpointer: SqlCheckpointer) -> None:
    """An abort and an answer cannot both win: the child goes on, and what it asks next is waited for."""
    deeds, channel = Deeds(), CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    model = script([call("c1", "pay", "5")], [call("c2", "pay", "6")], "paid")
    payer = AgentSpec("payer", model, tools=[deeds.asks("pay")])
    boss = AgentSpec("boss", script([delegate("d0", "payer")], "done"), subagents=[payer])
    agent = Agent.from_spec(boss, channel=channel)
    run = asyncio.create_task(agent.prompt("go"))
    await asked(channel)
    commit = checkpointer.commit

    async def answered_meanwhile(thread_id: str, step: Any, **options: Any) -> int:
        if [it.question_id for it in step.settled] == ["c1"]:
            await checkpointer.settle(thread_id, "c1", APPROVE)
        return await commit(thread_id, step, **options)

    with mock.patch.object(checkpointer, "commit", answered_meanwhile):
        ending = asyncio.create_task(agent.abort_pending("enough"))
        while channel.pending is None or channel.pending.question_id == "c1":
            assert not run.done()
            await asyncio.sleep(0)
    await channel.answer("c2", APPROVE)
    assert completed(await run) == {"d0": "paid"}
    with pytest.raises(HitlStaleAnswer):
        await ending
    assert deeds.done == ["pay 5", "pay 6"]


async def test_the_model_is_told_that_a_child_which_was_cut_short_may_have_done_something(rig: Rig) -> None:
    for how in ("abort", "supersede", "stop"):
        deeds = Deeds()
        agent = Agent.from_spec(family(deeds), channel=rig.channel(), thread_id="t")
        assert agent.channel is not None
        run = rig.start(agent.prompt("go"))
        await asked(agent.channel)
        if how == "stop":
            agent.abort()
        else:
            await end(agent, how)
        await run
        assert deeds.done == ["look in"]
        assert "unknown" in results(agent.messages)["d0"].text
        if rig.kind in STORED:
            await rig.checkpointer.delete("t")


async def test_a_fresh_process_says_so_too(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    await waiting(checkpointer, deeds)
    fresh = Agent.from_spec(family(deeds), checkpointer=checkpointer, thread_id="t")
    await fresh.abort_pending("enough")
    assert "unknown" in results(fresh.messages)["d0"].text


@pytest.mark.parametrize("how", ["abort", "supersede"])
@pytest.mark.parametrize("fresh", [False, True], ids=["", "in a fresh process"])
@pytest.mark.parametrize("hooks", [False, True], ids=["", "with hooks"])
async def test_what_a_child_has_returned_is_not_lost_with_one_that_was_cut_short(
    checkpointer: SqlCheckpointer, how: str, fresh: bool, hooks: bool
) -> None:
    """Else the model would have to find out, or try again. But no hook is passed by that is to see a result."""
    deeds = Deeds()
    spec = support(deeds, "w0", "w1")
    spec = replace(spec, middleware=[Masks()] if hooks else [])
    agent = Agent.from_spec(spec, checkpointer=checkpointer, thread_id="t")
    assert pending_ids(await agent.prompt("go")) == ["d0/c1", "d1/c1"]
    assert pending_ids(await agent.resume_with(approve("d0/c1"))) == ["d1/c1"]
    if fresh:
        agent = Agent.from_spec(spec, checkpointer=checkpointer, thread_id="t")
    await end(agent, how)
    said = results(agent.messages)
    assert said["d1"].is_error
    assert "unknown" in said["d1"].text
    if hooks:
        assert "unknown" in said["d0"].text
    else:
        assert (said["d0"].text, said["d0"].is_error) == ("w0 paid", False)
    assert deeds.done == ["pay w0"]


class Masks(Middleware):
    """Sees results before the model does."""

    async def after_tool_call(self, ctx: ToolCallContext) -> ToolResultMessage | None:
        assert ctx.result is not None
        return ctx.result.model_copy(update={"content": (TextPart("***"),)})


async def test_what_is_open_is_named_with_the_thread_it_is_on(rig: Rig) -> None:
    deeds = Deeds()
    agent = Agent.from_spec(family(deeds), channel=rig.channel(), thread_id="t")
    assert agent.channel is not None
    run = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    for detached in (False, True):
        if detached:
            await agent.detach()
            await run
        with pytest.raises(HitlRequestPending) as pending:
            await agent.prompt("and?")
        assert (pending.value.thread_id, pending.value.question_id) == (PAYER, "c1")
    with pytest.raises(HitlStaleAnswer):
        await agent.respond(question_id="c2", answer=APPROVE)
    result = await agent.respond(question_id="c1", answer=APPROVE)
    assert result is not None
    assert completed(result) == {"d0": "filed"}
