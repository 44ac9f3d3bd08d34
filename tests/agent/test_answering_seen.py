"""A response counts for what its person was shown, wherever it is given."""

from __future__ import annotations

from typing import Any

import pytest
from kit.channel_rigs import Rig, asked
from kit.deeds import approve, call, completed, delegate, edit, pending_ids, script
from kit.stores import Database, approval
from pydantic import SecretStr

from askfirst import (
    Agent,
    AgentResult,
    AgentSpec,
    ApprovalResponse,
    RunCheckpoint,
    Tool,
    run_agent,
    run_agent_resume,
    tool,
)
from askfirst.checkpointer.base import RunRecord, Step, StoredEffect
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpoints import RunCheckpointStore, resume_checkpoint
from askfirst.errors import HitlStaleAnswer, InvalidCheckpoint
from askfirst.hitl.testing import FakeClock
from askfirst.messages import AssistantMessage, ToolCall, UserMessage, call_digest

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}
PAY = ToolCall("c1", "pay", {"to": "Ada"})
BEFORE, NOW = call_digest("pay", {"to": "Ada"}), call_digest("pay", {"to": "Ada", "currency": "USD"})


class Payer:
    """A tool of which there is a newer version, with one more argument; and another that stays as it is."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []

    def tools(self, version: int) -> list[Tool]:
        async def pay(to: str) -> str:
            self.done.append((to,))
            return "paid"

        async def pay_in(to: str, currency: str = "USD") -> str:
            self.done.append((to, currency))
            return "paid"

        async def mail(what: str = "") -> str:
            self.done.append((what,))
            return "sent"

        asks = tool(name="pay", requires_approval=True)
        return [asks(pay if version == 1 else pay_in), tool(name="mail", requires_approval=True)(mail)]

    def spec(self, version: int, *turns: Any) -> AgentSpec:
        return AgentSpec("payer", script(*(turns or (PAY, "done"))), tools=self.tools(version))


def on(store: Any, spec: AgentSpec) -> Agent:
    return Agent.from_spec(spec, checkpointer=store, thread_id="t")


async def asked_anew(store: SqlCheckpointer, payer: Payer, *turns: Any) -> tuple[AgentResult, AgentResult]:
    """A run that paused, and paused again when the tool had changed."""
    first = await on(store, payer.spec(1, *turns)).prompt("go")
    second = await on(store, payer.spec(2, *turns)).resume()
    assert first.pending_approvals[0].digest == BEFORE
    assert second.pending_approvals[0].digest == NOW
    return first, second


def seen(result: AgentResult, decision: Any = "approve", **fields: Any) -> list[ApprovalResponse]:
    """Responses of somebody who was shown this."""
    return [
        ApprovalResponse(id=each.id, decision=decision, digest=each.digest, **fields)
        for each in result.pending_approvals
    ]


async def kept_as(store: RunCheckpointStore, result: AgentResult) -> str:
    assert result.checkpoint is not None
    return await store.save(result.checkpoint.spec_id, result.checkpoint)


async def open_ids(checkpointer: SqlCheckpointer) -> list[str]:
    return [each.question_id for each in await checkpointer.pending()]


async def refused_as_stale(work: Any, question_id: str = "c1") -> None:
    with pytest.raises(HitlStaleAnswer) as told:
        await work
    assert (told.value.question_id, told.value.status) == (question_id, "superseded")


# Checkpoints that are kept.


async def test_a_response_to_a_checkpoint_counts_for_what_that_lists(checkpointer: SqlCheckpointer) -> None:
    payer, store = Payer(), RunCheckpointStore(checkpointer)
    first, second = await asked_anew(checkpointer, payer)
    old, new = await kept_as(store, first), await kept_as(store, second)
    for responses in (approve("c1"), seen(first), seen(second), edit("c1", to=5)):
        await refused_as_stale(resume_checkpoint(payer.spec(2), old, responses, store=store, by="ann"))
    assert payer.done == []
    assert await open_ids(checkpointer) == ["c1"]
    found = await store.get("payer", old)
    assert found is not None
    assert found.state == "pending"
    result = await resume_checkpoint(payer.spec(2), new, approve("c1"), store=store)
    assert completed(result) == {"c1": "paid"}
    assert payer.done == [("Ada", "USD")]


@pytest.mark.parametrize("order", [1, -1], ids=["stale last", "stale first"])
async def test_with_one_that_is_stale_none_is_settled(checkpointer: SqlCheckpointer, order: int) -> None:
    payer, store = Payer(), RunCheckpointStore(checkpointer)
    first, _ = await asked_anew(checkpointer, payer, [PAY, call("c2", "mail", "hi")], "done")
    assert pending_ids(first) == ["c1", "c2"]
    responses = approve("c2", "c1")[::order]
    await refused_as_stale(
        resume_checkpoint(payer.spec(2, [PAY], "done"), await kept_as(store, first), responses, store=store)
    )
    await refused_as_stale(on(checkpointer, payer.spec(2)).resume_with(seen(first)[::order]))
    assert sorted(await open_ids(checkpointer)) == ["c1", "c2"]
    assert payer.done == []


async def test_a_run_that_was_in_memory_is_bound_to_its_checkpoint_too(checkpointer: SqlCheckpointer) -> None:
    payer, store = Payer(), RunCheckpointStore(checkpointer)
    paused = await run_agent(payer.spec(1), "go", thread_id="t")
    checkpoint_id = await kept_as(store, paused)
    again = await on(checkpointer, payer.spec(2)).resume()
    assert again.pending_approvals[0].digest == NOW
    await refused_as_stale(resume_checkpoint(payer.spec(2), checkpoint_id, approve("c1"), store=store))
    assert payer.done == []


async def test_a_checkpoint_without_digests_is_taken_as_before(checkpointer: SqlCheckpointer) -> None:
    payer, store = Payer(), RunCheckpointStore(checkpointer)
    first = await on(checkpointer, payer.spec(1)).prompt("go")
    assert first.checkpoint is not None
    pending = tuple(each.model_copy(update={"digest": None}) for each in first.checkpoint.pending)
    old = first.checkpoint.model_copy(update={"schema_version": 1, "pending": pending})
    checkpoint_id = await store.save("payer", old)
    await on(checkpointer, payer.spec(2)).resume()
    assert completed(await resume_checkpoint(payer.spec(2), checkpoint_id, approve("c1"), store=store))
    assert payer.done == [("Ada", "USD")]


async def test_what_a_checkpoint_does_not_list_is_not_answered_through_it(
    checkpointer: SqlCheckpointer,
) -> None:
    payer, store = Payer(), RunCheckpointStore(checkpointer)
    turns = (PAY, call("c2", "mail", "hi"), "done")
    old = await kept_as(store, await on(checkpointer, payer.spec(1, *turns)).prompt("go"))
    later = await on(checkpointer, payer.spec(1, *turns)).resume_with(approve("c1"))
    assert pending_ids(later) == ["c2"]
    with pytest.raises(InvalidCheckpoint, match="'c2' is not pending here; what is: nothing"):
        await resume_checkpoint(payer.spec(1, *turns), old, approve("c2"), store=store)
    assert payer.done == [("Ada",)]
    assert await open_ids(checkpointer) == ["c2"]


async def test_a_subagents_call_that_was_asked_anew(checkpointer: SqlCheckpointer) -> None:
    payer, store = Payer(), RunCheckpointStore(checkpointer)

    def root(version: int) -> AgentSpec:
        turns = script([delegate("d0", "payer")], "done")
        return AgentSpec("root", turns, subagents=[payer.spec(version)])

    first = await on(checkpointer, root(1)).prompt("go")
    assert pending_ids(first) == ["d0/c1"]
    old = await kept_as(store, first)
    second = await on(checkpointer, root(2)).resume()
    for work in (
        resume_checkpoint(root(2), old, approve("d0/c1"), store=store),
        on(checkpointer, root(2)).resume_with(seen(first)),
        on(checkpointer, root(2)).respond(question_id="c1", answer=APPROVE, digest=BEFORE),
    ):
        await refused_as_stale(work)
    assert payer.done == []
    assert (await on(checkpointer, root(2)).resume_with(seen(second))).status == "completed"
    assert payer.done == [("Ada", "USD")]


async def in_doubt(checkpointer: SqlCheckpointer, attempt: int) -> None:
    """Leave the call as a process does that dies within its body."""
    stored = await checkpointer.load("t")
    begun = StoredEffect("c1", "pay", BEFORE, "once", attempt)
    messages = [UserMessage("go"), AssistantMessage([PAY], stop_reason="tool_use")]
    fresh = stored is None
    step = Step(
        "r",
        messages if fresh else [],
        started=[begun],
        run=RunRecord("doubtful") if fresh else None,
        release=True,
    )
    await checkpointer.commit("t", step, fence=0 if stored is None else stored.fence, acquire=True)


def doubtful(payer: Payer, version: int) -> AgentSpec:
    """The same, with nobody asked unless a call is in doubt."""
    [pay, _] = payer.tools(version)
    spec = AgentSpec("doubtful", script(PAY, "done"), tools=[tool(name="pay")(pay.function)])
    assert not spec.tools_by_name["pay"].requires_approval
    return spec


@pytest.mark.parametrize("what", ["other arguments", "a later attempt"])
async def test_a_call_in_doubt_that_was_asked_anew(checkpointer: SqlCheckpointer, what: str) -> None:
    payer, store = Payer(), RunCheckpointStore(checkpointer)
    await in_doubt(checkpointer, 1)
    first = await on(checkpointer, doubtful(payer, 1)).resume()
    [shown] = first.pending_approvals
    assert (shown.kind, shown.digest) == ("escalate", BEFORE)
    old = await kept_as(store, first)
    if what == "a later attempt":
        await checkpointer.settle("t", shown.question_id, "retry", by="ann")
        await in_doubt(checkpointer, 2)
    spec = doubtful(payer, 2 if what == "other arguments" else 1)
    second = await on(checkpointer, spec).resume()
    [now] = second.pending_approvals
    with pytest.raises((HitlStaleAnswer, InvalidCheckpoint)):  # under the same id, or under another
        await resume_checkpoint(spec, old, approve(shown.id), store=store)
    if what == "other arguments":
        stale = [ApprovalResponse(id=now.id, decision="approve", digest=shown.digest)]
        await refused_as_stale(on(checkpointer, spec).resume_with(stale), now.question_id)
        await refused_as_stale(
            on(checkpointer, spec).respond(answer="retry", digest=shown.digest), now.question_id
        )
    assert payer.done == []
    result = await resume_checkpoint(spec, await kept_as(store, second), seen(second), store=store)
    assert result.status == "completed"
    assert len(payer.done) == 1


@pytest.mark.parametrize("what", [{"digest": NOW}, {"created_at": 1.0}], ids=["arguments", "attempt"])
async def test_a_call_in_doubt_is_told_from_another_under_its_id(
    checkpointer: SqlCheckpointer, what: dict[str, Any]
) -> None:
    payer, store = Payer(), RunCheckpointStore(checkpointer)
    await in_doubt(checkpointer, 1)
    paused = await on(checkpointer, doubtful(payer, 1)).resume()
    assert paused.checkpoint is not None
    [now] = paused.pending_approvals
    other = paused.checkpoint.model_copy(update={"pending": (now.model_copy(update=what),)})
    checkpoint_id = await store.save("doubtful", other)
    work = resume_checkpoint(doubtful(payer, 1), checkpoint_id, approve(now.id), store=store)
    await refused_as_stale(work, now.question_id)
    assert payer.done == []
    assert await open_ids(checkpointer) == [now.question_id]


async def test_taken_over_what_was_decided_about_something_else_is_not_on_record(database: Database) -> None:
    """A worker died with its claim. Somebody has approved the call since, but not the one that it lists."""
    payer, clock = Payer(), FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        first = await on(checkpointer, payer.spec(1)).prompt("go")
        store = RunCheckpointStore(checkpointer, claim_ttl_seconds=60)
        old = await kept_as(store, first)
        await store.claim("payer", old)
        await on(checkpointer, payer.spec(2)).resume()
        await checkpointer.settle("t", "c1", APPROVE, digest=NOW)
        await clock.advance(61)
        with pytest.raises(InvalidCheckpoint, match="'c1' is not pending here"):
            await resume_checkpoint(payer.spec(2), old, approve("c1"), store=store)
    assert payer.done == []


# Checkpoints as values.


async def test_a_checkpoint_as_a_value_is_bound_to_what_it_lists() -> None:
    payer = Payer()
    paused = await run_agent(payer.spec(1), "go")
    assert paused.checkpoint is not None
    checkpoint = RunCheckpoint.from_json(paused.checkpoint.to_json())
    wrong = [ApprovalResponse(id="c1", decision="approve", digest=NOW)]
    await refused_as_stale(run_agent_resume(payer.spec(2), checkpoint, wrong))
    again = await run_agent_resume(payer.spec(2), checkpoint, seen(paused))  # it was not used up
    assert pending_ids(again) == ["c1"]
    assert again.pending_approvals[0].digest == NOW
    assert payer.done == []
    assert again.checkpoint is not None
    await refused_as_stale(run_agent_resume(payer.spec(2), again.checkpoint, seen(paused)))
    assert completed(await run_agent_resume(payer.spec(2), again.checkpoint, seen(again)))
    assert payer.done == [("Ada", "USD")]


# What the caller says was shown.


async def test_a_response_may_say_what_was_shown(checkpointer: SqlCheckpointer) -> None:
    payer = Payer()
    first, second = await asked_anew(checkpointer, payer)
    await refused_as_stale(on(checkpointer, payer.spec(2)).resume_with(seen(first), by="ann"))
    assert await open_ids(checkpointer) == ["c1"]
    assert payer.done == []
    assert completed(await on(checkpointer, payer.spec(2)).resume_with(seen(second)))
    assert payer.done == [("Ada", "USD")]


async def test_respond_may_say_what_was_shown(checkpointer: SqlCheckpointer) -> None:
    payer = Payer()
    await asked_anew(checkpointer, payer)
    for question_id in ("c1", None):
        stale = on(checkpointer, payer.spec(2)).respond(
            question_id=question_id, answer=APPROVE, digest=BEFORE
        )
        await refused_as_stale(stale)
    assert await open_ids(checkpointer) == ["c1"]
    assert payer.done == []
    result = await on(checkpointer, payer.spec(2)).respond(question_id="c1", answer=APPROVE, digest=NOW)
    assert result is not None
    assert completed(result)
    assert payer.done == [("Ada", "USD")]


async def test_asked_anew_between_the_look_and_the_answer(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store compares once more, when it writes."""
    payer = Payer()
    await on(checkpointer, payer.spec(1)).prompt("go")
    settle = checkpointer.settle

    async def late(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        await on(checkpointer, payer.spec(2)).resume()
        return await settle(*args, **options)

    agent = on(checkpointer, payer.spec(2))
    await agent.load()
    monkeypatch.setattr(checkpointer, "settle", late)
    await refused_as_stale(agent.respond(answer=APPROVE, digest=BEFORE))
    assert payer.done == []
    assert await open_ids(checkpointer) == ["c1"]


@pytest.mark.parametrize("door", ["resume_with", "respond"])
async def test_without_a_store(door: str) -> None:
    payer = Payer()
    agent = Agent.from_spec(payer.spec(1))
    paused = await agent.prompt("go")

    def through(digest: str | None) -> Any:
        if door == "respond":
            return agent.respond(answer=APPROVE, digest=digest)
        return agent.resume_with([ApprovalResponse(id="c1", decision="approve", digest=digest)])

    await refused_as_stale(through(NOW))
    assert payer.done == []
    assert completed(await through(paused.pending_approvals[0].digest))
    assert payer.done == [("Ada",)]


async def test_through_a_channel_that_waits(rig: Rig) -> None:
    payer = Payer()
    agent = rig.agent(model=script(PAY, "done"), tools=payer.tools(1))
    task = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    for question_id in ("c1", None):
        await refused_as_stale(agent.respond(question_id=question_id, answer=APPROVE, digest=NOW))
    with pytest.raises(HitlStaleAnswer):
        await agent.respond(question_id="c2", answer=APPROVE, digest=BEFORE)
    assert await agent.respond(answer=APPROVE, digest=BEFORE) is None
    assert completed(await task)
    assert payer.done == [("Ada",)]


async def test_through_a_channel_that_nobody_waits_at(rig: Rig) -> None:
    payer = Payer()
    first = rig.agent(model=script(PAY, "done"), tools=payer.tools(1))
    task = rig.start(first.prompt("go"))
    await asked(first.channel)
    await first.detach()
    await task
    agent = rig.later(first, model=script(PAY, "done"), tools=payer.tools(1))
    await refused_as_stale(agent.respond(question_id="c1", answer=APPROVE, digest=NOW))
    assert await agent.load_pending_hitl_request() is not None
    result = await agent.respond(question_id="c1", answer=APPROVE, digest=BEFORE)
    assert result is not None
    assert completed(result)


async def test_something_else_than_is_waited_for(stored_rig: Rig) -> None:
    """The run of this process waits for one thing, and the thread has another open."""
    payer = Payer()
    agent = stored_rig.agent(model=script(PAY, "done"), tools=payer.tools(1))
    task = stored_rig.start(agent.prompt("go"))
    await asked(agent.channel)
    await stored_rig.checkpointer.save_pending_request("t", approval("other"), alone=False)
    await refused_as_stale(agent.respond(question_id="other", answer=APPROVE, digest=BEFORE), "other")
    assert await agent.respond(question_id="other", answer=APPROVE, digest="d" * 64) is None
    assert (await stored_rig.checkpointer.request("t", "other")).status == "answered"
    await agent.respond(answer=APPROVE, digest=BEFORE)
    assert completed(await task)


def test_a_response_as_json() -> None:
    response = ApprovalResponse(id="c1", decision="approve", digest=BEFORE)
    assert ApprovalResponse.model_validate_json(response.model_dump_json()) == response
    assert ApprovalResponse.model_validate({"id": "c1", "decision": "deny"}).digest is None


# What a person typed.


async def test_what_a_person_typed_is_in_no_repr() -> None:
    @tool(requires_approval=True)
    async def login(user: str, pin: SecretStr) -> str:
        return "in"

    calls = [ToolCall(f"c{n}", "login", {"user": "u", "pin": "a"}) for n in range(2)]
    spec = AgentSpec("s", script(calls, "done"), tools=[login])
    paused = await run_agent(spec, "go")
    assert paused.checkpoint is not None
    typed = ApprovalResponse(id="c0", decision="edit", edited_args={"user": "u", "pin": "hunter2"})
    result = await run_agent_resume(spec, paused.checkpoint, [typed])
    checkpoint = result.checkpoint
    assert checkpoint is not None
    assert "hunter2" in checkpoint.to_json()  # whoever resumes needs it
    for value in (typed, [typed], result, checkpoint, checkpoint.root_requests):
        assert "hunter2" not in repr(value)
        assert "hunter2" not in str(value)
