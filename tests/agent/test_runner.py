"""Pausing as a value: `run_agent` stops where people have to decide, `run_agent_resume` goes on."""

from __future__ import annotations

import asyncio

import pytest
from kit.deeds import (
    TWO,
    Deeds,
    account_spec,
    approve,
    call,
    completed,
    deny,
    edit,
    go_on,
    hitl,
    mailer,
    paused_at,
    pending_ids,
    script,
)
from kit.transcripts import Held, assert_sound, results

from askfirst import (
    Agent,
    AgentSpec,
    ApprovalResponse,
    run_agent,
    run_agent_resume,
)
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import HitlNoPendingRequest, HitlRequestPending, InvalidCheckpoint
from askfirst.messages import ToolCall, call_digest
from askfirst.models import ScriptedModel
from askfirst.permissions import PendingAction, SessionPermissionCache

pytestmark = pytest.mark.anyio


# The seed's examples, in Python.


async def test_the_seed_pauses_and_resumes() -> None:
    deleted: list[str] = []
    spec = account_spec(deleted)
    paused = await run_agent(spec, "Delete account 12345")
    assert paused.status == "paused"
    assert paused.checkpoint is not None
    assert deleted == []

    result = await run_agent_resume(
        spec, paused.checkpoint, [ApprovalResponse(id="call_delete", decision="approve")]
    )
    assert result.status == "completed"
    assert result.text == "It is deleted."
    assert deleted == ["12345"]


async def test_the_seed_denied_calls_return_an_error_result_to_the_model() -> None:
    deleted: list[str] = []
    spec = account_spec(deleted)
    paused = await run_agent(spec, "Delete account 12345")
    assert paused.checkpoint is not None
    result = await run_agent_resume(
        spec, paused.checkpoint, [ApprovalResponse(id="call_delete", decision="deny")]
    )
    assert result.status == "completed"
    assert results(result.messages)["call_delete"].is_error
    assert deleted == []


async def test_the_seed_cache_asks_once_each_time_and_remembers_what_is_pinned() -> None:
    deleted: list[str] = []
    spec = account_spec(deleted)
    assert spec.policy is not None
    policy = SessionPermissionCache(spec.policy, ttl_seconds=300)
    spec = AgentSpec("support", spec.model, tools=spec.tools, policy=policy)
    for _ in range(2):  # requires_approval decisions are never cached
        assert (await run_agent(spec, "Delete account 12345")).status == "paused"
    pending_action = PendingAction(tool="delete_account", toolset="default", args={"account": "12345"})
    policy.remember(pending_action, {"allowed": True, "requires_approval": False})
    assert (await run_agent(spec, "Delete account 12345")).status == "completed"
    assert deleted == ["12345"]


# Answers.


async def test_what_is_not_answered_stays_pending() -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    first = await run_agent(spec, "go")
    second = await go_on(spec, first, approve("c2"))
    assert pending_ids(second) == ["c1"]
    assert deeds.done == []  # nothing starts before all is settled
    assert second.checkpoint is not None
    assert first.checkpoint is not None
    assert second.checkpoint.checkpoint_id != first.checkpoint.checkpoint_id
    third = await go_on(spec, second, [])
    assert pending_ids(third) == ["c1"]
    done = await go_on(spec, third, deny("c1", reason="not to them"))
    assert deeds.done == ["mail b"]
    assert hitl(done, "c1") == {
        "decision": "human_deny",
        "digest": call_digest("mail", {"what": "a"}),
        "reason": "not to them",
    }
    assert "not to them" in completed(done)["c1"]
    assert_sound(done.messages)


async def test_with_each_what_is_answered_starts_at_once() -> None:
    deeds = Deeds()
    spec = AgentSpec(
        "mailer",
        script([*TWO, call("c3", "look")], "done"),
        tools=[deeds.asks("mail"), deeds.tool("look")],
        tool_gate="each",
    )
    paused = await run_agent(spec, "go")
    assert deeds.done == ["look"]
    paused = await go_on(spec, paused, approve("c2"))
    assert deeds.done == ["look", "mail b"]
    assert pending_ids(paused) == ["c1"]
    assert set(completed(await go_on(spec, paused, approve("c1")))) == {"c1", "c2", "c3"}
    assert deeds.done == ["look", "mail b", "mail a"]


async def test_an_edit_runs_with_other_arguments_and_the_model_is_told() -> None:
    deeds = Deeds()
    spec = mailer(deeds, [call("c1", "mail", "a")], "done")
    done = await go_on(spec, await run_agent(spec, "go"), edit("c1", what="z"))
    assert deeds.done == ["mail z"]
    assert hitl(done, "c1")["decision"] == "human_edit"
    assert hitl(done, "c1")["edited_args"] == {"what": "z"}
    told = completed(done)["c1"]
    assert told != "mail z"
    assert told.endswith("mail z")


@pytest.mark.parametrize(
    ("responses", "problem"),
    [
        (approve("c9"), "'c9' is not pending here; what is: c1, c2"),
        ([*approve("c1"), *approve("c9")], "'c9' is not pending"),
        ([*approve("c1"), *deny("c1")], "two responses to 'c1'"),
        (edit("c1", who="z", what=3), "the response to 'c1' does not fit"),
        ([ApprovalResponse(id="c1", decision="edit")], "an edit needs edited_args"),
        (
            [ApprovalResponse(id="c1", decision="deny", edited_args={"what": "z"})],
            "edited_args go with an edit",
        ),
        ([*approve("c2"), *edit("c1", what=[1])], "the response to 'c1' does not fit"),
    ],
)
async def test_responses_that_do_not_fit(responses: list[ApprovalResponse], problem: str) -> None:
    """One clear error, nothing run, nothing changed: the same checkpoint can be resumed after it."""
    deeds = Deeds()
    spec = mailer(deeds)
    checkpoint = paused_at(await run_agent(spec, "go"), "c1", "c2")
    written = checkpoint.to_json()
    model = spec.resolved_model
    assert isinstance(model, ScriptedModel)
    asked = len(model.requests)
    with pytest.raises(InvalidCheckpoint) as raised:
        await run_agent_resume(spec, checkpoint, responses)
    assert problem in str(raised.value)
    assert (deeds.done, len(model.requests), checkpoint.to_json()) == ([], asked, written)
    await run_agent_resume(spec, checkpoint, approve("c1", "c2"))
    assert sorted(deeds.done) == ["mail a", "mail b"]


async def test_all_that_is_wrong_is_told_at_once() -> None:
    spec = mailer(Deeds())
    paused = await run_agent(spec, "go")
    with pytest.raises(InvalidCheckpoint) as raised:
        await go_on(spec, paused, [*approve("x"), *edit("c1", what=1), *approve("c2", "c2")])
    assert len(raised.value.problems) == 3


async def test_an_id_of_another_run_is_refused() -> None:
    deeds = Deeds()
    spec, other = mailer(deeds), mailer(deeds, [call("d1", "mail", "z")], "done")
    foreign = await run_agent(other, "go")
    with pytest.raises(InvalidCheckpoint, match="'d1' is not pending here"):
        await go_on(spec, await run_agent(spec, "go"), approve(*pending_ids(foreign)))
    assert deeds.done == []


async def test_a_checkpoint_of_another_spec_is_refused() -> None:
    deeds = Deeds()
    paused = await run_agent(mailer(deeds), "go")
    with pytest.raises(InvalidCheckpoint, match="of the agent 'mailer', not of 'other'"):
        await go_on(mailer(deeds, id="other"), paused, approve("c1", "c2"))
    assert deeds.done == []
    assert (await go_on(mailer(deeds), paused, approve("c1", "c2"))).status == "completed"


async def test_the_same_checkpoint_is_resumed_once_in_a_process() -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    paused = await run_agent(spec, "go")
    both = await asyncio.gather(
        *(go_on(spec, paused, approve("c1", "c2")) for _ in range(5)), return_exceptions=True
    )
    refused = [each for each in both if isinstance(each, InvalidCheckpoint)]
    assert len(refused) == 4
    assert "was resumed before" in str(refused[0])
    assert sorted(deeds.done) == ["mail a", "mail b"]
    with pytest.raises(InvalidCheckpoint, match="was resumed before"):  # and later
        await go_on(spec, paused, deny("c1", "c2"))
    assert sorted(deeds.done) == ["mail a", "mail b"]


async def test_a_stored_run_is_not_resumed_from_its_checkpoint_alone() -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    async with MemoryCheckpointer() as store:
        paused = await Agent.from_spec(spec, checkpointer=store).prompt("go")
        assert paused.checkpoint is not None
        assert paused.checkpoint.stored
        with pytest.raises(InvalidCheckpoint, match="kept in a store"):
            await run_agent_resume(spec, paused.checkpoint, approve("c1", "c2"))
        assert deeds.done == []


# The signal, and live agents without a store.


async def test_the_signal_stops_a_run() -> None:
    held, signal = Held(), asyncio.Event()
    spec = AgentSpec("a", script([ToolCall("c1", "held", {})], "done"), tools=[held.tool])
    run = asyncio.create_task(run_agent(spec, "go", signal=signal))
    await held.started.wait()
    signal.set()
    result = await run
    assert result.status == "aborted"
    assert held.cancelled.is_set()
    assert_sound(result.messages)


async def test_the_signal_stops_a_resumed_run() -> None:
    held, signal = Held(), asyncio.Event()
    deeds = Deeds()
    model = script([call("c1", "mail", "a")], [ToolCall("c2", "held", {})], "done")
    spec = AgentSpec("a", model, tools=[deeds.asks("mail"), held.tool])
    paused = await run_agent(spec, "go")
    assert paused.checkpoint is not None
    run = asyncio.create_task(run_agent_resume(spec, paused.checkpoint, approve("c1"), signal=signal))
    await held.started.wait()
    signal.set()
    assert (await run).status == "aborted"
    assert held.cancelled.is_set()
    assert deeds.done == ["mail a"]


async def test_a_signal_that_is_set_already_keeps_everything_from_starting() -> None:
    deeds, signal = Deeds(), asyncio.Event()
    signal.set()
    spec = AgentSpec("a", script([call("c1", "look")], "done"), tools=[deeds.tool("look")])
    result = await run_agent(spec, "go", signal=signal)
    assert result.status == "aborted"
    assert deeds.done == []


async def test_an_agent_without_channel_and_store_pauses_the_same_way() -> None:
    deeds = Deeds()
    agent = Agent.from_spec(mailer(deeds), principal="maria")
    assert pending_ids(await agent.prompt("go")) == ["c1", "c2"]
    request = await agent.load_pending_hitl_request()
    assert request is not None
    assert request.question_id == "c1"
    with pytest.raises(HitlRequestPending):
        await agent.prompt("and?")
    with pytest.raises(InvalidCheckpoint):
        await agent.resume_with(approve("c3"))
    assert pending_ids(await agent.resume()) == ["c1", "c2"]
    assert pending_ids(await agent.resume_with(approve("c1"), by="ann", via="web")) == ["c2"]
    assert deeds.done == []
    done = await agent.resume_with(deny("c2"), by="bob")
    assert deeds.done == ["mail a"]
    assert (hitl(done, "c1")["answered_by"], hitl(done, "c1")["via"]) == ("ann", "web")
    assert hitl(done, "c2")["answered_by"] == "bob"
    with pytest.raises(InvalidCheckpoint, match="what is: nothing"):
        await agent.resume_with(approve("c1"))


async def test_a_paused_agent_in_memory_can_be_answered_superseded_and_aborted() -> None:
    deeds = Deeds()
    agent = Agent.from_spec(mailer(deeds, [call("c1", "mail", "a")], [call("c2", "mail", "b")], "done"))
    await agent.prompt("go")
    result = await agent.respond(answer={"decision": "approve"}, question_id="c1")
    assert result is not None
    assert pending_ids(result) == ["c2"]
    await agent.abort_pending("enough")
    assert deeds.done == ["mail a"]
    with pytest.raises(HitlNoPendingRequest):
        await agent.abort_pending()
    assert_sound(agent.messages)

    agent = Agent.from_spec(mailer(deeds, [call("c1", "mail", "z")], "well"))
    await agent.prompt("go")
    result = await agent.prompt("never mind", on_pending="supersede")
    assert (result.status, result.text) == ("completed", "well")
    assert hitl(result, "c1") == {"decision": "superseded"}
    assert deeds.done == ["mail a"]


async def test_a_checkpoint_of_a_live_agent_in_memory_is_portable() -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    paused = await Agent.from_spec(spec).prompt("go")
    assert (await go_on(spec, paused, approve("c1", "c2"))).status == "completed"
    assert sorted(deeds.done) == ["mail a", "mail b"]
