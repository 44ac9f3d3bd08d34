"""The loop: which bodies run when, and what a model is told of those that did not."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from kit.transcripts import Held, assert_sound, calls, open_calls, results, texts
from pydantic import Field

from askfirst import (
    Agent,
    ApprovalResponse,
    BeforeToolCallResult,
    Middleware,
    Tool,
    ToolCallContext,
    tool,
)
from askfirst.messages import AssistantMessage, ToolCall, call_digest
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


def logging_tools(log: list[str], **modes: str) -> list[Tool]:
    """Tools that log when they start and end, and let others run in between."""

    def make(name: str, mode: Any) -> Tool:
        async def body() -> str:
            log.append(f"+{name}")
            for _ in range(5):
                await asyncio.sleep(0)
            log.append(f"-{name}")
            return name

        return tool(name=name, execution_mode=mode)(body)

    return [make(name, mode) for name, mode in modes.items()]


# Together and alone.


async def test_parallel_tools_run_together_and_report_in_call_order() -> None:
    slow, quick = Held("slow"), Held("quick")
    agent = Agent(model=ScriptedModel([calls("slow", "quick"), "done"]), tools=[slow.tool, quick.tool])
    run = asyncio.create_task(agent.prompt("go"))
    await asyncio.gather(slow.started.wait(), quick.started.wait())
    quick.release.set()
    for _ in range(5):
        await asyncio.sleep(0)
    slow.release.set()
    result = await run
    assert list(results(result.messages)) == ["c1", "c2"]
    assert texts(result.messages) == ["slow done", "quick done"]


async def test_sequential_tools_run_alone_and_in_order() -> None:
    log: list[str] = []
    tools = logging_tools(log, a="parallel", b="parallel", s="sequential", t="sequential", c="parallel")
    script = [calls("a", "b", "s", "t", "c", "a", "s"), "done"]
    result = await Agent(model=ScriptedModel(script), tools=tools).prompt("go")
    assert log[:2] == ["+a", "+b"]
    assert set(log[2:4]) == {"-a", "-b"}
    assert log[4:8] == ["+s", "-s", "+t", "-t"]
    assert log[8:10] == ["+c", "+a"]
    assert set(log[10:12]) == {"-c", "-a"}
    assert log[12:] == ["+s", "-s"]
    assert texts(result.messages) == ["a", "b", "s", "t", "c", "a", "s"]
    assert list(results(result.messages)) == [f"c{n}" for n in range(1, 8)]


async def test_results_keep_the_call_order_around_refused_calls() -> None:
    log: list[str] = []
    tools = logging_tools(log, a="parallel", s="sequential")
    script = [calls("nothing", "a", "nothing", "s", "nothing", "a"), "done"]
    result = await Agent(model=ScriptedModel(script), tools=tools).prompt("go")
    assert list(results(result.messages)) == ["c1", "c2", "c3", "c4", "c5", "c6"]
    assert [each.is_error for each in results(result.messages).values()] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]


# The gate.


class Gate(Middleware):
    """Logs the gates, and holds the one of a given call until it is opened."""

    def __init__(self, log: list[str], hold: str) -> None:
        self.log, self.hold = log, hold
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult | None:
        self.log.append(f"?{ctx.tool_call.id}")
        if ctx.tool_call.id == self.hold:
            self.reached.set()
            await self.open.wait()
            return BeforeToolCallResult(block=True, reason="no")
        return None


async def test_no_body_starts_until_every_gate_is_settled() -> None:
    log: list[str] = []
    gate = Gate(log, hold="c3")
    tools = logging_tools(log, a="parallel", s="sequential")
    agent = Agent(model=ScriptedModel([calls("a", "s", "a", "a"), "done"]), tools=tools, middleware=[gate])
    run = asyncio.create_task(agent.prompt("go"))
    await gate.reached.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert log == ["?c1", "?c2", "?c3"]
    gate.open.set()
    result = await run
    assert log == ["?c1", "?c2", "?c3", "?c4", "+a", "-a", "+s", "-s", "+a", "-a"]
    assert texts(result.messages) == ["a", "s", "no", "a"]


async def test_arguments_are_checked_before_middleware_is_asked() -> None:
    log: list[str] = []
    gate = Gate(log, hold="")

    @tool
    async def count(n: int) -> int:
        return n

    bad = [
        ToolCall("c1", "count", {"n": "x"}),
        ToolCall("c2", "nothing", {}),
        ToolCall("c3", "count", {"n": 1}),
    ]
    await Agent(model=ScriptedModel([bad, "done"]), tools=[count], middleware=[gate]).prompt("go")
    assert log == ["?c3"]


@pytest.mark.parametrize(("decision", "runs"), [("approve", ["pay"]), ("deny", [])])
async def test_a_tool_that_requires_approval_fails_closed(decision: Any, runs: list[str]) -> None:
    """With nobody here to ask, the run stops before the body; only an answer lets it go on."""
    ran: list[str] = []

    @tool(requires_approval=True)
    async def pay() -> None:
        ran.append("pay")

    model = ScriptedModel([calls("pay"), "done"])
    agent = Agent(model=model, tools=[pay])
    for paused in (await agent.prompt("go"), await agent.resume(), await agent.resume_with([])):
        assert paused.status == "paused"
        assert [each.id for each in paused.pending_approvals] == ["c1"]
        assert open_calls(paused.messages) == ["c1"]
    assert ran == []
    assert len(model.requests) == 1
    result = await agent.resume_with([ApprovalResponse(id="c1", decision=decision)])
    assert result.status == "completed"
    assert ran == runs
    assert results(result.messages)["c1"].is_error is not bool(runs)
    assert (await agent.resume()).messages == result.messages
    assert ran == runs


@pytest.mark.parametrize(
    ("trace", "runs"),
    [
        (None, False),
        ({}, False),
        ({"decision": "human_deny"}, False),
        ({"decision": "policy_allow"}, False),
        ({"decision": True}, False),
        ({"decision": "human_approve"}, True),
        ({"decision": "human_edit"}, True),
    ],
)
async def test_only_a_persons_approval_on_record_lets_it_run(trace: Any, runs: bool) -> None:
    ran: list[str] = []

    @tool(requires_approval=True)
    async def pay() -> None:
        ran.append("pay")

    class Person(Middleware):
        async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult:
            seen = trace and {**trace, "digest": call_digest("pay", {})}
            return BeforeToolCallResult(hitl_trace=seen)

    model = ScriptedModel([calls("pay"), "done"])
    result = await Agent(model=model, tools=[pay], middleware=[Person()]).prompt("go")
    assert bool(ran) is runs
    assert result.status == ("completed" if runs else "paused")
    assert open_calls(result.messages) == ([] if runs else ["c1"])


# What the model is told, so that it can mend its ways.


@tool
async def book(city: str, nights: Annotated[int, Field(gt=0)], room: str = "double") -> str:
    return f"{city} {nights} {room}"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            ToolCall("c1", "bok", {}),
            "There is no tool called bok. Did you mean book? Available tools: book, ping.",
        ),
        (ToolCall("c1", "zzz", {}), "There is no tool called zzz. Available tools: book, ping."),
        (
            ToolCall("c1", "book", {"city": "Rome", "nights": 0}),
            (
                "The arguments of book are invalid, so it was not run. nights: Input should be "
                "greater than 0. It takes a JSON object with: city, nights, room (optional)."
            ),
        ),
        (
            ToolCall("c1", "book", {"nights": "two", "town": "Rome"}),
            (
                "The arguments of book are invalid, so it was not run. city: Field required; nights: Input "
                "should be a valid integer, unable to parse string as an integer; town: Extra inputs are "
                "not permitted. "
                "It takes a JSON object with: city, nights, room (optional)."
            ),
        ),
        (
            ToolCall("c1", "book", {}, malformed='{"city": "Ro'),
            (
                "The arguments of book were not a JSON object. "
                "It takes a JSON object with: city, nights, room (optional)."
            ),
        ),
        (
            ToolCall("c1", "ping", {"x": 1}),
            (
                "The arguments of ping are invalid, so it was not run. x: Extra inputs are not permitted. "
                "It takes no arguments: send {}."
            ),
        ),
    ],
)
async def test_calls_that_cannot_run(call: ToolCall, said: str) -> None:
    @tool
    async def ping() -> str:
        return "pong"

    model = ScriptedModel([call, ToolCall("c2", "book", {"city": "Rome", "nights": 2}), "booked"])
    result = await Agent(model=model, tools=[book, ping]).prompt("go")
    assert (result.status, result.text) == ("completed", "booked")
    refused, booked = results(result.messages).values()
    assert (refused.text, refused.is_error) == (said, True)
    assert (booked.text, booked.is_error) == ("Rome 2 double", False)
    assert model.requests[1][-1] == refused


async def test_an_unknown_tool_where_there_are_none() -> None:
    result = await Agent(model=ScriptedModel([calls("x"), "done"])).prompt("go")
    assert texts(result.messages) == ["There is no tool called x. Available tools: none."]


async def test_one_failing_body_does_not_disturb_the_others() -> None:
    held = Held("held")

    @tool
    async def broken() -> None:
        raise ValueError("no")

    agent = Agent(model=ScriptedModel([calls("held", "broken"), "done"]), tools=[held.tool, broken])
    run = asyncio.create_task(agent.prompt("go"))
    await held.started.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    held.release.set()
    result = await run
    assert texts(result.messages) == ["held done", "broken failed: ValueError: no"]
    assert [each.is_error for each in results(result.messages).values()] == [False, True]


async def test_calls_in_an_answer_cut_off_are_run() -> None:
    said = AssistantMessage(ToolCall("c1", "book", {"city": "Rome", "nights": 1}), stop_reason="length")
    result = await Agent(model=ScriptedModel([said, "done"]), tools=[book]).prompt("go")
    assert texts(result.messages) == ["Rome 1 double"]
    assert_sound(result.messages)


class Fatal(BaseException):
    pass


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, SystemExit, Fatal])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("others", [0, 1])
def test_what_ends_the_program_is_not_swallowed(fatal: type[BaseException], kind: str, others: int) -> None:
    def stop() -> None:
        raise fatal

    async def stop_async() -> None:
        raise fatal

    agents: list[Agent] = []

    async def main() -> None:
        waiting = Held("other")
        stopper = tool(name="stop")(stop if kind == "sync" else stop_async)
        script = [calls("stop", *["other"] * others), "next"]
        agents.append(Agent(model=ScriptedModel(script), tools=[stopper, waiting.tool]))
        await agents[0].prompt("go")

    with pytest.raises((fatal, BaseExceptionGroup)) as caught:
        asyncio.run(main())
    assert caught.group_contains(fatal) if isinstance(caught.value, BaseExceptionGroup) else True
    result = asyncio.run(agents[0].prompt("again"))
    assert "unknown" in results(result.messages)["c1"].text
    assert_sound(result.messages)
