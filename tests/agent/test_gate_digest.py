"""What was seen is what runs: an approval is void for anything but the arguments it was given for."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from kit.channel_rigs import Rig, asked, open_rig
from kit.transcripts import assert_sound, results

from askfirst import (
    Agent,
    ApprovalResponse,
    BeforeToolCallResult,
    Middleware,
    Tool,
    ToolCallContext,
    tool,
)
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import HitlInvalidAnswer, HitlStaleAnswer, WrongAgent
from askfirst.events import HitlRequestEvent
from askfirst.hitl import ConfirmToolCallMiddleware
from askfirst.messages import ToolCall, call_digest
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}
CALL = ToolCall("c1", "pay", {"amount": 5})


@pytest.fixture
async def sqlite_rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig("sqlite", tmp_path) as rig:
        yield rig


def payer(paid: list[Any], *, requires_approval: bool = True) -> Tool:
    @tool(requires_approval=requires_approval)
    async def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    return pay


class Changes(Middleware):
    """Changes the amount, whatever anybody has seen."""

    def __init__(self, amount: Any) -> None:
        self.amount = amount

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult:
        return BeforeToolCallResult(edited_args={"amount": self.amount})


def shown(agent: Agent) -> list[dict[str, Any]]:
    """The arguments that people are shown from now on."""
    args: list[dict[str, Any]] = []
    agent.subscribe(
        lambda event: args.append(event.request.payload.args) if isinstance(event, HitlRequestEvent) else None
    )
    return args


async def waiting_in_store(rig: Rig, paid: list[Any], pay: Tool | None = None) -> None:
    """A thread with an open request for the call, that nobody waits for."""
    agent = rig.agent(model=ScriptedModel([CALL, "done"]), tools=[pay or payer(paid)])
    task = rig.start(agent.prompt("go"))
    await asked(agent.channel)
    await agent.detach()
    await task


@pytest.mark.parametrize("second", ["approve", "deny", "edit"])
async def test_middleware_that_changes_approved_arguments_has_them_asked_again(rig: Rig, second: str) -> None:
    paid: list[Any] = []
    channel = rig.channel()
    middleware = [ConfirmToolCallMiddleware(channel), Changes(500)]
    agent = rig.agent(
        channel,
        model=ScriptedModel([CALL, "done"]),
        tools=[payer(paid, requires_approval=False)],
        middleware=middleware,
    )
    seen = shown(agent)
    requests = channel.subscribe()
    task = rig.start(agent.prompt("go"))
    await anext(requests)
    await channel.answer("c1", APPROVE, by="ada")
    again = await anext(requests)
    assert again.question_id == "c1"
    assert paid == [], "never run with the old approval"
    answer: dict[str, Any] = {"decision": second}
    if second == "edit":
        answer["edited_args"] = {"amount": 7}
    with pytest.raises(HitlStaleAnswer):
        await channel.answer("c1", answer, by="bob")
    await channel.answer("c1", answer, by="bob", digest=again.digest)
    result = await task
    assert seen == [{"amount": 5}, {"amount": 500}]
    assert paid == {"approve": [500], "deny": [], "edit": [7]}[second]
    details = results(result.messages)["c1"].details
    assert details is not None
    record = details["hitl"]
    ran = {"approve": 500, "deny": 500, "edit": 7}[second]
    assert record["decision"] == f"human_{second}"
    assert record["digest"] == call_digest("pay", {"amount": ran})
    assert record["answered_by"] == "bob"


async def test_an_edit_changed_afterwards_is_told_as_it_ran(rig: Rig) -> None:
    paid: list[Any] = []
    channel = rig.channel()
    agent = rig.agent(
        channel,
        model=ScriptedModel([CALL, "done"]),
        tools=[payer(paid)],
        middleware=[ConfirmToolCallMiddleware(channel), Changes(500)],
    )
    requests = channel.subscribe()
    task = rig.start(agent.prompt("go"))
    await anext(requests)
    await channel.answer("c1", {"decision": "edit", "edited_args": {"amount": 6}})
    again = await anext(requests)
    await channel.answer("c1", APPROVE, digest=again.digest)
    result = await task
    assert paid == [500]
    text = results(result.messages)["c1"].text
    assert '{"amount": 500}' in text
    assert "6" not in text


async def test_middleware_outside_of_the_question_changes_what_is_shown(rig: Rig) -> None:
    paid: list[Any] = []
    channel = rig.channel()
    agent = rig.agent(
        channel,
        model=ScriptedModel([CALL, "done"]),
        tools=[payer(paid)],
        middleware=[Changes(500), ConfirmToolCallMiddleware(channel)],
    )
    seen = shown(agent)
    task = rig.start(agent.prompt("go"))
    await asked(channel)
    await channel.answer("c1", APPROVE)
    await task
    assert seen == [{"amount": 500}], "and one question is enough, for the tool's own approval too"
    assert paid == [500]


@pytest.mark.parametrize(("decision", "then"), [("approve", [5, 500]), ("deny", [5])])
async def test_changed_arguments_with_nobody_to_ask_do_not_run(decision: Any, then: list[int]) -> None:
    """The middleware has a channel, and the agent has none: the run pauses, and shows what would run."""
    paid: list[Any] = []

    class Approved(Middleware):
        async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult:
            trace: Any = {"decision": "human_approve", "digest": call_digest("pay", {"amount": 5})}
            return BeforeToolCallResult(hitl_trace=trace)

    def agent(*layers: Middleware) -> Agent:
        return Agent(model=ScriptedModel([CALL, "done"]), tools=[payer(paid)], middleware=layers)

    result = await agent(Approved()).prompt("go")
    assert paid == [5], "an approval on record for these arguments counts"
    assert result.status == "completed"
    changed = agent(Approved(), Changes(500))
    paused = await changed.prompt("go")
    assert paused.status == "paused"
    assert paid == [5]
    (pending,) = paused.pending_approvals
    assert pending.tool_call.args == {"amount": 500}
    assert pending.digest == call_digest("pay", {"amount": 500})
    result = await changed.resume_with([ApprovalResponse(id=pending.id, decision=decision)])
    assert result.status == "completed"
    assert paid == then


async def rewrite(rig: Rig, path: Path, statement: str) -> None:
    """Change the database behind everybody's back."""

    def run() -> int:
        with sqlite3.connect(path / "t.db") as connection:
            return connection.execute(statement).rowcount

    assert await anyio.to_thread.run_sync(run) == 1


STORED_CALL = """UPDATE askfirst_messages SET body = replace(body, '"amount":5', '"amount":500')
                 WHERE role = 'assistant'"""
STORED_REQUEST = """UPDATE askfirst_requests SET payload = replace(payload, '"amount":5', '"amount":1')"""


@pytest.mark.parametrize("answered_first", [False, True])
async def test_a_call_changed_in_storage_is_asked_again(
    sqlite_rig: Rig, tmp_path: Path, answered_first: bool
) -> None:
    paid: list[Any] = []
    await waiting_in_store(sqlite_rig, paid)
    if answered_first:
        await sqlite_rig.checkpointer.settle("t", "c1", APPROVE)
        await rewrite(sqlite_rig, tmp_path, STORED_CALL)
    else:
        await rewrite(sqlite_rig, tmp_path, STORED_CALL)
        await sqlite_rig.checkpointer.settle("t", "c1", APPROVE)
    agent = sqlite_rig.agent(model=ScriptedModel(["done"]), tools=[payer(paid)])
    seen = shown(agent)
    task = sqlite_rig.start(agent.resume())
    await asked(agent.channel)
    assert paid == []
    assert seen == [{"amount": 500}]
    await agent.respond(answer={"decision": "deny"}, digest=call_digest("pay", {"amount": 500}))
    result = await task
    assert paid == []
    assert_sound(result.messages)


async def test_a_request_changed_in_storage_is_asked_again(sqlite_rig: Rig, tmp_path: Path) -> None:
    """The person saw 1, the call says 5, and the digest on record is that of 5."""
    paid: list[Any] = []
    await waiting_in_store(sqlite_rig, paid)
    await rewrite(sqlite_rig, tmp_path, STORED_REQUEST)
    await sqlite_rig.checkpointer.settle("t", "c1", APPROVE)
    agent = sqlite_rig.agent(model=ScriptedModel(["done"]), tools=[payer(paid)])
    seen = shown(agent)
    task = sqlite_rig.start(agent.resume())
    await asked(agent.channel)
    assert paid == []
    assert seen == [{"amount": 5}]
    await agent.respond(answer=APPROVE, digest=call_digest("pay", {"amount": 5}))
    await task
    assert paid == [5]


def newer_signature(paid: list[Any]) -> Tool:
    @tool(name="pay", requires_approval=True)
    async def pay_in(amount: int, currency: str = "EUR") -> str:
        paid.append((amount, currency))
        return "paid"

    return pay_in


@pytest.mark.parametrize("answer", [APPROVE, {"decision": "edit", "edited_args": {"amount": 6}}])
async def test_a_newer_tool_signature_is_asked_again(stored_rig: Rig, answer: Any) -> None:
    paid: list[Any] = []
    await waiting_in_store(stored_rig, paid)
    await stored_rig.checkpointer.settle("t", "c1", answer)
    agent = stored_rig.agent(model=ScriptedModel(["done"]), tools=[newer_signature(paid)])
    seen = shown(agent)
    task = stored_rig.start(agent.resume())
    await asked(agent.channel)
    assert paid == []
    assert seen == [{"amount": 5, "currency": "EUR"}]
    with pytest.raises(HitlStaleAnswer):
        await agent.respond(answer=APPROVE)
    await agent.respond(answer=APPROVE, digest=call_digest("pay", seen[0]))
    assert (await task).status == "completed"
    assert paid == [(5, "EUR")]


async def test_without_a_channel_the_new_round_is_left_in_the_store(stored_rig: Rig) -> None:
    paid: list[Any] = []
    await waiting_in_store(stored_rig, paid)
    await stored_rig.checkpointer.settle("t", "c1", APPROVE)

    def agent(*turns: Any) -> Agent:
        tools = [newer_signature(paid)]
        return Agent(
            model=ScriptedModel(turns), tools=tools, checkpointer=stored_rig.checkpointer, thread_id="t"
        )

    paused = await agent().resume()
    assert paused.status == "paused"
    assert [each.tool_call.args for each in paused.pending_approvals] == [{"amount": 5, "currency": "EUR"}]
    assert paid == []
    pending = await stored_rig.checkpointer.load_pending_request("t")
    assert pending is not None
    assert pending.payload.args == {"amount": 5, "currency": "EUR"}
    with pytest.raises(HitlStaleAnswer):
        await agent("done").respond(question_id="c1", answer=APPROVE)
    with pytest.raises(HitlStaleAnswer):
        await agent("done").resume_with([ApprovalResponse(id="c1", decision="approve")])
    result = await agent("done").respond(question_id="c1", answer=APPROVE, digest=pending.digest)
    assert result is not None
    assert result.status == "completed"
    assert paid == [(5, "EUR")]


# A tool that changed in other ways.


Answered = Callable[[Any], Any]


@pytest.mark.parametrize("answered", [False, True])
async def test_a_tool_that_is_gone_leaves_no_stuck_thread(rig: Rig, answered: bool) -> None:
    paid: list[Any] = []
    first = rig.agent(model=ScriptedModel([CALL, "done"]), tools=[payer(paid)])
    task = rig.start(first.prompt("go"))
    await asked(first.channel)
    await first.detach()
    await task
    channel = first.channel if rig.kind == "in_memory" else rig.channel()
    agent = rig.later(first, channel, model=ScriptedModel(["hello"]))
    with pytest.raises(WrongAgent) as refused:
        await (agent.respond(question_id="c1", answer=APPROVE) if answered else agent.resume())
    assert refused.value.tool_name == "pay"
    with pytest.raises(WrongAgent):
        await agent.abort_pending()
    pending = await agent.load_pending_hitl_request()
    assert pending is not None, "what a person is asked is not ended by an agent that cannot go on with it"
    assert (await agent.prompt("hi", on_pending="supersede")).text == "hello"
    assert paid == []
    assert await agent.load_pending_hitl_request() is None


async def test_a_tool_that_needs_no_approval_any_more_withdraws_the_question(stored_rig: Rig) -> None:
    paid: list[Any] = []
    await waiting_in_store(stored_rig, paid)
    tools = [payer(paid, requires_approval=False)]
    agent = stored_rig.agent(model=ScriptedModel(["done"]), tools=tools)
    assert (await agent.resume()).status == "completed"
    assert paid == [5]
    stored = await stored_rig.checkpointer.request("t", "c1")
    assert stored.status == "cancelled"
    assert await stored_rig.checkpointer.pending() == []


async def test_arguments_that_no_longer_fit_are_an_error_for_the_model(stored_rig: Rig) -> None:
    paid: list[Any] = []
    await waiting_in_store(stored_rig, paid)
    await stored_rig.checkpointer.settle("t", "c1", APPROVE)

    @tool(name="pay", requires_approval=True)
    async def pay_to(account: str) -> str:
        paid.append(account)
        return "paid"

    result = await stored_rig.agent(model=ScriptedModel(["sorry"]), tools=[pay_to]).resume()
    assert (result.status, result.text) == ("completed", "sorry")
    assert results(result.messages)["c1"].is_error
    assert paid == []


@pytest.mark.parametrize("depth", [1, *range(170, 200)])
async def test_a_deep_edit_is_refused_or_run_once_and_recorded(depth: int) -> None:
    """Never does a body run whose result cannot be written."""
    ran: list[Any] = []

    @tool(requires_approval=True)
    def note(what: Any) -> str:
        """Note."""
        ran.append(what)
        return "noted"

    deep: Any = "x"
    for _ in range(depth):
        deep = [deep]
    turns = [ToolCall("c1", "note", {"what": 1}), "Done."]
    async with MemoryCheckpointer() as store:
        agent = Agent(model=ScriptedModel(turns), tools=[note], checkpointer=store)
        await agent.prompt("go")
        try:
            await store.settle(agent.thread_id, "c1", {"decision": "edit", "edited_args": {"what": deep}})
        except HitlInvalidAnswer:
            assert depth > 180
            return
        assert (await agent.resume()).status == "completed"
        assert ran == [deep]
        stored = await store.load(agent.thread_id)
    assert stored is not None
    assert stored.messages[2].text.endswith("noted")
