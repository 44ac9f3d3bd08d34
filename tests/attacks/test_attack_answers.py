"""An answer counts for what was shown: for another round of the same id it is stale, whoever gives it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from kit.channel_rigs import asked
from kit.patience import PATIENCE

from askfirst import Agent, ApprovalResponse, tool
from askfirst.checkpointer.base import RunRecord, Step
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.clock import SystemClock
from askfirst.delivery.terminal_answers import OpenInStore, OpenOnChannel
from askfirst.errors import HitlStaleAnswer
from askfirst.hitl import CheckpointedChannel, InMemoryChannel
from askfirst.messages import AssistantMessage, ToolCall, UserMessage, call_digest
from askfirst.models import ScriptedModel
from askfirst.requests import (
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    EscalateRequest,
    HitlPayload,
    HitlRequest,
    Question,
)

pytestmark = pytest.mark.anyio
attack = pytest.mark.attack("M4", "answers to another round")


def call(cents: int) -> ApproveRequest:
    args = {"cents": cents}
    return ApproveRequest(tool_name="pay", tool_call_id="q", args=args, digest=call_digest("pay", args))


KINDS: dict[str, tuple[HitlPayload, HitlPayload, Any]] = {
    "approve": (call(1), call(1_000_000), {"decision": "approve"}),
    "confirm": (ConfirmRequest(prompt="Delete one?"), ConfirmRequest(prompt="Delete all?"), True),
    "ask": (
        AskRequest(questions=[Question(key="a", prompt="Who gets 1?")]),
        AskRequest(questions=[Question(key="a", prompt="Who gets all?")]),
        {"a": "Mallory"},
    ),
    "escalate": (
        EscalateRequest(prompt="1 failed", choices=["retry", "skip"]),
        EscalateRequest(prompt="All failed", choices=["retry", "skip"]),
        "retry",
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def request(payload: HitlPayload) -> HitlRequest:
    return HitlRequest(question_id="q", thread_id="t", payload=payload, created_at=time.time())


async def put(store: MemoryCheckpointer, payload: HitlPayload) -> HitlRequest:
    await store.save_pending_request("t", request(payload))
    pending = await store.load_pending_request("t")
    assert pending is not None
    return pending


@attack
@kinds
async def test_a_store_takes_no_answer_for_another_round(kind: str) -> None:
    first, second, answer = KINDS[kind]
    async with MemoryCheckpointer() as store:
        shown = await put(store, first)
        now = await put(store, second)
        for named in ({}, {"digest": shown.digest}, {"round": 1}, {"digest": now.digest, "round": 1}):
            with pytest.raises(HitlStaleAnswer):
                await store.settle("t", "q", answer, **named)
        assert [it.round for it in await store.pending()] == [2]
        assert (await store.settle("t", "q", answer, digest=now.digest)).status == "answered"


@attack
@kinds
async def test_the_desk_settles_what_it_drew_and_nothing_else(kind: str) -> None:
    """Between the question on the screen and the answer, another process asks something else under its id."""
    first, second, answer = KINDS[kind]
    async with MemoryCheckpointer() as store:
        await put(store, first)
        (drawn,) = await store.pending()
        desk = OpenInStore(store, drawn, "ann", SystemClock())
        assert await desk.is_open()
        await put(store, second)
        with pytest.raises(HitlStaleAnswer):
            await desk.answer(answer)
        assert len(await store.pending()) == 1


@attack
async def test_the_desk_tells_rounds_of_the_same_words_apart() -> None:
    async with MemoryCheckpointer() as store:
        await put(store, call(1))
        (drawn,) = await store.pending()
        await put(store, call(1))
        with pytest.raises(HitlStaleAnswer):
            await OpenInStore(store, drawn, "ann", SystemClock()).answer({"decision": "approve"})


@attack
@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_channel_takes_no_answer_for_another_round(is_stored: bool) -> None:
    async with asyncio.timeout(PATIENCE), MemoryCheckpointer() as store:
        stored = CheckpointedChannel(checkpointer=store, thread_id="t")
        channel = stored if is_stored else InMemoryChannel()
        task = asyncio.create_task(channel.approve("pay", "q", {"cents": 1}))
        first = await asked(channel)
        await channel.answer("q", {"decision": "deny"})  # the seeds' call, for what was asked first
        assert (await task).decision == "deny"
        task = asyncio.create_task(channel.approve("pay", "q", {"cents": 1_000_000}))
        second = await asked(channel)
        for named in ({}, {"digest": first.digest}):
            with pytest.raises(HitlStaleAnswer):
                await channel.answer("q", {"decision": "approve"}, **named)
        with pytest.raises(HitlStaleAnswer):
            await OpenOnChannel(channel, first, "ann").answer({"decision": "approve"})
        assert not task.done()
        await OpenOnChannel(channel, second, "ann").answer({"decision": "approve"})
        assert (await task).decision == "approve"


@attack
async def test_an_agent_takes_no_answer_for_another_round() -> None:
    paid: list[int] = []

    @tool(requires_approval=True)
    async def pay(cents: int) -> str:
        paid.append(cents)
        return "paid"

    async with MemoryCheckpointer() as store:
        called = AssistantMessage([ToolCall("q", "pay", {"cents": 1_000_000})], stop_reason="tool_use")
        begin = Step("r", [UserMessage("Pay."), called], opened=[request(call(1))], run=RunRecord("agent"))
        fence = await store.commit("t", begin, fence=0, acquire=True)
        await store.commit("t", Step("r", opened=[request(call(1_000_000))], release=True), fence=fence)
        agent = Agent(model=ScriptedModel(["Done."]), tools=[pay], checkpointer=store, thread_id="t")
        yes = {"decision": "approve"}
        for answer in (
            agent.respond(answer=yes),
            agent.respond(question_id="q", answer=yes),
            agent.respond(question_id="q", answer=yes, digest=call(1).digest),
            agent.resume_with([ApprovalResponse(id="q", decision="approve")]),
            agent.resume_with([ApprovalResponse(id="q", decision="approve", digest=call(1).digest)]),
        ):
            with pytest.raises(HitlStaleAnswer):
                await answer
        assert paid == []
        result = await agent.respond(question_id="q", answer=yes, digest=call(1_000_000).digest)
    assert result is not None
    assert (result.status, paid) == ("completed", [1_000_000])
