"""A channel with the six members of the protocol is enough; what it cannot do is said when it is needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kit.deeds import call, script
from kit.transcripts import Held

from askfirst import Agent, AgentSpec, tool
from askfirst.agent.subagents import subagent_tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import HitlError, HitlRequestPending, HitlStaleAnswer, InvalidAgent
from askfirst.hitl import ApproveAnswer, ConfirmToolCallMiddleware, HitlRequest, Question, ask_user_tool
from askfirst.messages import ToolCall, call_digest
from askfirst.models import ScriptedModel
from askfirst.requests import ApproveRequest

pytestmark = pytest.mark.anyio


class Six:
    """The six members, and nothing more."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._pending: tuple[HitlRequest, asyncio.Future[Any]] | None = None
        self.is_asking = asyncio.Event()

    async def confirm(
        self, prompt: str, *, details: Any = None, timeout: Any = None, signal: Any = None
    ) -> bool:
        self.asked.append(prompt)
        return True

    async def approve(
        self,
        tool_name: str,
        tool_call_id: str,
        args: Mapping[str, Any],
        *,
        details: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        signal: asyncio.Event | None = None,
    ) -> ApproveAnswer:
        self.asked.append(tool_name)
        digest = call_digest(tool_name, args)
        payload = ApproveRequest(
            tool_name=tool_name, tool_call_id=tool_call_id, args=dict(args), digest=digest
        )
        request = HitlRequest(question_id=tool_call_id, payload=payload, created_at=time.time())
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending = request, answer
        self.is_asking.set()
        try:
            return await answer
        finally:
            self._pending = None

    async def ask(self, questions: Sequence[Question], *, timeout: Any = None, signal: Any = None) -> Any:
        return {question.key: "red" for question in questions}

    @property
    def pending(self) -> HitlRequest | None:
        return None if self._pending is None else self._pending[0]

    async def answer(self, question_id: str, answer: Any) -> None:
        if self._pending is None or self._pending[0].question_id != question_id:
            raise HitlStaleAnswer(question_id)
        self._pending[1].set_result(ApproveAnswer.model_validate(answer))

    async def cancel(self, question_id: str, reason: str = "cancelled") -> None:
        raise AssertionError("nobody cancels")


@pytest.fixture
def channel() -> Six:
    return Six()


def pay(done: list[int]) -> Any:
    @tool(requires_approval=True)
    async def pay(cents: int) -> str:
        done.append(cents)
        return "paid"

    return pay


CALL = ToolCall("c1", "pay", {"cents": 5})


async def test_six_members_are_enough(channel: Six) -> None:
    done: list[int] = []
    questions = {"questions": [{"key": "colour", "prompt": "Which?"}]}
    model = ScriptedModel([CALL, ToolCall("c2", "ask_user", questions), "Done."])
    agent = Agent(model=model, tools=[pay(done), ask_user_tool(channel)], channel=channel)
    assert agent.channel is channel
    run = asyncio.create_task(agent.prompt("go"))
    await channel.is_asking.wait()
    assert agent.in_flight_hitl_request is channel.pending
    with pytest.raises(HitlRequestPending):
        await agent.prompt("again")
    assert await agent.respond(question_id="c1", answer={"decision": "approve"}) is None
    result = await run
    assert (result.status, done, channel.asked) == ("completed", [5], ["pay"])
    assert "red" in str(result.messages[-2])


async def test_with_a_store_and_in_a_hook(channel: Six) -> None:
    done: list[int] = []
    async with MemoryCheckpointer() as store:
        options: Any = {"tools": [pay(done)], "middleware": [ConfirmToolCallMiddleware(channel)]}
        agent = Agent(model=ScriptedModel([CALL, "Done."]), channel=channel, checkpointer=store, **options)
        run = asyncio.create_task(agent.prompt("go"))
        await channel.is_asking.wait()
        await channel.answer("c1", {"decision": "approve"})
        assert (await run).status == "completed"
    assert (done, channel.asked) == ([5], ["pay"])


async def test_of_a_subagents_own(channel: Six) -> None:
    done: list[int] = []
    spec = AgentSpec("till", ScriptedModel([CALL, "Paid."]), [pay(done)])
    model = ScriptedModel([ToolCall("d1", "till", {"prompt": "Pay."}), "Done."])
    agent = Agent(model=model, tools=[subagent_tool(spec, channel=channel)])
    run = asyncio.create_task(agent.prompt("go"))
    await channel.is_asking.wait()
    await channel.answer("c1", {"decision": "approve"})
    assert ((await run).status, done) == ("completed", [5])


async def test_what_it_cannot_do_is_said_when_it_is_needed(channel: Six) -> None:
    agent = Agent(model=ScriptedModel([CALL, "Done."]), tools=[pay([])], channel=channel)
    run = asyncio.create_task(agent.prompt("go"))
    await channel.is_asking.wait()
    for needs in (agent.detach(), agent.abort_pending(), agent.prompt("x", on_pending="supersede")):
        with pytest.raises(HitlError, match=r"^Six has no interrupt\(\), and so .*; add it to the channel"):
            await needs
    with pytest.raises(HitlError, match=r"Six has no answer\(by=\), and so it cannot keep who answers"):
        await agent.respond(answer={"decision": "approve"}, by="ann")
    with pytest.raises(HitlStaleAnswer):
        await agent.respond(answer={"decision": "approve"}, digest=call_digest("pay", {"cents": 6}))
    assert not run.done()
    await agent.respond(answer={"decision": "approve"}, digest=call_digest("pay", {"cents": 5}))
    assert (await run).status == "completed"


async def test_nobody_can_be_asked_about_an_effect_in_doubt(channel: Six) -> None:
    held = Held("pay")
    async with MemoryCheckpointer() as store:
        options: Any = {"tools": [held.tool], "checkpointer": store, "thread_id": "t"}
        begun = asyncio.create_task(Agent(model=script([call("c1", "pay")]), **options).prompt("go"))
        await held.started.wait()
        begun.cancel()
        await asyncio.wait([begun])
        agent = Agent(model=ScriptedModel(["Done."]), channel=channel, **options)
        with pytest.raises(
            HitlError, match=r"Six has no escalate\(\), and so nobody can be asked what to do now"
        ):
            await agent.resume()


def test_less_is_no_channel() -> None:
    class No:
        confirm = approve = ask = pending = answer = None

    channel: Any = No()
    with pytest.raises(
        InvalidAgent, match="No is not a channel that an agent can ask through: it lacks cancel;"
    ):
        Agent(model=ScriptedModel([]), channel=channel)
