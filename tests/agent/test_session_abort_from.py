"""When, and from where, a run may be stopped: twice, too late, from listeners, tools and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kit.transcripts import Held, assert_sound, calls, stopped, texts

from askfirst import (
    Agent,
    AgentEvent,
    tool,
)
from askfirst.events import (
    MessageDeltaEvent,
    MessageEndedEvent,
    RunStartedEvent,
    ToolStartedEvent,
)
from askfirst.messages import (
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


async def test_abort_twice() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "next"]), tools=[held.tool])
    result = await stopped(agent, held.started.wait(), twice=True)
    assert result.status == "aborted"
    assert_sound(result.messages)
    assert (await agent.prompt("again")).status == "completed"


async def test_abort_when_idle_does_nothing() -> None:
    agent = Agent(model=ScriptedModel(["one", "two"]))
    agent.abort()
    assert (await agent.prompt("a")).status == "completed"
    agent.abort()
    assert (await agent.prompt("b")).status == "completed"


async def test_abort_stops_the_run_that_goes_on_and_not_the_next() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "second"]), tools=[held.tool])
    first = asyncio.create_task(agent.prompt("first"))
    await held.started.wait()
    second = asyncio.create_task(agent.prompt("second"))
    await asyncio.sleep(0)
    agent.abort()
    assert (await first).status == "aborted"
    assert ((await second).status, second.result().text) == ("completed", "second")


async def test_abort_and_cancel_at_once() -> None:
    """An abort must not hide the cancellation that the caller asked for."""
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "next"]), tools=[held.tool])
    run = asyncio.create_task(agent.prompt("go"))
    await held.started.wait()
    agent.abort()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (await agent.prompt("again")).text == "next"
    assert_sound(agent.messages)


def aborting(kind: type[Any], test: Callable[[Any], bool] = lambda _: True) -> Callable[[Agent], None]:
    """Subscribe a listener that aborts at the first such event."""

    def subscribe(agent: Agent) -> None:
        def listener(event: AgentEvent) -> None:
            if isinstance(event, kind) and test(event):
                agent.abort()

        agent.subscribe(listener)

    return subscribe


def _of(role: str) -> Callable[[Any], bool]:
    return lambda event: event.message.role == role


@pytest.mark.parametrize("suspend", [False, True], ids=["at once", "suspending"])
@pytest.mark.parametrize(
    "listen",
    [
        aborting(RunStartedEvent),
        aborting(MessageEndedEvent, _of("user")),
        aborting(MessageDeltaEvent),
        aborting(MessageEndedEvent, _of("assistant")),
        aborting(ToolStartedEvent),
    ],
    ids=["run started", "user message", "delta", "assistant message", "tool started"],
)
async def test_abort_from_a_listener(listen: Callable[[Agent], None], suspend: bool) -> None:
    """Once somebody said stop, no body starts, however quick the loop is."""
    ran: list[str] = []

    @tool
    async def work() -> None:
        ran.append("work")

    async def pause(event: AgentEvent) -> None:
        await asyncio.sleep(0)

    model = ScriptedModel([[TextPart("Working. "), *calls("work", "work")], "done"])
    old = (UserMessage("earlier"), AssistantMessage("answered"))
    agent = Agent(model=model, tools=[work], messages=old)
    listen(agent)
    if suspend:
        agent.subscribe(pause)
    result = await agent.prompt("go")
    assert result.status == "aborted"
    assert ran == []
    assert result.messages[:3] == (*old, UserMessage("go"))
    assert len(model.requests) <= 1
    assert_sound(result.messages)


async def test_abort_at_the_last_word_changes_nothing() -> None:
    agent = Agent(model=ScriptedModel(["all said"]))
    aborting(MessageEndedEvent, _of("assistant"))(agent)
    result = await agent.prompt("go")
    assert (result.status, result.text) == ("completed", "all said")


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_abort_from_inside_a_tool(kind: str) -> None:
    agents: list[Agent] = []

    async def stop() -> str:
        agents[0].abort()
        return "stopped"

    def stop_in_thread() -> str:
        agents[0].abort()
        return "stopped"

    stopper = tool(name="stop", execution_mode="sequential")(stop if kind == "async" else stop_in_thread)
    later = Held("later")
    model = ScriptedModel([calls("stop", "later"), "next"])
    agents.append(Agent(model=model, tools=[stopper, later.tool]))
    result = await agents[0].prompt("go")
    assert result.status == "aborted"
    assert not later.started.is_set()
    assert_sound(result.messages)
    assert (await agents[0].prompt("again")).text == "next"


async def test_abort_while_bodies_start_together() -> None:
    """The first of a parallel group aborts before the second had its first step."""
    ran: list[str] = []
    agents: list[Agent] = []

    @tool
    async def stop() -> str:
        agents[0].abort()
        return "stopped"

    @tool
    async def other() -> None:
        ran.append("other")

    agents.append(Agent(model=ScriptedModel([calls("stop", "other")]), tools=[stop, other]))
    result = await agents[0].prompt("go")
    assert ran == []
    assert texts(result.messages)[1].startswith("Not run")


async def test_abort_from_another_thread() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held")]), tools=[held.tool])
    run = asyncio.create_task(agent.prompt("go"))
    await held.started.wait()
    await asyncio.to_thread(agent.abort)
    assert (await run).status == "aborted"


async def test_abort_during_the_run_started_event() -> None:
    """A slow listener hears that the run began, and the person stops it meanwhile: the prompt is not lost."""
    hearing = asyncio.Event()

    async def slow(event: AgentEvent) -> None:
        if isinstance(event, RunStartedEvent):
            hearing.set()
            await asyncio.Event().wait()

    model = ScriptedModel(["never said"])
    agent = Agent(model=model, messages=[UserMessage("a"), AssistantMessage("earlier")])
    agent.subscribe(slow)
    result = await stopped(agent, hearing.wait(), text="second")
    assert (result.status, result.text) == ("aborted", "")
    assert result.messages[2] == UserMessage("second")
    assert len(result.messages) == 4
    assert model.requests == []


async def test_a_body_that_cancels_itself_is_no_abort() -> None:
    @tool
    async def odd() -> None:
        raise asyncio.CancelledError

    @tool
    async def loses() -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await task

    for names in (["odd"], ["odd", "loses"]):
        result = await Agent(model=ScriptedModel([calls(*names), "done"]), tools=[odd, loses]).prompt("go")
        assert (result.status, result.text) == ("completed", "done")
        assert all("CancelledError" in text for text in texts(result.messages))


async def test_results_before_an_abort_are_in_the_models_next_request() -> None:
    held = Held("held")
    model = ScriptedModel([[ToolCall("c1", "held", {})], "next"])
    agent = Agent(model=model, tools=[held.tool])
    await stopped(agent, held.started.wait())
    await agent.prompt("what happened?")
    sent = model.requests[-1]
    assert isinstance(sent[2], ToolResultMessage)
    assert sent[:3] == list(agent.messages[:3])
