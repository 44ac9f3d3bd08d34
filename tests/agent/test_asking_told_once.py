"""An answer is told, traced and measured once, also when a resumed run finds it again."""

from __future__ import annotations

from typing import Any

import pytest
from kit.channel_rigs import Rig, asked
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from askfirst import Agent, tool
from askfirst.events import AgentEvent, HitlAnswerEvent
from askfirst.hitl import ConfirmToolCallMiddleware, HitlChannel
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
pytest_plugins = ("kit.telemetry",)

APPROVE = {"decision": "approve"}
CALLS = [ToolCall("c1", "pay", {"amount": 1}), ToolCall("c2", "pay", {"amount": 2})]


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    return f"paid {amount}"


def told(agent: Agent) -> list[str]:
    """The ids of the questions whose answers are told from now on."""
    heard: list[str] = []

    def hear(event: AgentEvent) -> None:
        if isinstance(event, HitlAnswerEvent):
            heard.append(event.question_id)

    agent.subscribe(hear)
    return heard


def traced(spans: InMemorySpanExporter) -> list[tuple[Any, Any]]:
    """The waits that were traced: for what, and what came of it."""
    found = (span for span in spans.get_finished_spans() if span.name == "hitl.approve")
    return [
        ((span.attributes or {})["hitl.question_id"], (span.attributes or {})["hitl.outcome"])
        for span in found
    ]


def measured(reader: InMemoryMetricReader) -> list[tuple[int, float]]:
    """How many answers were measured, and how long they took together, for each outcome."""
    data: Any = reader.get_metrics_data()
    return [
        (point.count, point.sum)
        for resource in (data.resource_metrics if data else [])
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "askfirst.hitl.time_to_answer"
        for point in metric.data.data_points
    ]


async def detached_at_the_second(rig: Rig, agent: Agent, channel: HitlChannel) -> None:
    """Approve the first call, and detach the agent while it asks about the second."""
    task = rig.start(agent.prompt("go"))
    requests = aiter(channel.subscribe())
    assert (await anext(requests)).question_id == "c1"
    await channel.answer("c1", APPROVE)
    assert (await anext(requests)).question_id == "c2"
    await agent.detach()
    await task


async def test_an_answer_that_was_told_is_not_told_again(
    rig: Rig, spans: InMemorySpanExporter, reader: InMemoryMetricReader
) -> None:
    agent = rig.agent(model=ScriptedModel([CALLS, "done"]), tools=[pay])
    assert agent.channel is not None
    heard = told(agent)
    await detached_at_the_second(rig, agent, agent.channel)
    assert heard == ["c1"]
    result = await agent.respond(question_id="c2", answer=APPROVE)
    assert result.status == "completed"
    assert heard == ["c1", "c2"]
    assert traced(spans) == [("c1", "approved"), ("c2", "detached"), ("c2", "approved")]
    assert [count for count, _ in measured(reader)] == [2]


async def test_nor_is_it_traced_again_where_the_agent_does_not_know_the_channel(
    stored_rig: Rig, spans: InMemorySpanExporter, reader: InMemoryMetricReader
) -> None:
    channel = stored_rig.channel()
    task = stored_rig.start(channel.approve("pay", "c1", {"amount": 1}))
    await asked(channel)
    await channel.answer("c1", APPROVE)
    assert await task == await channel.approve("pay", "c1", {"amount": 1})
    assert traced(spans) == [("c1", "approved")]
    assert [count for count, _ in measured(reader)] == [1]


async def test_an_answer_that_nobody_here_was_told_of_is_told_once(stored_rig: Rig) -> None:
    first = stored_rig.agent(model=ScriptedModel([CALLS]), tools=[pay])
    assert first.channel is not None
    await detached_at_the_second(stored_rig, first, first.channel)
    later = stored_rig.agent(model=ScriptedModel(["done"]), tools=[pay])
    assert later.channel is not None
    heard = told(later)
    task = stored_rig.start(later.resume())
    await asked(later.channel)
    await later.detach()
    await task
    assert heard == ["c1"]
    await later.respond(question_id="c2", answer=APPROVE)
    assert heard == ["c1", "c2"]


@pytest.mark.parametrize(
    ("settle", "outcome", "decision"),
    [
        (lambda store, thread: store.settle(thread, "c1", {"decision": "deny"}), "denied", "human_deny"),
        (lambda store, thread: store.cancel(thread, "c1", "moot"), "cancelled", "cancelled"),
    ],
    ids=["deny", "cancel"],
)
async def test_a_refusal_that_nobody_here_was_told_of_is_told_and_traced_once(
    stored_rig: Rig, spans: InMemorySpanExporter, settle: Any, outcome: str, decision: str
) -> None:
    first = stored_rig.agent(model=ScriptedModel([CALLS[0]]), tools=[pay])
    task = stored_rig.start(first.prompt("go"))
    assert first.channel is not None
    await asked(first.channel)
    await first.detach()
    await task
    spans.clear()
    await settle(first.channel.checkpointer, first.thread_id)
    later = stored_rig.agent(model=ScriptedModel(["done"]), tools=[pay])
    heard = told(later)
    result = await later.resume()
    assert result.messages[2].details["hitl"]["decision"] == decision
    assert heard == ["c1"]
    assert traced(spans) == [("c1", outcome)]


async def test_a_question_that_is_asked_anew_is_told_anew(rig: Rig, reader: InMemoryMetricReader) -> None:
    """The id alone is no reason to be silent: other arguments are another question."""
    channel = rig.channel()
    agent = rig.agent(channel, model=ScriptedModel([]), tools=[pay])
    heard = told(agent)
    for amount in (1, 2):
        task = rig.start(channel.approve("pay", "c1", {"amount": amount}))
        shown = await asked(channel)
        await channel.answer("c1", APPROVE, digest=shown.digest)
        await task
    assert heard == ["c1", "c1"]
    assert [count for count, _ in measured(reader)] == [2]


async def test_the_time_to_answer_is_the_persons_not_the_waits(
    rig: Rig, reader: InMemoryMetricReader
) -> None:
    agent = rig.agent(model=ScriptedModel([CALLS[0], "done"]), tools=[pay])
    task = rig.start(agent.prompt("go"))
    assert agent.channel is not None
    await asked(agent.channel)
    await agent.detach()
    await task
    await rig.clock.advance(90)
    await agent.channel.answer("c1", APPROVE)
    await rig.clock.advance(600)
    await agent.resume()
    assert measured(reader) == [(1, 90.0)]


async def test_the_time_to_an_answer_that_is_waited_for(rig: Rig, reader: InMemoryMetricReader) -> None:
    channel = rig.channel()
    task = rig.start(channel.confirm("?"))
    request = await asked(channel)
    await rig.clock.advance(30)
    await channel.answer(request.question_id, True)
    await task
    assert measured(reader) == [(1, 30.0)]


async def test_middleware_of_an_agent_with_the_channel_tells_once(rig: Rig) -> None:
    @tool(name="pay")
    def free(amount: int) -> str:
        return f"paid {amount}"

    channel = rig.channel()
    agent = rig.agent(
        channel,
        model=ScriptedModel([CALLS, "done"]),
        tools=[free],
        middleware=[ConfirmToolCallMiddleware(channel)],
    )
    heard = told(agent)
    await detached_at_the_second(rig, agent, channel)
    await agent.respond(question_id="c2", answer=APPROVE)
    assert heard == ["c1", "c2"]
