"""A thread that is deleted and made again under its name: whoever knew the old one cannot write to the new one."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.stores import SHARED, Database, confirmation, prompt, said

from askfirst import Agent, ids, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlNoPendingRequest, LeaseLost
from askfirst.hitl import CheckpointedChannel
from askfirst.ids import OLDEST_FIRST_FENCE, birth_of, first_fence
from askfirst.messages import AssistantMessage, ToolCall, UserMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
on_shared = pytest.mark.parametrize("database", SHARED, indirect=True)


def test_a_first_fence_is_beyond_all_before_it_and_fits_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """A millisecond later, after more steps than a thread can make in one; and in the year 2100."""
    monkeypatch.setattr(time, "time_ns", lambda: now)
    monkeypatch.setattr(ids, "_latest_birth", 0)
    now = 1_700_000_000_000_000_000
    before = first_fence()
    now += 1_000_000
    monkeypatch.setattr(ids, "_latest_birth", 0)  # as in another process
    after = first_fence()
    assert OLDEST_FIRST_FENCE < before < after
    assert birth_of(before) == birth_of(before + 1000) < birth_of(after)
    now = 4_102_444_800_000_000_000
    assert first_fence() + 10**9 < 2**63


def test_they_grow_also_where_the_clock_stands_still_or_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    births = [birth_of(first_fence()) for _ in range(50)]
    assert births == sorted(set(births))


def test_those_of_two_processes_at_one_moment_differ_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    births: set[int] = set()
    for _ in range(50):
        monkeypatch.setattr(ids, "_latest_birth", 0)
        births.add(birth_of(first_fence()))
    assert len(births) > 30


async def made_by_commit(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.commit("t", prompt(release=True), fence=0, acquire=True)


async def made_by_fork(checkpointer: SqlCheckpointer) -> None:
    if await checkpointer.load("other") is None:
        await checkpointer.commit("other", prompt(release=True), fence=0, acquire=True)
    await checkpointer.fork("other", "t")


async def made_by_request(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.save_pending_request("t", confirmation("q"))


@pytest.mark.parametrize("make", [made_by_commit, made_by_fork, made_by_request])
@pytest.mark.parametrize("make_again", [made_by_commit, made_by_fork, made_by_request])
async def test_who_loaded_the_old_thread_cannot_write_to_the_new_one(
    checkpointer: SqlCheckpointer, make: Any, make_again: Any
) -> None:
    await make(checkpointer)
    old = await checkpointer.load("t")
    assert old is not None
    await checkpointer.delete("t")
    await make_again(checkpointer)
    with pytest.raises(LeaseLost):
        await checkpointer.commit("t", said(UserMessage("stale")), fence=old.fence, acquire=True)
    new = await checkpointer.load("t")
    assert new is not None
    assert (new.fence > old.fence, [it.text for it in new.messages if it.text == "stale"]) == (True, [])
    fence = await checkpointer.commit("t", said(UserMessage("fresh")), fence=new.fence, acquire=True)
    assert fence == new.fence + 1


async def test_a_thread_that_an_earlier_version_made_for_a_request_goes_on(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There its fence is 0, as that of a thread that is not there."""
    with monkeypatch.context() as earlier:
        earlier.setattr("askfirst.store.threads.first_fence", lambda: 0)
        await checkpointer.save_pending_request("t", confirmation("q"))
    thread = await checkpointer.load("t")
    assert thread is not None
    assert thread.fence == 0
    fence = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
    assert await checkpointer.commit("t", said(AssistantMessage("hi")), fence=fence) == fence + 1


@on_shared
async def test_an_agent_sees_the_new_thread_and_nothing_of_the_old_one(database: Database) -> None:
    async with database.checkpointer() as here, database.checkpointer() as there:
        model = ScriptedModel(["old answer", "answer 2"])
        agent = Agent(model=model, checkpointer=here, thread_id="t")
        await agent.prompt("my secret")
        await there.delete("t")
        await Agent(model=ScriptedModel(["new answer"]), checkpointer=there, thread_id="t").prompt("fresh")
        assert (await agent.prompt("and now?")).status == "completed"
        assert [it.text for it in model.requests[-1]] == ["fresh", "new answer", "and now?"]
        stored = await there.load("t")
        assert stored is not None
        assert [it.text for it in stored.messages] == ["fresh", "new answer", "and now?", "answer 2"]


@on_shared
async def test_who_waits_on_the_old_thread_does_nothing_on_the_new_one(database: Database) -> None:
    """Also if the new one has a call of the same id, which is approved."""
    ran: list[str] = []

    @tool(requires_approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    def turns(last: str) -> ScriptedModel:
        return ScriptedModel([ToolCall("c1", "pay", {"cents": 1}), last])

    async with database.checkpointer() as here, database.checkpointer() as there:
        channel = CheckpointedChannel(checkpointer=here, thread_id="t")
        waiting = asyncio.create_task(Agent(model=turns("old"), tools=[pay], channel=channel).prompt("go"))
        while channel.pending is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await there.delete("t")
        agent = Agent(model=turns("new"), tools=[pay], checkpointer=there, thread_id="t")
        assert (await agent.prompt("go again")).status == "paused"
        await there.settle("t", "c1", {"decision": "approve"})
        with suppress(HitlNoPendingRequest):  # if it looked while the thread was gone
            assert (await asyncio.wait_for(waiting, PATIENCE)).status == "suspended"
        assert ran == []
        assert (await agent.resume()).text == "new"
        assert ran == ["paid"]


async def test_a_waiter_does_not_take_what_was_asked_anew_for_its_own(checkpointer: SqlCheckpointer) -> None:
    """Even if that has its answer by the time the waiter looks."""
    await checkpointer.save_pending_request("t", confirmation("q"))
    waiting = asyncio.create_task(checkpointer.settled("t", "q"))
    while not checkpointer._store.hub.keys:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await checkpointer.request("t", "q")  # it has looked, and waits
    hub, woken = checkpointer._store.hub, list[Any]()
    wake, hub.wake = hub.wake, woken.extend
    await checkpointer.save_pending_request("t", confirmation("q", 1_700_000_009.0))
    await checkpointer.settle("t", "q", True, round=2)
    hub.wake = wake
    hub.wake(woken)
    assert (await asyncio.wait_for(waiting, PATIENCE)).status == "superseded"


async def test_a_first_step_that_is_cancelled_leaves_no_lease(checkpointer: SqlCheckpointer) -> None:
    """Its writer knows the fence all the same, and gives the thread back."""
    for turns in range(6):
        agent = Agent(model=ScriptedModel(["hi"]), checkpointer=checkpointer, thread_id=f"t{turns}")
        prompting = asyncio.create_task(agent.prompt("go"))
        for _ in range(turns):
            await asyncio.sleep(0)
        prompting.cancel()
        await asyncio.wait({prompting})
        stored = await checkpointer.load(f"t{turns}")
        assert stored is None or not stored.is_leased
