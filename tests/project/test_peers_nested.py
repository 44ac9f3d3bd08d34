"""The rest of what is in test_peers_complaints.py: what is kept, what is seen, and approvals within subagents."""

from __future__ import annotations

from typing import Any

import pytest
from kit.deeds import (
    Deeds,
    approve,
    call,
    completed,
    deny,
    edit,
    go_on,
    mailer,
    paused_at,
    pending_ids,
    refunds,
    script,
    support,
)

from askfirst import (
    Agent,
    AgentSpec,
    RunCheckpoint,
    ToolContext,
    run_agent,
    run_agent_resume,
    tool,
)
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpoints import RunCheckpointStore
from askfirst.messages import ToolCall

pytestmark = pytest.mark.anyio

# What is kept.


async def test_langgraph_7714_checkpoints_grow_with_every_pause() -> None:
    turns: list[Any] = []
    for n in range(10):
        turns += [[call(f"c{n}", "mail", "x" * 100)], "y" * 1000]
    async with MemoryCheckpointer() as memory:
        store = RunCheckpointStore(memory)
        agent = Agent.from_spec(mailer(Deeds(), *turns), checkpointer=memory, thread_id="t")
        sizes: list[int] = []
        for n in range(10):
            paused = await agent.prompt("z" * 1000)
            assert paused.checkpoint is not None
            stored = await memory.get_checkpoint(await store.save("mailer", paused.checkpoint), "mailer")
            assert stored is not None
            sizes.append(len(str(stored.body)))
            await agent.resume_with(approve(f"c{n}"))
    assert max(sizes) < min(sizes) + 50


async def test_openai_agents_4244_an_approval_is_ignored_when_a_context_is_passed() -> None:
    seen: list[str] = []

    @tool(requires_approval=True)
    async def pay(amount: int, ctx: ToolContext) -> str:
        seen.append(ctx.tool_call_id)
        return "paid"

    spec = AgentSpec("a", script([ToolCall("c1", "pay", {"amount": 5})], "done"), tools=[pay])
    paused = await run_agent(spec, "go", thread_id="t", principal="maria")
    assert completed(await go_on(spec, paused, approve("c1"))) == {"c1": "paid"}
    assert seen == ["c1"]


async def test_langflow_15241_an_upgrade_breaks_every_paused_approval() -> None:
    """The code is another by now: what is still the same call goes on, what is not is asked again."""
    sent: list[tuple[str, str]] = []

    @tool(requires_approval=True)
    async def mail(what: str, subject: str | None = None) -> str:
        """A new parameter, and a new docstring."""
        sent.append((what, str(subject)))
        return "sent"

    deeds = Deeds()
    old = mailer(deeds, [call("c1", "mail", "a"), call("c2", "pay", "b")], "done")
    old = AgentSpec("mailer", old.model, tools=[deeds.asks("mail"), deeds.asks("pay")])
    paused = await run_agent(old, "go")
    new = AgentSpec("mailer", old.model, tools=[mail, deeds.asks("pay")], instructions="Be brief.")
    again = await go_on(new, paused, approve("c1", "c2"))
    assert pending_ids(again) == ["c1"]
    assert completed(await go_on(new, again, approve("c1"))) == {"c1": "sent", "c2": "pay b"}
    assert sent == [("a", "None")]


# What you see.


async def test_pydantic_ai_6968_the_approver_sees_other_arguments_than_run() -> None:
    @tool(requires_approval=True)
    async def transfer(amount: int, currency: str = "EUR") -> str:
        ran.append({"amount": amount, "currency": currency})
        return "sent"

    ran: list[dict[str, Any]] = []
    said = ToolCall("c1", "transfer", {"amount": "5"})
    spec = AgentSpec("a", script([said], "done"), tools=[transfer])
    paused = await run_agent(spec, "go")
    shown = paused.pending_approvals[0].tool_call.args
    await go_on(spec, paused, approve("c1"))
    assert ran == [shown] == [{"amount": 5, "currency": "EUR"}]


async def test_pydantic_ai_arguments_altered_between_review_and_run_are_run() -> None:
    deeds = Deeds()
    spec = mailer(deeds, [call("c1", "mail", "5")], "done")
    text = paused_at(await run_agent(spec, "go"), "c1").to_json()
    altered = RunCheckpoint.from_json(text.replace('"args":{"what":"5"}', '"args":{"what":"9999"}'))
    again = await run_agent_resume(spec, altered, approve("c1"))
    assert pending_ids(again) == ["c1"]
    assert deeds.done == []


async def test_adk_java_1389_a_forged_confirmation_runs_any_tool() -> None:
    """A call that the model never made is not run, whoever says that it was asked about and approved."""
    deeds = Deeds()
    spec = mailer(deeds)
    checkpoint = paused_at(await run_agent(spec, "go"), "c1", "c2")
    plain = checkpoint.model_dump(mode="json")
    forged = {"id": "c9", "tool_call": {**plain["pending"][0]["tool_call"], "id": "c9", "name": "look"}}
    plain["pending"].append(forged)
    result = await run_agent_resume(spec, RunCheckpoint.from_json(plain), approve("c1", "c2", "c9"))
    assert completed(result).keys() == {"c1", "c2"}
    assert sorted(deeds.done) == ["mail a", "mail b"]


async def test_vercel_ai_10720_the_model_is_not_told_of_an_edit() -> None:
    deeds = Deeds()
    spec = mailer(deeds, [call("c1", "mail", "a")], "done")
    await go_on(spec, await run_agent(spec, "go"), edit("c1", what="z"))
    told = spec.model.requests[-1][-1].text  # type: ignore[union-attr]
    assert "z" in told.replace("mail z", "")


# Subagents.


async def test_pydantic_ai_4302_and_3274_a_subagents_approval_reaches_nobody() -> None:
    deeds = Deeds()
    spec = support(deeds, "refunds")
    paused = await run_agent(spec, "go")
    (approval,) = paused.pending_approvals
    assert approval.agent_path == ("support", "refunds")
    assert approval.tool_call.name == "pay"
    assert completed(await go_on(spec, paused, approve(approval.id))) == {"d0": "refunds paid"}
    assert deeds.done == ["pay refunds"]


async def test_strands_3076_a_nested_pause_is_lost_with_the_process() -> None:
    deeds = Deeds()
    async with MemoryCheckpointer() as memory:
        await Agent.from_spec(support(deeds, "a", "b"), checkpointer=memory, thread_id="t").prompt("go")
        fresh = Agent.from_spec(support(deeds, "a", "b"), checkpointer=memory, thread_id="t")
        paused = await fresh.resume()
        assert pending_ids(paused) == ["d0/c1", "d1/c1"]
        fresh = Agent.from_spec(support(deeds, "a", "b"), checkpointer=memory, thread_id="t")
        assert completed(await fresh.resume_with(approve("d0/c1", "d1/c1"))).keys() == {"d0", "d1"}
    assert sorted(deeds.done) == ["pay a", "pay b"]


async def test_adk_python_3649_and_5349_a_nested_confirmation_restarts_the_subagent() -> None:
    deeds = Deeds()
    turns = ([call("c0", "look", "once")], [call("c1", "pay", "5")], "paid")
    child = refunds(deeds, "child", *turns)
    spec = support(deeds, "child", children=[child])
    paused = await run_agent(spec, "go")
    await go_on(spec, paused, approve("d0/c1"))
    assert deeds.done == ["look once", "pay 5"]
    assert len(child.model.requests) == 3  # type: ignore[union-attr]


async def test_agent_framework_6062_parallel_subagents_that_both_ask() -> None:
    deeds = Deeds()
    spec = support(deeds, "a", "b")
    paused = await run_agent(spec, "go")
    assert pending_ids(paused) == ["d0/c1", "d1/c1"]
    paused = await go_on(spec, paused, approve("d1/c1"))
    assert deeds.done == ["pay b"]
    assert completed(await go_on(spec, paused, deny("d0/c1"))).keys() == {"d0", "d1"}
    assert deeds.done == ["pay b"]


# Testing.


async def test_cuga_agent_427_the_answer_never_arrived_and_the_tests_passed() -> None:
    """A test of an agent that asks looks at what was done, and a run without answers does nothing."""
    deeds = Deeds()
    spec = mailer(deeds)
    paused = await run_agent(spec, "go")
    for _ in range(3):
        paused = await go_on(spec, paused, [])
        assert (pending_ids(paused), deeds.done) == (["c1", "c2"], [])
