"""A tree that waits for a person is leased to nobody, and whoever has the answer first goes on with all of it."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from kit.channel_rigs import asked
from kit.deeds import Deeds, call, completed, delegate, script
from kit.lives_agents import entries
from kit.lives_subagents import APPROVE, act, tree, waiter_on
from kit.patience import WITHIN_A_LEASE
from kit.store_urls import STORES, StoreUrls
from kit.stores import SHARED, Database, databases
from kit.transcripts import Held

from askfirst import Agent, AgentSpec
from askfirst.checkpointer.base import Checkpointer, RunRecord, Step, StoredThread
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.hitl import CheckpointedChannel, ask_user_tool
from askfirst.hitl.testing import RaceTrack
from askfirst.messages import AssistantMessage, UserMessage

pytestmark = pytest.mark.anyio
database = databases(*SHARED)

ACT = f"{act.__module__}:{act.__name__}"
shared = pytest.mark.parametrize("database", SHARED, indirect=True)


async def leased(store: Checkpointer) -> list[str]:
    """The threads that somebody is at work on."""
    ids = [info.thread_id for info in await store.threads()]
    loaded = [await store.load(thread_id) for thread_id in ids]
    return [stored.thread_id for stored in loaded if stored is not None and stored.is_leased]


async def until_leased(store: Checkpointer, expected: list[str]) -> None:
    """Wait until these are leased, and no others."""
    async with asyncio.timeout(WITHIN_A_LEASE):
        while await leased(store) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def payer(deeds: Deeds, name: str = "payer") -> AgentSpec:
    return AgentSpec(name, script([call("c1", "pay", name)], f"{name} paid"), tools=[deeds.asks("pay")])


# While a person is waited for.


async def test_a_tree_that_waits_is_leased_to_nobody(checkpointer: SqlCheckpointer, tmp_path: Path) -> None:
    agent = waiter_on(checkpointer, tmp_path / "effects", "t")
    assert agent.channel is not None
    run = asyncio.create_task(agent.prompt("go"))
    await asked(agent.channel)
    await until_leased(checkpointer, [])
    await agent.respond(answer=APPROVE)
    assert completed(await run) == {"d0": "filed"}
    assert await leased(checkpointer) == []
    assert len(entries(tmp_path / "effects")) == 1


async def test_so_it_is_when_it_waits_again_after_a_resume(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    turns = [call("c1", "pay", "1")], [call("c2", "pay", "2")], "paid"
    child = AgentSpec("payer", script(*turns), tools=[deeds.asks("pay")])
    boss = AgentSpec("boss", script([delegate("d0", "payer")], "done"), subagents=[child])
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    agent = Agent.from_spec(boss, channel=channel)
    run = asyncio.create_task(agent.prompt("go"))
    await asked(channel)
    await agent.detach()
    assert (await run).status == "suspended"
    run = asyncio.create_task(agent.resume())
    for _ in range(2):
        await asked(channel)
        await until_leased(checkpointer, [])
        await agent.respond(answer=APPROVE)
    assert completed(await run) == {"d0": "paid"}
    assert deeds.done == ["pay 1", "pay 2"]


async def test_those_that_wait_for_their_turn_to_ask_hold_nothing_either(
    checkpointer: SqlCheckpointer,
) -> None:
    deeds = Deeds()
    names = [f"w{n}" for n in range(3)]
    boss = AgentSpec(
        "boss",
        script([delegate(f"d{n}", name) for n, name in enumerate(names)], "done"),
        subagents=[payer(deeds, name) for name in names],
    )
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    agent = Agent.from_spec(boss, channel=channel)
    run = asyncio.create_task(agent.prompt("go"))
    requests = channel.subscribe()
    for _ in names:
        await anext(requests)
        await until_leased(checkpointer, [])
        await agent.respond(answer=APPROVE)
    assert completed(await run) == {"d0": "w0 paid", "d1": "w1 paid", "d2": "w2 paid"}
    assert sorted(deeds.done) == ["pay w0", "pay w1", "pay w2"]


@shared
async def test_a_body_beside_it_keeps_the_lease_until_it_is_done(database: Database) -> None:
    """Its result is stored with that, so another worker has nothing to ask about it."""
    deeds, held = Deeds(), Held("slow")
    boss = AgentSpec(
        "boss",
        script([call("x", "slow"), delegate("d0", "payer")], "done"),
        tools=[held.tool],
        subagents=[payer(deeds)],
    )
    async with database.checkpointer() as store, database.checkpointer() as other:
        channel = CheckpointedChannel(checkpointer=store, thread_id="t")
        run = asyncio.create_task(Agent.from_spec(boss, channel=channel).prompt("go"))
        await asked(channel)
        await held.started.wait()
        await until_leased(other, ["t"])
        elsewhere = Agent.from_spec(boss, checkpointer=other, thread_id="t")
        assert (await elsewhere.resume()).status == "suspended"
        held.release.set()
        await until_leased(other, [])
        run.cancel()
        await asyncio.wait([run])
        result = await elsewhere.respond(answer=APPROVE)
        assert result is not None
        assert completed(result).keys() == {"x", "d0"}
        assert deeds.done == ["pay payer"]


async def test_a_question_beside_it_waits_with_it(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    question = {"questions": [{"key": "colour", "prompt": "Which colour?"}]}
    ask = call("x", "ask_user").model_copy(update={"args": question})
    boss = AgentSpec(
        "boss",
        script([ask, delegate("d0", "payer")], "done"),
        tools=[ask_user_tool(channel)],
        subagents=[payer(deeds)],
    )
    agent = Agent.from_spec(boss, channel=channel)
    run = asyncio.create_task(agent.prompt("go"))
    requests = channel.subscribe()
    for _ in range(2):
        request = await anext(requests)
        await until_leased(checkpointer, [])
        await agent.respond(answer={"colour": "red"} if request.payload.kind == "ask" else APPROVE)
    assert completed(await run)["d0"] == "payer paid"
    assert deeds.done == ["pay payer"]


# Others at the same tree.


@shared
@pytest.mark.parametrize("how", ["abort", "supersede", "delete"])
async def test_another_worker_may_end_what_is_waited_for_here(
    database: Database, how: str, tmp_path: Path
) -> None:
    async with database.checkpointer() as store, database.checkpointer() as other:
        agent = waiter_on(store, tmp_path / "effects", "t")
        assert agent.channel is not None
        run = asyncio.create_task(agent.prompt("go"))
        await asked(agent.channel)
        elsewhere = Agent.from_spec(tree(tmp_path / "effects"), checkpointer=other, thread_id="t")
        match how:
            case "abort":
                await elsewhere.abort_pending("enough")
            case "supersede":
                assert (await elsewhere.prompt("and?", on_pending="supersede")).status == "completed"
            case _:
                await other.delete("t")
        if how == "delete":
            run.cancel()
            await asyncio.wait([run])
        else:
            assert (await run).status == "suspended"
        assert await other.pending() == []
        assert await leased(other) == []
    assert entries(tmp_path / "effects") == []


@shared
async def test_one_who_only_looks_does_not_keep_the_waiter_from_going_on(
    database: Database, tmp_path: Path
) -> None:
    async with database.checkpointer() as store, database.checkpointer() as other:
        agent = waiter_on(store, tmp_path / "effects", "t")
        assert agent.channel is not None
        run = asyncio.create_task(agent.prompt("go"))
        request = await asked(agent.channel)
        elsewhere = Agent.from_spec(tree(tmp_path / "effects"), checkpointer=other, thread_id="t")
        assert (await elsewhere.resume()).status == "paused"
        assert request.thread_id is not None
        await other.settle(request.thread_id, request.question_id, APPROVE)
        assert completed(await run) == {"d0": "filed"}


@shared
async def test_the_waiter_and_another_worker_race_for_an_answer(database: Database, tmp_path: Path) -> None:
    rounds, ways = 20, set[Any]()
    async with database.checkpointer() as store, database.checkpointer() as other:
        for number in range(rounds):
            thread_id, effects = f"t{number}", tmp_path / f"effects{number}"
            agent = waiter_on(store, effects, thread_id)
            assert agent.channel is not None
            run = asyncio.create_task(agent.prompt("go"))
            request = await asked(agent.channel)
            assert request.thread_id is not None
            elsewhere = Agent.from_spec(tree(effects), checkpointer=other, thread_id=thread_id)
            await other.settle(request.thread_id, request.question_id, APPROVE)
            await asyncio.sleep(random.choice([0, 0, 0.002, 0.01, 0.05]))
            second = await elsewhere.resume()
            first = await run
            ways.add((first.status, second.status))
            assert "completed" in (first.status, second.status)
            assert {first.status, second.status} <= {"completed", "suspended"}
            assert (await elsewhere.resume()).text == "done"
            assert len(entries(effects)) == 1
        assert await leased(other) == []
    assert ("suspended", "suspended") not in ways


# Real processes.


@pytest.mark.parametrize("store", STORES)
async def test_a_waiter_that_is_killed_keeps_nobody_waiting(
    store: str, store_urls: StoreUrls, race_track: RaceTrack, tmp_path: Path
) -> None:
    job = {"url": store_urls.get(store), "thread_id": tmp_path.name, "effects": str(tmp_path / "effects")}
    (death,) = await race_track.race(ACT, [{**job, "act": "die"}])
    assert death.signal == signal.SIGKILL, death
    async with checkpointer_from_url(job["url"]) as checkpointer:
        agent = Agent.from_spec(
            tree(tmp_path / "effects"), checkpointer=checkpointer, thread_id=tmp_path.name
        )
        begun = time.monotonic()
        result = await agent.respond(answer=APPROVE)
        assert result is not None
        assert completed(result) == {"d0": "filed"}
        assert time.monotonic() - begun < WITHIN_A_LEASE
    assert len(entries(tmp_path / "effects")) == 1


@pytest.mark.parametrize("store", STORES)
async def test_processes_race_for_an_answer(
    store: str, store_urls: StoreUrls, race_track: RaceTrack, tmp_path: Path
) -> None:
    """Some wait, some answer: one answer, one effect, and the run comes to its end."""
    url = store_urls.get(store)
    looking = {"url": url, "thread_id": "t", "effects": str(tmp_path), "act": "look"}
    await race_track.race(ACT, [], warm_up=looking)
    for number in range(3):
        thread_id, effects = f"{tmp_path.name}-{number}", tmp_path / f"effects{number}"
        job = {"url": url, "thread_id": thread_id, "effects": str(effects)}
        await race_track.race(ACT, [{**job, "act": "die"}])
        acts = ["wait", "wait", "answer", "answer", "answer"]
        outcomes = await race_track.race(ACT, [{**job, "act": name} for name in acts])
        waited = [it.value for it in outcomes[:2]]
        answered = [it.value for it in outcomes[2:] if it.won]
        assert len(answered) == 1, outcomes
        assert set(waited + answered) <= {"completed", "suspended"}, outcomes
        assert "completed" in waited + answered, outcomes
        async with checkpointer_from_url(url) as checkpointer:
            stored = await checkpointer.load(thread_id)
            assert stored is not None
            assert (stored.messages[-1].text, stored.is_leased) == ("done", False)
        assert len(entries(effects)) == 1


@shared
async def test_two_workers_that_begin_one_child_at_once(database: Database) -> None:
    """The second has looked for the child before the first began it, and is told by the lease."""
    deeds = Deeds()
    boss = AgentSpec("boss", script([delegate("d0", "payer")], "done"), subagents=[payer(deeds)])
    called = [UserMessage("go"), AssistantMessage([delegate("d0", "payer")])]
    async with database.checkpointer() as store, database.checkpointer() as other:
        step = Step("r", called, run=RunRecord("boss"), release=True)
        await store.commit("t", step, fence=0, acquire=True)
        channel = CheckpointedChannel(checkpointer=store, thread_id="t")
        load, looks, first = other.load, 0, None

        async def load_late(thread_id: str) -> StoredThread | None:
            nonlocal first, looks
            found = await load(thread_id)
            looks += thread_id != "t"
            if looks == 2 and first is None:  # the first is the check of whose thread it is
                first = asyncio.create_task(Agent.from_spec(boss, channel=channel).resume())
                await asked(channel)
                await until_leased(store, [])
            return found

        with mock.patch.object(other, "load", load_late):
            second = Agent.from_spec(boss, checkpointer=other, thread_id="t")
            assert (await second.resume()).status == "suspended"
        assert first is not None
        await channel.answer("c1", APPROVE)
        assert completed(await first).keys() == {"d0"}
    assert len(deeds.done) == 1
