"""`Agent.respond`, and `resume_with`, answer what the run can go on with, and leave open what it cannot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.channel_rigs import Keeper, Rig, asked
from kit.deeds import approve, completed, pending_ids, script
from kit.stores import approval, confirmation

from askfirst import Agent, AgentSpec, Middleware, ModelCallContext, ToolCallContext, ToolContext, tool
from askfirst.checkpointer.base import RunRecord, Step
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlError, HitlNoPendingRequest, HitlStaleAnswer
from askfirst.hitl import CheckpointedChannel
from askfirst.hitl.testing import FakeClock
from askfirst.messages import AssistantMessage, Message, ToolCall, UserMessage
from askfirst.permissions import Decision
from askfirst.permissions.guardrails import answer_guardrail

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}
PAY = ToolCall("c1", "pay", {"to": "Ada"})


class Payer:
    """A tool that remembers whom it paid."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @tool(requires_approval=True)
        async def pay(to: str) -> str:
            self.done.append(to)
            return "paid"

        self.tool = pay

    def spec(self) -> AgentSpec:
        return AgentSpec("payer", script(PAY, "done"), tools=[self.tool])


def on(store: Any, spec: AgentSpec) -> Agent:
    return Agent.from_spec(spec, checkpointer=store, thread_id="t")


async def open_ids(checkpointer: SqlCheckpointer) -> list[str]:
    return [each.question_id for each in await checkpointer.pending()]


async def test_respond_needs_the_transcript_of_what_it_answers() -> None:
    payer, keeper = Payer(), Keeper()

    def agent(**options: Any) -> Agent:
        channel = CheckpointedChannel(checkpointer=keeper, thread_id="t")
        return Agent(model=script(PAY, "done"), tools=[payer.tool], channel=channel, **options)

    first = agent()
    rig = Rig("own", keeper, FakeClock())
    task = rig.start(first.prompt("go"))
    await asked(first.channel)
    await first.detach()
    await task
    for messages in ((), [UserMessage("go")], [UserMessage("hi"), AssistantMessage("hello")]):
        for question_id in ("c1", None):
            with pytest.raises(HitlError, match=r"'c1' is about a call .* messages=.* is still open"):
                await agent(messages=messages).respond(question_id=question_id, answer=APPROVE)
    assert list(keeper.kept) == ["t"]
    result = await agent(messages=first.messages).respond(question_id="c1", answer=APPROVE)
    assert result is not None
    assert completed(result)
    assert payer.done == ["Ada"]
    assert keeper.kept == {}
    await rig.close()


async def test_a_question_of_a_body_needs_the_transcript_too() -> None:
    payer, keeper = Payer(), Keeper()
    kept = confirmation("c1:body:ask:1", thread_id="t")
    await keeper.save_pending_request("t", kept)
    channel = CheckpointedChannel(checkpointer=keeper, thread_id="t")
    agent = Agent(model=script("done"), tools=[payer.tool], channel=channel)
    with pytest.raises(HitlError, match="about a call"):
        await agent.respond(answer=True)
    assert list(keeper.kept) == ["t"]


@pytest.mark.parametrize("delegates", [False, True], ids=["alone", "with subagents"])
@pytest.mark.parametrize("through", ["settle", "answer"])
async def test_a_request_on_a_thread_without_messages(
    checkpointer: SqlCheckpointer, through: str, delegates: bool
) -> None:
    """It was stored outside of any run: the store and a channel answer it, an agent has nothing to go on with."""
    payer = Payer()
    await checkpointer.save_pending_request("t", approval())
    spec = payer.spec()
    if delegates:
        spec = AgentSpec("root", script("done"), subagents=[spec])
    for question_id in ("call-1", None):
        with pytest.raises(
            HitlError, match=r"'call-1' is about a call .* thread 't' .* is still open"
        ) as told:
            await on(checkpointer, spec).respond(question_id=question_id, answer=APPROVE)
        assert not isinstance(told.value, HitlStaleAnswer | HitlNoPendingRequest)
        assert "messages=" not in str(told.value)  # a stored thread takes none
    assert await open_ids(checkpointer) == ["call-1"]
    if through == "settle":
        await checkpointer.settle("t", "call-1", APPROVE, digest="d" * 64)
    else:
        await CheckpointedChannel(checkpointer=checkpointer, thread_id="t").answer("call-1", APPROVE)
    stored = await checkpointer.request("t", "call-1")
    assert stored is not None
    assert stored.status == "answered"


async def test_a_question_of_no_call_is_answered_as_ever(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.save_pending_request("t", confirmation("q"))
    result = await on(checkpointer, Payer().spec()).respond(answer=True)
    assert result is not None
    assert await open_ids(checkpointer) == []


@pytest.mark.parametrize("place", ["before the model", "in a body"])
async def test_what_asks_about_a_call_of_its_own_making_finds_the_answer(
    checkpointer: SqlCheckpointer, place: str
) -> None:
    """No such call is in the transcript, and yet there is somebody who asks."""
    heard: list[str] = []

    def agent() -> Agent:
        channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t", allow_inside_custom_tool=True)

        async def ask() -> None:
            heard.append((await channel.approve("spend", "budget", {"cents": 5})).decision)

        class Careful(Middleware):
            async def before_model(self, ctx: ModelCallContext) -> None:
                await ask()

        @tool(effect="none")
        async def pay(to: str, context: ToolContext) -> str:
            await ask()
            return "paid"

        if place == "in a body":
            return Agent(model=script(PAY, "done"), tools=[pay], channel=channel)
        return Agent(model=script("done"), middleware=[Careful()], channel=channel)

    first, rig = agent(), Rig("sqlite", checkpointer, FakeClock())
    task = rig.start(first.prompt("go"))
    await asked(first.channel)
    await first.detach()
    assert (await task).status == "suspended"
    result = await agent().respond(question_id="budget", answer=APPROVE)
    assert result is not None
    assert (result.status, result.text, heard) == ("completed", "done", ["approve"])


async def test_what_a_guardrail_asks_about_an_answer_is_about_no_call_and_is_answered(
    checkpointer: SqlCheckpointer,
) -> None:
    def agent() -> Agent:
        channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
        guard = answer_guardrail(lambda _: Decision.ask("careful"))
        return Agent(model=script("the answer"), guardrails=[guard], channel=channel)

    first = agent()
    task = asyncio.create_task(first.prompt("go"))
    request = await asked(first.channel)
    await first.detach()
    assert (await task).status == "suspended"
    result = await agent().respond(question_id=request.question_id, answer=True)
    assert result is not None
    assert (result.status, result.text) == ("completed", "the answer")


# The same with `resume_with`.


@pytest.mark.parametrize("said", [[], [UserMessage("Hello."), AssistantMessage("Hello.")]])
async def test_resume_with_uses_no_answer_up_either(
    checkpointer: SqlCheckpointer, said: list[Message]
) -> None:
    """A request on a thread whose transcript does not hold its call."""
    payer = Payer()
    await checkpointer.commit(
        "t", Step("r", said, run=RunRecord("payer"), release=True), fence=0, acquire=True
    )
    await checkpointer.save_pending_request("t", approval("c1", thread_id="t"))
    agent = on(checkpointer, payer.spec())
    with pytest.raises(HitlError, match="does not hold"):
        await agent.resume_with(approve("c1"))
    assert await open_ids(checkpointer) == ["c1"]
    assert payer.done == []


async def test_what_a_hook_escalates_with_details_of_its_own_is_listed_too(
    checkpointer: SqlCheckpointer,
) -> None:
    """Its details name no call."""

    class Doubts(Middleware):
        async def before_tool_call(self, ctx: ToolCallContext) -> None:
            await channel.escalate("What now?", details={"balance": 3})

    payer, channel = Payer(), CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    first = Agent(
        id="payer",
        model=script(PAY, "done"),
        tools=[payer.tool],
        channel=channel,
        middleware=[Doubts()],
        thread_id="t",
    )
    run = asyncio.create_task(first.prompt("go"))
    await asked(channel)
    await first.detach()
    await run
    later = on(checkpointer, payer.spec())
    assert pending_ids(await later.resume()) == ["c1:escalate:1", "c1"]
    assert completed(await later.resume_with(approve("c1"))) == {"c1": "paid"}
