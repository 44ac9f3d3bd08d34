"""Stopping a run: by abort, or by cancelling the task that awaits it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from transcripts import Held, assert_sound, calls, open_calls, results, texts

from assent import (
    Agent,
    AgentEvent,
    AgentResult,
    BeforeToolCallResult,
    Middleware,
    ToolCallContext,
    ToolContext,
    tool,
)
from assent.events import (
    MessageDeltaEvent,
    MessageEndedEvent,
    RunEndedEvent,
    RunStartedEvent,
    ToolStartedEvent,
)
from assent.messages import (
    AssistantMessage,
    RestartDelta,
    TextDelta,
    TextPart,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from assent.models import ScriptedModel

pytestmark = pytest.mark.anyio

Break = Callable[[Agent, "asyncio.Task[AgentResult]"], None]


class Hanging:
    """A model that says some deltas, then waits; asked again, it says that it is back."""

    name = "hanging"

    def __init__(self, *deltas: Any) -> None:
        self.deltas = deltas
        self.said, self.closed = asyncio.Event(), asyncio.Event()
        self.asked = 0

    async def stream(self, request: Any) -> Any:
        self.asked += 1
        if self.asked > 1:
            yield AssistantMessage("back")
            return
        try:
            for delta in self.deltas:
                yield delta
            self.said.set()
            await asyncio.Event().wait()
        finally:
            self.closed.set()


async def stopped(
    agent: Agent, ready: Awaitable[Any], *, twice: bool = False, text: str = "go"
) -> AgentResult:
    """Prompt, wait until it is ready, abort."""
    run = asyncio.create_task(agent.prompt(text))
    await ready
    agent.abort()
    if twice:
        agent.abort()
    return await run


async def cancelled(agent: Agent, ready: Awaitable[Any]) -> None:
    """Prompt, wait until it is ready, cancel the task."""
    run = asyncio.create_task(agent.prompt("go"))
    await ready
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


# While the model speaks.


async def test_abort_keeps_what_the_model_had_said() -> None:
    model = Hanging(TextDelta(text="Well, "), TextDelta(text="I"))
    agent = Agent(model=model)
    result = await stopped(agent, model.said.wait())
    assert (result.status, result.text, result.reason) == ("aborted", "Well, I", "the run was aborted")
    asked, last = result.messages
    assert asked == UserMessage("go")
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.stop_reason) == ("Well, I", "aborted")
    assert model.closed.is_set()
    assert (await agent.prompt("again")).text == "back"


async def test_abort_before_a_word_was_said() -> None:
    model = Hanging()
    result = await stopped(Agent(model=model), model.said.wait())
    assert (result.status, result.text) == ("aborted", "")
    assert result.messages[-1].content == ()
    assert result.messages[-1].stop_reason == "aborted"


async def test_what_was_said_before_a_restart_is_forgotten() -> None:
    model = Hanging(TextDelta(text="lost"), RestartDelta(reason="broken"), TextDelta(text="kept"))
    assert (await stopped(Agent(model=model), model.said.wait())).text == "kept"


async def test_resume_after_an_abort_has_nothing_to_do() -> None:
    model = Hanging(TextDelta(text="Well"))
    agent = Agent(model=model)
    first = await stopped(agent, model.said.wait())
    second = await agent.resume()
    assert (second.status, second.messages) == ("aborted", first.messages)
    assert model.asked == 1


async def test_cancel_while_the_model_speaks() -> None:
    model = Hanging(TextDelta(text="Well"))
    agent = Agent(model=model)
    await cancelled(agent, model.said.wait())
    assert model.closed.is_set()
    assert agent.messages == (UserMessage("go"),)
    assert (await agent.resume()).text == "back"


# While tools run.


async def test_abort_during_an_async_tool() -> None:
    held, other = Held("held"), Held("later", execution_mode="sequential")
    agent = Agent(model=ScriptedModel([calls("held", "later"), "next"]), tools=[held.tool, other.tool])
    result = await stopped(agent, held.started.wait())
    assert result.status == "aborted"
    assert held.cancelled.is_set()
    assert not other.started.is_set()
    running, unstarted = results(result.messages).values()
    assert running.is_error
    assert "unknown" in running.text
    assert unstarted.is_error
    assert unstarted.text.startswith("Not run: the run was aborted")
    assert running.details == unstarted.details == {"synthetic": True}
    assert_sound(result.messages)
    assert (await agent.prompt("again")).text == "next"


async def test_abort_keeps_the_results_of_bodies_that_finished() -> None:
    held = Held("held")

    @tool
    async def quick() -> str:
        return "quick done"

    agent = Agent(model=ScriptedModel([calls("quick", "held", "quick")]), tools=[held.tool, quick])
    result = await stopped(agent, held.started.wait())
    by_id = results(result.messages)
    assert {call_id: each.is_error for call_id, each in by_id.items()} == {
        "c1": False,
        "c2": True,
        "c3": False,
    }
    assert by_id["c1"].text == by_id["c3"].text == "quick done"
    assert_sound(result.messages)


async def test_abort_during_a_sync_tool() -> None:
    started, noticed = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    signals: list[asyncio.Event] = []

    @tool
    def work(ctx: ToolContext) -> str:
        signals.append(ctx.signal)
        loop.call_soon_threadsafe(started.set)
        assert noticed.wait(30)
        return "too late"

    agent = Agent(model=ScriptedModel([calls("work"), "next"]), tools=[work])
    try:
        result = await stopped(agent, started.wait())
        assert signals[0].is_set()  # what a long body looks at now and then
    finally:
        noticed.set()
    assert result.status == "aborted"
    assert "unknown" in texts(result.messages)[0]
    assert (await agent.prompt("again")).text == "next"


async def test_abort_during_a_gate() -> None:
    reached = asyncio.Event()
    held = Held()

    class Gate(Middleware):
        async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult | None:
            if ctx.tool_call.id == "c2":
                reached.set()
                await asyncio.Event().wait()
            return None

    agent = Agent(
        model=ScriptedModel([calls("held", "held"), "next"]), tools=[held.tool], middleware=[Gate()]
    )
    result = await stopped(agent, reached.wait())
    assert result.status == "aborted"
    assert not held.started.is_set()
    assert all(text.startswith("Not run") for text in texts(result.messages))
    assert len(results(result.messages)) == 2
    assert (await agent.prompt("again")).text == "next"


async def test_a_tool_that_will_not_be_cancelled() -> None:
    """It has run to its end, so its result stands; the run is aborted all the same."""
    started, release = asyncio.Event(), asyncio.Event()

    @tool(execution_mode="sequential")
    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            release.set()
            await asyncio.sleep(0)
        return "did it"

    later = Held("later")
    model = ScriptedModel([calls("stubborn", "later"), "never said"])
    result = await stopped(Agent(model=model, tools=[stubborn, later.tool]), started.wait())
    assert result.status == "aborted"
    assert texts(result.messages)[0] == "did it"
    assert texts(result.messages)[1].startswith("Not run")
    assert not later.started.is_set()
    assert len(model.requests) == 1


async def test_a_tool_that_raises_when_it_is_cancelled() -> None:
    started = asyncio.Event()

    @tool
    async def rude() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("cleanup failed")

    for script in (calls("rude"), calls("rude", "rude")):
        started.clear()
        agent = Agent(model=ScriptedModel([script, "next"]), tools=[rude])
        result = await stopped(agent, started.wait())
        assert result.status == "aborted"
        assert "rude failed: ValueError: cleanup failed" in texts(result.messages)
        assert_sound(result.messages)


@pytest.mark.parametrize("count", [1, 2])
async def test_resume_after_a_cancel_repeats_nothing(count: int) -> None:
    held = Held()
    later = Held("later", execution_mode="sequential")
    later.release.set()
    script = [calls(*["held"] * count, "later"), "back"]
    agent = Agent(model=ScriptedModel(script), tools=[held.tool, later.tool])
    await cancelled(agent, held.started.wait())
    assert held.cancelled.is_set()
    assert f"c{count + 1}" in open_calls(agent.messages)  # never started, so that resuming may run it
    before = agent.messages
    held.started.clear()
    result = await agent.resume()
    assert result.messages[: len(before)] == before
    assert not held.started.is_set()  # its effect may have happened: nobody but a person may repeat it
    *interrupted, later_text = (results(result.messages)[f"c{n}"].text for n in range(1, count + 2))
    assert all("unknown" in text for text in interrupted)
    assert (later_text, result.text) == ("later done", "back")
    assert_sound(result.messages)


async def test_prompt_after_a_cancel() -> None:
    held = Held()
    later = Held("later", execution_mode="sequential")
    agent = Agent(model=ScriptedModel([calls("held", "later"), "next"]), tools=[held.tool, later.tool])
    await cancelled(agent, held.started.wait())
    result = await agent.prompt("never mind")
    assert result.text == "next"
    assert texts(result.messages)[1] == "Not run: the conversation went on without it."
    assert_sound(result.messages)


async def test_a_cancel_is_told_as_suspended() -> None:
    heard: list[AgentEvent] = []
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held")]), tools=[held.tool])
    agent.subscribe(heard.append)
    await cancelled(agent, held.started.wait())
    last = heard[-1]
    assert isinstance(last, RunEndedEvent)
    assert (last.status, last.reason) == ("suspended", "CancelledError")


async def test_a_timeout_around_a_prompt() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "back"]), tools=[held.tool])
    scope = asyncio.timeout(None)
    agent.subscribe(lambda event: scope.reschedule(0) if isinstance(event, ToolStartedEvent) else None)
    with pytest.raises(TimeoutError):
        async with scope:
            await agent.prompt("go")
    assert (await agent.resume()).text == "back"


# When and from where.


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
