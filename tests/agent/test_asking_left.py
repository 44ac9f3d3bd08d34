"""Who goes while a person is being asked leaves the question; who aborts after the answer changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any
from unittest import mock

import pytest
from kit.channel_rigs import STORED, Rig, asked
from kit.deeds import Deeds
from kit.dying_stores import Died
from kit.transcripts import assert_sound
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from askfirst import Agent, AgentEvent, tool
from askfirst.checkpointer.base import Step
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlStaleAnswer
from askfirst.events import HitlRequestEvent
from askfirst.hitl import CheckpointedChannel, ask_user_tool
from askfirst.messages import AssistantMessage, ToolCall
from askfirst.models import ScriptedModel
from askfirst.requests import StoredRequest

pytestmark = pytest.mark.anyio
pytest_plugins = ("kit.telemetry",)
APPROVE = {"decision": "approve"}


class Till:
    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(requires_approval=True)
        async def pay(amount: int) -> str:
            self.paid.append(amount)
            return f"paid {amount}"

        self.tool = pay


def payer(till: Till, channel: Any, *more: Any) -> Agent:
    model = ScriptedModel([ToolCall("c1", "pay", {"amount": 5}), *(more or ["done"])])
    return Agent(model=model, tools=[till.tool], channel=channel)


async def read(agent: Agent, *, until: type | None = None) -> None:
    async with aclosing(agent.stream("go", abort_on_leave=True)) as stream:
        async for event in stream:
            if until is not None and isinstance(event, until):
                return


@pytest.mark.parametrize("how", ["cancelled", "left"])
async def test_a_reader_that_goes_leaves_the_question(rig: Rig, how: str) -> None:
    till, channel = Till(), rig.channel()
    agent = payer(till, channel)
    reading = asyncio.ensure_future(read(agent, until=HitlRequestEvent if how == "left" else None))
    if how == "cancelled":
        await asked(channel)
        reading.cancel()
    await asyncio.wait([reading])
    assert agent.messages[-1].stop_reason == "tool_use"
    result = await agent.respond(question_id="c1", answer=APPROVE)
    assert result is not None
    assert (result.status, till.paid) == ("completed", [5])
    assert_sound(agent.messages)


@pytest.mark.parametrize("rig", STORED, indirect=True)
async def test_an_abort_that_comes_after_the_answer_lets_the_run_go_on(rig: Rig) -> None:
    till, channel = Till(), rig.channel()
    agent = payer(till, channel)
    run = asyncio.ensure_future(agent.prompt("go"))
    await asked(channel)
    await rig.checkpointer.settle("t", "c1", APPROVE)
    with pytest.raises(HitlStaleAnswer):
        await agent.abort_pending("too late")
    assert ((await run).status, till.paid) == ("completed", [5])


class AnsweredMeanwhile(MemoryCheckpointer):
    """Somebody answers right after the request was looked at."""

    armed = False

    async def request(self, thread_id: str, question_id: str) -> StoredRequest | None:
        found = await super().request(thread_id, question_id)
        if self.armed:
            self.armed = False
            await self.settle(thread_id, question_id, APPROVE)
        return found


@pytest.mark.parametrize("asks_again", [False, True])
async def test_an_answer_in_the_middle_of_an_abort_wins(asks_again: bool) -> None:
    """Nor does the abort then end the question that comes next, which nobody meant."""
    till, events = Till(), list[AgentEvent]()
    async with AnsweredMeanwhile() as checkpointer:
        channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
        more = [ToolCall("c2", "pay", {"amount": 7}), "done"] if asks_again else ["done"]
        agent = payer(till, channel, *more)
        agent.subscribe(events.append)
        run = asyncio.ensure_future(agent.prompt("go"))
        await asked(channel)
        checkpointer.armed = True
        aborting = asyncio.ensure_future(agent.abort_pending("too late"))
        if asks_again:
            second = channel.subscribe()
            while (await anext(second)).question_id != "c2":
                pass
            await agent.detach()
        result = await run
        with pytest.raises(HitlStaleAnswer):
            await aborting
        assert till.paid == [5]
        assert result.status == ("suspended" if asks_again else "completed")
        assert "agent_aborted" not in [event.type for event in events]
        told = [event.message for event in events if event.type == "message_ended"]
        assert told == list(agent.messages)  # nobody hears of what was never written
        if asks_again:
            pending = await agent.load_pending_hitl_request()
            assert pending is not None
            assert pending.question_id == "c2"


class AbortedMeanwhile:
    """Somebody aborts an agent while a step with this in it is being written."""

    def __init__(self, agent: Agent, checkpointer: SqlCheckpointer, is_it: Callable[[Step], bool]) -> None:
        self._agent, self._is_it, self._commit = agent, is_it, checkpointer.commit
        self.patch = mock.patch.object(checkpointer, "commit", self._abort_and_commit)

    async def _abort_and_commit(self, thread_id: str, step: Step, **options: Any) -> int:
        if self._is_it(step):
            self._agent.abort()
        return await self._commit(thread_id, step, **options)


ASK = ToolCall("c1", "ask_user", {"questions": [{"key": "k", "prompt": "What?"}]})
PAY = ToolCall("c1", "pay", {"amount": 5})


@pytest.mark.parametrize(
    ("called", "has_channel"),
    [(PAY, False), (PAY, True), (ASK, True)],
    ids=["paused", "at the gate", "in a body"],
)
async def test_an_abort_while_the_question_is_being_written_ends_it(
    checkpointer: SqlCheckpointer, called: ToolCall, has_channel: bool
) -> None:
    """Nobody is left to answer what nobody will read, though the run never came to wait for it."""
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    agent = Agent(
        model=ScriptedModel([called]),
        tools=[Till().tool, ask_user_tool(channel)],
        channel=channel if has_channel else None,
        checkpointer=checkpointer,
        thread_id="t",
    )
    with AbortedMeanwhile(agent, checkpointer, lambda step: bool(step.opened)).patch:
        result = await agent.prompt("go")
    assert result.status == "aborted"
    assert_sound(result.messages)
    assert await checkpointer.pending() == []


async def test_a_question_that_an_abort_could_not_end_ends_with_the_next_run(
    checkpointer: SqlCheckpointer,
) -> None:
    """The end of the run was written, and the process died before it could end what had been asked."""
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    tools = [ask_user_tool(channel)]
    agent = Agent(model=ScriptedModel([ASK]), tools=tools, channel=channel)
    with (
        AbortedMeanwhile(agent, checkpointer, lambda step: bool(step.opened)).patch,
        mock.patch.object(checkpointer, "cancel", side_effect=Died),
        pytest.raises(Died),
    ):
        await agent.prompt("go")
    assert len(await checkpointer.pending()) == 1
    fresh = Agent(model=ScriptedModel([]), tools=tools, checkpointer=checkpointer, thread_id="t")
    assert (await fresh.resume()).status == "aborted"
    assert await checkpointer.pending() == []


async def test_a_run_that_is_cancelled_at_its_last_word_has_ended(checkpointer: SqlCheckpointer) -> None:
    """The transcript says so, and so does the record of the run."""
    look = Deeds().asks("look", effect="none")
    model = ScriptedModel([ToolCall("c1", "look", {}), "done"])
    agent = Agent(model=model, tools=[look], checkpointer=checkpointer, thread_id="t")
    await agent.prompt("go")
    await checkpointer.settle("t", "c1", APPROVE)

    def leave(event: AgentEvent) -> None:
        if event.type == "message_ended" and event.message.role == "assistant":
            run.cancel()

    agent.subscribe(leave)
    run = asyncio.ensure_future(agent.resume())
    await asyncio.wait([run])
    assert run.cancelled()
    stored = await checkpointer.load("t")
    assert stored is not None
    assert stored.run is not None
    assert (stored.messages[-1].text, stored.run.status) == ("done", "completed")


async def test_the_span_of_a_wait_that_an_abort_ended_says_so(spans: InMemorySpanExporter, rig: Rig) -> None:
    channel = rig.channel()
    agent = payer(Till(), channel)
    run = asyncio.ensure_future(agent.prompt("go"))
    await asked(channel)
    agent.abort()
    assert (await run).status == "aborted"
    assert isinstance(agent.messages[-1], AssistantMessage)
    (span,) = [span for span in spans.get_finished_spans() if span.name == "hitl.approve"]
    assert (span.attributes or {})["hitl.outcome"] == "aborted"
