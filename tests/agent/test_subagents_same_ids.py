"""Children that number their calls alike: each is asked for its own, and nobody guesses whose answer it is."""

from __future__ import annotations

import asyncio

import pytest
from kit.channel_rigs import asked
from kit.deeds import Deeds, call, completed, delegate, mailer, pending_ids, script, support

from askfirst import Agent, AgentResult, AgentSpec, Middleware, ToolCallContext, subagent_tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlError, HitlStaleAnswer
from askfirst.hitl import CheckpointedChannel, InMemoryChannel
from askfirst.ids import child_thread_id

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
        return AgentSpec(f"w{number}", model, tools=[self.deeds.asks("pay")], middleware=[self.late[number]])

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
    with pytest.raises(HitlError, match="several requests"):
        await two.channel.answer("c1", APPROVE)
    with pytest.raises(HitlError, match="several requests"):
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


# The same where requests are stored, and several are open at once.


async def both_open(store: SqlCheckpointer, deeds: Deeds) -> tuple[Agent, list[str]]:
    """An agent that has paused with two children waiting, and the digests of what they ask."""
    agent = Agent.from_spec(support(deeds, "w0", "w1"), checkpointer=store, thread_id="t")
    result = await agent.prompt("go")
    assert pending_ids(result) == ["d0/c1", "d1/c1"]
    return agent, [each.digest or "" for each in result.pending_approvals]


async def test_nobody_guesses_which_child_an_answer_is_for(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    agent, _ = await both_open(checkpointer, deeds)
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    with pytest.raises(HitlError, match="several requests are open under the id 'c1'"):
        await agent.respond(question_id="c1", answer=APPROVE)
    with pytest.raises(HitlError, match="several requests are open under the id 'c1'"):
        await channel.answer("c1", APPROVE)
    assert len(await checkpointer.pending()) == 2
    assert deeds.done == []


async def test_a_digest_tells(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    agent, (first, second) = await both_open(checkpointer, deeds)
    result = await agent.respond(question_id="c1", answer=APPROVE, digest=second)
    assert result is not None
    assert pending_ids(result) == ["d0/c1"]
    assert deeds.done == ["pay w1"]
    with pytest.raises(HitlStaleAnswer):
        await agent.respond(question_id="c1", answer=APPROVE, digest=second)
    result = await agent.respond(question_id="c1", answer=DENY, digest=first)
    assert result is not None
    assert completed(result).keys() == {"d0", "d1"}
    assert deeds.done == ["pay w1"]


async def test_nor_whether_it_is_for_the_root_or_a_child(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    payer = AgentSpec("payer", script([call("c1", "pay", "child")], "paid"), tools=[deeds.asks("pay")])
    model = script([call("c1", "pay", "root"), delegate("d0", "payer")], "done")
    boss = AgentSpec("boss", model, tools=[deeds.asks("pay")], subagents=[payer], tool_gate="each")
    agent = Agent.from_spec(boss, checkpointer=checkpointer, thread_id="t")
    assert pending_ids(await agent.prompt("go")) == ["c1", "d0/c1"]
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    with pytest.raises(HitlError, match="several requests are open under the id 'c1'"):
        await channel.answer("c1", APPROVE)
    with pytest.raises(HitlError, match="several requests are open under the id 'c1'"):
        await channel.cancel("c1")
    await checkpointer.settle(child_thread_id("t", "d0"), "c1", DENY)
    await channel.answer("c1", APPROVE)
    assert completed(await agent.resume()).keys() == {"c1", "d0"}
    assert deeds.done == ["pay root"]


# An answer that says of no request that it is for that.


async def test_an_answer_without_an_id_is_for_the_one_that_is_open(checkpointer: SqlCheckpointer) -> None:
    deeds = Deeds()
    agent = Agent.from_spec(mailer(deeds), checkpointer=checkpointer, thread_id="t")
    result = await agent.prompt("go")
    assert pending_ids(result) == ["c1", "c2"]
    with pytest.raises(HitlError, match=r"several requests are open \('c1', 'c2'\).*question_id="):
        await agent.respond(answer=DENY)
    with pytest.raises(HitlStaleAnswer):
        await agent.respond(answer=DENY, digest="of something else")
    assert len(await checkpointer.pending()) == 2
    second = result.pending_approvals[1].digest
    assert (await agent.respond(answer=DENY, digest=second)) is not None
    assert [it.question_id for it in await checkpointer.pending()] == ["c1"]
    done = await agent.respond(answer=APPROVE)
    assert done is not None
    assert completed(done).keys() == {"c1", "c2"}
    assert deeds.done == ["mail a"]


async def test_so_it_is_without_a_store() -> None:
    agent = Agent.from_spec(mailer(Deeds()))
    assert pending_ids(await agent.prompt("go")) == ["c1", "c2"]
    with pytest.raises(HitlError, match="several requests"):
        await agent.respond(answer=APPROVE)


async def test_so_it_is_while_two_children_wait_at_channels_of_their_own() -> None:
    deeds, channels = Deeds(), [InMemoryChannel(), InMemoryChannel()]
    workers = [
        subagent_tool(
            AgentSpec(f"w{n}", script([call(f"c{n}", "pay", f"w{n}")], "worked"), tools=[deeds.asks("pay")]),
            channel=channel,
        )
        for n, channel in enumerate(channels)
    ]
    agent = Agent(model=script([delegate("d0", "w0"), delegate("d1", "w1")], "done"), tools=workers)
    run = asyncio.create_task(agent.prompt("go"))
    for channel in channels:
        await asked(channel)
    with pytest.raises(HitlError, match=r"several requests are open \('c0', 'c1'\)"):
        await agent.respond(answer=APPROVE)
    await agent.respond(answer=DENY, question_id="c1")
    await agent.respond(answer=APPROVE)
    assert completed(await run).keys() == {"d0", "d1"}
    assert deeds.done == ["pay w0"]
