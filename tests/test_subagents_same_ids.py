"""Children that number their calls alike, at a channel that keeps its requests itself: each is asked for its own."""

from __future__ import annotations

import asyncio

import pytest
from asking import Deeds, call, completed, delegate, script
from rigs import asked

from assent import Agent, AgentResult, AgentSpec, Middleware, ToolCallContext
from assent.errors import HitlConcurrencyError
from assent.hitl import InMemoryChannel
from assent.ids import child_thread_id

pytestmark = pytest.mark.anyio

APPROVE, DENY = {"decision": "approve"}, {"decision": "deny"}


class Late(Middleware):
    """Lets a child come to its question when it may."""

    def __init__(self) -> None:
        self.may_ask = asyncio.Event()

    async def before_tool_call(self, ctx: ToolCallContext) -> None:
        await self.may_ask.wait()


class Two:
    """Two children that ask about calls of one id; the first has asked, and was left, and will be late."""

    def __init__(self) -> None:
        self.deeds, self.channel = Deeds(), InMemoryChannel()
        self.late = [Late(), Late()]
        self.agent = Agent(
            model=script([delegate("d0", "w0"), delegate("d1", "w1")], "done", "well"),
            subagents=[self._worker(n) for n in range(2)],
            channel=self.channel,
            thread_id="t",
        )

    def _worker(self, number: int) -> AgentSpec:
        model = script([call("c1", "pay", f"w{number}")], "worked")
        return AgentSpec(
            f"w{number}", model, tools=[self.deeds.asks("pay")], middleware=[self.late[number]]
        )

    async def wait_for(self, number: int) -> None:
        """Wait until this child asks."""
        assert (await asked(self.channel)).thread_id == child_thread_id("t", f"d{number}")

    async def resumed(self) -> asyncio.Task[AgentResult]:
        """A run in which the second child asks while what the first has asked is open."""
        first, second = self.late
        run = asyncio.create_task(self.agent.prompt("go"))
        first.may_ask.set()
        await self.wait_for(0)
        await self.agent.detach()
        second.may_ask.set()
        assert (await run).status == "suspended"
        first.may_ask.clear()
        run = asyncio.create_task(self.agent.resume())
        await self.wait_for(1)
        first.may_ask.set()
        return run


async def test_what_one_child_has_open_keeps_no_other_from_asking() -> None:
    two = Two()
    run = await two.resumed()
    await two.channel.answer("c1", DENY)
    await two.wait_for(0)
    await two.channel.answer("c1", APPROVE)
    assert completed(await run).keys() == {"d0", "d1"}
    assert two.deeds.done == ["pay w0"]


async def test_an_answer_that_could_be_for_either_is_refused() -> None:
    """Nobody waits, so nobody can tell which of the two was shown; when the run goes on, it asks one by one."""
    two = Two()
    run = await two.resumed()
    await two.agent.detach()
    await run
    with pytest.raises(HitlConcurrencyError):
        await two.channel.answer("c1", APPROVE)
    with pytest.raises(HitlConcurrencyError):
        await two.agent.respond(answer=APPROVE)
    run = asyncio.create_task(two.agent.resume())
    await two.wait_for(0)
    await two.channel.answer("c1", APPROVE)
    await two.wait_for(1)
    await two.channel.answer("c1", DENY)
    assert completed(await run).keys() == {"d0", "d1"}
    assert two.deeds.done == ["pay w0"]


async def test_a_newer_prompt_ends_both() -> None:
    two = Two()
    run = await two.resumed()
    await two.agent.detach()
    await run
    assert (await two.agent.prompt("never mind", on_pending="supersede")).status == "completed"
    assert await two.channel.open_request() is None
    assert two.deeds.done == []
