"""An answer that comes while a worker still holds the thread, for something else, is not left lying."""

from __future__ import annotations

import asyncio

import pytest
from kit.channel_rigs import STORED, Rig

from askfirst import Agent, AgentSpec, tool
from askfirst.events import HitlRequestEvent, ToolStartedEvent
from askfirst.messages import AssistantMessage, ToolCall
from askfirst.models import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("rig", STORED, indirect=True)]


class Works:
    """One tool that needs approval, and one that takes until it is told to end."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.go_on = asyncio.Event()

        @tool(requires_approval=True)
        async def pay(amount: int) -> str:
            self.ran.append("pay")
            return "paid"

        @tool
        async def wait() -> str:
            await self.go_on.wait()
            self.ran.append("wait")
            return "waited"

        self.pay, self.wait = pay, wait


PAY, WAIT = ToolCall("c1", "pay", {"amount": 5}), ToolCall("c2", "wait", {})


def by_itself(rig: Rig, works: Works, *, fresh: bool = True) -> Agent:
    both = AssistantMessage((PAY, WAIT), stop_reason="tool_use")
    return Agent(
        model=ScriptedModel([both, "done"] if fresh else ["done"]),
        tools=[works.pay, works.wait],
        tool_gate="each",
        checkpointer=rig.checkpointer,
        thread_id="t",
    )


def by_subagents(rig: Rig, works: Works, *, fresh: bool = True) -> Agent:
    def sub(name: str, call: ToolCall) -> AgentSpec:
        said = [call, f"{name} is done"] if fresh else [f"{name} is done"]
        return AgentSpec(name, ScriptedModel(said), [works.pay, works.wait])

    both = AssistantMessage(
        (ToolCall("s1", "clerk", {"prompt": "pay"}), ToolCall("s2", "runner", {"prompt": "wait"})),
        stop_reason="tool_use",
    )
    return Agent(
        model=ScriptedModel([both, "done"] if fresh else ["done"]),
        subagents=[sub("clerk", PAY), sub("runner", WAIT)],
        checkpointer=rig.checkpointer,
        thread_id="t",
    )


@pytest.mark.parametrize("make", [by_itself, by_subagents])
async def test_the_worker_that_holds_the_thread_goes_on_with_the_answer(rig: Rig, make: object) -> None:
    assert callable(make)
    works, asks, works_on = Works(), asyncio.Event(), asyncio.Event()
    agent: Agent = make(rig, works)

    def listen(event: object) -> None:
        if isinstance(event, HitlRequestEvent):
            asks.set()
        if isinstance(event, ToolStartedEvent) and event.tool_name == "wait":
            works_on.set()

    agent.subscribe(listen)
    run = asyncio.ensure_future(agent.prompt("go"))
    await asks.wait()
    await works_on.wait()
    other: Agent = make(rig, works, fresh=False)
    answered = await other.respond(question_id="c1", answer={"decision": "approve"})
    assert answered is not None
    assert answered.status == "suspended"  # the thread is the first one's still
    works.go_on.set()
    result = await run
    assert result.status == "completed"
    assert sorted(works.ran) == ["pay", "wait"]
    assert await rig.checkpointer.pending() == []


@pytest.mark.parametrize("make", [by_itself, by_subagents])
async def test_without_an_answer_it_is_paused_as_ever(rig: Rig, make: object) -> None:
    assert callable(make)
    works = Works()
    works.go_on.set()
    result = await make(rig, works).prompt("go")
    assert result.status == "paused"
    assert len(result.pending_approvals) == 1
    assert works.ran == ["wait"]
