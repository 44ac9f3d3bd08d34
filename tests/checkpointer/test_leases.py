"""Leases and fences on every store: one writer, and a zombie that writes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.stores import (
    RUN,
    SHARED,
    Database,
    approval,
    asked,
    effect,
    prompt,
    said,
)

from askfirst.checkpointer.base import RunRecord, Settlement, StoredRun
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import (
    LeaseHeld,
    LeaseLost,
    StoreError,
)
from askfirst.hitl.testing import FakeClock
from askfirst.messages import AssistantMessage, UserMessage

pytestmark = pytest.mark.anyio


async def test_every_step_moves_the_fence_by_one(checkpointer: SqlCheckpointer) -> None:
    first = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
    assert await checkpointer.commit("t", said(), fence=first) == first + 1
    assert await checkpointer.commit("t", said(release=True), fence=first + 1) == first + 2
    assert await checkpointer.commit("t", said(release=True), fence=first + 2, acquire=True) == first + 3


async def test_a_lease_is_seen_while_it_is_held(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock, owner="me", lease_seconds=20) as checkpointer:
        fence = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
        thread = await checkpointer.load("t")
        assert thread is not None
        assert (thread.lease_owner, thread.lease_until) == ("me", round(clock.now() + 20, 3))
        await checkpointer.commit("t", said(release=True), fence=fence)
        thread = await checkpointer.load("t")
        assert thread is not None
        assert thread.lease_owner is None


async def test_a_held_thread_is_refused_to_others_even_in_the_same_process(
    checkpointer: SqlCheckpointer,
) -> None:
    await checkpointer.commit("t", prompt(), fence=0, acquire=True)
    for fence in (0, 1, 7):
        with pytest.raises(LeaseHeld) as held:
            await checkpointer.commit("t", prompt("no"), fence=fence, acquire=True)
        assert held.value.owner == checkpointer.owner
    await assert_messages(checkpointer, 1)


@pytest.mark.parametrize("away", [None, -1, 1, 97])
async def test_another_fence_than_the_threads_writes_nothing(
    checkpointer: SqlCheckpointer, away: int | None
) -> None:
    fence, _ = await asked(checkpointer)
    fence = 0 if away is None else fence + away
    step = said(
        UserMessage("no"),
        opened=[approval("other")],
        settled=[Settlement("call-1", "aborted")],
        started=[effect()],
        run=RunRecord("other", "failed"),
    )
    for acquire in (True, False):
        with pytest.raises(LeaseLost) as lost:
            await checkpointer.commit("t", step, fence=fence, acquire=acquire)
        assert (lost.value.thread_id, lost.value.fence) == ("t", fence)
    thread = await checkpointer.load("t")
    assert thread is not None
    assert (len(thread.messages), set(thread.requests), thread.effects) == (2, {"call-1"}, {})
    assert thread.requests["call-1"].status == "pending"
    assert thread.run == StoredRun(RUN, "agent", None)


async def test_without_the_lease_nothing_can_be_written(checkpointer: SqlCheckpointer) -> None:
    fence, _ = await asked(checkpointer)
    with pytest.raises(LeaseLost):
        await checkpointer.commit("t", said(UserMessage("no")), fence=fence)
    with pytest.raises(LeaseLost):
        await checkpointer.commit("new", said(UserMessage("no")), fence=0)
    assert await checkpointer.load("new") is None


async def test_who_loaded_a_thread_before_it_was_given_back_has_to_load_it_again(
    checkpointer: SqlCheckpointer,
) -> None:
    fence = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
    stale = await checkpointer.load("t")
    assert stale is not None
    await checkpointer.commit("t", said(AssistantMessage("Done."), release=True), fence=fence)
    with pytest.raises(LeaseLost):
        await checkpointer.commit("t", prompt("on stale ground"), fence=stale.fence, acquire=True)


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_lapsed_lease_is_taken_over_and_the_zombie_writes_nothing(database: Database) -> None:
    zombie_clock, clock = FakeClock(), FakeClock()
    async with (
        database.checkpointer(clock=zombie_clock) as zombie,
        database.checkpointer(clock=clock) as heir,
    ):
        fence = await zombie.commit("t", prompt(), fence=0, acquire=True)
        with pytest.raises(LeaseHeld) as held:
            await heir.commit("t", said(), fence=fence, acquire=True)
        assert held.value.owner == zombie.owner
        assert held.value.until == round(clock.now() + 30, 3)
        await clock.advance(30)
        taken = await heir.commit("t", said(UserMessage("mine")), fence=fence, acquire=True)
        assert taken == fence + 1
        for attempt in (fence, taken):
            with pytest.raises(LeaseLost):
                await zombie.commit("t", said(UserMessage("late"), started=[effect()]), fence=attempt)
        thread = await heir.load("t")
        assert thread is not None
        assert [message.text for message in thread.messages] == ["Hello", "mine"]
        assert thread.effects == {}


async def test_a_lapsed_lease_that_nobody_took_still_writes(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock, lease_seconds=1) as checkpointer:
        fence = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
        clock._now += 5  # without a heartbeat
        assert await checkpointer.commit("t", said(AssistantMessage("late")), fence=fence) == fence + 1
        thread = await checkpointer.load("t")
        assert thread is not None
        assert thread.lease_until == round(clock.now() + 1, 3)


async def test_a_heartbeat_renews_what_is_held_and_nothing_else(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        for number in range(120):
            await checkpointer.commit(f"held{number}", prompt(), fence=0, acquire=True)
        fence = await checkpointer.commit("given back", prompt(), fence=0, acquire=True)
        await checkpointer.commit("given back", said(release=True), fence=fence)
        for _ in range(20):
            await clock.advance(5)
            await beat(checkpointer)
        for thread_id in ("held0", "held119"):
            thread = await checkpointer.load(thread_id)
            assert thread is not None
            assert thread.lease_until >= clock.now() + 15
        thread = await checkpointer.load("given back")
        assert thread is not None
        assert thread.lease_until == 0


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_heartbeat_does_not_bring_back_a_lost_lease(database: Database) -> None:
    zombie_clock, clock = FakeClock(), FakeClock()
    async with (
        database.checkpointer(clock=zombie_clock) as zombie,
        database.checkpointer(clock=clock) as heir,
    ):
        fence = await zombie.commit("t", prompt(), fence=0, acquire=True)
        kept = await zombie.commit("kept", prompt(), fence=0, acquire=True)
        await clock.advance(31)
        await heir.commit("t", said(), fence=fence, acquire=True)
        await zombie_clock.advance(15)
        await beat(zombie)
        thread = await heir.load("t")
        assert thread is not None
        assert thread.lease_owner == heir.owner
        assert await zombie.commit("kept", said(), fence=kept) == kept + 1


async def beat(checkpointer: SqlCheckpointer) -> None:
    """Let the heartbeat that the clock has just set off come to its end."""
    for _ in range(3):
        await asyncio.sleep(0)
    await checkpointer._leases._renew(checkpointer._store)


async def assert_messages(checkpointer: SqlCheckpointer, count: int, thread_id: str = "t") -> None:
    thread = await checkpointer.load(thread_id)
    assert thread is not None
    assert len(thread.messages) == count


async def test_whoever_loaded_before_a_lapsed_holders_last_step_cannot_build_on_it(
    checkpointer: SqlCheckpointer,
) -> None:
    """The holder stalls past its lease; another loads; the holder wakes and writes; the other may not take over
    on what it loaded."""
    fence = await checkpointer.commit("t", said(), fence=0, acquire=True)
    loaded = await checkpointer.load("t")
    assert loaded is not None
    await checkpointer.commit("t", said(AssistantMessage("late"), release=True), fence=fence)
    with pytest.raises(LeaseLost):
        await checkpointer.commit("t", said(), fence=loaded.fence, acquire=True)


@pytest.mark.parametrize("owner", [5, "x" * 256, "a\0b", "half \ud800"])
def test_an_owner_that_no_store_can_name_is_refused_when_it_is_given(owner: Any) -> None:
    with pytest.raises(StoreError, match="owner"):
        MemoryCheckpointer(owner=owner)


@pytest.mark.parametrize("seconds", ["30", True, float("inf"), float("nan"), 0, -1])
def test_a_lease_lasts_for_a_time(seconds: Any) -> None:
    with pytest.raises(ValueError, match="lease_seconds is a number of seconds"):
        MemoryCheckpointer(lease_seconds=seconds)
