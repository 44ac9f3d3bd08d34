"""Spans and metrics: what they are called, what they say, and what they keep to themselves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from kit.channel_rigs import Rig, asked
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import SecretStr

from askfirst import Agent, AgentSpec, tool, tracing
from askfirst.errors import HitlAborted, HitlDetached, HitlError
from askfirst.hitl import InMemoryChannel, Question, ask_user_tool
from askfirst.hitl.testing import NoopChannel, ScriptedChannel
from askfirst.messages import AssistantMessage, ToolCall, Usage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
pytest_plugins = ("kit.telemetry",)

OUTCOMES = {"approved", "denied", "edited", "answered", "cancelled", "timed_out", "aborted", "detached"}
APPROVE = {"decision": "approve"}
CALL = ToolCall("c1", "pay", {"amount": 5})


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def the(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = named(spans, name)
    return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes, the duration only checked."""
    found = dict(span.attributes or {})
    if "hitl.duration_seconds" in found:
        seconds = found.pop("hitl.duration_seconds")
        assert isinstance(seconds, float)
        assert seconds >= 0
    return found


def payer(**options: Any) -> Any:
    @tool(requires_approval=True, **options)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    return pay


# The four spans, and the eight outcomes.

VERBS: dict[str, Callable[..., Any]] = {
    "confirm": lambda channel, **how: channel.confirm("?", **how),
    "approve": lambda channel, **how: channel.approve("bash", "tc1", {"cmd": "ls"}, **how),
    "ask": lambda channel, **how: channel.ask([Question(key="k", prompt="?")], **how),
    "escalate": lambda channel, **how: channel.escalate("?", **how),
}
ANSWERED = [
    ("confirm", True, "answered"),
    ("confirm", False, "answered"),
    ("approve", APPROVE, "approved"),
    ("approve", {"decision": "deny"}, "denied"),
    ("approve", {"decision": "edit", "edited_args": {"cmd": "pwd"}}, "edited"),
    ("ask", {"k": "v"}, "answered"),
    ("escalate", "skip", "answered"),
]


def expected(verb: str, question_id: str, outcome: str, *, from_resume: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"hitl.question_id": question_id, "hitl.outcome": outcome}
    if verb == "approve":
        found |= {"hitl.tool_name": "bash", "hitl.tool_call_id": "tc1", "hitl.from_resume": from_resume}
    return found


@pytest.mark.parametrize(("verb", "answer", "outcome"), ANSWERED)
async def test_an_answer_is_traced(
    rig: Rig, spans: InMemorySpanExporter, verb: str, answer: Any, outcome: str
) -> None:
    assert outcome in OUTCOMES
    channel = rig.channel()
    task = rig.start(VERBS[verb](channel))
    request = await asked(channel)
    assert named(spans, f"hitl.{verb}") == [], "a span ends with the wait"
    await channel.answer(request.question_id, answer)
    await task
    span = the(spans, f"hitl.{verb}")
    assert attributes(span) == expected(verb, request.question_id, outcome)
    assert span.status.status_code is trace.StatusCode.UNSET
    assert span.events == ()


async def cancelled(rig: Rig, channel: InMemoryChannel, task: Any) -> None:
    assert channel.pending is not None
    await channel.cancel(channel.pending.question_id)


async def timed_out(rig: Rig, channel: InMemoryChannel, task: Any) -> None:
    await rig.clock.advance(60)


async def aborted(rig: Rig, channel: InMemoryChannel, task: Any) -> None:
    channel.interrupt(HitlAborted("stop"))


async def detached(rig: Rig, channel: InMemoryChannel, task: Any) -> None:
    channel.interrupt(HitlDetached())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("end", [cancelled, timed_out, aborted, detached])
async def test_a_wait_without_an_answer_is_traced(
    rig: Rig, spans: InMemorySpanExporter, verb: str, end: Any
) -> None:
    channel = rig.channel()
    task = rig.start(VERBS[verb](channel, timeout=60.0))
    request = await asked(channel)
    await end(rig, channel, task)
    await asyncio.wait([task])
    outcome = end.__name__
    assert outcome in OUTCOMES
    assert attributes(the(spans, f"hitl.{verb}")) == expected(verb, request.question_id, outcome)


async def test_a_signal_is_an_abort_and_a_cancelled_task_a_detach(
    rig: Rig, spans: InMemorySpanExporter
) -> None:
    channel, signal = rig.channel(), asyncio.Event()
    task = rig.start(channel.confirm("?", signal=signal))
    await asked(channel)
    signal.set()
    await asyncio.wait([task])
    task = rig.start(channel.confirm("?"))
    await asked(channel)
    task.cancel()
    await asyncio.wait([task])
    outcomes = [attributes(span)["hitl.outcome"] for span in named(spans, "hitl.confirm")]
    assert outcomes == ["aborted", "detached"]


@pytest.mark.parametrize("ends", ["abort", "cancel"])
async def test_so_it_is_where_a_subagent_asks(rig: Rig, spans: InMemorySpanExporter, ends: str) -> None:
    payer_spec = AgentSpec("payer", ScriptedModel([CALL]), tools=[payer()])
    delegate = ToolCall("d1", "payer", {"prompt": "pay"})
    agent = rig.agent(model=ScriptedModel([delegate]), subagents=[payer_spec])
    task = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    if ends == "abort":
        agent.abort()
    else:
        task.cancel()
    await asyncio.wait([task])
    outcome = attributes(the(spans, "hitl.approve"))["hitl.outcome"]
    assert outcome == ("aborted" if ends == "abort" else "detached")


async def test_what_went_wrong_is_no_outcome(spans: InMemorySpanExporter) -> None:
    with pytest.raises(HitlError):
        await ScriptedChannel([]).confirm("?")
    span = the(spans, "hitl.confirm")
    assert "hitl.outcome" not in attributes(span)
    assert attributes(span)["error.type"] == "HitlError"
    assert span.status.status_code is trace.StatusCode.ERROR


@pytest.mark.parametrize("fresh", [False, True])
async def test_an_answer_found_on_resuming_says_so(
    rig: Rig, spans: InMemorySpanExporter, fresh: bool
) -> None:
    first = rig.agent(model=ScriptedModel([CALL, "done"]), tools=[payer()])
    task = rig.start(first.prompt("go"))
    await asked(first.channel)
    await first.detach()
    await task
    agent = rig.later(first, model=ScriptedModel(["done"]), tools=[payer()]) if fresh else first
    await agent.respond(question_id="c1", answer=APPROVE)
    waited, found = named(spans, "hitl.approve")
    assert (attributes(waited)["hitl.outcome"], attributes(waited)["hitl.from_resume"]) == ("detached", False)
    assert (attributes(found)["hitl.outcome"], attributes(found)["hitl.from_resume"]) == ("approved", True)


async def test_aborting_the_agent_is_traced(rig: Rig, spans: InMemorySpanExporter) -> None:
    agent = rig.agent(model=ScriptedModel([CALL, "done"]), tools=[payer()])
    task = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    await agent.abort_pending()
    await task
    assert attributes(the(spans, "hitl.approve"))["hitl.outcome"] == "aborted"


# Runs, turns, models, tools.


async def test_a_run_is_a_tree_of_spans(rig: Rig, spans: InMemorySpanExporter) -> None:
    usage = Usage(input_tokens=11, output_tokens=7)
    turn = AssistantMessage([CALL], stop_reason="tool_use", usage=usage)
    agent = rig.agent(id="clerk", model=ScriptedModel([turn, "done"], name="small"), tools=[payer()])
    task = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    await agent.respond(answer=APPROVE)
    await task
    by_id = {span.context.span_id: span for span in spans.get_finished_spans()}

    def path(span: ReadableSpan) -> list[str]:
        above = path(by_id[span.parent.span_id]) if span.parent else []
        return [*above, span.name]

    paths = sorted(path(span) for span in by_id.values())
    run = "invoke_agent clerk"
    assert paths == [
        [run],
        [run, "turn"],
        [run, "turn"],
        [run, "turn", "chat small"],
        [run, "turn", "chat small"],
        [run, "turn", "execute_tool pay"],
        [run, "turn", "hitl.approve"],
    ]
    assert attributes(the(spans, run)) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": "clerk",
        "gen_ai.conversation.id": "t",
    }
    chat, _ = named(spans, "chat small")
    assert attributes(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.response.finish_reasons": ("tool_use",),
    }
    assert attributes(the(spans, "execute_tool pay")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "pay",
        "gen_ai.tool.call.id": "c1",
    }


async def test_failures_are_marked_without_their_words(spans: InMemorySpanExporter) -> None:
    @tool
    async def fails() -> str:
        raise ValueError("the password is hunter2")

    def broken(messages: Any) -> Any:
        raise RuntimeError("the password is hunter2")

    agent = Agent(model=ScriptedModel([ToolCall("c1", "fails", {}), broken]), tools=[fails])
    assert (await agent.prompt("go")).status == "failed"
    failed = the(spans, "execute_tool fails")
    _, chat = named(spans, "chat scripted")
    for span, kind in ((failed, "tool_error"), (chat, "RuntimeError")):
        assert span.status.status_code is trace.StatusCode.ERROR
        assert attributes(span)["error.type"] == kind
    assert "hunter2" not in everything(spans)


def everything(spans: InMemorySpanExporter) -> str:
    return "".join(span.to_json() for span in spans.get_finished_spans())


# What is kept quiet.

SECRETS = ("s3cret-arg", "s3cret-answer", "s3cret-prompt", "s3cret-edit", "s3cret-reason", "s3cret-said")


async def talk_of_secrets() -> None:
    @tool(requires_approval=True)
    async def send(to: str) -> str:
        return f"sent to {to}"

    channel = ScriptedChannel(
        [
            {"decision": "approve", "reason": "s3cret-reason"},
            {"decision": "edit", "edited_args": {"to": "s3cret-edit"}},
            {"k": "s3cret-answer"},
        ]
    )
    questions = {"questions": [{"key": "k", "prompt": "s3cret-prompt"}]}
    calls = [
        ToolCall("c1", "send", {"to": "s3cret-arg"}),
        ToolCall("c2", "send", {"to": "s3cret-arg"}),
        ToolCall("q1", "ask_user", questions),
    ]
    agent = Agent(
        model=ScriptedModel([calls, "s3cret-said"]), tools=[send, ask_user_tool(channel)], channel=channel
    )
    assert (await agent.prompt("s3cret-prompt")).status == "completed"


async def test_no_argument_or_answer_is_in_any_span(
    spans: InMemorySpanExporter, reader: InMemoryMetricReader
) -> None:
    await talk_of_secrets()
    assert len(named(spans, "hitl.approve")) == 2
    told = everything(spans) + (reader.get_metrics_data().to_json() if reader.get_metrics_data() else "")
    for secret in SECRETS:
        assert secret not in told


async def test_content_can_be_switched_on(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "record_content", True)
    await talk_of_secrets()
    first, second = named(spans, "hitl.approve")
    assert attributes(first)["hitl.args"] == '{"to": "s3cret-arg"}'
    assert attributes(first)["hitl.answer"] == '{"decision": "approve", "reason": "s3cret-reason"}'
    assert attributes(second)["hitl.answer"] == '{"decision": "edit"}'
    assert attributes(the(spans, "hitl.ask"))["hitl.answer"] == '{"k": "s3cret-answer"}'
    ran = [attributes(span) for span in named(spans, "execute_tool send")]
    assert ran[0]["gen_ai.tool.call.arguments"] == '{"to": "s3cret-arg"}'
    assert ran[1]["gen_ai.tool.call.arguments"] == '{"to": "s3cret-edit"}'
    assert "sent to s3cret-arg" in ran[0]["gen_ai.tool.call.result"]


async def test_what_is_sensitive_stays_masked_even_then(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "record_content", True)

    @tool(requires_approval=True)
    async def login(user: str, password: SecretStr) -> str:
        return "in"

    edit = {"decision": "edit", "edited_args": {"user": "ada", "password": "hunter3"}}
    call = ToolCall("c1", "login", {"user": "ada", "password": "hunter2"})
    agent = Agent(model=ScriptedModel([call, "done"]), tools=[login], channel=ScriptedChannel([edit]))
    await agent.prompt("go")
    told = everything(spans)
    assert "ada" in told
    assert "hunter2" not in told
    assert "hunter3" not in told


# Metrics.


def points(reader: InMemoryMetricReader, name: str) -> list[Any]:
    data = reader.get_metrics_data()
    found = [
        metric
        for resource in (data.resource_metrics if data else [])
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
    ]
    return list(found[0].data.data_points) if found else []


async def test_open_requests_and_the_time_to_answer_are_measured(
    rig: Rig, reader: InMemoryMetricReader
) -> None:
    channel = rig.channel()

    def still_open() -> dict[str, int]:
        return {
            point.attributes["hitl.kind"]: point.value
            for point in points(reader, "askfirst.hitl.open_requests")
        }

    task = rig.start(channel.approve("bash", "tc1", {}))
    await asked(channel)
    assert still_open() == {"approve": 1}
    await channel.answer("tc1", {"decision": "deny"})
    await task
    assert still_open() == {"approve": 0}
    task = rig.start(channel.confirm("?"))
    request = await asked(channel)
    assert still_open() == {"approve": 0, "confirm": 1}
    await channel.cancel(request.question_id)
    await asyncio.wait([task])
    assert still_open() == {"approve": 0, "confirm": 0}
    (answered,) = points(reader, "askfirst.hitl.time_to_answer")
    assert dict(answered.attributes) == {"hitl.kind": "approve", "hitl.outcome": "denied"}
    assert (answered.count, answered.sum >= 0) == (1, True)


# Without OpenTelemetry.

WITHOUT = """
    import asyncio, sys

    class Blocked:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "opentelemetry":
                raise ModuleNotFoundError(name)

    sys.meta_path.insert(0, Blocked())
    from askfirst import Agent, tool
    from askfirst.hitl.testing import NoopChannel
    from askfirst.messages import ToolCall
    from askfirst.models import ScriptedModel

    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        return "paid"

    async def main():
        agent = Agent(
            model=ScriptedModel([ToolCall("c1", "pay", {"amount": 5}), "done"]), tools=[pay], channel=NoopChannel()
        )
        assert await NoopChannel().confirm("?")
        return await agent.prompt("go")

    result = asyncio.run(main())
    assert not any(name.split(".")[0] == "opentelemetry" for name in sys.modules)
    print(result.status)
"""


def test_without_opentelemetry_nothing_is_traced_and_everything_works() -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", textwrap.dedent(WITHOUT)], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("completed", 0), done.stderr


def test_opentelemetry_is_loaded_when_it_is_first_used() -> None:
    program = (
        "import sys, askfirst, askfirst.hitl, askfirst.agent.agent; print('opentelemetry' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "False"


async def test_without_a_provider_no_span_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    span = tracing.span("x", {"a": 1})
    with span as entered:
        entered.set("a", 1)
        entered.set_content("b", lambda: pytest.fail("nobody looks"))
        entered.fail("x")
    assert type(span) is tracing.Span
    assert (await NoopChannel().approve("bash", "tc", {})).decision == "approve"
