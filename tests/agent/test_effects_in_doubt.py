"""Effects in doubt: a body that was started and whose end nobody saw."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from kit.channel_rigs import STORED, Rig, asked, open_rig
from kit.transcripts import assert_sound, open_calls, results
from pydantic import AfterValidator

from askfirst import (
    Agent,
    ApprovalResponse,
    BeforeToolCallResult,
    Middleware,
    PendingApproval,
    Tool,
    ToolCallContext,
    ToolContext,
    tool,
)
from askfirst.checkpointer.base import RunRecord, Step, StoredEffect
from askfirst.errors import HitlInvalidAnswer, InvalidCheckpoint
from askfirst.events import AgentAbortedEvent, HitlRequestEvent
from askfirst.messages import AssistantMessage, Message, ToolCall, UserMessage, call_digest
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

CALL = ToolCall("c1", "pay", {"amount": 5})
PREFIX: list[Message] = [UserMessage("go"), AssistantMessage([CALL], stop_reason="tool_use")]


@pytest.fixture(params=STORED)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(request.param, tmp_path) as rig:
        yield rig


class Payer:
    """A tool that remembers every time its body began."""

    def __init__(self, effect: Any = "once", *, requires_approval: bool = False, amounts: Any = int) -> None:
        self.began: list[tuple[int, int, str]] = []

        @tool(effect=effect, requires_approval=requires_approval)
        async def pay(amount: amounts, context: ToolContext) -> str:
            self.began.append((amount, context.attempt, context.idempotency_key))
            return f"paid {amount}"

        self.tool: Tool = pay

    @property
    def attempts(self) -> list[tuple[int, int]]:
        return [(amount, attempt) for amount, attempt, _ in self.began]


async def crashed(rig: Rig, effect: str = "once", attempt: int = 1) -> None:
    """Leave the thread as a process does that dies within the body."""
    stored = await rig.checkpointer.load("t")
    begun = StoredEffect("c1", "pay", call_digest("pay", {"amount": 5}), effect, attempt)
    messages = PREFIX if stored is None else []
    record = RunRecord("agent") if stored is None else None
    step = Step("run1", messages, started=[begun], run=record, release=True)
    fence = 0 if stored is None else stored.fence
    await rig.checkpointer.commit("t", step, fence=fence, acquire=True)


def agent_of(rig: Rig, payer: Payer, *turns: Any, channel: bool = True, **options: Any) -> Agent:
    options |= {"model": ScriptedModel(turns or ["done"]), "tools": [payer.tool]}
    if channel:
        return rig.agent(**options)
    return Agent(checkpointer=rig.checkpointer, thread_id="t", **options)


async def answered(rig: Rig, agent: Agent, answer: Any, *, by: str | None = None) -> Any:
    """Resume, and answer what is asked: through the channel, or as a pending request."""
    if agent.channel is None:
        await paused_in_doubt(agent)
        return await agent.respond(answer=answer, by=by)
    task = rig.start(agent.resume())
    await asked(agent.channel)
    await agent.respond(answer=answer, by=by)
    return await task


async def paused_in_doubt(agent: Agent) -> PendingApproval:
    """Resume, and find that the run stops where a person has to say what becomes of the call."""
    paused = await agent.resume()
    assert paused.status == "paused"
    (pending,) = paused.pending_approvals
    assert (pending.kind, pending.tool_call) == ("escalate", CALL)
    assert open_calls(paused.messages)[-1] == "c1"
    return pending


def assert_continues(messages: Sequence[Message]) -> None:
    assert list(messages[:2]) == PREFIX
    assert_sound(messages)


either_way = pytest.mark.parametrize("channel", [True, False], ids=["channel", "no channel"])


@either_way
@pytest.mark.parametrize("effect", ["none", "idempotent"])
async def test_what_may_be_repeated_runs_again_with_the_same_key(
    rig: Rig, effect: str, channel: bool
) -> None:
    payer = Payer(effect)
    await crashed(rig, effect)
    result = await agent_of(rig, payer, channel=channel).resume()
    assert (result.status, result.text) == ("completed", "done")
    assert payer.attempts == [(5, 2)]
    assert_continues(result.messages)
    assert (await rig.checkpointer.load("t")).effects == {}


async def test_the_key_depends_on_the_call_and_its_run_alone(rig: Rig) -> None:
    payer = Payer("idempotent")
    for attempt in (1, 3):
        await crashed(rig, "idempotent", attempt)
        await agent_of(rig, payer).resume()
        await rig.checkpointer.delete("t")
    assert payer.attempts == [(5, 2), (5, 4)]
    assert payer.began[0][2] == payer.began[1][2]
    assert len(payer.began[0][2]) >= 32


@either_way
@pytest.mark.parametrize(("then", "now"), [("once", "none"), ("idempotent", "once"), ("once", "once")])
async def test_what_may_not_be_repeated_is_asked(rig: Rig, then: str, now: str, channel: bool) -> None:
    payer = Payer(now)
    await crashed(rig, then)
    agent = agent_of(rig, payer, channel=channel)
    seen: list[Any] = []
    agent.subscribe(lambda event: seen.append(event.request) if isinstance(event, HitlRequestEvent) else None)
    result = await answered(rig, agent, "retry")
    assert result.status == "completed"
    assert payer.attempts == [(5, 2)]
    assert_continues(result.messages)
    (request,) = seen
    assert request.payload.kind == "escalate"
    assert request.payload.choices == ["retry", "skip", "abort"]
    assert request.payload.details == {
        "tool_name": "pay",
        "tool_call_id": "c1",
        "args": {"amount": 5},
        "attempt": 1,
    }


@either_way
async def test_nothing_runs_before_the_answer(rig: Rig, channel: bool) -> None:
    payer = Payer()
    await crashed(rig)
    agent = agent_of(rig, payer, channel=channel)
    if channel:
        task = rig.start(agent.resume())
        await asked(agent.channel)
        with pytest.raises(HitlInvalidAnswer, match="retry, skip, abort"):
            await agent.respond(answer="again")
        await agent.detach()
        assert (await task).status == "suspended"
    else:
        assert await paused_in_doubt(agent) == await paused_in_doubt(agent), "it is asked once"
    assert payer.began == []
    assert open_calls(await agent.load()) == ["c1"]
    assert len(await rig.checkpointer.pending()) == 1
    assert (await rig.checkpointer.load("t")).lease_owner is None


@either_way
async def test_retry_is_recorded(rig: Rig, channel: bool) -> None:
    payer = Payer()
    await crashed(rig)
    result = await answered(
        rig, agent_of(rig, payer, channel=channel), {"action": "retry", "reason": "it is safe"}, by="ada"
    )
    done = results(result.messages)["c1"]
    assert (done.text, done.is_error) == ("paid 5", False)
    assert done.details == {"hitl": {"decision": "human_retry", "reason": "it is safe", "answered_by": "ada"}}


@either_way
async def test_retry_with_other_arguments(rig: Rig, channel: bool) -> None:
    payer = Payer()
    await crashed(rig)
    agent = agent_of(rig, payer, channel=channel)
    result = await answered(rig, agent, {"action": "retry", "modified_params": {"amount": 4}})
    assert payer.attempts == [(4, 2)]
    done = results(result.messages)["c1"]
    assert '{"amount": 4}' in done.text, "the model is told what ran instead"
    assert done.details is not None
    assert done.details["hitl"]["edited_args"] == {"amount": 4}
    assert_continues(result.messages)


@either_way
async def test_a_retry_with_arguments_that_do_not_fit_is_no_answer(rig: Rig, channel: bool) -> None:
    payer = Payer()
    await crashed(rig)
    agent = agent_of(rig, payer, channel=channel)
    with pytest.raises(HitlInvalidAnswer, match="amount: Input should be a valid integer"):
        await answered(rig, agent, {"action": "retry", "modified_params": {"amount": "much"}})
    elsewhere = {"action": "retry", "modified_params": {"amount": "much"}}  # where the tool is not known
    with pytest.raises(HitlInvalidAnswer, match="amount: must be a whole number"):
        await rig.checkpointer.settle("t", "c1:escalate:1", elsewhere)
    assert payer.began == []
    assert await agent.load_pending_hitl_request() is not None


def lucky(amount: int) -> int:
    if amount == 13:
        raise ValueError("not that one")
    return amount


UNLUCKY = {"action": "retry", "modified_params": {"amount": 13}}


@either_way
async def test_a_retry_with_arguments_that_only_the_tool_refuses_is_refused_where_the_tool_is_known(
    rig: Rig, channel: bool
) -> None:
    payer = Payer(amounts=Annotated[int, AfterValidator(lucky)])
    await crashed(rig)
    agent = agent_of(rig, payer, channel=channel)
    with pytest.raises(HitlInvalidAnswer, match="amount: Value error, not that one"):
        await answered(rig, agent, UNLUCKY)
    if agent.channel is not None:
        with pytest.raises(HitlInvalidAnswer, match="not that one"):
            await agent.channel.answer("c1:escalate:1", UNLUCKY)
    assert payer.began == []
    assert await agent.load_pending_hitl_request() is not None


@either_way
async def test_a_retry_with_arguments_that_only_the_tool_refuses_runs_nothing(
    rig: Rig, channel: bool
) -> None:
    """Given where the tool is not known; and the record does not say that it was retried."""
    payer = Payer(amounts=Annotated[int, AfterValidator(lucky)])
    await crashed(rig)
    await paused_in_doubt(agent_of(rig, payer, channel=False))
    await rig.checkpointer.settle("t", "c1:escalate:1", UNLUCKY, by="ada")
    result = await agent_of(rig, payer, channel=channel).resume()
    assert payer.began == []
    done = results(result.messages)["c1"]
    assert done.is_error
    assert "unknown" in done.text
    assert done.details == {"hitl": {"decision": "invalid_edit", "answered_by": "ada"}}
    assert_continues(result.messages)


@either_way
async def test_skip_tells_the_model_that_the_outcome_is_unknown(rig: Rig, channel: bool) -> None:
    payer = Payer()
    await crashed(rig)
    said = {"action": "skip", "reason": "Seen at the bank."}
    result = await answered(rig, agent_of(rig, payer, channel=channel), said, by="ada")
    assert result.status == "completed"
    assert payer.began == []
    done = results(result.messages)["c1"]
    assert done.is_error
    assert "unknown" in done.text
    assert "Seen at the bank." in done.text
    assert done.details == {
        "hitl": {"decision": "human_skip", "reason": "Seen at the bank.", "answered_by": "ada"}
    }
    assert_continues(result.messages)
    assert (await rig.checkpointer.load("t")).effects == {}, "it is in doubt no longer"


@either_way
async def test_abort_closes_the_run(rig: Rig, channel: bool) -> None:
    payer = Payer()
    await crashed(rig)
    agent = agent_of(rig, payer, channel=channel)
    heard: list[Any] = []
    agent.subscribe(lambda event: heard.append(event) if isinstance(event, AgentAbortedEvent) else None)
    result = await answered(rig, agent, {"action": "abort", "reason": "call the bank"})
    assert (result.status, result.reason) == ("aborted", "call the bank")
    assert [event.reason for event in heard] == ["call the bank"]
    assert payer.began == []
    done = results(result.messages)["c1"]
    assert done.is_error
    assert "unknown" in done.text
    assert_continues(result.messages)
    assert (await rig.checkpointer.load("t")).effects == {}


async def test_a_time_out_runs_nothing(rig: Rig) -> None:
    payer = Payer()
    await crashed(rig)
    channel = rig.channel(default_timeout=60.0)
    agent = rig.agent(channel, model=ScriptedModel(["done"]), tools=[payer.tool])
    task = rig.start(agent.resume())
    await asked(channel)
    await rig.clock.advance(60)
    result = await task
    assert result.status == "completed"
    assert payer.began == []
    done = results(result.messages)["c1"]
    assert done.is_error
    assert "unknown" in done.text
    assert done.details == {"hitl": {"decision": "timed_out", "seconds": 60.0}}
    assert_continues(result.messages)


@either_way
async def test_a_second_doubt_is_a_second_question(rig: Rig, channel: bool) -> None:
    payer = Payer()
    await crashed(rig)
    agent = agent_of(rig, payer, channel=channel)
    if channel:
        task = rig.start(agent.resume())
        await asked(agent.channel)
        await agent.detach()
        await task
    else:
        await agent.resume()
    first = await rig.checkpointer.load_pending_request("t")
    await rig.checkpointer.settle("t", first.question_id, "retry")
    await crashed(rig, attempt=2)  # the retry began, and its process died too
    agent = agent_of(rig, payer, channel=channel)
    result = await answered(rig, agent, "retry")
    assert result.status == "completed"
    assert payer.attempts == [(5, 3)], "the first retry's answer does not count for the second"
    assert_continues(result.messages)


async def test_an_answer_given_to_a_pending_request_counts_for_an_agent_with_a_channel(rig: Rig) -> None:
    """A worker without a channel asks, a person answers in the store, an agent with a channel goes on."""
    for attempt in (1, 2):
        payer = Payer()
        await crashed(rig, attempt=attempt)
        await paused_in_doubt(agent_of(rig, payer, channel=False))
        (pending,) = await rig.checkpointer.pending()
        await rig.checkpointer.settle("t", pending.question_id, "skip")
        result = await agent_of(rig, payer).resume()
        assert result.status == "completed"
        assert payer.began == []
        await rig.checkpointer.delete("t")


@either_way
async def test_a_retry_of_a_tool_that_needs_approval_keeps_the_approval(rig: Rig, channel: bool) -> None:
    payer = Payer(requires_approval=True)
    agent = agent_of(rig, payer, CALL, channel=channel)
    approve = {"decision": "approve"}
    if channel:
        task = rig.start(agent.prompt("go"))
        await asked(agent.channel)
        await agent.detach()
        await task
    else:
        await agent.prompt("go")
    await rig.checkpointer.settle("t", "c1", approve, by="ada")
    await crashed(rig)
    result = await answered(rig, agent_of(rig, payer, channel=channel), "retry", by="bob")
    assert result.status == "completed"
    assert payer.attempts == [(5, 2)]
    details = results(result.messages)["c1"].details
    assert details is not None
    assert details["hitl"]["decision"] == "human_approve"
    assert details["hitl"]["answered_by"] == "ada"
    assert_sound(result.messages)


async def test_a_retry_with_other_arguments_needs_a_new_approval(rig: Rig) -> None:
    payer = Payer(requires_approval=True)
    await crashed(rig)
    agent = agent_of(rig, payer)
    channel = agent.channel
    assert channel is not None
    requests = channel.subscribe()
    task = rig.start(agent.resume())
    await anext(requests)
    await agent.respond(answer={"action": "retry", "modified_params": {"amount": 400}})
    approve = await anext(requests)
    assert payer.began == []
    assert approve.payload.args == {"amount": 400}
    await agent.respond(answer={"decision": "deny"})
    result = await task
    assert payer.began == []
    assert "unknown" in results(result.messages)["c1"].text, "denied now, and perhaps done before"


class Refuses(Middleware):
    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult:
        return BeforeToolCallResult(block=True, reason="closed")


async def test_a_refusal_of_what_was_begun_says_that_its_outcome_is_unknown(rig: Rig) -> None:
    payer = Payer("idempotent")
    await crashed(rig, "idempotent")
    result = await agent_of(rig, payer, middleware=[Refuses()]).resume()
    done = results(result.messages)["c1"]
    assert payer.began == []
    assert "closed" in done.text
    assert "unknown" in done.text


async def test_a_tool_that_is_gone_in_doubt(rig: Rig) -> None:
    await crashed(rig)
    result = await rig.agent(model=ScriptedModel(["sorry"])).resume()
    assert result.status == "completed"
    done = results(result.messages)["c1"]
    assert done.is_error
    assert "unknown" in done.text
    assert_continues(result.messages)
    assert (await rig.checkpointer.load("t")).effects == {}


@either_way
async def test_a_prompt_instead_of_an_answer(rig: Rig, channel: bool) -> None:
    """The call gets a result that says what is known of it."""
    payer = Payer()
    await crashed(rig)
    agent = agent_of(rig, payer, "hello", channel=channel)
    result = await agent.prompt("are you there?")
    assert (result.status, result.text) == ("completed", "hello")
    assert payer.began == []
    assert "unknown" in results(result.messages)["c1"].text
    assert_continues(result.messages)
    assert (await rig.checkpointer.load("t")).effects == {}


@either_way
async def test_abort_pending_at_a_doubt(rig: Rig, channel: bool) -> None:
    payer = Payer()
    await crashed(rig)
    agent = agent_of(rig, payer, channel=channel)
    if channel:
        task = rig.start(agent.resume())
        await asked(agent.channel)
        await agent.abort_pending("stop")
        assert (await task).status == "aborted"
    else:
        await agent.resume()
        await agent.abort_pending("stop")
    assert "unknown" in results(agent.messages)["c1"].text
    assert_continues(agent.messages)
    assert await rig.checkpointer.pending() == []
    assert payer.began == []


@either_way
async def test_doubt_of_one_call_holds_back_the_others(rig: Rig, channel: bool) -> None:
    ran: list[str] = []

    @tool
    async def other() -> str:
        ran.append("other")
        return "other"

    calls = [ToolCall("c0", "other", {}), CALL]
    messages = [UserMessage("go"), AssistantMessage(calls, stop_reason="tool_use")]
    begun = StoredEffect("c1", "pay", "", "once", 1)
    step = Step("run1", messages, started=[begun], run=RunRecord("agent"), release=True)
    await rig.checkpointer.commit("t", step, fence=0, acquire=True)
    payer = Payer()
    options: dict[str, Any] = {"model": ScriptedModel(["done"]), "tools": [payer.tool, other]}
    agent = (
        rig.agent(**options) if channel else Agent(checkpointer=rig.checkpointer, thread_id="t", **options)
    )
    if channel:
        task = rig.start(agent.resume())
        await asked(agent.channel)
        assert ran == []
        await agent.respond(answer="skip")
        result = await task
    else:
        await paused_in_doubt(agent)
        assert ran == []
        result = await agent.respond(answer="skip")
    assert result is not None
    assert ran == ["other"]
    assert list(results(result.messages)) == ["c0", "c1"]
    assert_sound(result.messages)


@pytest.mark.parametrize(
    ("response", "attempts", "decision"),
    [
        ({"decision": "approve"}, [(5, 2)], "human_retry"),
        ({"decision": "edit", "edited_args": {"amount": 4}}, [(4, 2)], "human_retry"),
        ({"decision": "deny"}, [], "human_skip"),
    ],
)
async def test_without_a_store_what_was_interrupted_is_in_doubt_too(
    response: dict[str, Any], attempts: list[Any], decision: str
) -> None:
    """A body that a cancellation left, in the same process, with nobody here to ask."""
    payer = Payer()
    agent = Agent(model=ScriptedModel(["done"]), tools=[payer.tool], messages=PREFIX)
    session = agent._session
    session.live.thread.effects["c1"] = StoredEffect("c1", "pay", "", "once", 1)
    pending = await paused_in_doubt(agent)
    assert payer.began == []
    unfit = ApprovalResponse(id=pending.id, decision="edit", edited_args={"amount": "much"})
    with pytest.raises(InvalidCheckpoint, match="amount"):
        await agent.resume_with([unfit])
    assert await paused_in_doubt(agent) == pending
    result = await agent.resume_with([ApprovalResponse(id=pending.id, **response)])
    assert result.status == "completed"
    assert payer.attempts == attempts
    done = results(result.messages)["c1"]
    assert done.is_error is not bool(attempts)
    assert ("unknown" in done.text) is not bool(attempts)
    assert (done.details or {})["hitl"]["decision"] == decision
    assert_continues(result.messages)


# On a fork.


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_fork_does_not_run_again_what_was_run_on_the_thread(rig: Rig, effect: str) -> None:
    """Its key would be another, so not even what is idempotent may be repeated unasked."""
    payer = Payer(effect)
    done = await agent_of(rig, payer, CALL, "done", channel=False).prompt("go")
    assert (done.status, len(payer.began)) == ("completed", 1)
    await rig.checkpointer.fork("t", "fork", upto=2)
    agent = Agent(
        checkpointer=rig.checkpointer, thread_id="fork", model=ScriptedModel(["done"]), tools=[payer.tool]
    )
    await paused_in_doubt(agent)
    assert len(payer.began) == 1
    assert (await agent.respond(answer="retry")).status == "completed"
    assert payer.attempts == [(5, 1), (5, 2)]


async def test_a_fork_of_a_thread_at_work_is_in_doubt_as_well(rig: Rig) -> None:
    payer = Payer()
    await crashed(rig)
    await rig.checkpointer.fork("t", "fork")
    agent = Agent(
        checkpointer=rig.checkpointer, thread_id="fork", model=ScriptedModel([]), tools=[payer.tool]
    )
    await paused_in_doubt(agent)
    assert payer.began == []


async def test_a_fork_that_has_the_results_knows_of_no_doubt(rig: Rig) -> None:
    payer = Payer()
    await agent_of(rig, payer, CALL, "done", channel=False).prompt("go")
    for upto in (None, 3, 1):
        await rig.checkpointer.fork("t", f"fork-{upto}", upto=upto)
        assert (await rig.checkpointer.load(f"fork-{upto}")).effects == {}
