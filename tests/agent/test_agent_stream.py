"""Streaming a run: its events as they happen, and leaving early."""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing

import pytest
from kit.transcripts import Held, assert_sound, calls, texts

from askfirst import Agent, AgentEvent, HitlControlException, tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import InvalidCheckpoint, StoreError
from askfirst.events import MessageDeltaEvent, RunEndedEvent, RunStartedEvent, ToolStartedEvent
from askfirst.messages import TextDelta, ToolCall, UserMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


async def test_a_stream_is_the_run_as_it_happens() -> None:
    agent = Agent(model=ScriptedModel(["Hello there, friend."]))
    events: list[AgentEvent] = []
    lengths: list[int] = []
    async for event in agent.stream("hi"):
        events.append(event)
        lengths.append(len(agent.messages))
    assert isinstance(events[0], RunStartedEvent)
    last = events[-1]
    assert isinstance(last, RunEndedEvent)
    assert (last.status, last.text) == ("completed", "Hello there, friend.")
    said = [event.delta.text for event in events if isinstance(event, MessageDeltaEvent)]
    assert "".join(said) == "Hello there, friend."
    assert [event.seq for event in events] == list(range(len(events)))
    assert agent.messages[-1].text == "Hello there, friend."


async def test_events_come_before_the_run_is_over() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "done"]), tools=[held.tool])
    async for event in agent.stream("go"):
        if isinstance(event, ToolStartedEvent):
            assert texts(agent.messages) == []
            held.release.set()  # the run goes on only because its events are already here
    assert agent.messages[-1].text == "done"


async def test_leaving_early_aborts_the_run_if_asked_to() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "next"]), tools=[held.tool])
    async with aclosing(agent.stream("go", abort_on_leave=True)) as stream:
        async for event in stream:
            if isinstance(event, ToolStartedEvent):
                await held.started.wait()
                break
    assert held.cancelled.is_set()
    assert agent.messages[-1].stop_reason == "aborted"
    assert_sound(agent.messages)
    assert (await agent.prompt("again")).text == "next"


async def test_leaving_early_without_closing() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "next"]), tools=[held.tool])
    async for event in agent.stream("go", abort_on_leave=True):
        if isinstance(event, ToolStartedEvent):
            break
    gc.collect()
    assert (await agent.prompt("again")).text == "next"
    assert_sound(agent.messages)


async def test_an_exception_in_the_loop_aborts_the_run_if_asked_to() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "next"]), tools=[held.tool])
    with pytest.raises(ValueError, match="mine"):  # noqa: PT012
        async with aclosing(agent.stream("go", abort_on_leave=True)) as stream:
            async for event in stream:
                if isinstance(event, ToolStartedEvent):
                    raise ValueError("mine")
    assert (await agent.prompt("again")).text == "next"


async def test_leaving_after_the_end_harms_nothing() -> None:
    agent = Agent(model=ScriptedModel(["one", "two"]))
    async with aclosing(agent.stream("go")) as stream:
        async for event in stream:
            if isinstance(event, RunEndedEvent):
                break
    assert agent.messages[-1].text == "one"
    assert (await agent.prompt("again")).text == "two"


async def test_cancelling_the_reader_aborts_the_run_if_asked_to() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "next"]), tools=[held.tool])

    async def read() -> None:
        async for _ in agent.stream("go", abort_on_leave=True):
            pass

    reader = asyncio.create_task(read())
    await held.started.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert agent.messages[-1].stop_reason == "aborted"
    assert_sound(agent.messages)


async def test_a_stream_waits_its_turn_and_hears_its_own_run_only() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "first", "second"]), tools=[held.tool])
    first = asyncio.create_task(agent.prompt("one"))
    await held.started.wait()
    events: list[AgentEvent] = []

    async def read() -> None:
        events.extend([event async for event in agent.stream("two")])

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    held.release.set()
    await reader
    assert {event.run_id for event in events} == {events[0].run_id}
    assert events[0].run_id != (await first).run_id
    assert isinstance(events[0], RunStartedEvent)
    assert isinstance(events[-1], RunEndedEvent)
    assert events[-1].text == "second"
    assert [event.seq for event in events] == list(range(events[0].seq, events[0].seq + len(events)))


async def test_leaving_a_stream_that_still_waits() -> None:
    """It has not begun, so there is nothing to abort; the run before it goes on untouched."""
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "first", "third"]), tools=[held.tool])
    first = asyncio.create_task(agent.prompt("one"))
    await held.started.wait()
    waiting = agent.stream("two", abort_on_leave=True)
    step = asyncio.create_task(anext(waiting))
    await asyncio.sleep(0)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert not held.cancelled.is_set()
    held.release.set()
    assert (await first).text == "first"
    assert (await agent.prompt("three")).text == "third"
    asked = [message.text for message in agent.messages if isinstance(message, UserMessage)]
    assert asked == ["one", "three"]


async def test_abort_ends_the_stream() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held")]), tools=[held.tool])
    events: list[AgentEvent] = []
    async for event in agent.stream("go"):
        events.append(event)
        if isinstance(event, ToolStartedEvent):
            agent.abort()
    assert isinstance(events[-1], RunEndedEvent)
    assert events[-1].status == "aborted"


async def test_a_failed_run_ends_the_stream_without_raising() -> None:
    events = [event async for event in Agent(model=ScriptedModel([])).stream("go")]
    assert isinstance(events[-1], RunEndedEvent)
    assert events[-1].status == "failed"


async def test_what_the_run_raises_comes_out_of_the_stream() -> None:
    class Detach(HitlControlException):
        pass

    signal = Detach()

    @tool
    async def ask() -> None:
        raise signal

    events: list[AgentEvent] = []
    agent = Agent(model=ScriptedModel([calls("ask")]), tools=[ask])
    with pytest.raises(Detach) as caught:  # noqa: PT012
        async for event in agent.stream("go"):
            events.append(event)  # noqa: PERF401
    assert caught.value is signal
    assert isinstance(events[-1], RunEndedEvent)
    assert (events[-1].status, events[-1].reason) == ("suspended", "Detach")


async def test_a_stream_that_is_never_started_runs_nothing() -> None:
    model = ScriptedModel(["one"])
    agent = Agent(model=model)
    stream = agent.stream("go")
    await stream.aclose()
    assert model.requests == []
    assert agent.messages == ()


async def test_two_streams_of_one_agent() -> None:
    agent = Agent(model=ScriptedModel(["one", "two"]))

    async def said(text: str) -> str:
        events = [event async for event in agent.stream(text)]
        deltas = [event.delta for event in events if isinstance(event, MessageDeltaEvent)]
        return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))

    assert await asyncio.gather(said("a"), said("b")) == ["one", "two"]


async def test_what_a_left_run_fails_by_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def dead(*_: object, **__: object) -> int:
        raise StoreError("the line went dead")

    held = Held()
    async with MemoryCheckpointer() as store:
        agent = Agent(model=ScriptedModel([calls("held"), "next"]), tools=[held.tool], checkpointer=store)
        async with aclosing(agent.stream("go", abort_on_leave=True)) as stream:
            async for event in stream:
                if isinstance(event, ToolStartedEvent):
                    await held.started.wait()
                    monkeypatch.setattr(store, "commit", dead)
                    break
    gc.collect()  # so that asyncio would complain of an exception that nobody has looked at
    await asyncio.sleep(0)
    assert [record.name for record in caplog.records] == ["askfirst"]
    assert f"thread {agent.thread_id}: a run failed after its stream was left" in caplog.text
    assert "the line went dead" in caplog.text


async def test_leaving_a_stream_lets_the_run_go_on() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "done", "next"]), tools=[held.tool])
    async with aclosing(agent.stream("go")) as stream:
        async for event in stream:
            if isinstance(event, ToolStartedEvent):
                await held.started.wait()
                break
    gc.collect()  # nothing but the package keeps the run now
    held.release.set()
    assert (await agent.prompt("again")).text == "next"  # it waits for its turn
    assert not held.cancelled.is_set()
    said = [message.text for message in agent.messages if message.role in ("user", "assistant")]
    assert said == ["go", "", "done", "again", "next"]


@tool(requires_approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


async def test_a_resumed_run_is_streamed() -> None:
    async with MemoryCheckpointer() as store:
        model = ScriptedModel([[ToolCall("c1", "pay", {"cents": 9})], "done"])
        agent = Agent(model=model, tools=[pay], checkpointer=store)
        assert (await agent.prompt("pay")).status == "paused"
        await store.settle(agent.thread_id, "c1", {"decision": "approve"})
        events = [event async for event in agent.resume_stream()]
    assert isinstance(events[0], RunStartedEvent)
    assert events[0].resumed
    assert [event.tool_name for event in events if isinstance(event, ToolStartedEvent)] == ["pay"]
    assert isinstance(events[-1], RunEndedEvent)
    assert (events[-1].status, events[-1].text) == ("completed", "done")


async def test_a_run_is_resumed_with_answers_and_streamed() -> None:
    agent = Agent(model=ScriptedModel([[ToolCall("c1", "pay", {"cents": 9})], "done"]), tools=[pay])
    [asked] = (await agent.prompt("pay")).pending_approvals
    answer = {"id": asked.id, "decision": "edit", "edited_args": {"cents": 8}}
    events = [event async for event in agent.resume_stream([answer])]
    [started] = [event for event in events if isinstance(event, ToolStartedEvent)]
    assert started.args == {"cents": 8}
    assert isinstance(events[-1], RunEndedEvent)
    assert events[-1].text == "done"


async def test_answers_that_do_not_fit_come_out_of_the_stream_and_run_nothing() -> None:
    agent = Agent(model=ScriptedModel([[ToolCall("c1", "pay", {"cents": 9})], "done"]), tools=[pay])
    await agent.prompt("pay")
    with pytest.raises(InvalidCheckpoint):
        [event async for event in agent.resume_stream([{"id": "other", "decision": "approve"}])]
    assert [each.id for each in await agent.pending_approvals()] == ["c1"]


async def test_a_resumed_run_whose_stream_is_left_goes_on_or_is_aborted() -> None:
    for abort in (False, True):
        held = Held()
        turns = [[ToolCall("c1", "pay", {"cents": 9})], calls("held"), "done"]
        agent = Agent(model=ScriptedModel(turns), tools=[pay, held.tool])
        [asked] = (await agent.prompt("pay")).pending_approvals
        answer = {"id": asked.id, "decision": "approve"}
        async with aclosing(agent.resume_stream([answer], abort_on_leave=abort)) as stream:
            async for event in stream:
                if isinstance(event, ToolStartedEvent) and event.tool_name == "held":
                    await held.started.wait()
                    break
        assert held.cancelled.is_set() == abort
        held.release.set()
        assert (await agent.resume()).status == ("aborted" if abort else "completed")
        assert_sound(agent.messages)


async def test_a_resumed_stream_hears_nothing_of_the_run_before_it() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([calls("held"), "first"]), tools=[held.tool])
    first = asyncio.create_task(agent.prompt("one"))
    await held.started.wait()
    events: list[AgentEvent] = []

    async def read() -> None:
        events.extend([event async for event in agent.resume_stream()])

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    held.release.set()
    await first
    await reader
    assert isinstance(events[0], RunStartedEvent)
    assert events[0].resumed
    assert not [event for event in events if isinstance(event, MessageDeltaEvent)]
