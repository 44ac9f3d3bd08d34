"""Where tool bodies run, and what they may know about the call they serve."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.tool_calls import call, properties

from askfirst import (
    Agent,
    ToolContext,
    tool,
)
from askfirst.events import AgentEvent, ToolProgressEvent
from askfirst.messages import (
    ToolCall,
    ToolResultMessage,
)
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


# Where bodies run.


async def test_a_sync_body_runs_in_a_thread_and_the_loop_goes_on() -> None:
    started, release = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    @tool
    def block() -> str:
        threads.append(threading.current_thread())
        started.set()
        assert release.wait(PATIENCE)
        return "released"

    async def bystander() -> None:
        await asyncio.to_thread(started.wait)
        release.set()  # only a loop that is not blocked gets here

    result, _ = await asyncio.gather(call(block), bystander())
    assert result.text == "released"
    assert threads != [threading.current_thread()]


async def test_parallel_sync_bodies_run_at_once() -> None:
    both = threading.Barrier(2, timeout=PATIENCE)

    @tool
    def meet() -> str:
        both.wait()  # raises unless the other body is there too
        return "met"

    calls = [ToolCall("c1", "meet", {}), ToolCall("c2", "meet", {})]
    result = await Agent(model=ScriptedModel([calls, "done"]), tools=[meet]).prompt("go")
    assert [each.text for each in result.messages if isinstance(each, ToolResultMessage)] == ["met", "met"]


async def test_blocking_in_an_async_body_is_noticed() -> None:
    """The suite's own alarm: without it, the tests above would prove less."""
    import time

    @tool
    async def block() -> None:
        time.sleep(0.001)  # noqa: ASYNC251

    result = await call(block)
    assert result.is_error
    assert "Blocking call to time.sleep" in result.text


# The context.


async def test_context_names_the_call_and_the_thread() -> None:
    seen: list[ToolContext] = []

    @tool
    async def look(a: int, ctx: ToolContext) -> None:
        seen.append(ctx)

    model = ScriptedModel([ToolCall("c7", "look", {"a": 1}), "done"])
    agent = Agent(model=model, tools=[look], thread_id="t1")
    result = await agent.prompt("go")
    (ctx,) = seen
    assert list(properties(look)) == ["a"]
    assert (ctx.tool_call_id, ctx.tool_name) == ("c7", "look")
    assert (ctx.thread_id, ctx.run_id) == ("t1", result.run_id)
    assert not ctx.signal.is_set()


async def test_context_in_any_position() -> None:
    def first(ctx: ToolContext, x: int, /) -> str:
        return f"{ctx.tool_call_id} {x}"

    def optional(x: int, ctx: ToolContext | None = None) -> str:
        return f"{ctx.tool_call_id if ctx else None} {x}"

    def twice(a: ToolContext, x: int, b: ToolContext) -> str:
        return f"{a.tool_call_id if a is b else None} {x}"

    for function in (first, optional, twice):
        made = tool(function)
        assert list(properties(made)) == ["x"]
        assert (await call(made, {"x": 1})).text == "c1 1"


async def test_idempotency_key_is_stable_and_unique() -> None:
    keys: list[str] = []

    @tool
    async def look(ctx: ToolContext) -> None:
        keys.append(ctx.idempotency_key)

    calls = [ToolCall("c1", "look", {}), ToolCall("c2", "look", {})]
    for thread_id in ("t1", "t1", "t2"):
        agent = Agent(model=ScriptedModel([calls, "done"]), tools=[look], thread_id=thread_id)
        await agent.prompt("go")
    assert len({*keys}) == 6, "the same ids on a thread of the same name are other calls"
    assert all(key.isascii() and key.isalnum() and 16 <= len(key) <= 64 for key in keys)


async def progress_of(body: Callable[..., Any]) -> list[tuple[float | None, str]]:
    heard: list[AgentEvent] = []
    made = tool(body)
    agent = Agent(model=ScriptedModel([ToolCall("c1", made.name, {}), "done"]), tools=[made])
    agent.subscribe(heard.append)
    result = await agent.prompt("go")
    assert not [m for m in result.messages if isinstance(m, ToolResultMessage) and m.is_error]
    kinds = [event.type for event in heard if event.type.startswith("tool_")]
    reports = [event for event in heard if isinstance(event, ToolProgressEvent)]
    assert kinds == ["tool_started", *["tool_progress"] * len(reports), "tool_ended"]
    assert {(event.tool_call_id, event.tool_name) for event in reports} == {("c1", made.name)}
    return [(event.fraction, event.text) for event in reports]


def _report(ctx: ToolContext) -> None:
    ctx.report(0.25)
    ctx.report("half")
    ctx.report(0.75, "most")
    ctx.report(1)


REPORTED = [(0.25, ""), (None, "half"), (0.75, "most"), (1.0, "")]


async def test_report_from_the_loop() -> None:
    async def work(ctx: ToolContext) -> None:
        _report(ctx)

    assert await progress_of(work) == REPORTED


async def test_report_from_a_thread() -> None:
    def work(ctx: ToolContext) -> None:
        _report(ctx)

    assert await progress_of(work) == REPORTED


async def test_report_from_another_loop() -> None:
    """A sync body may well run an event loop of its own; listeners still hear in the agent's."""
    heard_in: list[threading.Thread] = []

    @tool
    def work(ctx: ToolContext) -> None:
        async def inner() -> None:
            _report(ctx)

        asyncio.run(inner())

    agent = Agent(model=ScriptedModel([ToolCall("c1", "work", {}), "done"]), tools=[work])
    agent.subscribe(lambda _: heard_in.append(threading.current_thread()))
    await agent.prompt("go")
    assert {*heard_in} == {threading.current_thread()}
    assert await progress_of(work.function) == REPORTED


@pytest.mark.parametrize(
    ("given", "fraction"), [(-1, 0.0), (7, 1.0), (math.inf, 1.0), (-math.inf, 0.0), (math.nan, None)]
)
async def test_fractions_stay_between_nothing_and_all(given: float, fraction: float | None) -> None:
    async def work(ctx: ToolContext) -> None:
        ctx.report(given, "so far")

    assert await progress_of(work) == [(fraction, "so far")]


async def test_reports_reach_async_listeners_before_the_tool_ends() -> None:
    heard: list[str] = []

    async def slow(event: AgentEvent) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        heard.append(event.type)

    @tool
    async def work(ctx: ToolContext) -> None:
        ctx.report(0.5)

    agent = Agent(model=ScriptedModel([ToolCall("c1", "work", {}), "done"]), tools=[work])
    agent.subscribe(slow)
    await agent.prompt("go")
    assert heard.index("tool_progress") < heard.index("tool_ended")
