"""Agents without a channel on every store: pending calls are ordinary requests, settled from anywhere."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from typing import Any

import pytest
from kit.deeds import (
    TWO,
    Deeds,
    approve,
    call,
    completed,
    delegate,
    deny,
    hitl,
    mailer,
    paused_at,
    pending_ids,
    script,
)
from kit.stores import SHARED, Database, databases
from kit.transcripts import assert_sound

from askfirst import Agent, AgentSpec
from askfirst.checkpointer.base import Checkpointer, Step
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import (
    HitlError,
    HitlNoPendingRequest,
    HitlRequestPending,
    HitlStaleAnswer,
    InvalidCheckpoint,
    InvalidMessage,
    LeaseHeld,
)
from askfirst.hitl import CheckpointedChannel
from askfirst.hitl.testing import FakeClock
from askfirst.ids import child_thread_id

pytestmark = pytest.mark.anyio
database = databases(*SHARED)

APPROVE, DENY = {"decision": "approve"}, {"decision": "deny"}


def agent_on(store: Checkpointer, spec: AgentSpec, thread_id: str = "t") -> Agent:
    return Agent.from_spec(spec, checkpointer=store, thread_id=thread_id)


async def open_ids(store: Checkpointer) -> list[tuple[str, str]]:
    return [(each.thread_id, each.question_id) for each in await store.pending()]


async def test_pending_calls_are_requests_in_the_store(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    paused = await agent_on(checkpointer, mailer(deeds)).prompt("go")
    checkpoint = paused_at(paused, "c1", "c2")
    assert checkpoint.stored
    listed = await checkpointer.pending()
    assert [(each.thread_id, each.question_id) for each in listed] == [("t", "c1"), ("t", "c2")]
    shown = [approval.tool_call.args for approval in paused.pending_approvals]
    assert [each.request.payload.args for each in listed] == shown  # type: ignore[union-attr]
    digests = [approval.digest for approval in paused.pending_approvals]
    assert [each.request.payload.digest for each in listed] == digests  # type: ignore[union-attr]


@pytest.mark.parametrize("order", list(itertools.permutations(["c1", "c2", "c3"])))
async def test_settled_one_by_one_in_any_order(checkpointer: SqlCheckpointer, order: tuple[str, ...]) -> None:
    """Each by somebody else, with an agent that looks in between: it runs when the last is in."""
    deeds = Deeds()
    turn = [call(f"c{n}", "mail", letter) for n, letter in enumerate("abc", 1)]
    spec = mailer(deeds, turn, "done")
    await agent_on(checkpointer, spec).prompt("go")
    for place, call_id in enumerate(order):
        answer = DENY if call_id == "c2" else APPROVE
        await checkpointer.settle("t", call_id, answer, by=f"person {place}")
        result = await agent_on(checkpointer, spec).resume()
        if place < 2:
            left = [each for each in ("c1", "c2", "c3") if each not in order[: place + 1]]
            assert pending_ids(result) == left
            assert deeds.done == []
    assert list(completed(result)) == ["c1", "c2", "c3"]
    assert sorted(deeds.done) == ["mail a", "mail c"]
    assert hitl(result, order[0])["answered_by"] == "person 0"
    assert await checkpointer.pending() == []
    with pytest.raises(HitlStaleAnswer):
        await checkpointer.settle("t", "c2", APPROVE)


async def test_with_each_every_answer_starts_its_call(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    spec = AgentSpec(
        "mailer",
        script([*TWO, call("c3", "look")], "done"),
        tools=[deeds.asks("mail"), deeds.tool("look")],
        tool_gate="each",
    )
    assert pending_ids(await agent_on(checkpointer, spec).prompt("go")) == ["c1", "c2"]
    assert deeds.done == ["look"]
    await checkpointer.settle("t", "c2", APPROVE)
    assert pending_ids(await agent_on(checkpointer, spec).resume()) == ["c1"]
    assert deeds.done == ["look", "mail b"]
    assert await open_ids(checkpointer) == [("t", "c1")]
    await checkpointer.settle("t", "c1", APPROVE)
    assert set(completed(await agent_on(checkpointer, spec).resume())) == {"c1", "c2", "c3"}
    assert deeds.done == ["look", "mail b", "mail a"]


async def test_resume_with_decides_and_goes_on(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    await agent_on(checkpointer, spec).prompt("go")
    assert pending_ids(await agent_on(checkpointer, spec).resume_with(deny("c2"), by="ann", via="web")) == [
        "c1"
    ]
    with pytest.raises(InvalidCheckpoint, match="'c2' is not pending here; what is: c1"):
        await agent_on(checkpointer, spec).resume_with(approve("c2", "c1"))
    assert deeds.done == []
    stored = await checkpointer.request("t", "c2")
    assert stored is not None
    assert (stored.status, stored.answered_by, stored.via) == ("answered", "ann", "web")
    done = await agent_on(checkpointer, spec).resume_with(approve("c1"))
    assert deeds.done == ["mail a"]
    assert hitl(done, "c2")["answered_by"] == "ann"


async def test_a_response_that_does_not_fit_settles_none(checkpointer: SqlCheckpointer) -> None:
    spec = mailer(Deeds())
    agent = agent_on(checkpointer, spec)
    await agent.prompt("go")
    with pytest.raises(InvalidCheckpoint):
        await agent.resume_with([*approve("c1"), *approve("c9")])
    assert await open_ids(checkpointer) == [("t", "c1"), ("t", "c2")]


async def test_a_prompt_while_calls_wait(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    spec = mailer(deeds, TWO, "well", "done")
    agent = agent_on(checkpointer, spec)
    await agent.prompt("go")
    with pytest.raises(HitlRequestPending):
        await agent.prompt("and?")
    result = await agent_on(checkpointer, spec).prompt("never mind", on_pending="supersede")
    assert result.text == "well"
    assert deeds.done == []
    assert await checkpointer.pending() == []
    for call_id in ("c1", "c2"):
        stored = await checkpointer.request("t", call_id)
        assert stored is not None
        assert stored.status == "superseded"


async def test_aborting_closes_all_that_is_asked(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    agent = agent_on(checkpointer, mailer(deeds))
    await agent.prompt("go")
    await agent.abort_pending("enough")
    assert await checkpointer.pending() == []
    assert_sound(agent.messages)
    assert deeds.done == []
    with pytest.raises(HitlNoPendingRequest):
        await agent.abort_pending()


# Trees.


def tree(deeds: Deeds) -> AgentSpec:
    """support > refunds > issue_refund, beside support > notes > write."""
    notes = AgentSpec("notes", script([call("n1", "write", "n")], "noted"), tools=[deeds.asks("write")])
    refunds = AgentSpec(
        "refunds",
        script([call("r1", "issue_refund", "1"), call("r2", "issue_refund", "2")], "refunded"),
        tools=[deeds.asks("issue_refund")],
    )
    turn = [delegate("a", "refunds"), delegate("b", "notes")]
    return AgentSpec("support", script(turn, "done"), subagents=[refunds, notes])


IDS = ["a/r1", "a/r2", "b/n1"]


async def test_a_tree_is_listed_answered_and_done_from_anywhere(database: Database) -> None:
    """A fresh checkpointer and fresh agents for every step."""
    deeds = Deeds()

    async def step(work: Any) -> Any:
        async with database.checkpointer() as opened:
            return await work(opened)

    paused = await step(lambda store: agent_on(store, tree(deeds)).prompt("go"))
    assert pending_ids(paused) == IDS
    a, b = child_thread_id("t", "a"), child_thread_id("t", "b")
    listed = await step(open_ids)
    assert sorted(listed) == sorted([(a, "r1"), (a, "r2"), (b, "n1")])
    parents = {each.thread_id: each.parent_thread_id for each in await step(lambda it: it.threads())}
    assert parents == {"t": None, a: "t", b: "t"}
    for thread_id, question_id in [(b, "n1"), (a, "r2")]:
        await step(lambda store, at=(thread_id, question_id): store.settle(*at, APPROVE, by="ann"))
        result = await step(lambda store: agent_on(store, tree(deeds)).resume())
        assert result.status == "paused"
    assert pending_ids(result) == ["a/r1"]
    assert deeds.done == ["write n"]  # its sibling waits for its own second call
    result = await step(lambda store: agent_on(store, tree(deeds)).resume_with(deny("a/r1")))
    assert completed(result) == {"a": "refunded", "b": "noted"}
    assert deeds.done == ["write n", "issue_refund 2"]
    for thread_id in ("t", a, b):
        thread = await step(lambda store, at=thread_id: store.load(at))
        assert_sound(thread.messages)
    assert await step(open_ids) == []


async def test_finished_siblings_are_not_asked_again(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    await agent_on(checkpointer, tree(deeds)).prompt("go")
    await agent_on(checkpointer, tree(deeds)).resume_with(approve("b/n1"))
    assert deeds.done == ["write n"]
    fresh = tree(deeds)
    await agent_on(checkpointer, fresh).resume_with(approve("a/r1", "a/r2"))
    _, notes = fresh.subagents
    assert notes.model.requests == []  # type: ignore[union-attr]
    assert sorted(deeds.done) == ["issue_refund 1", "issue_refund 2", "write n"]


async def test_the_root_answers_for_its_children(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    agent = agent_on(checkpointer, tree(deeds))
    await agent.prompt("go")
    fresh = agent_on(checkpointer, tree(deeds))
    request = await fresh.load_pending_hitl_request()
    assert request is not None
    assert (request.thread_id, request.question_id) == (child_thread_id("t", "a"), "r1")
    with pytest.raises(HitlRequestPending):
        await fresh.prompt("and?")
    result = await fresh.respond(answer=APPROVE, question_id="n1", by="ann")
    assert result is not None
    assert pending_ids(result) == ["a/r1", "a/r2"]
    with pytest.raises(HitlError, match=r"several requests are open \('r1', 'r2'\).*question_id="):
        await fresh.respond(answer=APPROVE)
    await fresh.respond(answer=APPROVE, question_id="r1")
    result = await fresh.respond(answer=APPROVE)
    assert result is not None
    assert completed(result) == {"a": "refunded", "b": "noted"}
    with pytest.raises(HitlNoPendingRequest):
        await fresh.respond(answer=APPROVE)


async def test_deleting_the_root_deletes_its_children_and_not_its_forks(
    checkpointer: SqlCheckpointer,
) -> None:
    deeds = Deeds()
    await agent_on(checkpointer, tree(deeds)).prompt("go")
    await checkpointer.fork("t", "fork")
    a, b = child_thread_id("t", "a"), child_thread_id("t", "b")
    fork = await checkpointer.load("fork")
    await checkpointer.delete("t")
    assert [each.thread_id for each in await checkpointer.threads()] == ["fork"]
    assert await checkpointer.load("fork") == fork
    assert await checkpointer.pending() == []
    for thread_id, question_id in [(a, "r1"), (b, "n1")]:
        with pytest.raises(HitlNoPendingRequest):
            await checkpointer.settle(thread_id, question_id, APPROVE)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_thread_that_cannot_be_read_can_be_deleted(database: Database) -> None:
    async with database.checkpointer() as store:
        await agent_on(store, tree(Deeds())).prompt("go")
        with sqlite3.connect(database.address) as connection:
            connection.execute(
                "UPDATE askfirst_messages SET body = '{\"tool_call\"' WHERE thread_id = 't' AND seq = 1"
            )
        with pytest.raises(InvalidMessage):
            await store.load("t")
        await store.delete("t")
        assert await store.load("t") is None


async def test_a_child_at_work_keeps_its_root_from_being_deleted(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    await agent_on(checkpointer, tree(deeds)).prompt("go")
    child = await checkpointer.load(child_thread_id("t", "a"))
    assert child is not None
    await checkpointer.commit(child_thread_id("t", "a"), Step("r"), fence=child.fence, acquire=True)
    with pytest.raises(LeaseHeld) as held:
        await checkpointer.delete("t")
    assert held.value.thread_id == child_thread_id("t", "a")
    assert len(await checkpointer.threads()) == 3


async def test_aborting_the_root_closes_its_children(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    await agent_on(checkpointer, tree(deeds)).prompt("go")
    agent = agent_on(checkpointer, tree(deeds))
    await agent.abort_pending("enough")
    assert await checkpointer.pending() == []
    for thread_id in ("t", child_thread_id("t", "a"), child_thread_id("t", "b")):
        thread = await checkpointer.load(thread_id)
        assert thread is not None
        assert_sound(thread.messages)
        assert thread.messages[-1].stop_reason == "aborted"  # type: ignore[union-attr]
        assert not thread.is_leased
    stored = await checkpointer.request(child_thread_id("t", "b"), "n1")
    assert stored is not None
    assert (stored.status, stored.reason) == ("aborted", "enough")
    with pytest.raises(HitlStaleAnswer):
        await checkpointer.settle(child_thread_id("t", "b"), "n1", APPROVE)
    assert (await agent_on(checkpointer, tree(deeds)).resume()).status == "aborted"
    assert deeds.done == []


async def test_a_newer_prompt_supersedes_what_children_ask(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    await agent_on(checkpointer, tree(deeds)).prompt("go")
    result = await agent_on(checkpointer, tree(deeds)).prompt("never mind", on_pending="supersede")
    assert result.status == "completed"
    assert await checkpointer.pending() == []
    assert deeds.done == []
    assert hitl(result, "a") == {"decision": "superseded"}
    with pytest.raises(HitlStaleAnswer):
        await checkpointer.settle(child_thread_id("t", "a"), "r1", APPROVE)


# What a channel has asked.


async def test_what_a_channel_asked_is_pending_with_its_deadline(database: Database) -> None:
    """Somebody detaches, and somebody else without a channel goes on: the same request, the same deadline."""
    deeds, clock = Deeds(), FakeClock()
    spec = mailer(deeds, [call("c1", "mail", "a")], "done")
    async with database.checkpointer(clock=clock) as store:
        channel = CheckpointedChannel(checkpointer=store, thread_id="t", default_timeout=60, clock=clock)
        agent = Agent.from_spec(spec, channel=channel)
        run = asyncio.create_task(agent.prompt("go"))
        asked = await anext(aiter(channel.subscribe()))
        await agent.detach()
        assert (await run).status == "suspended"
        paused = await agent_on(store, spec).resume()
        assert pending_ids(paused) == ["c1"]
        (approval,) = paused.pending_approvals
        assert (approval.created_at, approval.expires_at) == (asked.created_at, asked.created_at + 60)
        await clock.advance(61)
        with pytest.raises(HitlStaleAnswer):
            await agent_on(store, spec).resume_with(approve("c1"))
        result = await agent_on(store, spec).resume()
        assert hitl(result, "c1")["decision"] == "timed_out"
        assert deeds.done == []
