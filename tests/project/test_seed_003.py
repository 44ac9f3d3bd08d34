"""Seed document 003, "HITL & checkpoints", sentence by sentence where no other test of its subject does so."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from kit.deeds import Deeds, account_spec, call, completed, mailer, paused_at, script
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from askfirst import (
    Agent,
    AgentResult,
    AgentSpec,
    ApprovalResponse,
    OTelTracer,
    TraceEvent,
    Tracer,
    run_agent,
    run_agent_resume,
)
from askfirst.agent.runner import run_agent_resume_stream
from askfirst.approvals import ResponseLike
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpoints import RunCheckpointStore, resume_checkpoint
from askfirst.errors import HitlTimedOut, InvalidCheckpoint, MissingExtra
from askfirst.events import AgentEvent, ApprovalEvent
from askfirst.hitl import ConfirmToolCallMiddleware
from askfirst.hitl.testing import ScriptedChannel

pytestmark = pytest.mark.anyio
pytest_plugins = ("kit.telemetry",)


# "[{ id: "call_delete", decision: "approve" }]"


async def resumed(spec: AgentSpec, paused: AgentResult, responses: Sequence[ResponseLike]) -> AgentResult:
    assert paused.checkpoint is not None
    return await run_agent_resume(spec, paused.checkpoint, responses)


async def streamed(spec: AgentSpec, paused: AgentResult, responses: Sequence[ResponseLike]) -> AgentResult:
    assert paused.checkpoint is not None
    results = [
        envelope.result
        async for envelope in run_agent_resume_stream(spec, paused.checkpoint, responses)
        if envelope.type == "result"
    ]
    assert results[0] is not None
    return results[0]


async def from_a_store(
    spec: AgentSpec, paused: AgentResult, responses: Sequence[ResponseLike]
) -> AgentResult:
    assert paused.checkpoint is not None
    async with MemoryCheckpointer() as memory:
        store = RunCheckpointStore(memory)
        saved = await store.save(spec.id, paused.checkpoint)
        return await resume_checkpoint(spec, saved, responses, store=store)


@pytest.mark.parametrize("resume", [resumed, streamed, from_a_store])
async def test_resumes_with_plain_dicts(resume: Any) -> None:
    deleted: list[str] = []
    spec = account_spec(deleted)
    paused = await run_agent(spec, "Delete account 12345")
    assert paused.status == "paused"
    result = await resume(spec, paused, [{"id": "call_delete", "decision": "approve"}])
    assert result.status == "completed"
    assert deleted == ["12345"]


async def test_an_agent_resumes_with_plain_dicts() -> None:
    deeds = Deeds()
    calls = [call("c1", "mail", "a"), call("c2", "mail", "b"), call("c3", "mail", "c")]
    agent = Agent(model=script(calls, "done"), tools=[deeds.asks("mail")])
    paused = await agent.prompt("go")
    shown = {each.id: each.digest for each in paused.pending_approvals}
    result = await agent.resume_with(
        [
            {"id": "c1", "decision": "deny", "reason": "no"},
            {"id": "c2", "decision": "edit", "edited_args": {"what": "B"}},
            ApprovalResponse(id="c3", decision="approve", digest=shown["c3"]),
        ]
    )
    assert completed(result)["c1"] == "A person denied mail: no"
    assert deeds.done == ["mail B", "mail c"]


WRONG: list[tuple[Any, str]] = [
    ({"id": "c1", "decision": "approve"}, "responses are a list of dicts"),
    ("c1", "responses are a list of dicts"),
    (None, "not NoneType"),
    (["c1"], "response 1 is str; it is an ApprovalResponse or a dict"),
    ([{"decision": "approve"}], "response 1 needs the id"),
    ([{"id": 7, "decision": "approve"}], "response 1 needs the id"),
    (
        [{"id": "c1"}],
        "the decision of the response to 'c1' is one of approve, deny, edit, and has to be there",
    ),
    ([{"id": "c1", "decision": "aprove"}], "one of approve, deny, edit, not 'aprove'"),
    ([{"id": "c1", "decision": True}], "one of approve, deny, edit"),
    ([{"id": "c1", "decision": ["approve"]}], "one of approve, deny, edit"),
    ([{"id": "c1", "decision": "approve", "diggest": "x"}], "'diggest', which is not a field of a response"),
    ([{"id": "c1", "decision": "approve", 5: "x"}], "5, which is not a field of a response"),
    ([{"id": "c1", "decision": "edit", "edited_args": "hunter2"}], "the response to 'c1' does not fit"),
    ([{"id": "c9", "decision": "approve"}], "'c9' is not pending here"),
]


@pytest.mark.parametrize(("responses", "said"), WRONG)
@pytest.mark.parametrize("resume", [resumed, streamed, from_a_store])
async def test_a_response_that_is_none_is_refused_in_a_sentence(
    resume: Any, responses: Any, said: str
) -> None:
    deeds = Deeds()
    paused = await run_agent(mailer(deeds), "go")
    with pytest.raises(InvalidCheckpoint) as raised:
        await resume(mailer(deeds), paused, responses)
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value), "an edit may hold a secret"
    assert deeds.done == []
    again = await run_agent_resume(
        mailer(deeds), paused_at(paused, "c1", "c2"), [{"id": "c1", "decision": "approve"}]
    )
    assert again.status == "paused", "what was refused took nothing away"


async def test_a_response_that_is_none_is_refused_before_the_checkpoint_is_claimed() -> None:
    deeds = Deeds()
    paused = await run_agent(mailer(deeds), "go")
    assert paused.checkpoint is not None
    async with MemoryCheckpointer() as memory:
        store = RunCheckpointStore(memory)
        saved = await store.save("mailer", paused.checkpoint)
        with pytest.raises(InvalidCheckpoint, match="'aprove'"):
            await resume_checkpoint(
                mailer(deeds), saved, [{"id": "c1", "decision": "aprove"}, {"id": "c2"}], store=store
            )
        claimed = await store.claim("mailer", saved)
        assert not claimed.retaken


# "Approval phases emit approval trace events", "export via Tracer or OTelTracer".


def told(events: Sequence[AgentEvent]) -> list[tuple[Any, ...]]:
    return [
        (each.phase, each.approval.id, each.approval.tool_call.name, each.decision)
        for each in events
        if isinstance(each, ApprovalEvent)
    ]


def in_spans(spans: InMemorySpanExporter) -> list[tuple[Any, ...]]:
    """Each span event ``approval``: on which span it is, and what it says."""
    names = ("approval.phase", "approval.id", "gen_ai.tool.name", "approval.decision")
    found = [
        (event.timestamp, span.name, *((event.attributes or {}).get(name) for name in names))
        for span in spans.get_finished_spans()
        for event in span.events
        if event.name == "approval"
    ]
    return [each[1:] for each in sorted(found, key=lambda it: it[0])]


ANSWERS: list[tuple[Any, str]] = [
    ({"decision": "approve"}, "approve"),
    ({"decision": "deny", "reason": "no"}, "deny"),
    ({"decision": "edit", "edited_args": {"what": "b"}}, "edit"),
]


@pytest.mark.parametrize(("answer", "decision"), ANSWERS)
@pytest.mark.parametrize("by", ["tool", "middleware"])
async def test_approval_events_are_there_with_a_channel(
    spans: InMemorySpanExporter, answer: Any, decision: str, by: str
) -> None:
    deeds, channel = Deeds(), ScriptedChannel([answer])
    mail = deeds.asks("mail") if by == "tool" else deeds.tool("mail")
    middleware = [] if by == "tool" else [ConfirmToolCallMiddleware(channel)]
    agent = Agent(
        model=script([call("c1", "mail", "a")], "done"), tools=[mail], channel=channel, middleware=middleware
    )
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    assert (await agent.prompt("go")).status == "completed"
    assert told(events) == [("requested", "c1", "mail", None), ("resolved", "c1", "mail", decision)]
    assert in_spans(spans) == [
        ("hitl.approve", "requested", "c1", "mail", None),
        ("hitl.approve", "resolved", "c1", "mail", decision),
    ]


async def test_an_approval_that_nobody_answers_is_not_resolved() -> None:
    deeds, channel = Deeds(), ScriptedChannel([HitlTimedOut(60)])
    agent = Agent(
        model=script([call("c1", "mail", "a")], "done"), tools=[deeds.asks("mail")], channel=channel
    )
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    await agent.prompt("go")
    assert [each[0] for each in told(events)] == ["requested"]


async def test_a_question_is_no_approval() -> None:
    channel = ScriptedChannel([True])
    deeds = Deeds()

    async def ask(what: str = "") -> str:
        return str(await channel.confirm("Well?"))

    agent = Agent(model=script([call("c1", "ask", "a")], "done"), tools=[ask], channel=channel)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    await agent.prompt("go")
    assert [each.type for each in events].count("hitl_answer") == 1
    assert told(events) == []
    assert deeds.done == []


def phases(events: Sequence[TraceEvent]) -> list[tuple[Any, ...]]:
    return [(each.name, each.phase) for each in events if each.phase is not None]


BOTH = [("approval", "requested"), ("approval", "resolved")]


async def test_a_tracer_exports_approvals_of_runs() -> None:
    exported: list[TraceEvent] = []
    tracer = Tracer(exported.append)
    deleted: list[str] = []
    spec = account_spec(deleted)
    paused = await run_agent(spec, "Delete account 12345", tracer=tracer)
    assert paused.checkpoint is not None
    assert phases(exported) == BOTH[:1]
    responses = [{"id": "call_delete", "decision": "approve"}]
    await run_agent_resume(spec, paused.checkpoint, responses, tracer=tracer)
    assert phases(exported) == BOTH
    assert exported == tracer.events
    requested = next(each for each in exported if each.phase == "requested")
    assert requested.attributes == {
        "approval.phase": "requested",
        "approval.id": "call_delete",
        "gen_ai.tool.name": "delete_account",
        "gen_ai.tool.call.id": "call_delete",
        "askfirst.agent_path": "support",
        "askfirst.matched_rule_id": "deletes",
    }
    assert requested.to_json()["agent_path"] == ["support"]
    assert "12345" not in str([each.to_json() for each in exported]), "nothing that was said is traced"


async def test_a_tracer_exports_approvals_of_agents_and_may_be_async() -> None:
    exported: list[TraceEvent] = []

    async def export(event: TraceEvent) -> None:
        exported.append(event)

    channel = ScriptedChannel([{"decision": "approve"}])
    agent = Agent(
        model=script([call("c1", "mail", "a")], "done"), tools=[Deeds().asks("mail")], channel=channel
    )
    tracer = Tracer(export, keep=1)
    agent.subscribe(tracer)
    await agent.prompt("go")
    assert phases(exported) == BOTH
    assert [each.name for each in tracer.events] == ["run_ended"]


async def test_the_otel_tracer_exports_approvals_as_spans() -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    channel = ScriptedChannel([{"decision": "deny"}])
    agent = Agent(
        model=script([call("c1", "mail", "a")], "done"),
        tools=[Deeds().asks("mail")],
        channel=channel,
        thread_id="t",
    )
    agent.subscribe(OTelTracer(provider))
    await agent.prompt("go")
    found = [(span.name, dict(span.attributes or {})) for span in exporter.get_finished_spans()]
    common = {
        "approval.id": "c1",
        "gen_ai.tool.name": "mail",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.conversation.id": "t",
        "askfirst.agent_path": "agent",
    }
    assert found == [
        ("approval", {**common, "approval.phase": "requested"}),
        ("approval", {**common, "approval.phase": "resolved", "approval.decision": "deny"}),
    ]


def test_the_otel_tracer_says_which_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(MissingExtra, match="'tracing' extra"):
        OTelTracer()
