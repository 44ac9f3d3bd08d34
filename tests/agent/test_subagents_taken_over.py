"""A worker that stood still for longer than its lease lasts sets no subagent to work for a call that is over."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest
from kit.deeds import Deeds, delegate, refunds, script
from kit.stores import SHARED, Database, databases, prompt, said
from kit.transcripts import assert_sound

from askfirst import Agent, AgentSpec
from askfirst.checkpointer.base import Step
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import LeaseHeld, LeaseLost
from askfirst.hitl.testing import FakeClock

pytestmark = pytest.mark.anyio
database = databases(*SHARED)


async def test_a_thread_is_made_for_another_only_while_that_is_held(checkpointer: SqlCheckpointer) -> None:
    fence = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
    child = prompt(parent_thread_id="t", parent_fence=fence)
    await checkpointer.commit("first", child, fence=0, acquire=True)
    moved = await checkpointer.commit("t", said(), fence=fence)
    for stale in (fence, moved + 1):
        with pytest.raises(LeaseLost):
            await checkpointer.commit("second", child._replace(parent_fence=stale), fence=0, acquire=True)
    given_back = await checkpointer.commit("t", said(release=True), fence=moved)
    with pytest.raises(LeaseLost):
        await checkpointer.commit("second", child._replace(parent_fence=given_back), fence=0, acquire=True)
    assert [it.thread_id for it in await checkpointer.threads()] == ["first", "t"]


class Meanwhile:
    """Stops a store's first commit for which ``is_it`` holds, until it is let go."""

    def __init__(self, store: SqlCheckpointer, is_it: Any) -> None:
        self._store, self._is_it = store, is_it
        self._commit = store.commit
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    def __enter__(self) -> Meanwhile:
        self._patch = mock.patch.object(self._store, "commit", self._stop)
        self._patch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.stop()

    async def _stop(self, thread_id: str, step: Step, **options: Any) -> int:
        if not self.reached.is_set() and self._is_it(thread_id, step):
            self.reached.set()
            await self.opened.wait()
        return await self._commit(thread_id, step, **options)


async def stand_still(store: SqlCheckpointer, clock: FakeClock) -> None:
    """A worker does nothing, not even renew its leases, until they have lapsed."""
    await store._leases.stop()
    await clock.advance(31)


def boss(store: SqlCheckpointer, deeds: Deeds) -> Agent:
    """An agent that has a clerk help it, once."""
    model = script([delegate("d0", "clerk")], "done")
    spec = AgentSpec("support", model, subagents=[refunds(deeds, "clerk")])
    return Agent.from_spec(spec, checkpointer=store, thread_id="t")


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_who_lost_the_thread_begins_no_subagent_for_it(database: Database) -> None:
    deeds, clock = Deeds(), FakeClock()
    async with database.checkpointer(clock=clock) as slow, database.checkpointer(clock=clock) as heir:
        with Meanwhile(slow, lambda thread_id, _: thread_id != "t") as begins:
            late = asyncio.create_task(boss(slow, deeds).prompt("go"))
            await begins.reached.wait()
            await stand_still(slow, clock)
            result = await boss(heir, deeds).prompt("Never mind.")
            begins.opened.set()
            assert (await late).status == "suspended"
        assert result.status == "completed"
        assert_sound(result.messages)
        assert [it.thread_id for it in await heir.threads()] == ["t"]
        assert await heir.pending() == []


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_who_takes_a_thread_over_finds_the_subagent_that_was_begun_meanwhile(
    database: Database,
) -> None:
    """It looks for subagents once nobody else can begin one, and ends them before it says that they are over."""
    deeds, clock = Deeds(), FakeClock()
    async with database.checkpointer(clock=clock) as slow, database.checkpointer(clock=clock) as heir:
        other = boss(heir, deeds)
        with (
            Meanwhile(slow, lambda thread_id, step: thread_id != "t" and step.opened) as asks,
            Meanwhile(slow, lambda thread_id, _: thread_id != "t") as begins,
            Meanwhile(heir, lambda *_: True) as takes_over,
        ):
            late = asyncio.create_task(boss(slow, deeds).prompt("go"))
            await begins.reached.wait()
            await stand_still(slow, clock)
            prompting = asyncio.create_task(other.prompt("Never mind."))
            await takes_over.reached.wait()
            begins.opened.set()
            await asks.reached.wait()
            takes_over.opened.set()
            with pytest.raises(LeaseHeld):
                await prompting
            await stand_still(slow, clock)
            result = await other.prompt("Never mind.")
            asks.opened.set()
            assert (await late).status == "suspended"
        assert result.status == "completed"
        child, root = [await heir.load(it.thread_id) for it in await heir.threads()]
        assert child is not None
        assert root is not None
        for thread in (child, root):
            assert_sound(thread.messages)
        assert "whether it took effect is unknown" in root.messages[2].text
        assert await heir.pending() == []
