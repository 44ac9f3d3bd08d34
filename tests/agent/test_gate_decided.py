"""What a person decided holds, whoever would be asked by now; and in doubt they see what was started."""

from __future__ import annotations

from typing import Any

import pytest
from kit.channel_rigs import STORED, Rig

from askfirst import Agent, BeforeToolCallResult, Middleware, ToolCallContext, ToolContext, tool
from askfirst.checkpointer.base import RunRecord, Step, StoredEffect
from askfirst.messages import AssistantMessage, ToolCall, UserMessage, call_digest
from askfirst.models import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("rig", STORED, indirect=True)]
EDIT = {"decision": "edit", "edited_args": {"cents": 100}}


class Killed(BaseException):
    """The process ends here."""


class Desk:
    """A tool whose first bodies never come to an end."""

    def __init__(self, *, killed: int = 0, approval: bool = True, effect: Any = "once") -> None:
        self.ran: list[tuple[int, int, str]] = []
        self.killed = killed

        @tool(requires_approval=approval, effect=effect)
        async def refund(cents: int, context: ToolContext) -> str:
            self.ran.append((cents, context.attempt, context.idempotency_key))
            if len(self.ran) <= self.killed:
                raise Killed
            return f"refunded {cents}"

        self.tool = refund

    @property
    def amounts(self) -> list[int]:
        return [cents for cents, _, _ in self.ran]


def agent_of(rig: Rig, desk: Desk, *, channel: bool = False, **options: Any) -> Agent:
    model = ScriptedModel([ToolCall("c1", "refund", {"cents": 5000}), "done"])
    where = {"channel": rig.channel()} if channel else {"checkpointer": rig.checkpointer, "thread_id": "t"}
    return Agent(model=model, tools=[desk.tool], **where, **options)


def again(rig: Rig, desk: Desk, **options: Any) -> Agent:
    agent = agent_of(rig, desk, **options)
    agent.spec.resolved_model.__init__(["done"])  # type: ignore[misc]
    return agent


@pytest.mark.parametrize("channel", [False, True])
async def test_an_edit_holds_when_nobody_would_be_asked_any_more(rig: Rig, channel: bool) -> None:
    await agent_of(rig, Desk()).prompt("go")
    await rig.checkpointer.settle("t", "c1", EDIT, by="ann")
    desk = Desk(approval=False)
    result = await again(rig, desk, channel=channel).resume()
    assert (result.status, desk.amounts) == ("completed", [100])
    record = result.messages[2].details["hitl"]
    assert (record["decision"], record["answered_by"]) == ("human_edit", "ann")


async def test_an_approval_is_recorded_when_nobody_would_be_asked_any_more(rig: Rig) -> None:
    await agent_of(rig, Desk()).prompt("go")
    await rig.checkpointer.settle("t", "c1", {"decision": "approve"}, by="ann")
    desk = Desk(approval=False)
    result = await again(rig, desk).resume()
    assert desk.amounts == [5000]
    assert result.messages[2].details["hitl"]["answered_by"] == "ann"


class Cap(Middleware):
    """Lets nothing through that is larger."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult | None:
        return BeforeToolCallResult(edited_args={"cents": min(ctx.args.cents, self.cents)})  # type: ignore[attr-defined]


async def in_doubt(rig: Rig, *, edit: Any = None, **options: Any) -> str:
    """A refund that was begun in a process that is gone, as the store has it; the digest of what was begun."""
    desk = Desk(approval=edit is not None)
    cents = 100 if edit is not None else options.get("cents", 5000)
    agent = agent_of(rig, desk)
    if edit is not None:
        await agent.prompt("go")
        await rig.checkpointer.settle("t", "c1", edit, by="ann")
    stored = await rig.checkpointer.load("t")
    messages = (
        []
        if stored is not None
        else [
            UserMessage("go"),
            AssistantMessage((ToolCall("c1", "refund", {"cents": 5000}),), stop_reason="tool_use"),
        ]
    )
    digest = call_digest("refund", {"cents": cents})
    effect = StoredEffect("c1", "refund", digest, options.get("effect", "once"), 1)
    run_id = stored.run.run_id if stored is not None and stored.run is not None else "r"
    run = None if stored is not None else RunRecord("agent")
    step = Step(run_id, messages, started=[effect], run=run, release=True)
    await rig.checkpointer.commit("t", step, fence=0 if stored is None else stored.fence, acquire=True)
    return digest


async def test_in_doubt_a_person_sees_the_edit_that_was_started(rig: Rig) -> None:
    await in_doubt(rig, edit=EDIT)
    desk = Desk()
    paused = await again(rig, desk).resume()
    (pending,) = paused.pending_approvals
    assert (pending.kind, pending.tool_call.args) == ("escalate", {"cents": 100})
    await rig.checkpointer.settle("t", "c1:escalate:1", {"action": "retry", "reason": "safe"}, by="bob")
    result = await again(rig, desk).resume()
    assert [ran[:2] for ran in desk.ran] == [(100, 2)]
    record = result.messages[2].details["hitl"]
    assert (record["decision"], record["answered_by"]) == ("human_edit", "ann")
    assert record["retry"] == {"reason": "safe", "answered_by": "bob"}


async def test_in_doubt_a_person_sees_what_middleware_made_of_the_call(rig: Rig) -> None:
    await in_doubt(rig, cents=70)
    desk = Desk(approval=False)
    paused = await again(rig, desk, middleware=[Cap(70)]).resume()
    (pending,) = paused.pending_approvals
    assert pending.tool_call.args == {"cents": 70}
    assert "changed" not in (pending.reason or "")
    await rig.checkpointer.settle("t", "c1:escalate:1", {"action": "retry"})
    await again(rig, desk, middleware=[Cap(70)]).resume()
    assert desk.amounts == [70]


async def test_a_person_is_told_that_the_arguments_are_not_those_that_were_started(rig: Rig) -> None:
    await in_doubt(rig, cents=70)
    desk = Desk(approval=False)
    paused = await again(rig, desk).resume()
    (pending,) = paused.pending_approvals
    assert pending.tool_call.args == {"cents": 5000}
    assert "they have changed since" in (pending.reason or "")
    assert desk.ran == []


@pytest.mark.parametrize("changed", [False, True])
async def test_what_may_be_repeated_is_repeated_with_the_same_arguments_only(rig: Rig, changed: bool) -> None:
    await in_doubt(rig, cents=70 if changed else 5000, effect="idempotent")
    desk = Desk(approval=False, effect="idempotent")
    result = await again(rig, desk).resume()
    assert (result.status, desk.amounts) == (("paused", []) if changed else ("completed", [5000]))


async def test_a_second_doubt_is_about_what_the_person_had_run_instead(rig: Rig) -> None:
    await in_doubt(rig)
    desk = Desk(approval=False, killed=1)
    await again(rig, desk).resume()
    await rig.checkpointer.settle("t", "c1:escalate:1", {"action": "retry", "modified_params": {"cents": 7}})
    with pytest.raises(Killed):
        await again(rig, desk).resume()
    assert desk.amounts == [7]
    paused = await again(rig, desk).resume()
    (pending,) = paused.pending_approvals
    assert (pending.kind, pending.tool_call.args) == ("escalate", {"cents": 7})
    await rig.checkpointer.settle("t", "c1:escalate:1~2", {"action": "retry"})
    result = await again(rig, desk).resume()
    assert (result.status, desk.amounts) == ("completed", [7, 7])
