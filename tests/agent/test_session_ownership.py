"""An agent neither goes on with nor ends what waits for a person under another one."""

from __future__ import annotations

from typing import Any

import pytest

from askfirst import Agent, AgentSpec, ApprovalResponse, tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import WrongAgent
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
YES = {"decision": "approve"}


def pay(done: list[int]) -> Any:
    @tool(requires_approval=True)
    async def pay(cents: int) -> str:
        done.append(cents)
        return "paid"

    return pay


def acts(agent: Agent) -> list[Any]:
    return [
        agent.resume(),
        agent.respond(answer=YES),
        agent.respond(question_id="c1", answer=YES),
        agent.resume_with([ApprovalResponse(id="c1", decision="approve")]),
        agent.abort_pending(),
    ]


async def test_another_agents_thread_is_left_as_it_is() -> None:
    done: list[int] = []
    async with MemoryCheckpointer() as store:

        def agent(name: str, *turns: Any, tools: bool = True) -> Agent:
            own = [pay(done)] if tools else []
            return Agent(id=name, model=ScriptedModel(turns), tools=own, checkpointer=store, thread_id="t")

        await agent("till", ToolCall("c1", "pay", {"cents": 5})).prompt("go")
        before = await store.load("t")
        for act in acts(agent("desk", "Hello.")):
            with pytest.raises(
                WrongAgent, match="is in a run of the agent 'till', and this one is 'desk'"
            ) as one:
                await act
            assert (one.value.thread_id, one.value.run_by, one.value.tool_name) == ("t", "till", None)
        for act in acts(agent("till", "Hello.", tools=False)):
            with pytest.raises(WrongAgent, match="a tool that the agent 'till' does not have") as one:
                await act
            assert (one.value.run_by, one.value.tool_name) == (None, "pay")
        assert await store.load("t") == before
        result = await agent("till", "Done.").respond(answer=YES)
        assert result is not None
        assert (result.status, done) == ("completed", [5])
        # A conversation that waits for nobody can be handed over.
        assert (await agent("desk", "Hello.").prompt("hi")).text == "Hello."


async def test_a_subagent_that_is_gone() -> None:
    paid: list[int] = []
    async with MemoryCheckpointer() as store:
        till = AgentSpec("till", ScriptedModel([ToolCall("c1", "pay", {"cents": 5}), "Paid."]), [pay(paid)])

        def agent(*turns: Any, subagents: Any = ()) -> Agent:
            model = ScriptedModel(turns)
            return Agent(model=model, subagents=subagents, checkpointer=store, thread_id="t")

        call = ToolCall("d1", "till", {"prompt": "Pay."})
        assert (await agent(call, subagents=[till]).prompt("go")).status == "paused"
        with pytest.raises(WrongAgent, match="about 'till', a tool that the agent 'agent' does not have"):
            await agent("Hello.").resume()
        bare = AgentSpec("till", ScriptedModel(["Hello."]))
        with pytest.raises(WrongAgent, match="about 'pay', a tool that the agent 'till' does not have"):
            await agent("Hello.", subagents=[bare]).resume()
        result = await agent("Done.", subagents=[till]).respond(answer=YES)
        assert result is not None
        assert (result.status, paid) == ("completed", [5])
