"""A tree that somebody ends, and a process that dies half-way: nobody is asked in vain, or waits for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
from kit.channel_rigs import asked
from kit.deeds import Deeds, call, delegate, pending_ids, script
from kit.dying_stores import Died, dying_after
from kit.stores import Database
from kit.transcripts import assert_sound

from askfirst import Agent, AgentSpec
from askfirst.errors import LeaseLost
from askfirst.hitl import CheckpointedChannel
from askfirst.hitl.testing import FakeClock
from askfirst.ids import child_thread_id

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)]

PAYER = child_thread_id("t", "d0")


def boss(deeds: Deeds, *beside: Any) -> AgentSpec:
    """One whose payer asks before it pays, perhaps while something else is asked."""
    payer = AgentSpec("payer", script([call("c1", "pay", "5")], "paid"), tools=[deeds.asks("pay")])
    model = script([*beside, delegate("d0", "payer")], "done", "well")
    return AgentSpec("boss", model, tools=[deeds.asks("mail")], subagents=[payer], tool_gate="each")


@pytest.mark.parametrize("through", ["nothing", "a channel"])
@pytest.mark.parametrize("how", ["superseded", "aborted"])
async def test_a_question_of_the_root_that_was_ended_first_keeps_nobody_waiting(
    database: Database, how: str, through: str
) -> None:
    """The prompt that it made way for was never written, and what the child asks is open still."""
    deeds = Deeds()
    spec = boss(deeds, call("x0", "mail", "Ada"))
    async with database.checkpointer(clock=FakeClock()) as store:
        agent = Agent.from_spec(spec, checkpointer=store, thread_id="t")
        assert pending_ids(await agent.prompt("go")) == ["x0", "d0/c1"]
        never_mind = agent.abort_pending() if how == "aborted" else agent.prompt("no", on_pending="supersede")
        with dying_after(store, 1), pytest.raises(Died):
            await never_mind
    async with database.checkpointer() as store:
        taken = await store.request("t", "x0")
        assert taken is not None
        assert taken.status == how
        channel = CheckpointedChannel(checkpointer=store, thread_id="t") if through == "a channel" else None
        later = Agent.from_spec(spec, channel=channel, checkpointer=store, thread_id="t")
        assert (await later.resume()).status == "aborted"
        assert await store.pending() == []
        for thread_id in ("t", PAYER):
            stored = await store.load(thread_id)
            assert stored is not None
            assert_sound(stored.messages)
    assert deeds.done == []


async def test_an_abort_ends_what_a_child_asks_before_its_call_has_a_result(database: Database) -> None:
    """So after a crash in between, whoever goes on with the root finds the question."""
    deeds = Deeds()
    for commits in range(4):
        async with database.checkpointer(clock=FakeClock()) as store:
            channel = CheckpointedChannel(checkpointer=store, thread_id="t")
            agent = Agent.from_spec(boss(deeds), channel=channel)
            run = asyncio.create_task(agent.prompt("go"))
            await asked(channel)
            with dying_after(store, commits):
                agent.abort()
                with suppress(Died):
                    await run
        async with database.checkpointer() as store:
            root = await store.load("t")
            assert root is not None
            is_resolved = any(message.role == "tool" for message in root.messages)
            assert not (is_resolved and await store.pending())
            later = Agent.from_spec(boss(deeds), checkpointer=store, thread_id="t")
            if (await later.resume()).status == "paused":
                await later.abort_pending()
            assert await store.pending() == []
            await store.delete("t")
    assert deeds.done == []


async def test_an_abort_that_meets_an_answer_ends_the_child_all_the_same(database: Database) -> None:
    deeds = Deeds()
    async with database.checkpointer() as store:
        channel = CheckpointedChannel(checkpointer=store, thread_id="t")
        agent = Agent.from_spec(boss(deeds), channel=channel)
        run = asyncio.create_task(agent.prompt("go"))
        await asked(channel)
        commit = store.commit

        async def after_an_answer(thread_id: str, step: Any, **options: Any) -> int:
            if step.settled and thread_id == PAYER:
                await store.settle(PAYER, "c1", {"decision": "approve"})
            return await commit(thread_id, step, **options)

        with mock.patch.object(store, "commit", after_an_answer):
            agent.abort()
            assert (await run).status == "aborted"
        for thread_id in ("t", PAYER):
            stored = await store.load(thread_id)
            assert stored is not None
            assert_sound(stored.messages)
            assert not stored.is_leased
    assert deeds.done == []


async def test_an_abort_ends_the_children_that_another_process_has_begun(database: Database) -> None:
    deeds = Deeds()
    spec = boss(deeds, call("x0", "mail", "Ada"))
    async with database.checkpointer() as store:
        first = Agent.from_spec(spec, checkpointer=store, thread_id="t")
        assert pending_ids(await first.prompt("go")) == ["x0", "d0/c1"]
        channel = CheckpointedChannel(checkpointer=store, thread_id="t")
        agent = Agent.from_spec(spec, channel=channel)
        run = asyncio.create_task(agent.resume())
        assert (await asked(channel)).question_id == "x0"
        agent.abort()
        assert (await run).status == "aborted"
        assert await store.pending() == []
    assert deeds.done == []


@pytest.mark.parametrize("how", ["supersede", "abort"])
async def test_a_question_is_told_of_though_the_lease_is_lost_right_after_it_ended(
    database: Database, how: str
) -> None:
    """The root's question ends when its thread is taken, then the lease is lost while the child is being ended."""
    deeds, heard = Deeds(), list[str]()
    spec = boss(deeds, call("x0", "mail", "Ada"))
    async with database.checkpointer() as store:
        first = Agent.from_spec(spec, checkpointer=store, thread_id="t")
        assert pending_ids(await first.prompt("go")) == ["x0", "d0/c1"]
        agent = Agent.from_spec(spec, channel=CheckpointedChannel(checkpointer=store, thread_id="t"))
        agent.subscribe(
            lambda event: heard.append(event.question_id) if event.type == "hitl_answer" else None
        )
        commit, has_lost = store.commit, False

        async def lose_once(thread_id: str, *args: Any, **options: Any) -> int:
            nonlocal has_lost
            if thread_id == PAYER and not has_lost:
                has_lost = True
                raise LeaseLost(thread_id, 1)
            return await commit(thread_id, *args, **options)

        with mock.patch.object(store, "commit", lose_once):
            if how == "abort":
                await agent.abort_pending()
            else:
                await agent.prompt("never mind", on_pending="supersede")
        assert has_lost
        assert await store.pending() == []
    assert sorted(heard) == ["c1", "x0"]
