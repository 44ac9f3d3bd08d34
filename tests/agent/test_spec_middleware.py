"""Middleware: an onion around the model and the tools."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from kit.transcripts import assert_sound, calls, results, texts

from askfirst import (
    Agent,
    AgentEvent,
    BeforeToolCallResult,
    Middleware,
    ModelCallContext,
    Tool,
    ToolCallContext,
    ToolResult,
    tool,
)
from askfirst.messages import AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from askfirst.models import ScriptedModel
from askfirst.models.base import ModelRequest

pytestmark = pytest.mark.anyio


@tool
async def pay(amount: int, to: str = "Ada") -> str:
    return f"{amount} to {to}"


PAY = ToolCall("c1", "pay", {"amount": 5})


async def run(*layers: Middleware, turns: Any = (PAY, "done"), tools: Any = (pay,)) -> ToolResultMessage:
    """The result of one call, through these layers."""
    agent = Agent(model=ScriptedModel(turns), tools=tools, middleware=layers)
    result = await agent.prompt("go")
    assert result.status == "completed"
    assert_sound(result.messages)
    return results(result.messages)["c1"]


class Deciding(Middleware):
    """Says the same of every call."""

    def __init__(self, decision: Any) -> None:
        self.decision = decision
        self.seen: list[ToolCallContext] = []

    async def before_tool_call(self, ctx: ToolCallContext) -> Any:
        self.seen.append(ctx)
        return self.decision


class Logging(Middleware):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    async def before_model(self, ctx: ModelCallContext) -> None:
        self.log.append(f"{self.name} before_model")

    async def after_model(self, ctx: ModelCallContext) -> None:
        self.log.append(f"{self.name} after_model")

    async def before_tool_call(self, ctx: ToolCallContext) -> None:
        self.log.append(f"{self.name} before_tool_call")

    async def after_tool_call(self, ctx: ToolCallContext) -> None:
        self.log.append(f"{self.name} after_tool_call")

    async def on_event(self, event: AgentEvent) -> None:
        if event.type == "run_started":
            self.log.append(f"{self.name} on_event")


async def test_the_first_is_outermost() -> None:
    log: list[str] = []
    await run(Logging("outer", log), Logging("inner", log))
    assert log == [
        "outer on_event",
        "inner on_event",
        "outer before_model",
        "inner before_model",
        "inner after_model",
        "outer after_model",
        "outer before_tool_call",
        "inner before_tool_call",
        "inner after_tool_call",
        "outer after_tool_call",
        "outer before_model",
        "inner before_model",
        "inner after_model",
        "outer after_model",
    ]


async def test_a_middleware_that_does_nothing() -> None:
    assert (await run(Middleware(), Middleware())).text == "5 to Ada"


# Around tools.


async def test_the_context_of_a_call() -> None:
    layer = Deciding(None)
    agent = Agent(model=ScriptedModel([PAY, "done"]), tools=[pay], middleware=[layer], thread_id="t1")
    result = await agent.prompt("go")
    (ctx,) = layer.seen
    assert (ctx.tool_call, ctx.tool, ctx.result) == (PAY, pay, None)
    assert ctx.args.model_dump() == {"amount": 5, "to": "Ada"}
    assert tuple(ctx.messages) == result.messages[:2]
    assert (ctx.thread_id, ctx.run_id) == ("t1", result.run_id)
    assert not ctx.signal.is_set()


async def test_block_with_a_reason() -> None:
    inner = Deciding(None)
    ran: list[int] = []

    @tool(name="pay")
    async def never(amount: int) -> None:
        ran.append(amount)

    refused = await run(Deciding(BeforeToolCallResult(block=True, reason="too much")), inner, tools=[never])
    assert (refused.text, refused.is_error, refused.details) == ("too much", True, None)
    assert ran == []
    assert inner.seen == []  # the outer layer had the last word


async def test_block_without_a_reason() -> None:
    assert (await run(Deciding(BeforeToolCallResult(block=True)))).text == "pay was not allowed to run."


@pytest.mark.parametrize("reason", ["half \ud800", 7])
async def test_block_with_an_odd_reason(reason: Any) -> None:
    refused = await run(Deciding(BeforeToolCallResult(block=True, reason=reason)))
    assert refused.is_error
    assert refused.text in {"half ?", "7"}


async def test_edited_arguments_are_what_runs_and_what_the_next_layer_sees() -> None:
    inner = Deciding(None)
    edited = await run(Deciding(BeforeToolCallResult(edited_args={"amount": "7", "to": "Bob"})), inner)
    assert edited.text == "7 to Bob"
    assert inner.seen[0].args.model_dump() == {"amount": 7, "to": "Bob"}
    assert inner.seen[0].tool_call == PAY  # the transcript keeps what the model asked for


async def test_the_last_edit_wins() -> None:
    layers = [Deciding(BeforeToolCallResult(edited_args={"amount": amount})) for amount in (6, 7)]
    assert (await run(*layers)).text == "7 to Ada"


async def test_empty_edits_are_edits() -> None:
    refused = await run(Deciding(BeforeToolCallResult(edited_args={})))
    assert refused.is_error


@pytest.mark.parametrize("edits", [{"amount": "lots"}, {"amount": 1, "more": 2}, ["amount"], 7])
async def test_edited_arguments_that_do_not_fit(edits: Any) -> None:
    trace = {"decision": "edited"}
    refused = await run(Deciding(BeforeToolCallResult(edited_args=edits, hitl_trace=trace)))
    assert refused.is_error
    assert refused.text.startswith("pay was not run: the edited arguments do not fit.")
    assert refused.details == {"hitl": trace}


@pytest.mark.parametrize("block", [False, True])
async def test_the_trace_of_a_decision(block: bool) -> None:
    first = BeforeToolCallResult(hitl_trace={"decision": "asked", "by": "Ada"})
    second = BeforeToolCallResult(block=block, reason="no", hitl_trace={"decision": "allowed"})
    result = await run(Deciding(first), Deciding(second))
    assert result.is_error is block
    assert result.details == {"hitl": {"decision": "allowed", "by": "Ada"}}


async def test_the_trace_stands_beside_the_tools_details() -> None:
    @tool(name="pay")
    async def detailed(amount: int) -> ToolResult:
        return ToolResult("ok", details={"receipt": 1})

    layer = Deciding(BeforeToolCallResult(hitl_trace={"decision": "allowed"}))
    result = await run(layer, tools=[detailed])
    assert result.details == {"receipt": 1, "hitl": {"decision": "allowed"}}


async def test_a_trace_that_is_no_json_does_not_lose_the_result() -> None:
    layer = Deciding(BeforeToolCallResult(hitl_trace={"at": date(2026, 1, 2), "who": "\ud800"}))  # pyright: ignore[reportArgumentType]
    result = await run(layer)
    assert (result.text, result.is_error) == ("5 to Ada", False)
    assert result.details is not None
    assert "hitl" in result.details


class Broken(Middleware):
    def __init__(self, hook: str) -> None:
        self.hook = hook

    def _maybe(self, hook: str) -> None:
        if hook == self.hook:
            raise ValueError("broken")

    async def before_model(self, ctx: ModelCallContext) -> None:
        self._maybe("before_model")

    async def after_model(self, ctx: ModelCallContext) -> None:
        self._maybe("after_model")

    async def before_tool_call(self, ctx: ToolCallContext) -> None:
        self._maybe("before_tool_call")

    async def after_tool_call(self, ctx: ToolCallContext) -> None:
        self._maybe("after_tool_call")

    async def on_event(self, event: AgentEvent) -> None:
        self._maybe("on_event")


async def test_a_check_that_raises_refuses(caplog: pytest.LogCaptureFixture) -> None:
    traced = Deciding(BeforeToolCallResult(hitl_trace={"decision": "allowed"}))
    refused = await run(traced, Broken("before_tool_call"))
    assert refused.is_error
    assert refused.text == "pay was not run: a check before it failed (ValueError)."
    why = "a check before it failed (ValueError)"
    assert refused.details == {"hitl": {"decision": "policy_deny", "reason": why}}
    assert "the call is refused" in caplog.text


@pytest.mark.parametrize("decision", [True, {"block": False}, "ok", 0])
async def test_a_check_that_returns_nonsense_refuses(decision: Any) -> None:
    refused = await run(Deciding(decision))
    assert refused.is_error
    assert "TypeError" in refused.text


async def test_after_tool_call_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert (await run(Broken("after_tool_call"))).text == "5 to Ada"
    assert "its result stands" in caplog.text


@pytest.mark.parametrize("hook", ["before_model", "after_model"])
async def test_a_model_hook_that_raises_fails_the_run(hook: str) -> None:
    agent = Agent(model=ScriptedModel(["one"]), middleware=[Broken(hook)])
    result = await agent.prompt("go")
    assert (result.status, result.reason) == ("failed", "ValueError: broken")


async def test_on_event_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert (await run(Broken("on_event"))).text == "5 to Ada"
    assert "a listener raised" in caplog.text


async def test_after_tool_call_may_replace_the_result() -> None:
    seen: list[Any] = []

    class Redacting(Middleware):
        def __init__(self, word: str) -> None:
            self.word = word

        async def after_tool_call(self, ctx: ToolCallContext) -> ToolResultMessage:
            assert ctx.result is not None
            seen.append(ctx.result.text)
            return ctx.result.model_copy(
                update={"content": ToolResultMessage("x", "y", f"{self.word} {ctx.result.text}").content}
            )

    assert (await run(Redacting("outer"), Redacting("inner"))).text == "outer inner 5 to Ada"
    assert seen == ["5 to Ada", "inner 5 to Ada"]


@pytest.mark.parametrize("returned", [ToolResultMessage("other", "pay", "x"), "text", 7])
async def test_after_tool_call_cannot_leave_the_call_open(returned: Any) -> None:
    """A result of another call would leave this one unresolved, and its body would run again."""
    ran: list[int] = []

    @tool(name="pay")
    async def once(amount: int) -> str:
        ran.append(amount)
        return "paid"

    class Confused(Middleware):
        async def after_tool_call(self, ctx: ToolCallContext) -> Any:
            return returned

    assert (await run(Confused(), tools=[once])).text == "paid"
    assert ran == [5]


async def test_after_tool_call_hears_of_failures_but_not_of_refusals() -> None:
    heard: list[tuple[str, bool]] = []

    class Auditing(Middleware):
        async def after_tool_call(self, ctx: ToolCallContext) -> None:
            assert ctx.result is not None
            heard.append((ctx.tool_call.id, ctx.result.is_error))

    @tool
    async def broken() -> None:
        raise ValueError("no")

    turn = [PAY, ToolCall("c2", "broken", {}), ToolCall("c3", "none", {}), ToolCall("c4", "pay", {})]
    await run(Auditing(), turns=[turn, "done"], tools=[pay, broken])
    assert sorted(heard) == [("c1", False), ("c2", True)]


# Around the model.


async def test_before_model_may_send_another_request() -> None:
    class Adding(Middleware):
        def __init__(self, word: str) -> None:
            self.word = word

        async def before_model(self, ctx: ModelCallContext) -> ModelRequest:
            assert ctx.message is None
            return replace(ctx.request, messages=(*ctx.request.messages, UserMessage(self.word)))

    model = ScriptedModel(["ok"])
    agent = Agent(model=model, middleware=[Adding("outer"), Adding("inner")])
    result = await agent.prompt("go")
    assert model.requests == [[UserMessage("go"), UserMessage("outer"), UserMessage("inner")]]
    assert result.messages == (UserMessage("go"), AssistantMessage("ok"))  # the transcript is not touched


async def test_after_model_may_keep_another_answer() -> None:
    class Shouting(Middleware):
        async def after_model(self, ctx: ModelCallContext) -> AssistantMessage:
            assert ctx.message is not None
            return AssistantMessage(ctx.message.text.upper())

    class Asking(Middleware):
        async def after_model(self, ctx: ModelCallContext) -> AssistantMessage:
            assert ctx.message is not None
            return AssistantMessage(ctx.message.text + "?")

    model = ScriptedModel(["really", "done"])
    agent = Agent(model=model, middleware=[Shouting(), Asking()])
    assert (await agent.prompt("go")).text == "REALLY?"


async def test_hooks_run_one_call_after_another() -> None:
    active: list[str] = []

    class Slow(Middleware):
        async def before_tool_call(self, ctx: ToolCallContext) -> None:
            active.append(f"+{ctx.tool_call.id}")
            await asyncio.sleep(0)
            active.append(f"-{ctx.tool_call.id}")

    made: list[Tool] = [tool(name=name)(_nothing) for name in ("a", "b")]
    agent = Agent(model=ScriptedModel([calls("a", "b"), "x"]), tools=made, middleware=[Slow()])
    result = await agent.prompt("go")
    assert active == ["+c1", "-c1", "+c2", "-c2"]
    assert texts(result.messages) == ["null", "null"]


async def _nothing() -> None: ...
