"""Subagents: a child's run as a tool call, and a tree that pauses and goes on as one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.deeds import (
    Deeds,
    approve,
    call,
    completed,
    delegate,
    deny,
    edit,
    go_on,
    hitl,
    pending_ids,
    script,
)
from kit.transcripts import Held, assert_sound, results, stopped

from askfirst import Agent, AgentResult, AgentSpec, Middleware, ToolCallContext, run_agent, subagent_tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import HitlNoPendingRequest, HitlRequestPending, InvalidAgent, InvalidCheckpoint
from askfirst.events import AgentEvent
from askfirst.ids import child_thread_id
from askfirst.messages import UserMessage
from askfirst.models import ScriptedModel
from askfirst.permissions import Decision

pytestmark = pytest.mark.anyio


def paths(result: AgentResult) -> list[str]:
    """The pending list as a person is shown it."""
    return [" > ".join([*each.agent_path, each.tool_call.name]) for each in result.pending_approvals]


def refunds(deeds: Deeds, *turns: Any, **options: Any) -> AgentSpec:
    model = script(*(turns or ([call("c1", "issue_refund", "5")], "refunded")))
    return AgentSpec("refunds", model, tools=[deeds.asks("issue_refund"), deeds.tool("look")], **options)


def support(*turns: Any, children: list[AgentSpec], **options: Any) -> AgentSpec:
    return AgentSpec("support", script(*turns), subagents=children, **options)


def asked(spec: AgentSpec) -> int:
    """How often an agent's model was asked."""
    assert isinstance(spec.model, ScriptedModel)
    return len(spec.model.requests)


# The tool.


def test_the_tool_is_named_after_the_child_and_takes_a_prompt() -> None:
    spec = refunds(Deeds(), description="Gives money back.")
    made = subagent_tool(spec)
    assert (made.name, made.description, made.requires_approval) == ("refunds", "Gives money back.", False)
    assert list(made.schema.parameters["properties"]) == ["prompt"]  # type: ignore[arg-type]
    assert made.schema.parameters["required"] == ["prompt"]
    assert subagent_tool(spec, description="Other.").description == "Other."
    parent = support("done", children=[spec])
    assert [each.name for each in parent.tool_schemas] == ["refunds"]


def test_two_of_one_name_and_what_is_no_spec_are_refused() -> None:
    spec = refunds(Deeds())
    with pytest.raises(InvalidAgent, match="two tools are called 'refunds'"):
        AgentSpec("a", script("done"), tools=[subagent_tool(spec)], subagents=[spec])
    with pytest.raises(InvalidAgent, match="is not a subagent"):
        AgentSpec("a", script("done"), subagents=[subagent_tool(spec)])  # type: ignore[list-item]


async def test_the_child_works_on_the_prompt_and_its_last_word_is_the_result() -> None:
    deeds = Deeds()
    child = refunds(deeds, [call("c1", "look", "x")], "found it")
    spec = support([delegate("a", "refunds", "find it")], "done", children=[child])
    result = await run_agent(spec, "go", thread_id="t")
    assert completed(result) == {"a": "found it"}
    assert results(result.messages)["a"].details == {"thread_id": child_thread_id("t", "a")}
    assert child.model.requests[0] == [UserMessage("find it")]  # type: ignore[union-attr]
    assert deeds.done == ["look x"]


async def test_a_subagent_tool_can_be_given_among_the_tools_and_ask_before_it_starts() -> None:
    deeds = Deeds()
    child = refunds(deeds)
    spec = AgentSpec(
        "support",
        script([delegate("a", "refunds")], "done"),
        tools=[subagent_tool(child, requires_approval=True)],
    )
    paused = await run_agent(spec, "go")
    assert (pending_ids(paused), paths(paused)) == (["a"], ["support > refunds"])
    assert asked(child) == 0
    paused = await go_on(spec, paused, approve("a"))
    assert (pending_ids(paused), paths(paused)) == (["a/c1"], ["support > refunds > issue_refund"])
    assert completed(await go_on(spec, paused, approve("a/c1"))) == {"a": "refunded"}


async def test_a_child_that_fails_is_an_error_result() -> None:
    def fail(messages: Any) -> str:
        raise RuntimeError("no model today")

    spec = support([delegate("a", "refunds")], "done", children=[refunds(Deeds(), fail)])
    result = await run_agent(spec, "go")
    assert result.status == "completed"
    assert results(result.messages)["a"].is_error
    assert "refunds failed" in results(result.messages)["a"].text


async def test_a_child_has_its_own_budget() -> None:
    deeds = Deeds()
    turns = [[call(f"c{n}", "look")] for n in range(10)]
    child = refunds(deeds, *turns, max_iterations=3)
    result = await run_agent(support([delegate("a", "refunds")], "done", children=[child]), "go")
    assert result.status == "completed"
    assert results(result.messages)["a"].is_error
    assert (asked(child), len(deeds.done)) == (3, 3)
    assert result.usage.input_tokens == 0


async def test_a_child_has_its_own_guardrails_and_middleware() -> None:
    seen: list[str] = []

    class Sees(Middleware):
        async def before_tool_call(self, ctx: ToolCallContext) -> None:
            seen.append(ctx.tool.name)

    def no(_: object) -> Decision:
        return Decision.deny("no refunds today")

    deeds = Deeds()
    child = refunds(deeds, guardrails=[no], middleware=[Sees()])
    result = await run_agent(support([delegate("a", "refunds")], "done", children=[child]), "go")
    assert completed(result) == {"a": "refunded"}
    assert deeds.done == []
    spec = support([delegate("a", "refunds")], "done", children=[refunds(deeds, middleware=[Sees()])])
    assert pending_ids(await run_agent(spec, "go")) == ["a/c1"]
    assert seen == ["issue_refund"]


# A tree pauses as one.


async def test_the_pending_list_shows_the_path() -> None:
    deeds = Deeds()
    spec = support([delegate("a", "refunds")], "done", children=[refunds(deeds)])
    paused = await run_agent(spec, "go", principal="maria")
    assert paths(paused) == ["support > refunds > issue_refund"]
    (approval,) = paused.pending_approvals
    assert (approval.id, approval.call_path, approval.principal) == ("a/c1", ("a",), "maria")
    assert paused.checkpoint is not None
    (session,) = paused.checkpoint.subagent_sessions
    assert (session.spec_id, session.call_path) == ("refunds", ("a",))
    assert session.agent_path == ("support", "refunds")
    assert len(session.messages) == 2
    assert completed(await go_on(spec, paused, approve("a/c1"))) == {"a": "refunded"}
    assert deeds.done == ["issue_refund 5"]


async def test_any_depth() -> None:
    deeds = Deeds()
    depth = 6
    spec = AgentSpec(f"a{depth}", script([call("c", "pay", "5")], "paid"), tools=[deeds.asks("pay")])
    for level in reversed(range(depth)):
        turn = [delegate("d", f"a{level + 1}")]
        spec = AgentSpec(f"a{level}", script(turn, f"done {level}"), subagents=[spec])
    paused = await run_agent(spec, "go")
    assert pending_ids(paused) == ["d/d/d/d/d/d/c"]
    assert paths(paused) == ["a0 > a1 > a2 > a3 > a4 > a5 > a6 > pay"]
    result = await go_on(spec, paused, approve("d/d/d/d/d/d/c"))
    assert (result.text, deeds.done) == ("done 0", ["pay 5"])


async def test_one_child_twice_in_a_message_is_two_children() -> None:
    """Their calls have the same ids, and still each answer finds its own."""

    def turn(messages: Any) -> Any:
        return [call("c1", "issue_refund", messages[0].text)]

    deeds = Deeds()
    child = refunds(deeds, turn, "refunded")
    spec = support(
        [delegate("a", "refunds", "one"), delegate("b", "refunds", "two")], "done", children=[child]
    )
    paused = await run_agent(spec, "go")
    assert pending_ids(paused) == ["a/c1", "b/c1"]
    assert [each.tool_call.args["what"] for each in paused.pending_approvals] == ["one", "two"]
    result = await go_on(spec, paused, [*deny("a/c1", reason="no"), *edit("b/c1", what="three")])
    assert completed(result) == {"a": "refunded", "b": "refunded"}
    assert deeds.done == ["issue_refund three"]


async def test_finished_siblings_are_not_run_again() -> None:
    deeds = Deeds()
    quick = AgentSpec("quick", script([call("q", "look", "q")], "quick is done"), tools=[deeds.tool("look")])
    slow = refunds(deeds, [call("c1", "issue_refund", "1")], [call("c2", "issue_refund", "2")], "refunded")
    spec = support([delegate("a", "refunds"), delegate("b", "quick")], "done", children=[slow, quick])
    paused = await run_agent(spec, "go")
    assert asked(quick) == 2
    paused = await go_on(spec, paused, approve("a/c1"))
    assert pending_ids(paused) == ["a/c2"]
    result = await go_on(spec, paused, approve("a/c2"))
    assert completed(result) == {"a": "refunded", "b": "quick is done"}
    assert list(results(result.messages)) == ["a", "b"]
    assert sorted(deeds.done) == ["issue_refund 1", "issue_refund 2", "look q"]
    assert (asked(quick), asked(slow), asked(spec)) == (2, 3, 2)


async def test_the_root_and_a_child_ask_one_after_the_other() -> None:
    """The root's own calls are settled first: no body, and so no child, starts before."""
    deeds = Deeds()
    child = refunds(deeds)
    spec = AgentSpec(
        "support",
        script([call("x", "close", "7"), delegate("a", "refunds")], "done"),
        tools=[deeds.asks("close")],
        subagents=[child],
    )
    paused = await run_agent(spec, "go")
    assert (pending_ids(paused), asked(child)) == (["x"], 0)
    paused = await go_on(spec, paused, approve("x"))
    assert pending_ids(paused) == ["a/c1"]
    assert completed(await go_on(spec, paused, approve("a/c1"))) == {"x": "close 7", "a": "refunded"}
    assert deeds.done == ["close 7", "issue_refund 5"]


async def test_with_each_the_root_and_a_child_ask_at_once() -> None:
    deeds = Deeds()
    spec = AgentSpec(
        "support",
        script([call("x", "close", "7"), delegate("a", "refunds")], "done"),
        tools=[deeds.asks("close")],
        subagents=[refunds(deeds)],
        tool_gate="each",
    )
    paused = await run_agent(spec, "go")
    assert pending_ids(paused) == ["x", "a/c1"]
    assert set(completed(await go_on(spec, paused, approve("x", "a/c1")))) == {"x", "a"}
    assert sorted(deeds.done) == ["close 7", "issue_refund 5"]


async def test_ids_of_another_branch_are_refused() -> None:
    deeds = Deeds()
    spec = support([delegate("a", "refunds")], "done", children=[refunds(deeds)])
    paused = await run_agent(spec, "go")
    for foreign in ("c1", "a", "b/c1", "a/c2", "a/a/c1"):
        with pytest.raises(InvalidCheckpoint, match="is not pending here; what is: a/c1"):
            await go_on(spec, paused, approve(foreign))
    assert deeds.done == []


async def test_a_child_that_is_gone_or_another_by_now() -> None:
    deeds = Deeds()
    spec = support([delegate("a", "refunds")], "done", children=[refunds(deeds)])
    paused = await run_agent(spec, "go")
    gone = support([delegate("a", "refunds")], "done", children=[])
    with pytest.raises(InvalidCheckpoint):
        await go_on(gone, paused, approve("a/c1"))
    result = await go_on(gone, paused, [])
    assert results(result.messages)["a"].is_error
    assert deeds.done == []


# Live agents without a store.


async def test_a_live_root_knows_what_its_children_ask() -> None:
    deeds = Deeds()
    spec = support([delegate("a", "refunds")], "well", children=[refunds(deeds)])
    agent = Agent.from_spec(spec)
    assert pending_ids(await agent.prompt("go")) == ["a/c1"]
    request = await agent.load_pending_hitl_request()
    assert request is not None
    assert request.question_id == "c1"
    with pytest.raises(HitlRequestPending):
        await agent.prompt("and?")
    result = await agent.respond(answer={"decision": "approve"})
    assert result is not None
    assert completed(result) == {"a": "refunded"}
    assert deeds.done == ["issue_refund 5"]


async def test_a_live_root_can_be_aborted_or_superseded_while_a_child_waits() -> None:
    deeds = Deeds()
    spec = support([delegate("a", "refunds")], "well", children=[refunds(deeds)])
    agent = Agent.from_spec(spec)
    await agent.prompt("go")
    await agent.abort_pending("enough")
    assert_sound(agent.messages)
    assert (await agent.resume()).status == "aborted"
    with pytest.raises(HitlNoPendingRequest):
        await agent.respond(answer={"decision": "approve"})

    agent = Agent.from_spec(spec)
    await agent.prompt("go")
    result = await agent.prompt("never mind", on_pending="supersede")
    assert (result.status, result.text) == ("completed", "well")
    assert hitl(result, "a") == {"decision": "superseded"}
    with pytest.raises(InvalidCheckpoint):
        await agent.resume_with(approve("a/c1"))
    assert deeds.done == []


@pytest.mark.parametrize("stored", [False, True])
async def test_aborting_in_the_middle_stops_the_children(stored: bool) -> None:
    held = Held()
    child = AgentSpec("worker", script([call("c1", "held")], "done"), tools=[held.tool])
    async with MemoryCheckpointer() as store:
        agent = Agent(
            model=script([delegate("a", "worker")], "done"),
            subagents=[child],
            checkpointer=store if stored else None,
            thread_id="t",
        )
        result = await stopped(agent, held.started.wait())
        assert result.status == "aborted"
        assert held.cancelled.is_set()
        assert_sound(result.messages)
        assert (asked(child), (await agent.resume()).status) == (1, "aborted")
        if stored:
            for thread_id in ("t", child_thread_id("t", "a")):
                thread = await store.load(thread_id)
                assert thread is not None
                assert not thread.is_leased


@pytest.mark.parametrize("stored", [False, True])
async def test_a_childs_call_that_was_cut_short_is_in_doubt(stored: bool) -> None:
    """Nobody knows whether it took effect, so a person is asked, under the child's path."""
    held = Held("pay")
    cut = AgentSpec("worker", script([call("c1", "pay")], "worked"), tools=[held.tool])
    async with MemoryCheckpointer() as store:
        options: dict[str, Any] = {"checkpointer": store if stored else None, "thread_id": "t"}
        spec = support([delegate("a", "worker")], "done", children=[cut])
        agent = Agent.from_spec(spec, **options)
        run = asyncio.create_task(agent.prompt("go"))
        await held.started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        paused = await agent.resume()
        (approval,) = paused.pending_approvals
        assert (approval.kind, approval.id) == ("escalate", "a/c1:escalate:1")
        assert paths(paused) == ["support > worker > pay"]
        held.started.clear()
        done = await agent.resume_with(deny(approval.id))  # skip it
        assert not held.started.is_set()
        assert completed(done) == {"a": "worked"}


# Events.


async def test_events_carry_the_path_of_the_agent_they_are_about() -> None:
    deeds = Deeds()
    child = refunds(deeds, [call("c1", "look")], "found")
    spec = support([delegate("a", "refunds")], "done", children=[child])
    agent = Agent.from_spec(spec, thread_id="t")
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    await agent.prompt("go")
    assert {event.agent_path for event in events} == {("support",), ("support", "refunds")}
    by_path = {event.agent_path: event.thread_id for event in events}
    assert by_path == {("support",): "t", ("support", "refunds"): child_thread_id("t", "a")}
    told = [(event.type, len(event.agent_path)) for event in events]
    begun = told.index(("tool_started", 1))
    assert told[begun + 1] == ("run_started", 2)
    inner = [each for each in told if each[1] == 2]
    assert (inner[0], inner[-1]) == (("run_started", 2), ("run_ended", 2))
    assert told.index(("run_ended", 2)) < told.index(("tool_ended", 1)) < told.index(("run_ended", 1))


async def test_a_stream_tells_of_the_children_too() -> None:
    child = refunds(Deeds(), [call("c1", "look")], "found")
    agent = Agent.from_spec(support([delegate("a", "refunds")], "done", children=[child]))
    seen = {event.agent_path async for event in agent.stream("go")}
    assert seen == {("support",), ("support", "refunds")}
