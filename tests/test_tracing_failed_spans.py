"""What fails is marked as failed in every span around it, by the name of what went wrong and nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kit.channel_rigs import asked
from kit.deeds import Deeds, call, delegate, script
from kit.patience import PATIENCE
from kit.transcripts import Held
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from askfirst import Agent, AgentSpec
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import LeaseLost, ModelError
from askfirst.hitl import CheckpointedChannel
from askfirst.messages import Message
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
pytest_plugins = ("kit.telemetry",)
HIDDEN = "the key is hunter2"


def fails(messages: list[Message]) -> Any:
    """A turn of a model that is not there."""
    raise ModelError(HIDDEN)


def failures(spans: InMemorySpanExporter) -> dict[str, str | None]:
    """The kind of failure of each span, by its name; None for one that did not fail."""
    found = spans.get_finished_spans()
    assert not any(HIDDEN in (span.to_json() or "") for span in found)
    return {span.name: _failure(span) for span in found}


def _failure(span: ReadableSpan) -> str | None:
    kind = dict(span.attributes or {}).get("error.type")
    assert (span.status.status_code.name == "ERROR") == (kind is not None)
    assert span.status.description in (None, kind)
    assert {event.name for event in span.events} <= {"approval"}  # what was asked is no failure
    return None if kind is None else str(kind)


class Breaking(MemoryCheckpointer):
    """A store that is gone from its so-manieth commit on."""

    def __init__(self, at: int, error: Exception | None = None) -> None:
        super().__init__()
        self._left, self._error = at, error or ConnectionError(HIDDEN)

    async def commit(self, *args: Any, **options: Any) -> int:
        self._count()
        return await super().commit(*args, **options)

    def begin_commit(self, *args: Any, **options: Any) -> asyncio.Future[int]:
        self._count()
        return super().begin_commit(*args, **options)

    def _count(self) -> None:
        self._left -= 1
        if self._left <= 0:
            raise self._error


@pytest.fixture
async def store() -> AsyncIterator[MemoryCheckpointer]:
    async with asyncio.timeout(PATIENCE), MemoryCheckpointer() as store:
        yield store


async def test_a_model_that_fails(spans: InMemorySpanExporter) -> None:
    assert (await Agent(model=ScriptedModel([fails])).prompt("go")).status == "failed"
    assert failures(spans) == dict.fromkeys(("chat scripted", "turn", "invoke_agent agent"), "ModelError")


async def test_a_model_that_is_asked_too_often(spans: InMemorySpanExporter) -> None:
    model = script([call("c1", "pay")], "Done.")
    result = await Agent(model=model, tools=[Deeds().tool("pay")], max_iterations=1).prompt("go")
    assert result.status == "failed"
    turns = [_failure(span) for span in spans.get_finished_spans() if span.name == "turn"]
    assert turns == [None, "failed"]
    assert failures(spans)["invoke_agent agent"] == "failed"


@pytest.mark.parametrize(("at", "turn"), [(2, "ConnectionError"), (4, None)])
async def test_a_store_that_is_gone(spans: InMemorySpanExporter, at: int, turn: str | None) -> None:
    """The second commit is within the turn; the fourth writes the end of the run, when the turn is over."""
    async with Breaking(at) as store:
        model = script([call("c1", "pay")], "Done.")
        agent = Agent(model=model, tools=[Deeds().tool("pay")], checkpointer=store, thread_id="t")
        with pytest.raises(ConnectionError):
            await agent.prompt("go")
    found = failures(spans)
    assert (found["turn"], found["invoke_agent agent"]) == (turn, "ConnectionError")
    assert found["chat scripted"] is None


async def test_a_subagent_that_fails(spans: InMemorySpanExporter) -> None:
    helper = AgentSpec("helper", ScriptedModel([fails]))
    agent = Agent(model=script([delegate("c1", "helper")], "Done."), subagents=[helper])
    assert (await agent.prompt("go")).status == "completed"
    found = failures(spans)
    assert (found["invoke_agent helper"], found["execute_tool helper"]) == ("ModelError", "tool_error")
    assert found["invoke_agent agent"] is None


async def test_a_pause_is_no_failure(spans: InMemorySpanExporter) -> None:
    agent = Agent(model=script([call("c1", "pay")], "Done."), tools=[Deeds().asks("pay")])
    assert (await agent.prompt("go")).status == "paused"
    for span in spans.get_finished_spans():
        assert span.status.status_code.name == "UNSET"


async def test_a_detach_is_no_failure(spans: InMemorySpanExporter, store: MemoryCheckpointer) -> None:
    channel = CheckpointedChannel(checkpointer=store, thread_id="t")
    model = script([call("c1", "pay")], "Done.")
    agent = Agent(model=model, tools=[Deeds().asks("pay")], channel=channel)
    run = asyncio.create_task(agent.prompt("go"))
    await asked(channel)
    await agent.detach()
    assert (await run).status == "suspended"
    assert set(failures(spans).values()) == {None}


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_to_be_stopped_is_no_failure(spans: InMemorySpanExporter, how: str) -> None:
    held = Held()
    agent = Agent(model=script([call("c1", "held")], "Done."), tools=[held.tool])
    run = asyncio.create_task(agent.prompt("go"))
    await held.started.wait()
    agent.abort() if how == "abort" else run.cancel()
    await asyncio.wait([run])
    assert set(failures(spans).values()) == {None}


async def test_a_thread_that_another_has_is_no_failure(spans: InMemorySpanExporter) -> None:
    async with Breaking(2, LeaseLost("t", 1)) as store:
        model = script([call("c1", "pay")], "Done.")
        agent = Agent(model=model, tools=[Deeds().tool("pay")], checkpointer=store, thread_id="t")
        assert (await agent.prompt("go")).status == "suspended"
    assert set(failures(spans).values()) == {None}
