"""Stopping a run: by abort, or by cancelling the task that awaits it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.transcripts import Held, assert_sound, calls, open_calls, results, stopped, texts

from askfirst import (
    Agent,
    AgentEvent,
    ApprovalResponse,
    BeforeToolCallResult,
    Middleware,
    ToolCallContext,
    ToolContext,
    tool,
)
from askfirst.events import (
    RunEndedEvent,
    ToolStartedEvent,
)
from askfirst.messages import (
    AssistantMessage,
    RestartDelta,
    TextDelta,
    UserMessage,
)
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


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
        assert noticed.wait(PATIENCE)
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


@pytest.mark.parametrize("decision", ["deny", "approve"])
@pytest.mark.parametrize("count", [1, 2])
async def test_resume_after_a_cancel_repeats_nothing(count: int, decision: Any) -> None:
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
    held.release.set()
    paused = await agent.resume()
    assert (paused.status, paused.messages) == ("paused", before)
    assert not held.started.is_set()  # its effect may have happened: nobody but a person may repeat it
    assert not later.started.is_set()
    pending = paused.pending_approvals
    assert [(each.kind, each.tool_call.id) for each in pending] == [
        ("escalate", f"c{n + 1}") for n in range(count)
    ]
    result = await agent.resume_with([ApprovalResponse(id=each.id, decision=decision) for each in pending])
    assert result.messages[: len(before)] == before
    assert held.started.is_set() is (decision == "approve")
    *interrupted, later_text = (results(result.messages)[f"c{n}"].text for n in range(1, count + 2))
    assert all(text == "held done" if decision == "approve" else "unknown" in text for text in interrupted)
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
    paused = await agent.resume()
    assert [each.kind for each in paused.pending_approvals] == ["escalate"]
    skip = ApprovalResponse(id=paused.pending_approvals[0].id, decision="deny")
    assert (await agent.resume_with([skip])).text == "back"
