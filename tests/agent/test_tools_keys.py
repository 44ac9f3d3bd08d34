"""Idempotency keys: the same whenever a call goes on, and another for every other call."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from kit.stores import SHARED, Database

from askfirst import Agent, AgentSpec, ApprovalResponse, ToolContext, run_agent, run_agent_resume, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpoints import RunCheckpoint
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
CALL = ToolCall("call_1", "pay", {"cents": 1})


class Till:
    """A tool that notes its keys; its first attempt is cut short if ``dies``."""

    def __init__(self, *, dies: bool = False, **options: Any) -> None:
        self.keys: list[str] = []
        self.begun = asyncio.Event()
        self._dies = dies
        self.tool = tool(effect="idempotent", **options)(self.pay)

    async def pay(self, cents: int, ctx: ToolContext) -> str:
        """Pay."""
        self.keys.append(ctx.idempotency_key)
        if self._dies and len(self.keys) == 1:
            self.begun.set()
            await asyncio.Event().wait()
        return "paid"

    async def cut_short(self, agent: Agent) -> None:
        """Have the first attempt begin, and its worker die."""
        prompting = asyncio.create_task(agent.prompt("go"))
        await self.begun.wait()
        prompting.cancel()
        await asyncio.wait({prompting})


async def test_the_same_id_on_another_thread_of_the_same_name_has_another_key(
    checkpointer: SqlCheckpointer,
) -> None:
    till = Till()
    for _ in range(2):
        model = ScriptedModel([CALL, "done"])
        agent = Agent(model=model, tools=[till.tool], checkpointer=checkpointer, thread_id="ticket-9")
        await agent.prompt("go")
        await checkpointer.delete("ticket-9")
    assert len(set(till.keys)) == len(till.keys) == 2


async def test_and_so_it_has_without_a_store() -> None:
    till = Till()
    for _ in range(2):
        await Agent(model=ScriptedModel([CALL, "done"]), tools=[till.tool], thread_id="t").prompt("go")
    assert len(set(till.keys)) == len(till.keys) == 2


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_call_that_was_begun_goes_on_with_its_key_in_another_process(database: Database) -> None:
    till = Till(dies=True)
    async with database.checkpointer() as here, database.checkpointer() as there:
        await till.cut_short(
            Agent(model=ScriptedModel([CALL]), tools=[till.tool], checkpointer=here, thread_id="t")
        )
        heir = Agent(model=ScriptedModel(["done"]), tools=[till.tool], checkpointer=there, thread_id="t")
        assert (await heir.resume()).text == "done"
    assert len(till.keys) == 2
    assert len(set(till.keys)) == 1


async def test_a_subagents_call_too(checkpointer: SqlCheckpointer) -> None:
    till = Till(dies=True)

    def agent() -> Agent:
        child = AgentSpec(
            "child", ScriptedModel([CALL, "child done"] if not till.keys else ["child done"]), [till.tool]
        )
        turns = [ToolCall("d1", "child", {"prompt": "pay"}), "done"] if not till.keys else ["done"]
        spec = AgentSpec("root", ScriptedModel(turns), subagents=[child])
        return Agent.from_spec(spec, checkpointer=checkpointer, thread_id="t")

    await till.cut_short(agent())
    assert (await agent().resume()).text == "done"
    assert len(till.keys) == 2
    assert len(set(till.keys)) == 1


async def test_a_call_that_an_agent_without_a_store_resumes() -> None:
    till = Till(dies=True)
    agent = Agent(model=ScriptedModel([CALL, "done"]), tools=[till.tool])
    await till.cut_short(agent)
    assert (await agent.resume()).text == "done"
    assert len(till.keys) == 2
    assert len(set(till.keys)) == 1


@pytest.mark.parametrize("nested", [False, True])
async def test_a_checkpoint_that_is_resumed_twice(nested: bool) -> None:
    """As by two processes, of which the first has died: a subagent's run is not in it, but the run at the top is."""
    till = Till(requires_approval=True)

    def spec(*, resumes: bool) -> AgentSpec:
        paying = ScriptedModel(["paid"] if resumes else [CALL])
        if not nested:
            return AgentSpec("root", paying, [till.tool])
        child = AgentSpec("child", paying, [till.tool])
        turns = ["done"] if resumes else [ToolCall("d1", "child", {"prompt": "pay"})]
        return AgentSpec("root", ScriptedModel(turns), subagents=[child])

    paused = await run_agent(spec(resumes=False), "go")
    assert paused.checkpoint is not None
    kept = paused.checkpoint.model_copy(update={"checkpoint_id": None}).to_json()
    for _ in range(2):
        checkpoint = RunCheckpoint.from_json(kept)
        responses = [ApprovalResponse(id=each.id, decision="approve") for each in checkpoint.pending]
        assert (await run_agent_resume(spec(resumes=True), checkpoint, responses)).status == "completed"
    assert len(till.keys) == 2
    assert len(set(till.keys)) == 1


async def test_a_thread_of_an_earlier_version_keeps_the_keys_it_was_begun_with(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fence tells: it began at 1."""
    till = Till(dies=True)
    with monkeypatch.context() as earlier:
        earlier.setattr("askfirst.agent.journal.first_fence", lambda: 1)
        model = ScriptedModel([CALL])
        await till.cut_short(Agent(model=model, tools=[till.tool], checkpointer=checkpointer, thread_id="t"))
    heir = Agent(model=ScriptedModel(["done"]), tools=[till.tool], checkpointer=checkpointer, thread_id="t")
    assert (await heir.resume()).text == "done"
    assert till.keys == [hashlib.sha256(b"t\0call_1").hexdigest()[:40]] * 2
