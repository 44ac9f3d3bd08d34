"""Streams of runs that pause: envelopes in order, approval events, and leaving the loop stops everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from kit.deeds import (
    Deeds,
    account_spec,
    approve,
    call,
    delegate,
    deny,
    mailer,
    paused_at,
    pending_ids,
    script,
)
from kit.transcripts import Held
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from askfirst import (
    Agent,
    AgentSpec,
    RunCheckpoint,
    StreamEnvelope,
    run_agent,
    run_agent_resume_stream,
    run_agent_stream,
)
from askfirst.errors import InvalidCheckpoint
from askfirst.events import ApprovalEvent, decode_event, encode_event
from askfirst.messages import AssistantMessage, Delta, TextDelta, ToolCall
from askfirst.models.base import ModelRequest

pytestmark = pytest.mark.anyio
pytest_plugins = ("kit.telemetry",)


async def collect(stream: AsyncIterator[StreamEnvelope]) -> list[StreamEnvelope]:
    return [envelope async for envelope in stream]


def approvals(envelopes: list[StreamEnvelope]) -> list[tuple[str, str, str | None]]:
    """The approval events: phase, id, decision; each can be written and read again."""
    events = [each.event for each in envelopes if isinstance(each.event, ApprovalEvent)]
    assert all(decode_event(encode_event(event)) == event for event in events)
    return [(event.phase, event.approval.id, event.decision) for event in events]


async def test_the_seed_streams() -> None:
    deleted: list[str] = []
    spec = account_spec(deleted)
    surfaced: list[str] = []
    checkpoint: RunCheckpoint | None = None
    async for env in run_agent_stream(spec, "Delete account 12345"):
        if env.type == "paused":
            surfaced += [each.id for each in env.pending]  # before the terminal result
            checkpoint = env.checkpoint
    assert surfaced == ["call_delete"]
    assert checkpoint is not None
    statuses: list[str] = []
    async for env in run_agent_resume_stream(spec, checkpoint, approve("call_delete")):
        if env.type == "result":
            assert env.result is not None
            statuses.append(env.result.status)
    assert statuses == ["completed"]
    assert deleted == ["12345"]


async def test_events_then_paused_then_the_result() -> None:
    spec = mailer(Deeds())
    envelopes = await collect(run_agent_stream(spec, "go", thread_id="t", principal="maria"))
    *events, paused, last = envelopes
    assert {each.type for each in events} == {"event"}
    assert [each.event.type for each in events if each.event][:2] == ["run_started", "message_started"]
    assert (paused.type, last.type) == ("paused", "result")
    assert last.result is not None
    assert pending_ids(last.result) == ["c1", "c2"]
    assert paused.pending == last.result.pending_approvals
    assert paused.checkpoint == last.result.checkpoint
    assert last.result.thread_id == "t"
    assert paused.pending[0].principal == "maria"


async def test_a_run_that_is_done_has_no_paused_envelope() -> None:
    envelopes = await collect(run_agent_stream(AgentSpec("a", script("done")), "go"))
    assert [each.type for each in envelopes if each.type != "event"] == ["result"]


async def test_approvals_are_requested_and_resolved() -> None:
    spec = mailer(Deeds())
    asked = await collect(run_agent_stream(spec, "go"))
    assert approvals(asked) == [("requested", "c1", None), ("requested", "c2", None)]
    partly = await collect(run_agent_resume_stream(spec, _checkpoint(asked), approve("c1")))
    assert approvals(partly) == []  # c2 waits still, and so nothing goes on
    done = await collect(run_agent_resume_stream(spec, _checkpoint(partly), deny("c2")))
    assert approvals(done) == [("resolved", "c1", "approve"), ("resolved", "c2", "deny")]


async def test_a_subagents_approvals_are_heard_at_the_root() -> None:
    deeds = Deeds()
    child = AgentSpec("refunds", script([call("c1", "pay", "5")], "paid"), tools=[deeds.asks("pay")])
    spec = AgentSpec("support", script([delegate("a", "refunds")], "done"), subagents=[child])
    asked = await collect(run_agent_stream(spec, "go"))
    assert approvals(asked) == [("requested", "a/c1", None)]
    (event,) = [each.event for each in asked if isinstance(each.event, ApprovalEvent)]
    assert event.agent_path == event.approval.agent_path == ("support", "refunds")
    done = await collect(run_agent_resume_stream(spec, _checkpoint(asked), approve("a/c1")))
    assert approvals(done) == [("resolved", "a/c1", "approve")]


async def test_responses_that_do_not_fit_are_raised_by_the_stream() -> None:
    deeds = Deeds()
    spec = mailer(deeds)
    paused = await run_agent(spec, "go")
    with pytest.raises(InvalidCheckpoint, match="'c9'"):
        await collect(run_agent_resume_stream(spec, paused_at(paused, "c1", "c2"), approve("c9")))
    await collect(run_agent_resume_stream(spec, paused_at(paused, "c1", "c2"), approve("c1", "c2")))
    with pytest.raises(InvalidCheckpoint, match="resumed before"):
        await collect(run_agent_resume_stream(spec, paused_at(paused, "c1", "c2"), approve("c1", "c2")))
    assert sorted(deeds.done) == ["mail a", "mail b"]


# Stopping.


class Talker:
    """A model that talks until it is stopped."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    @property
    def name(self) -> str:
        return "talker"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | AssistantMessage]:
        try:
            yield TextDelta(text="well, ")
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


async def leave(stream: AsyncIterator[StreamEnvelope], ready: str) -> list[str]:
    """Leave the loop at the first event of this type; returns the types seen."""
    seen: list[str] = []
    async for envelope in stream:
        assert envelope.event is not None
        seen.append(envelope.event.type)
        if envelope.event.type == ready:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return seen


async def test_leaving_the_loop_stops_the_model() -> None:
    model = Talker()
    await leave(run_agent_stream(AgentSpec("a", model), "go"), "message_delta")
    assert model.stopped.is_set()


async def test_a_plain_break_stops_the_model_too() -> None:
    model = Talker()
    async for envelope in run_agent_stream(AgentSpec("a", model), "go"):
        if envelope.event is not None and envelope.event.type == "message_delta":
            break
    await model.stopped.wait()


async def test_leaving_the_loop_stops_the_tools() -> None:
    held = Held()
    spec = AgentSpec("a", script([ToolCall("c1", "held", {})], "done"), tools=[held.tool])
    stream = run_agent_stream(spec, "go")
    async for envelope in stream:
        if envelope.event is not None and envelope.event.type == "tool_started":
            break
    await held.started.wait()
    await stream.aclose()  # type: ignore[attr-defined]
    assert held.cancelled.is_set()
    assert len(spec.model.requests) == 1  # nor is the model asked again


async def test_leaving_a_resumed_loop_stops_what_subagents_do() -> None:
    deeds, held = Deeds(), Held()
    child = AgentSpec(
        "worker",
        script([call("c1", "pay", "5")], [ToolCall("c2", "held", {})], "done"),
        tools=[deeds.asks("pay"), held.tool],
    )
    spec = AgentSpec("boss", script([delegate("a", "worker")], "done"), subagents=[child])
    paused = await run_agent(spec, "go")
    stream = run_agent_resume_stream(spec, paused_at(paused, "a/c1"), approve("a/c1"))
    async for envelope in stream:
        if envelope.event is not None and envelope.event.type == "tool_started":
            assert envelope.event.agent_path[0] == "boss"
            if held.started.is_set() or envelope.event.tool_name == "held":
                break
    await held.started.wait()
    await stream.aclose()  # type: ignore[attr-defined]
    assert held.cancelled.is_set()
    assert (len(child.model.requests), len(spec.model.requests)) == (2, 1)


async def test_the_signal_ends_a_stream_with_an_aborted_result() -> None:
    model, signal = Talker(), asyncio.Event()
    statuses: list[str] = []
    async for envelope in run_agent_stream(AgentSpec("a", model), "go", signal=signal):
        if envelope.event is not None and envelope.event.type == "message_delta":
            signal.set()
        if envelope.result is not None:
            statuses.append(envelope.result.status)
    assert model.stopped.is_set()
    assert statuses == ["aborted"]


async def test_a_stream_that_nobody_reads_runs_nothing() -> None:
    deeds = Deeds()
    spec = AgentSpec("a", script([call("c1", "look")], "done"), tools=[deeds.tool("look")])
    stream = run_agent_stream(spec, "go")
    await stream.aclose()  # type: ignore[attr-defined]
    assert deeds.done == []


# Traces.


async def test_approvals_are_span_events(spans: InMemorySpanExporter) -> None:
    deeds = Deeds()
    child = AgentSpec("refunds", script([call("c1", "pay", "secret")], "paid"), tools=[deeds.asks("pay")])
    spec = AgentSpec("support", script([delegate("a", "refunds")], "done"), subagents=[child])
    agent = Agent.from_spec(spec)  # nobody listens
    await agent.prompt("go")
    assert _noted(spans) == [
        {
            "approval.phase": "requested",
            "approval.id": "a/c1",
            "gen_ai.tool.name": "pay",
            "askfirst.agent_path": "support/refunds",
        }
    ]
    spans.clear()
    await agent.resume_with(approve("a/c1"))
    (noted,) = _noted(spans)
    assert (noted["approval.phase"], noted["approval.decision"]) == ("resolved", "approve")
    assert "secret" not in str([span.to_json() for span in spans.get_finished_spans()])


def _noted(spans: InMemorySpanExporter) -> list[dict[str, object]]:
    events = [event for span in spans.get_finished_spans() for event in span.events]
    return [dict(event.attributes or {}) for event in events if event.name == "approval"]


def _checkpoint(envelopes: list[StreamEnvelope]) -> RunCheckpoint:
    assert envelopes[-2].checkpoint is not None
    return RunCheckpoint.from_json(envelopes[-2].checkpoint.to_json())
