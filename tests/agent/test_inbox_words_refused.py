"""Words that cannot be kept are refused when they are given, whatever keeps the request, and it stays open."""

from __future__ import annotations

from typing import Any

import pytest
from kit.channel_rigs import Rig, asked
from kit.transcripts import results

from askfirst import Agent, ApprovalResponse, tool
from askfirst.errors import AskfirstError, HitlError, HitlInvalidAnswer
from askfirst.hitl import Question
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
HALF = "half \ud800"
YES, NO = {"decision": "approve"}, {"decision": "deny"}


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def model() -> ScriptedModel:
    return ScriptedModel([ToolCall("c1", "pay", {"amount": 5}), "done"])


@pytest.mark.parametrize("answer", [{**NO, "reason": HALF}, {**YES, "note": object()}, {**YES, "note": HALF}])
async def test_an_answer_that_no_record_can_hold(rig: Rig, answer: Any) -> None:
    agent = rig.agent(model=model(), tools=[pay])
    running = rig.start(agent.prompt("go"))
    assert agent.channel is not None
    await asked(agent.channel)
    with pytest.raises(HitlInvalidAnswer, match="cannot be written as JSON"):
        await agent.channel.answer("c1", answer)
    with pytest.raises(HitlInvalidAnswer, match="cannot be written as JSON"):
        await agent.respond(answer=answer)
    await agent.channel.answer("c1", YES)
    assert results((await running).messages)["c1"].text == "paid"


async def test_answers_to_questions_that_no_record_can_hold(rig: Rig) -> None:
    channel = rig.channel()
    asking = rig.start(channel.ask([Question(key="k", prompt="?")]))
    request = await asked(channel)
    with pytest.raises(HitlInvalidAnswer, match="not valid Unicode"):
        await channel.answer(request.question_id, {"k": HALF})
    await channel.answer(request.question_id, {"k": "whole"})
    assert await asking == {"k": "whole"}


@pytest.mark.parametrize("who", [{"by": HALF}, {"via": HALF}, {"by": 5}, {"via": object()}])
async def test_who_answered_is_a_text(rig: Rig, who: Any) -> None:
    agent = rig.agent(model=model(), tools=[pay])
    running = rig.start(agent.prompt("go"))
    assert agent.channel is not None
    await asked(agent.channel)
    with pytest.raises(AskfirstError, match=r"is a text, not|is not valid Unicode"):
        await agent.channel.answer("c1", YES, **who)
    await agent.channel.answer("c1", YES, by="ada")
    record = results((await running).messages)["c1"].details
    assert record is not None
    assert (record["hitl"]["decision"], record["hitl"]["answered_by"]) == ("human_approve", "ada")


@pytest.mark.parametrize("reason", [HALF, 5, object()])
async def test_the_reason_of_a_cancel_is_a_text(rig: Rig, reason: Any) -> None:
    agent = rig.agent(model=model(), tools=[pay])
    running = rig.start(agent.prompt("go"))
    assert agent.channel is not None
    await asked(agent.channel)
    with pytest.raises(AskfirstError, match=r"reason .*(is a text, not|is not valid Unicode)"):
        await agent.channel.cancel("c1", reason)
    await agent.channel.cancel("c1", "no")
    record = results((await running).messages)["c1"].details
    assert record == {"hitl": {"decision": "cancelled", "reason": "no"}}


@pytest.mark.parametrize("reason", [HALF, 5, object()])
async def test_a_reason_that_is_none_aborts_nothing(rig: Rig, reason: Any) -> None:
    agent = rig.agent(model=model(), tools=[pay])
    running = rig.start(agent.prompt("go"))
    assert agent.channel is not None
    await asked(agent.channel)
    with pytest.raises(HitlError, match="reason"):
        await agent.abort_pending(reason)
    assert agent.in_flight_hitl_request is not None, "the run still waits"
    await agent.respond(answer=YES)
    assert (await running).status == "completed"


async def test_without_a_store_too() -> None:
    agent = Agent(model=model(), tools=[pay])
    await agent.prompt("go")
    with pytest.raises(HitlInvalidAnswer, match="cannot be written as JSON"):
        await agent.respond(answer={**NO, "reason": HALF})
    with pytest.raises(HitlInvalidAnswer, match="by is not valid Unicode"):
        await agent.resume_with([ApprovalResponse(id="c1", decision="approve")], by=HALF)
    with pytest.raises(HitlInvalidAnswer, match="via is a text, not int"):
        await agent.respond(answer=YES, via=5)  # pyright: ignore[reportArgumentType]
    result = await agent.resume_with([ApprovalResponse(id="c1", decision="approve")], by="ada")
    assert result.status == "completed"
