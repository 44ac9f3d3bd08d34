"""Listeners that take their time, channels that agents share or wrap, keepers that fail half-way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.channel_rigs import STORED, Keeper, Rig, asked

from askfirst import Agent, AgentEvent, tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import (
    HitlAborted,
    HitlError,
    HitlRequestPending,
    HitlStaleAnswer,
    HitlTimedOut,
    InvalidAgent,
)
from askfirst.events import HitlAnswerEvent, HitlRequestEvent
from askfirst.hitl import CheckpointedChannel, ConfirmToolCallMiddleware, HitlRequest, InMemoryChannel
from askfirst.hitl.testing import ScriptedChannel
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
APPROVE = {"decision": "approve"}


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def payer(channel: Any, call_id: str = "c1", **options: Any) -> Agent:
    model = ScriptedModel([ToolCall(call_id, "pay", {"amount": 5}), "done"])
    return Agent(model=model, tools=[pay], channel=channel, **options)


class Slow:
    """A listener that waits at a terminal where nobody sits."""

    def __init__(self, agent: Agent) -> None:
        self.began = asyncio.Event()
        self.never = asyncio.Event()
        self.ended: BaseException | None = None
        agent.subscribe(self.listen)

    async def listen(self, event: AgentEvent) -> None:
        if isinstance(event, HitlRequestEvent):
            self.began.set()
            try:
                await self.never.wait()
            except BaseException as error:
                self.ended = error
                raise


@pytest.mark.parametrize("how", ["answer", "cancel", "detach", "abort_pending", "abort"])
async def test_a_listener_that_takes_its_time_holds_nobody_up(rig: Rig, how: str) -> None:
    channel = rig.channel()
    agent = payer(channel)
    slow = Slow(agent)
    run = asyncio.ensure_future(agent.prompt("go"))
    await slow.began.wait()
    match how:
        case "answer":
            await channel.answer("c1", APPROVE)
        case "cancel":
            await channel.cancel("c1")
        case "detach":
            await agent.detach()
        case "abort_pending":
            await agent.abort_pending("enough")
        case _:
            agent.abort()
    statuses = {"answer": "completed", "cancel": "completed", "detach": "suspended"}
    assert (await run).status == statuses.get(how, "aborted")
    slow.never.set()


async def test_nor_does_it_hold_up_a_deadline(rig: Rig) -> None:
    channel = rig.channel(default_timeout=30)
    agent = payer(channel)
    slow = Slow(agent)
    run = asyncio.ensure_future(agent.prompt("go"))
    await slow.began.wait()
    await rig.clock.advance(31)
    result = await run
    assert result.messages[2].details["hitl"]["decision"] == "timed_out"
    slow.never.set()


async def test_nor_a_signal(rig: Rig) -> None:
    channel, signal = rig.channel(), asyncio.Event()
    agent = payer(channel)
    slow = Slow(agent)
    asking = asyncio.ensure_future(channel.confirm("Go on?", signal=signal))
    await slow.began.wait()
    signal.set()
    with pytest.raises(HitlAborted):
        await asking
    slow.never.set()


@pytest.mark.parametrize("rig", STORED, indirect=True)
async def test_nor_an_answer_from_elsewhere(rig: Rig) -> None:
    agent = payer(rig.channel())
    slow = Slow(agent)
    run = asyncio.ensure_future(agent.prompt("go"))
    await slow.began.wait()
    await rig.checkpointer.settle("t", "c1", APPROVE)
    assert (await run).status == "completed"
    slow.never.set()


async def test_who_is_cancelled_while_listeners_are_told_cancels_them(rig: Rig) -> None:
    agent = payer(rig.channel())
    slow = Slow(agent)
    run = asyncio.ensure_future(agent.prompt("go"))
    await slow.began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert isinstance(slow.ended, asyncio.CancelledError)


@pytest.mark.parametrize("how", ["answer", "respond", "detach"])
async def test_a_listener_that_answers_is_waited_for(rig: Rig, how: str) -> None:
    """It may have something to do after that, and is not cut off."""
    channel, order = rig.channel(), list[str]()
    agent = payer(channel)

    async def listen(event: AgentEvent) -> None:
        if isinstance(event, HitlRequestEvent):
            if how == "answer":
                await channel.answer("c1", APPROVE)
            elif how == "respond":
                await agent.respond(answer=APPROVE)
            else:
                await agent.detach()
            for _ in range(20):
                await asyncio.sleep(0)
            order.append("listener is done")
        elif event.type in ("hitl_answer", "run_ended"):
            order.append(event.type)

    agent.subscribe(listen)
    await agent.prompt("go")
    assert order[0] == "listener is done"


async def test_an_answer_that_did_not_fit_binds_nobody_to_the_listener(rig: Rig) -> None:
    channel = rig.channel()
    agent, refused, never = payer(channel), asyncio.Event(), asyncio.Event()

    async def listen(event: AgentEvent) -> None:
        if isinstance(event, HitlRequestEvent):
            with pytest.raises(HitlError):
                await channel.answer("c1", {"decision": "perhaps"})
            refused.set()
            await never.wait()

    agent.subscribe(listen)
    run = asyncio.ensure_future(agent.prompt("go"))
    await refused.wait()
    await channel.answer("c1", APPROVE)
    assert (await run).status == "completed"
    never.set()


# Several agents, one channel.


async def test_agents_that_were_detached_from_one_channel_each_find_their_own_request() -> None:
    channel = InMemoryChannel()
    first, second = payer(channel, "c1", thread_id="a"), payer(channel, "c2", thread_id="b")
    for agent in (first, second):
        run = asyncio.ensure_future(agent.prompt("go"))
        await asked(channel)
        await agent.detach()
        assert (await run).status == "suspended"
    for agent, question_id in ((second, "c2"), (first, "c1")):
        request = await agent.load_pending_hitl_request()
        assert request is not None
        assert request.question_id == question_id
        with pytest.raises(HitlRequestPending):
            await agent.prompt("again")
    result = await second.respond(question_id="c2", answer=APPROVE)
    assert result is not None
    assert result.status == "completed"
    await first.abort_pending("enough")
    assert await channel.open_request() is None


class Around:
    """A channel around another, as one that logs would be."""

    thread_id = None
    checkpointer = None

    def __init__(self, inner: InMemoryChannel) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_a_channel_around_another_knows_which_agent_asks() -> None:
    channel = Around(InMemoryChannel())
    heard: dict[str, list[str]] = {"a": [], "b": []}
    agents = {thread_id: payer(channel, thread_id=thread_id) for thread_id in heard}
    for thread_id, agent in agents.items():
        agent.subscribe(lambda event, to=heard[thread_id]: to.append(event.type))
    run = asyncio.ensure_future(agents["a"].prompt("go"))
    request = await anext(channel.subscribe())
    assert request.thread_id == "a"
    await agents["a"].respond(answer=APPROVE)
    assert (await run).status == "completed"
    assert "hitl_request" in heard["a"]
    assert "hitl_answer" in heard["a"]
    assert heard["b"] == []


def test_a_channel_that_takes_less_than_it_is_given_is_refused_at_once() -> None:
    class Old(InMemoryChannel):
        async def open_request(self) -> HitlRequest | None:  # type: ignore[override]
            return None

    with pytest.raises(InvalidAgent, match="open_request with thread_id"):
        payer(Old())


async def test_a_middleware_s_channel_on_the_agent_s_own_thread_stores_the_call_with_the_request() -> None:
    async with MemoryCheckpointer() as store:
        channel = CheckpointedChannel(checkpointer=store, thread_id="t")
        model = ScriptedModel([ToolCall("c1", "wire", {"amount": 5}), "done"])

        @tool
        async def wire(amount: int) -> str:
            return "wired"

        agent = Agent(
            model=model,
            tools=[wire],
            checkpointer=store,
            thread_id="t",
            middleware=[ConfirmToolCallMiddleware(channel)],
        )
        run = asyncio.ensure_future(agent.prompt("go"))
        await asked(channel)
        stored = await store.load("t")
        assert stored is not None
        assert [message.role for message in stored.messages] == ["user", "assistant"]
        assert (list(stored.requests), stored.lease_owner) == (["c1"], None)
        await store.settle("t", "c1", APPROVE)
        assert (await run).status == "completed"


# A checkpointer of one's own.


class Unsure(Keeper):
    """What it was told to clear is cleared; whoever told it may not hear of that."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.clearing = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def save_pending_request(self, thread_id: str, request: HitlRequest | None) -> None:
        await super().save_pending_request(thread_id, request)
        if request is None:
            self.clearing.set()
            await self.go_on.wait()
            if self.fails:
                self.fails = False
                raise ConnectionError("it broke after the commit")


@pytest.mark.parametrize("then", ["answer", "cancel"])
async def test_a_keeper_that_breaks_after_its_commit_leaves_the_request_answerable(then: str) -> None:
    keeper = Unsure()
    channel = CheckpointedChannel(checkpointer=keeper, thread_id="t")
    asking = asyncio.ensure_future(channel.confirm("Go on?"))
    request = await asked(channel)
    keeper.fails = True
    with pytest.raises(ConnectionError):
        await channel.answer(request.question_id, False)
    assert channel.pending is not None
    if then == "answer":
        await channel.answer(request.question_id, True)
        assert await asking is True
    else:
        await channel.cancel(request.question_id, "never mind")
        await asyncio.wait([asking])
        assert asking.exception() is not None


async def test_an_answer_that_is_called_off_half_way_is_given_all_the_same() -> None:
    keeper = Unsure()
    keeper.go_on.clear()
    channel = CheckpointedChannel(checkpointer=keeper, thread_id="t")
    asking = asyncio.ensure_future(channel.confirm("Go on?"))
    request = await asked(channel)
    answering = asyncio.ensure_future(channel.answer(request.question_id, True))
    await keeper.clearing.wait()
    answering.cancel()
    keeper.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert await asking is True
    with pytest.raises(HitlStaleAnswer):
        await channel.answer(request.question_id, False)


# The test kit.


@pytest.mark.parametrize("signal", [HitlTimedOut(30), HitlTimedOut])
async def test_a_scripted_time_out_is_told_like_a_real_one(signal: Any) -> None:
    if isinstance(signal, type):
        signal = HitlTimedOut(0.5)
    agent, events = payer(ScriptedChannel([signal])), list[AgentEvent]()
    agent.subscribe(events.append)
    await agent.prompt("go")
    told = [event for event in events if isinstance(event, HitlRequestEvent | HitlAnswerEvent)]
    assert [event.type for event in told] == ["hitl_request", "hitl_answer"]
    assert isinstance(told[1], HitlAnswerEvent)
    assert told[1].timed_out


async def test_what_is_over_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("askfirst.hitl.memory._KEPT", 100)
    channel = InMemoryChannel()
    for n in range(150):
        agent = payer(channel, f"c{n}", thread_id=f"t{n}")
        run = asyncio.ensure_future(agent.prompt("go"))
        await asked(channel)
        await agent.detach()
        await run
        await agent.abort_pending("enough")
    assert len(channel._memory.kept) <= 100
