"""Who detaches: listeners hear of it first, then the run does, and what was said stays so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from kit.patience import PATIENCE

from askfirst import Agent, AgentSpec, tool
from askfirst.agent.spec import Middleware
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import (
    HitlAborted,
    HitlControlException,
    HitlDetached,
    HitlNoPendingRequest,
    HitlRequestPending,
    WaitsForItself,
)
from askfirst.events import AgentEvent
from askfirst.hitl import CheckpointedChannel, ConfirmToolCallMiddleware, HitlChannel, InMemoryChannel
from askfirst.hitl.testing import FakeClock
from askfirst.messages import Message, ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}
CALL = ToolCall("c1", "pay", {"cents": 9})

Act = Callable[["Rig"], Awaitable[Any]]


@tool
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


class Watching(ConfirmToolCallMiddleware):
    """Asks, and notes what is raised where the answer is awaited."""

    def __init__(self, channel: HitlChannel, heard: list[str]) -> None:
        super().__init__(channel)
        self._heard = heard

    async def before_tool_call(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().before_tool_call(*args, **options)
        except HitlControlException as signal:
            self._heard.append(f"run: {type(signal).__name__}")
            raise


class Rig:
    """An agent that asks through a channel of either kind, and what was heard of its detaching, in order."""

    def __init__(self, store: MemoryCheckpointer | None, clock: FakeClock, timeout: float | None) -> None:
        self.heard: list[str] = []
        self.ended: list[str] = []
        self.acted: list[Any] = []
        self.store = store
        self.clock = clock
        self._timeout = timeout
        self.agent, self.channel = self.make(CALL, "Done.")
        self.agent.subscribe(self._note)
        self.task: asyncio.Task[Any] = asyncio.create_task(self.agent.prompt("go"))

    def make(self, *turns: Any) -> tuple[Agent, InMemoryChannel]:
        """An agent on the thread, as another process would make it."""
        options: Any = {"default_timeout": self._timeout, "clock": self.clock}
        channel = (
            InMemoryChannel(**options)
            if self.store is None
            else CheckpointedChannel(checkpointer=self.store, thread_id="t", **options)
        )
        agent = Agent(
            model=ScriptedModel(turns),
            tools=[pay],
            channel=channel,
            middleware=[Watching(channel, self.heard)],
        )
        return agent, channel

    def later(self) -> Agent:
        """Whoever goes on: where there is a store, another process."""
        return self.agent if self.store is None else self.make("Done.")[0]

    def _note(self, event: AgentEvent) -> None:
        if event.type == "run_ended":
            self.ended.append(event.status)

    def listen(self, act: Act | None = None) -> None:
        """Subscribe an async listener that does something when the agent is suspended."""

        async def listener(event: AgentEvent) -> None:
            if event.type == "agent_suspended":
                self.check_waits()
                self.heard.append("listener")
                if act is not None:
                    try:
                        self.acted.append(await act(self))
                    except (Exception, HitlControlException) as error:
                        self.acted.append(error)
                        raise

        self.agent.subscribe(listener)

    def check_waits(self) -> None:
        """Nothing has ended yet, nor does anyone who waits know that it will."""
        assert not self.task.done()
        assert "run: HitlDetached" not in self.heard
        assert self.ended == []

    async def asked(self) -> Rig:
        async with asyncio.timeout(PATIENCE):
            await anext(self.channel.subscribe())
        return self

    async def detach(self) -> Any:
        """Detach; returns how the run came back."""
        async with asyncio.timeout(PATIENCE):
            await self.agent.detach()
            return await self.task


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "stored"])
async def store(request: pytest.FixtureRequest, clock: FakeClock) -> AsyncIterator[MemoryCheckpointer | None]:
    if request.param == "memory":
        yield None
    else:
        async with MemoryCheckpointer(clock=clock) as store:
            yield store


@pytest.fixture
async def rig(store: MemoryCheckpointer | None, clock: FakeClock) -> Rig:
    return await Rig(store, clock, None).asked()


# The order.


@pytest.mark.parametrize("listeners", [1, 2, 5])
async def test_every_async_listener_hears_of_it_before_the_run_does(rig: Rig, listeners: int) -> None:
    for _ in range(listeners):
        rig.listen()
    assert (await rig.detach()).status == "suspended"
    assert rig.heard == ["listener"] * listeners + ["run: HitlDetached"]
    assert rig.ended == ["suspended"]


async def test_so_does_a_sync_listener_and_a_middleware_that_listens() -> None:
    heard: list[str] = []

    class Listening(Middleware):
        async def on_event(self, event: AgentEvent) -> None:
            if event.type == "agent_suspended":
                heard.append("middleware")

    channel = InMemoryChannel()
    agent = Agent(
        model=ScriptedModel([CALL]),
        tools=[pay],
        channel=channel,
        middleware=[Listening(), Watching(channel, heard)],
    )
    agent.subscribe(lambda event: heard.append("sync") if event.type == "agent_suspended" else None)
    task = asyncio.create_task(agent.prompt("go"))
    await anext(channel.subscribe())
    await agent.detach()
    assert (await task).status == "suspended"
    assert heard[-1] == "run: HitlDetached"
    assert sorted(heard[:-1]) == ["middleware", "sync"]


async def test_so_it_is_in_the_body_of_a_tool() -> None:
    channel, heard = InMemoryChannel(), list[str]()

    @tool
    async def confer() -> str:
        """Ask in the body."""
        try:
            await channel.confirm("Really?")
        except HitlDetached:
            heard.append("body")
            raise
        return "yes"

    agent = Agent(model=ScriptedModel([ToolCall("c1", "confer", {})]), tools=[confer], channel=channel)
    for _ in range(2):
        agent.subscribe(_noting(heard))
    task = asyncio.create_task(agent.prompt("go"))
    await anext(channel.subscribe())
    await agent.detach()
    assert (await task).status == "suspended"
    assert heard == ["agent_suspended", "agent_suspended", "body"]


def _noting(heard: list[str]) -> Callable[[AgentEvent], Awaitable[None]]:
    async def listener(event: AgentEvent) -> None:
        if event.type == "agent_suspended":
            heard.append(event.type)

    return listener


def _decided(message: Message) -> Any:
    """What a person decided on a call, as its result has it."""
    assert isinstance(message, ToolResultMessage)
    details: Any = message.details
    return details["hitl"]


async def test_without_listeners_it_is_detached_all_the_same(rig: Rig) -> None:
    assert (await rig.detach()).status == "suspended"
    assert rig.heard == ["run: HitlDetached"]


async def test_a_question_that_no_run_asks_ends_in_the_same_order() -> None:
    channel, heard = InMemoryChannel(), list[str]()
    agent = Agent(model=ScriptedModel([]), channel=channel)
    for _ in range(2):
        agent.subscribe(_noting(heard))

    async def ask() -> None:
        with pytest.raises(HitlDetached):
            await channel.confirm("Really?")
        heard.append("asker")

    asking = asyncio.create_task(ask())
    await anext(channel.subscribe())
    await agent.detach()
    await asking
    assert heard == ["agent_suspended", "agent_suspended", "asker"]


# What a person says meanwhile is kept for whoever goes on.


@pytest.mark.parametrize("listeners", [1, 2])
async def test_an_answer_in_between_is_kept(rig: Rig, listeners: int) -> None:
    rig.listen(lambda rig: rig.channel.answer("c1", APPROVE, by="ann"))
    for _ in range(listeners - 1):
        rig.listen()
    assert (await rig.detach()).status == "suspended"
    assert rig.heard.count("run: HitlDetached") == 1
    assert rig.acted == [None]
    result = (await rig.later().resume()).messages[2]
    assert result.text == "paid 9"
    assert _decided(result)["answered_by"] == "ann"


async def test_a_cancel_in_between_is_kept(rig: Rig) -> None:
    rig.listen(lambda rig: rig.channel.cancel("c1", "never mind"))
    rig.listen()
    assert (await rig.detach()).status == "suspended"
    assert rig.acted == [None]
    result = (await rig.later().resume()).messages[2]
    assert _decided(result) == {"decision": "cancelled", "reason": "never mind"}


async def test_a_deadline_in_between_is_heard_of_by_whoever_goes_on(
    store: MemoryCheckpointer | None, clock: FakeClock
) -> None:
    rig = await Rig(store, clock, 10).asked()
    rig.listen(lambda rig: rig.clock.advance(100))
    assert (await rig.detach()).status == "suspended"
    assert rig.heard == ["listener", "run: HitlDetached"]
    result = (await rig.later().resume()).messages[2]
    assert _decided(result) == {"decision": "timed_out", "seconds": 10.0}


# A listener may wait for the run, which then has to end without it.


@pytest.mark.parametrize("listeners", [1, 2])
async def test_a_listener_may_await_the_very_run(rig: Rig, listeners: int) -> None:
    async def wait(rig: Rig) -> str:
        return (await rig.task).status

    rig.listen(wait)
    for _ in range(listeners - 1):
        rig.listen()
    assert (await rig.detach()).status == "suspended"
    assert rig.acted == ["suspended"]


async def test_a_listener_may_wait_until_the_agent_is_idle(rig: Rig) -> None:
    idle = asyncio.Event()
    rig.agent.subscribe(lambda event: idle.set() if event.type == "run_ended" else None)
    rig.listen(lambda _: idle.wait())
    assert (await rig.detach()).status == "suspended"
    assert rig.acted == [True]


async def _respond(rig: Rig) -> Any:
    result = await rig.agent.respond(answer=APPROVE)
    return None if result is None else result.text


async def _supersede(rig: Rig) -> Any:
    return (await rig.agent.prompt("else", on_pending="supersede")).text


async def _load(rig: Rig) -> Any:
    return [message.role for message in await rig.agent.load()]


@pytest.mark.parametrize("listeners", [1, 2])
@pytest.mark.parametrize(
    ("act", "comes_of_it"),
    [(_respond, "Done."), (_supersede, "Done."), (_load, ["user", "assistant"])],
)
async def test_a_listener_may_set_the_agent_to_work(
    rig: Rig, act: Act, comes_of_it: Any, listeners: int
) -> None:
    """What it starts waits its turn, after the run that was detached."""
    for _ in range(listeners - 1):
        rig.listen()
    rig.listen(act)
    assert (await rig.detach()).status == "suspended"
    assert rig.acted == [comes_of_it]


async def test_the_request_is_in_the_way_of_a_prompt_in_between(rig: Rig) -> None:
    rig.listen(lambda rig: rig.agent.prompt("else"))
    assert (await rig.detach()).status == "suspended"
    assert [type(it) for it in rig.acted] == [HitlRequestPending]


async def test_a_run_comes_back_though_a_listener_never_does(rig: Rig) -> None:
    rig.listen(lambda _: asyncio.Event().wait())
    detaching = asyncio.create_task(rig.agent.detach())
    async with asyncio.timeout(PATIENCE):
        assert (await rig.task).status == "suspended"
    assert not detaching.done()
    detaching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await detaching


async def test_detaching_in_the_run_itself_waits_for_nobody(
    store: MemoryCheckpointer | None, clock: FakeClock
) -> None:
    """A listener that is told of the request detaches; one that then awaits the run would wait for itself."""
    rig = Rig(store, clock, None)
    refused: list[str] = []

    async def listener(event: AgentEvent) -> None:
        if event.type == "hitl_request":
            await rig.agent.detach()
        elif event.type == "agent_suspended":
            rig.check_waits()
            try:
                await rig.agent.resume()
            except WaitsForItself as error:
                refused.append(error.thread_id)

    rig.agent.subscribe(listener)
    rig.listen()
    async with asyncio.timeout(PATIENCE):
        assert (await rig.task).status == "suspended"
    assert refused == [rig.agent.thread_id]
    assert rig.heard == ["listener", "run: HitlDetached"]


# What goes wrong meanwhile.


@pytest.mark.parametrize("listeners", [1, 2])
async def test_a_listener_that_raises_does_not_keep_the_run(rig: Rig, listeners: int) -> None:
    async def fail(_: Rig) -> None:
        raise RuntimeError("broken")

    for _ in range(listeners):
        rig.listen(fail)
    assert (await rig.detach()).status == "suspended"
    assert len(rig.acted) == listeners


async def test_nor_does_one_that_raises_a_signal(rig: Rig) -> None:
    async def stop(_: Rig) -> None:
        raise HitlAborted("stop")

    rig.listen(stop)
    rig.listen()
    with pytest.raises(HitlAborted, match="stop"):
        await rig.agent.detach()
    assert (await rig.task).status == "suspended"


async def test_nor_does_one_that_ends_what_detaches(rig: Rig) -> None:
    class Out(BaseException):
        pass

    def leave(event: AgentEvent) -> None:
        if event.type == "agent_suspended":
            raise Out

    rig.agent.subscribe(leave)
    with pytest.raises(Out):
        await rig.agent.detach()
    assert (await rig.task).status == "suspended"


@pytest.mark.parametrize("listeners", [1, 2])
async def test_the_run_is_detached_though_whoever_detaches_is_cancelled(rig: Rig, listeners: int) -> None:
    async def cancel(_: Rig) -> None:
        detaching.cancel()
        await asyncio.Event().wait()

    for _ in range(listeners - 1):
        rig.listen(lambda _: asyncio.Event().wait())
    rig.listen(cancel)
    detaching = asyncio.create_task(rig.agent.detach())
    with pytest.raises(asyncio.CancelledError):
        await detaching
    async with asyncio.timeout(PATIENCE):
        assert (await rig.task).status == "suspended"
    assert await rig.agent.load_pending_hitl_request() is not None


async def test_a_run_that_is_cancelled_in_between_is(rig: Rig) -> None:
    async def cancel(rig: Rig) -> bool:
        return rig.task.cancel()

    rig.listen(cancel)
    rig.listen()
    await rig.agent.detach()
    with pytest.raises(asyncio.CancelledError):
        await rig.task
    assert rig.ended == ["suspended"]
    result = await rig.agent.respond(answer=APPROVE)
    assert result is not None
    assert result.text == "Done."


# Whoever else ends it.


@pytest.mark.parametrize("listeners", [1, 2])
async def test_a_second_detach_in_between_is_one_too_many(rig: Rig, listeners: int) -> None:
    rig.listen(lambda rig: rig.agent.detach())
    for _ in range(listeners - 1):
        rig.listen()
    assert (await rig.detach()).status == "suspended"
    assert [type(it) for it in rig.acted] == [HitlNoPendingRequest]
    assert rig.heard.count("listener") == listeners
    assert rig.heard.count("run: HitlDetached") == 1


@pytest.mark.parametrize("listeners", [1, 2])
async def test_who_closes_the_conversation_in_between_closes_it_after_the_run(
    rig: Rig, listeners: int
) -> None:
    for _ in range(listeners - 1):
        rig.listen()
    rig.listen(lambda rig: rig.agent.abort_pending("enough"))
    assert (await rig.detach()).status == "suspended"
    assert rig.acted == [None]
    assert rig.ended == ["suspended", "aborted"]
    assert [message.role for message in rig.agent.messages] == ["user", "assistant", "tool", "assistant"]
    assert await rig.agent.load_pending_hitl_request() is None


@pytest.mark.parametrize("listeners", [1, 2])
async def test_a_run_that_was_said_to_be_suspended_is_not_aborted(rig: Rig, listeners: int) -> None:
    async def abort(rig: Rig) -> None:
        rig.agent.abort()

    for _ in range(listeners):
        rig.listen(abort)
    assert (await rig.detach()).status == "suspended"
    assert await rig.agent.load_pending_hitl_request() is not None


@pytest.mark.parametrize("listeners", [0, 1, 2])
async def test_leaving_a_stream_where_it_is_suspended_keeps_the_request(rig: Rig, listeners: int) -> None:
    await rig.channel.answer("c1", APPROVE)
    await rig.task
    agent, channel = rig.make(ToolCall("c2", "pay", {"cents": 8}))
    ended: list[str] = []
    agent.subscribe(lambda event: ended.append(event.status) if event.type == "run_ended" else None)
    for _ in range(listeners):
        agent.subscribe(_noting([]))

    async def read() -> None:
        stream: Any = agent.stream("again", abort_on_leave=True)
        async with aclosing(stream):
            async for event in stream:
                if event.type == "agent_suspended":
                    break

    reading = asyncio.create_task(read())
    await anext(channel.subscribe())
    async with asyncio.timeout(PATIENCE):
        await agent.detach()
        await reading
    assert ended == ["suspended"]
    assert await agent.load_pending_hitl_request() is not None


async def test_a_run_that_went_on_after_a_detach_can_be_aborted(rig: Rig) -> None:
    assert (await rig.detach()).status == "suspended"
    resumed = asyncio.create_task(rig.agent.resume())
    await anext(rig.channel.subscribe())
    rig.agent.abort()
    async with asyncio.timeout(PATIENCE):
        assert (await resumed).status == "aborted"


# Subagents, and agents that share a channel.


@pytest.mark.parametrize("children", [1, 3])
async def test_a_detached_trees_runs_hear_of_it_last(store: MemoryCheckpointer | None, children: int) -> None:
    heard: list[str] = []
    options: Any = {} if store is None else {"checkpointer": store, "thread_id": "t"}
    channel = InMemoryChannel() if store is None else CheckpointedChannel(**options)
    subagents = [
        AgentSpec(
            f"w{number}",
            ScriptedModel([ToolCall(f"k{number}", "pay", {"cents": 9}), "Paid."]),
            [pay],
            middleware=[Watching(channel, heard)],
        )
        for number in range(children)
    ]
    calls = [ToolCall(f"d{number}", f"w{number}", {"prompt": "Pay."}) for number in range(children)]
    agent = Agent(model=ScriptedModel([calls, "Done."]), subagents=subagents, channel=channel)
    task = asyncio.create_task(agent.prompt("go"))
    request = await anext(channel.subscribe())

    async def answer(event: AgentEvent) -> None:
        if event.type == "agent_suspended":
            assert event.agent_path == ("agent",)
            assert not task.done()
            heard.append("listener")
            await channel.answer(request.question_id, APPROVE)

    agent.subscribe(answer)
    agent.subscribe(_noting(heard))
    async with asyncio.timeout(PATIENCE):
        await agent.detach()
        assert (await task).status == "suspended"
        signals = ["run: HitlDetached"] * children
        assert heard == ["listener", "agent_suspended", *signals]
        resumed = asyncio.create_task(agent.resume())
        for _ in range(children - 1):
            next_one = await anext(channel.subscribe())
            assert next_one.question_id != request.question_id
            await channel.answer(next_one.question_id, APPROVE)
        assert (await resumed).text == "Done."


async def test_another_agent_may_ask_through_the_channel_that_is_being_left() -> None:
    channel, heard, others = InMemoryChannel(), list[str](), list[str]()

    def make(call_id: str, told: list[str]) -> Agent:
        return Agent(
            model=ScriptedModel([ToolCall(call_id, "pay", {"cents": 9}), "Done."]),
            tools=[pay],
            channel=channel,
            middleware=[Watching(channel, told)],
        )

    one, two = make("c1", heard), make("c2", others)
    two.subscribe(_noting(others))
    begun: list[asyncio.Task[Any]] = []

    async def begin(event: AgentEvent) -> None:
        if event.type == "agent_suspended":
            heard.append("listener")
            begun.append(asyncio.create_task(two.prompt("go")))
            assert (await anext(channel.subscribe())).question_id == "c2"

    task = asyncio.create_task(one.prompt("go"))
    await anext(channel.subscribe())
    one.subscribe(begin)
    async with asyncio.timeout(PATIENCE):
        await one.detach()
        assert (await task).status == "suspended"
    assert heard == ["listener", "run: HitlDetached"]
    assert channel.pending is not None
    with pytest.raises(HitlNoPendingRequest):
        await one.detach()
    await channel.answer("c2", APPROVE)
    assert (await begun[0]).text == "Done."
    assert others == []
    assert await one.load_pending_hitl_request() is not None


# The channel alone.


async def test_a_channel_takes_no_answer_for_whoever_is_yet_to_hear_a_signal(rig: Rig) -> None:
    told = asyncio.Event()
    request = rig.channel.pending
    assert rig.channel.interrupt(HitlDetached(), after=told.wait) == request
    assert rig.channel.pending is None
    assert rig.channel.interrupt(HitlAborted("too late")) is None
    await rig.channel.answer("c1", APPROVE)
    rig.check_waits()
    told.set()
    async with asyncio.timeout(PATIENCE):
        assert (await rig.task).status == "suspended"
    assert (await rig.later().resume()).messages[2].text == "paid 9"
