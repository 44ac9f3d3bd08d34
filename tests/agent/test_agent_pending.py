"""What an agent's thread waits for, looked at without running anything."""

from __future__ import annotations

import asyncio
import time

import pytest

from askfirst import Agent, AgentSpec, PendingApproval, tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.events import HitlRequestEvent
from askfirst.hitl import InMemoryChannel
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


@tool(requires_approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


async def test_nothing_is_pending_on_a_thread_that_waits_for_nobody() -> None:
    agent = Agent(model=ScriptedModel(["hi"]))
    assert await agent.pending_approvals() == ()
    await agent.prompt("go")
    assert await agent.pending_approvals() == ()


async def test_another_process_sees_what_is_pending_and_runs_nothing() -> None:
    async with MemoryCheckpointer() as store:
        turns = [[ToolCall("c1", "pay", {"cents": 9}), ToolCall("c2", "pay", {"cents": 8})], "done"]
        agent = Agent(model=ScriptedModel(turns), tools=[pay], checkpointer=store, thread_id="t")
        paused = await agent.prompt("pay")
        model = ScriptedModel(["done"])
        other = Agent(model=model, tools=[pay], checkpointer=store, thread_id="t")
        seen = await other.pending_approvals()
        assert seen == paused.pending_approvals
        assert [PendingApproval.model_validate_json(each.model_dump_json()) for each in seen] == list(seen)
        assert model.requests == []
        await store.settle("t", "c1", {"decision": "approve"})
        assert [each.id for each in await other.pending_approvals()] == ["c2"]
        result = await other.resume_with([{"id": "c2", "decision": "approve"}])
        assert result.text == "done"
        assert await other.pending_approvals() == await agent.pending_approvals() == ()


async def test_a_subagents_request_is_there_with_the_path_to_it() -> None:
    spec = AgentSpec("payer", ScriptedModel([[ToolCall("c1", "pay", {"cents": 9})], "paid"]), [pay], "Pays.")
    async with MemoryCheckpointer() as store:
        model = ScriptedModel([[ToolCall("s1", "payer", {"prompt": "pay"})], "done"])
        agent = Agent(model=model, subagents=[spec], checkpointer=store, thread_id="t")
        await agent.prompt("go")
        other = Agent(model=ScriptedModel(["done"]), subagents=[spec], checkpointer=store, thread_id="t")
        [asked] = await other.pending_approvals()
        assert (asked.id, asked.agent_path[-1], asked.tool_call.args) == ("s1/c1", "payer", {"cents": 9})


async def test_what_is_past_its_deadline_is_left_out_and_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent(
        model=ScriptedModel([[ToolCall("c1", "pay", {"cents": 9})], "done"]), tools=[pay], approval_timeout=60
    )
    await agent.prompt("go")
    assert len(await agent.pending_approvals()) == 1
    now = time.time()
    monkeypatch.setattr("askfirst.clock.time.time", lambda: now + 61)
    assert await agent.pending_approvals() == ()
    monkeypatch.undo()
    assert len(await agent.pending_approvals()) == 1


async def test_what_a_channel_asks_just_now_is_there_too() -> None:
    channel = InMemoryChannel()
    model = ScriptedModel([[ToolCall("c1", "pay", {"cents": 9})], "done"])
    agent = Agent(model=model, tools=[pay], channel=channel)
    asked = asyncio.Event()
    agent.subscribe(lambda event: asked.set() if isinstance(event, HitlRequestEvent) else None)
    running = asyncio.create_task(agent.prompt("go"))
    await asked.wait()
    assert [each.id for each in await agent.pending_approvals()] == ["c1"]
    await agent.respond(answer={"decision": "approve"})
    assert (await running).text == "done"
    assert await agent.pending_approvals() == ()
