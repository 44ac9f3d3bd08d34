"""Control signals: `HitlControlException` passes through everything and loses nothing that was done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kit.transcripts import Held, assert_sound, calls, open_calls, texts

from askfirst import Agent, AgentEvent, HitlControlException, Middleware, ToolContext, tool
from askfirst.errors import AskfirstError
from askfirst.messages import Message, ToolResultMessage, UserMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


class Detach(HitlControlException):
    pass


@tool
async def quick() -> str:
    return "quick done"


async def raises(agent: Agent, signal: Detach) -> None:
    with pytest.raises(Detach) as caught:
        await agent.prompt("go")
    assert caught.value is signal


def test_it_is_no_error() -> None:
    assert not issubclass(HitlControlException, Exception)
    assert not issubclass(HitlControlException, AskfirstError)


@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("names", [["ask"], ["quick", "ask", "quick"]])
async def test_from_a_body(kind: str, names: list[str]) -> None:
    signal = Detach()
    asked: list[str] = []

    def body() -> str:
        asked.append("again" if asked else "first")
        if len(asked) == 1:
            raise signal
        return "answered"

    async def async_body() -> str:
        return body()

    ask = tool(name="ask", effect="idempotent")(body if kind == "sync" else async_body)
    agent = Agent(model=ScriptedModel([calls(*names), "done"]), tools=[ask, quick])
    await raises(agent, signal)
    assert texts(agent.messages) == ["quick done"] * (len(names) - 1)
    assert open_calls(agent.messages) == [f"c{names.index('ask') + 1}"]
    before = agent.messages
    result = await agent.resume()
    assert asked == ["first", "again"]
    assert result.messages[: len(before)] == before
    assert result.status == "completed"
    assert_sound(result.messages)


async def test_bodies_that_run_meanwhile_are_waited_for() -> None:
    held = Held()
    signal = Detach()

    @tool
    async def ask() -> None:
        raise signal

    agent = Agent(model=ScriptedModel([calls("ask", "held")]), tools=[ask, held.tool])
    run = asyncio.create_task(agent.prompt("go"))
    await held.started.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not run.done()
    held.release.set()
    with pytest.raises(Detach):
        await run
    assert texts(agent.messages) == ["held done"]
    assert open_calls(agent.messages) == ["c1"]


async def test_later_groups_do_not_start() -> None:
    ran: list[str] = []

    @tool
    async def ask() -> None:
        raise Detach

    @tool(execution_mode="sequential")
    async def later() -> None:
        ran.append("later")

    agent = Agent(model=ScriptedModel([calls("quick", "ask", "later")]), tools=[quick, ask, later])
    with pytest.raises(Detach):
        await agent.prompt("go")
    assert ran == []
    assert open_calls(agent.messages) == ["c2", "c3"]


async def test_from_before_tool_call() -> None:
    signal = Detach()

    class Asking(Middleware):
        async def before_tool_call(self, ctx: Any) -> None:
            if ctx.tool_call.id == "c2":
                raise signal

    agent = Agent(model=ScriptedModel([calls("quick", "quick")]), tools=[quick], middleware=[Asking()])
    await raises(agent, signal)
    assert open_calls(agent.messages) == ["c1", "c2"]  # gate before body: nothing ran


@pytest.mark.parametrize("count", [1, 2])
async def test_from_after_tool_call(count: int) -> None:
    """The body has run: its result is in the transcript, and it never runs again."""
    signal = Detach()

    class Asking(Middleware):
        async def after_tool_call(self, ctx: Any) -> None:
            if ctx.tool_call.id == "c1":
                raise signal

    model = ScriptedModel([calls(*["quick"] * count), "done"])
    agent = Agent(model=model, tools=[quick], middleware=[Asking()])
    await raises(agent, signal)
    assert texts(agent.messages) == ["quick done"] * count
    assert (await agent.resume()).text == "done"


@pytest.mark.parametrize("hook", ["before_model", "after_model"])
async def test_from_a_model_hook(hook: str) -> None:
    signal = Detach()

    async def raising(self: Any, ctx: Any) -> None:
        raise signal

    layer = type("Asking", (Middleware,), {hook: raising})()
    agent = Agent(model=ScriptedModel(["one"]), middleware=[layer])
    await raises(agent, signal)
    assert agent.messages == (UserMessage("go"),)


async def test_from_the_model() -> None:
    signal = Detach()

    def turn(messages: Any) -> str:
        raise signal

    agent = Agent(model=ScriptedModel([turn, "back"]))
    await raises(agent, signal)
    assert (await agent.resume()).text == "back"


def _sync(signal: Detach, when: Callable[[AgentEvent], bool]) -> Callable[[AgentEvent], Any]:
    def listener(event: AgentEvent) -> None:
        if when(event):
            raise signal

    return listener


def _async(signal: Detach, when: Callable[[AgentEvent], bool]) -> Callable[[AgentEvent], Any]:
    async def listener(event: AgentEvent) -> None:
        await asyncio.sleep(0)
        if when(event):
            raise signal

    return listener


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("make", [_sync, _async])
@pytest.mark.parametrize(
    "kind",
    [
        "run_started",
        "turn_started",
        "message_started",
        "message_delta",
        "message_ended",
        "tool_started",
        "tool_progress",
        "tool_ended",
        "turn_ended",
    ],
)
async def test_from_a_listener(kind: str, make: Any, others: int) -> None:
    """Whatever it interrupts, everyone is told, the transcript is sound, and the run can go on."""
    signal = Detach()
    raised: list[int] = []
    heard: list[int] = []
    ran: list[str] = []

    def first(event: AgentEvent) -> bool:
        if event.type == kind and not raised:
            raised.append(event.seq)
            return True
        return False

    async def other(event: AgentEvent) -> None:
        await asyncio.sleep(0)
        heard.append(event.seq)

    @tool
    async def work(ctx: ToolContext) -> str:
        ran.append(ctx.tool_call_id)
        ctx.report(0.5)
        return "worked"

    def turn(messages: list[Message]) -> Any:
        return "done" if isinstance(messages[-1], ToolResultMessage) else calls("work", "work")

    agent = Agent(model=ScriptedModel([turn] * 3), tools=[work])
    if others:
        agent.subscribe(other)
    agent.subscribe(make(signal, first))
    if others:
        agent.subscribe(other)
    await raises(agent, signal)
    assert agent.messages[0] == UserMessage("go")
    result = await agent.resume()
    assert (result.status, result.text) == ("completed", "done")
    assert sorted(ran) == ["c1", "c2"], "a body ran twice, or not at all"
    assert texts(result.messages) == ["worked", "worked"]
    assert_sound(result.messages)
    assert not others or heard.count(raised[0]) == 2


@pytest.mark.parametrize("make", [_sync, _async])
async def test_from_a_listener_to_the_progress_of_a_thread(make: Any) -> None:
    signal = Detach()

    @tool
    def work(ctx: ToolContext) -> str:
        ctx.report(0.5)
        return "worked"

    agent = Agent(model=ScriptedModel([calls("work"), "done"]), tools=[work])
    agent.subscribe(make(signal, lambda event: event.type == "tool_progress"))
    await raises(agent, signal)
    assert texts(agent.messages) == ["worked"]


async def test_from_middleware_on_event() -> None:
    signal = Detach()

    class Asking(Middleware):
        async def on_event(self, event: AgentEvent) -> None:
            if event.type == "tool_started":
                raise signal

    agent = Agent(model=ScriptedModel([calls("quick")]), tools=[quick], middleware=[Asking()])
    await raises(agent, signal)
    assert open_calls(agent.messages) == ["c1"]


async def test_from_a_body_that_is_aborted() -> None:
    """A body that answers its cancellation with a signal: the signal wins, for somebody waits for it."""
    signal = Detach()
    started = asyncio.Event()

    @tool
    async def ask() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise signal from None

    agent = Agent(model=ScriptedModel([calls("ask"), "next"]), tools=[ask])
    run = asyncio.create_task(agent.prompt("go"))
    await started.wait()
    agent.abort()
    with pytest.raises(Detach) as caught:
        await run
    assert caught.value is signal
    assert (await agent.prompt("again")).text == "next"
    assert_sound(agent.messages)


async def test_the_run_lock_is_free_afterwards() -> None:
    @tool
    async def ask() -> None:
        raise Detach

    agent = Agent(model=ScriptedModel([calls("ask"), "next"]), tools=[ask])
    first = asyncio.create_task(agent.prompt("one"))
    second = asyncio.create_task(agent.prompt("two"))
    with pytest.raises(Detach):
        await first
    assert (await second).text == "next"
    assert_sound(agent.messages)
