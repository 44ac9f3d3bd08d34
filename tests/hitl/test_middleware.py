"""Asking before a tool runs: by policy, or always."""

from __future__ import annotations

from typing import Any

import pytest
from kit.channel_rigs import STORED, Rig, asked
from kit.transcripts import results

from askfirst import Agent, Middleware, ToolCallContext, tool
from askfirst.hitl import (
    ApprovalPolicyMiddleware,
    Approve,
    ApproveAnswer,
    AskUser,
    ConfirmToolCallMiddleware,
    Deny,
    HitlCancelled,
    HitlTimedOut,
)
from askfirst.hitl.testing import NoopChannel, ScriptedChannel
from askfirst.messages import ToolCall, ToolResultMessage, call_digest
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

YES = ApproveAnswer(decision="approve")


class Bank:
    """Two tools, and what they were asked to do."""

    def __init__(self) -> None:
        self.done: list[Any] = []

        @tool
        async def pay(amount: int, to: str = "ada") -> str:
            self.done.append(("pay", amount, to))
            return f"paid {amount}"

        @tool
        async def look() -> str:
            self.done.append("look")
            return "looked"

        self.tools = [pay, look]


CALLS = [ToolCall("c1", "pay", {"amount": 5}), ToolCall("c2", "look", {})]


async def run(
    bank: Bank, *layers: Middleware, calls: Any = CALLS, **options: Any
) -> dict[str, ToolResultMessage]:
    agent = Agent(model=ScriptedModel([calls, "done"]), tools=bank.tools, middleware=layers, **options)
    result = await agent.prompt("go")
    assert result.status == "completed"
    return results(result.messages)


def details(result: ToolResultMessage) -> Any:
    return (result.details or {}).get("hitl")


# Which calls are asked about.


async def test_by_default_every_call_is_asked_about() -> None:
    bank, channel = Bank(), ScriptedChannel([YES, YES])
    await run(bank, ConfirmToolCallMiddleware(channel))
    assert [request.question_id for request in channel.history] == ["c1", "c2"]
    assert bank.done == [("pay", 5, "ada"), "look"]


async def test_a_set_names_the_tools_that_are_asked_about() -> None:
    bank, channel = Bank(), ScriptedChannel([YES])
    await run(bank, ConfirmToolCallMiddleware(channel, require_confirm={"pay", "pa"}))
    assert [request.question_id for request in channel.history] == ["c1"]
    bank, channel = Bank(), ScriptedChannel([])
    await run(bank, ConfirmToolCallMiddleware(channel, require_confirm={"pa", "payments"}))
    assert channel.history == [], "names match exactly"
    assert len(bank.done) == 2


async def test_an_empty_set_asks_about_nothing() -> None:
    bank, channel = Bank(), ScriptedChannel([])
    await run(bank, ConfirmToolCallMiddleware(channel, require_confirm=set()))
    assert len(bank.done) == 2


async def test_a_predicate_picks_the_calls() -> None:
    def big(ctx: ToolCallContext) -> bool:
        return ctx.args.model_dump().get("amount", 0) > 3

    bank, channel = Bank(), ScriptedChannel([YES])
    await run(bank, ConfirmToolCallMiddleware(channel, require_confirm=big))
    assert [request.question_id for request in channel.history] == ["c1"]
    small = [ToolCall("c1", "pay", {"amount": 3})]
    await run(bank, ConfirmToolCallMiddleware(ScriptedChannel(), require_confirm=big), calls=small)


async def test_what_is_shown() -> None:
    bank, channel = Bank(), ScriptedChannel([YES, YES])
    layer = ConfirmToolCallMiddleware(
        channel,
        timeout_seconds=30.0,
        details_fn=lambda ctx: {"tool": ctx.tool_call.name, "thread": ctx.thread_id},
    )
    await run(bank, layer, thread_id="t")
    first, _ = channel.history
    assert first.timeout_seconds == 30.0
    assert first.payload.model_dump(exclude={"args_schema"}) == {
        "kind": "approve",
        "tool_name": "pay",
        "tool_call_id": "c1",
        "args": {"amount": 5, "to": "ada"},
        "details": {"tool": "pay", "thread": "t"},
        "digest": call_digest("pay", {"amount": 5, "to": "ada"}),
    }


# The decisions.


async def test_denied_calls_are_errors_with_the_reason() -> None:
    bank = Bank()
    channel = ScriptedChannel([{"decision": "deny", "reason": "too much"}, YES])
    done = await run(bank, ConfirmToolCallMiddleware(channel))
    assert bank.done == ["look"]
    assert done["c1"].is_error
    assert "too much" in done["c1"].text
    assert details(done["c1"]) == {
        "decision": "human_deny",
        "reason": "too much",
        "digest": call_digest("pay", {"amount": 5, "to": "ada"}),
    }
    assert details(done["c2"]) == {"decision": "human_approve", "digest": call_digest("look", {})}


async def test_edited_calls_run_with_the_edited_arguments() -> None:
    bank = Bank()
    channel = ScriptedChannel([{"decision": "edit", "edited_args": {"amount": 4}}, YES])
    done = await run(bank, ConfirmToolCallMiddleware(channel))
    assert bank.done == [("pay", 4, "ada"), "look"]
    assert '{"amount": 4, "to": "ada"}' in done["c1"].text
    assert details(done["c1"]) == {
        "decision": "human_edit",
        "edited_args": {"amount": 4},
        "digest": call_digest("pay", {"amount": 4, "to": "ada"}),
    }
    assert "Note" not in done["c2"].text


@pytest.mark.parametrize(
    ("signal", "record"),
    [
        (HitlTimedOut(30.0), {"decision": "timed_out", "seconds": 30.0}),
        (HitlCancelled("closing"), {"decision": "cancelled", "reason": "closing"}),
    ],
)
async def test_without_an_answer_the_call_is_denied(signal: BaseException, record: Any) -> None:
    bank = Bank()
    done = await run(bank, ConfirmToolCallMiddleware(ScriptedChannel([signal, YES])))
    assert bank.done == ["look"]
    assert done["c1"].is_error
    assert details(done["c1"]) == record


async def test_a_policy_decides_call_by_call() -> None:
    bank, channel = Bank(), ScriptedChannel([YES])

    async def policy(ctx: ToolCallContext) -> Any:
        if ctx.tool_call.id == "c1":
            return Approve()
        if ctx.tool_call.id == "c2":
            return Deny("nothing to see")
        return AskUser(timeout_seconds=5.0, details={"why": "big"})

    calls = [*CALLS, ToolCall("c3", "pay", {"amount": 9})]
    done = await run(bank, ApprovalPolicyMiddleware(channel, policy=policy), calls=calls)
    assert bank.done == [("pay", 5, "ada"), ("pay", 9, "ada")]
    assert details(done["c1"]) is None
    assert done["c2"].is_error
    assert "nothing to see" in done["c2"].text
    assert details(done["c2"]) == {"decision": "policy_deny", "reason": "nothing to see"}
    assert details(done["c3"])["decision"] == "human_approve"
    (request,) = channel.history
    assert request.timeout_seconds == 5.0
    assert request.payload.details == {"why": "big"}


async def test_a_policy_may_be_a_plain_function() -> None:
    bank = Bank()
    done = await run(bank, ApprovalPolicyMiddleware(NoopChannel(), policy=lambda ctx: Deny()))
    assert bank.done == []
    assert {details(each)["decision"] for each in done.values()} == {"policy_deny"}


@pytest.mark.parametrize("fault", ["raises", "nothing", "nonsense"])
async def test_a_policy_that_fails_denies(fault: str) -> None:
    def policy(ctx: ToolCallContext) -> Any:
        if fault == "raises":
            raise KeyError("no rule")
        return None if fault == "nothing" else "approve"

    bank = Bank()
    done = await run(bank, ApprovalPolicyMiddleware(NoopChannel(), policy=policy))
    assert bank.done == []
    assert all(each.is_error for each in done.values())


async def test_details_that_cannot_be_made_deny() -> None:
    def details_fn(ctx: ToolCallContext) -> Any:
        raise LookupError("no details")

    bank = Bank()
    await run(bank, ConfirmToolCallMiddleware(NoopChannel(), details_fn=details_fn))
    await run(bank, ConfirmToolCallMiddleware(NoopChannel(), details_fn=lambda ctx: {"x": object()}))
    assert bank.done == []


async def test_a_later_decision_is_recorded_as_its_own() -> None:
    """A person approved, then a policy denied: the record does not say that the person denied."""

    class Denies(Middleware):
        before_tool_call = ApprovalPolicyMiddleware(
            NoopChannel(), lambda ctx: Deny("rule 5")
        ).before_tool_call

    bank, channel = Bank(), ScriptedChannel([YES, YES])
    done = await run(bank, ConfirmToolCallMiddleware(channel), Denies())
    assert bank.done == []
    assert details(done["c1"]) == {"decision": "policy_deny", "reason": "rule 5"}


async def test_one_approval_is_enough_for_two_layers_and_the_tool() -> None:
    done: list[int] = []

    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        done.append(amount)
        return "paid"

    channel = ScriptedChannel([YES])
    layers = [ConfirmToolCallMiddleware(channel), ConfirmToolCallMiddleware(channel)]
    agent = Agent(
        model=ScriptedModel([ToolCall("c1", "pay", {"amount": 5}), "done"]),
        tools=[pay],
        middleware=layers,
        channel=channel,
    )
    await agent.prompt("go")
    assert done == [5]
    assert len(channel.history) == 1


# Over real channels.


@pytest.mark.parametrize(
    ("default", "options", "seconds"),
    [
        (180.0, {}, 180.0),
        (180.0, {"timeout_seconds": 20.0}, 20.0),
        (180.0, {"timeout_seconds": None}, None),
        (None, {}, None),
    ],
)
async def test_whose_time_out_holds(rig: Rig, default: Any, options: dict[str, Any], seconds: Any) -> None:
    for layer_of in (
        lambda channel: ConfirmToolCallMiddleware(channel, **options),
        lambda channel: ApprovalPolicyMiddleware(channel, lambda ctx: AskUser(**options)),
    ):
        bank, channel = Bank(), rig.channel(default_timeout=default)
        agent = rig.agent(
            channel,
            model=ScriptedModel([CALLS[:1], "done"]),
            tools=bank.tools,
            middleware=[layer_of(channel)],
        )
        task = rig.start(agent.prompt("go"))
        request = await asked(channel)
        assert request.timeout_seconds == seconds
        await channel.answer("c1", {"decision": "deny"})
        await task
        assert bank.done == []
        if rig.kind in STORED:
            await rig.checkpointer.delete("t")


async def test_a_detach_passes_through_and_the_answer_is_found(rig: Rig) -> None:
    bank, channel = Bank(), rig.channel()
    first = rig.agent(
        channel,
        model=ScriptedModel([CALLS[:1], "done"]),
        tools=bank.tools,
        middleware=[ConfirmToolCallMiddleware(channel)],
    )
    task = rig.start(first.prompt("go"))
    await asked(channel)
    await first.detach()
    assert (await task).status == "suspended"
    channel = channel if rig.kind == "in_memory" else rig.channel()
    agent = rig.later(
        first,
        channel,
        model=ScriptedModel(["done"]),
        tools=bank.tools,
        middleware=[ConfirmToolCallMiddleware(channel)],
    )
    result = await agent.respond(question_id="c1", answer=YES, by="ada")
    assert result is not None
    assert result.status == "completed"
    assert bank.done == [("pay", 5, "ada")]
    assert details(results(result.messages)["c1"])["answered_by"] == "ada"


async def test_an_edit_that_does_not_fit_is_refused_when_it_is_given(rig: Rig) -> None:
    bank, channel = Bank(), rig.channel()
    agent = rig.agent(
        channel,
        model=ScriptedModel([CALLS[:1], "done"]),
        tools=bank.tools,
        middleware=[ConfirmToolCallMiddleware(channel)],
    )
    task = rig.start(agent.prompt("go"))
    await asked(channel)
    with pytest.raises(ValueError, match="amount"):
        await channel.answer("c1", {"decision": "edit", "edited_args": {"amount": "much"}})
    assert not task.done()
    await channel.answer("c1", {"decision": "edit", "edited_args": {"amount": 1}})
    await task
    assert bank.done == [("pay", 1, "ada")]
