"""What was answered goes on by itself: continuations, and the workers that run them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from kit.patience import PATIENCE

from askfirst import Agent, tool
from askfirst.agent.spec import AgentSpec
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import InvalidAgent, ResumeLater, StoreError
from askfirst.gate.action import Action
from askfirst.gate.gate import Gate
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.workers import Continuation, Continuations, Resumer, Worker, agent_resumer

pytestmark = pytest.mark.anyio


class Desk:
    """An agent with a tool that needs approval, made anew for each use, and what the tool did."""

    def __init__(self, turns: Callable[[], list[Any]] | None = None) -> None:
        self.paid: list[int] = []
        self.turns = turns or (lambda: [ToolCall("c1", "pay", {"cents": 5}), "Done."])

        @tool(requires_approval=True)
        def pay(cents: int) -> str:
            """Pay."""
            self.paid.append(cents)
            return "paid"

        self.pay = pay

    def agent(self, thread_id: str, store: SqlCheckpointer, *, at: int = 0, **options: Any) -> Agent:
        return Agent(
            model=ScriptedModel(self.turns()[at:]),
            tools=[self.pay],
            checkpointer=store,
            thread_id=thread_id,
            **options,
        )

    def resumers(self) -> dict[str, Resumer]:
        return {"desk": agent_resumer(lambda thread_id, store: self.agent(thread_id, store, at=1))}


async def ended(store: SqlCheckpointer, thread_id: str, state: str = "done") -> Continuation:
    async with asyncio.timeout(PATIENCE):
        while True:
            known = await Continuations(store).of(thread_id)
            if known is not None and known.state == state:
                return known
            await asyncio.sleep(0.01)


async def test_an_answer_makes_the_run_go_on(checkpointer: SqlCheckpointer) -> None:
    desk = Desk()
    paused = await desk.agent("t", checkpointer, resumer="desk").prompt("Pay.")
    assert paused.status == "paused"
    assert await Continuations(checkpointer).list() == []
    async with Worker(checkpointer, desk.resumers()):
        await checkpointer.settle("t", "c1", {"decision": "approve"}, by="ada")
        known = await ended(checkpointer, "t")
    assert desk.paid == [5]
    assert (known.attempts, known.error, known.due_at) == (1, None, None)
    stored = await checkpointer.load("t")
    assert stored is not None
    assert stored.messages[-1].text == "Done."


@pytest.mark.parametrize("how", ["cancel", "expire", "expire_due"])
async def test_so_does_every_other_end_of_a_request(checkpointer: SqlCheckpointer, how: str) -> None:
    desk = Desk()
    agent = desk.agent("t", checkpointer, resumer="desk", approval_timeout=0.05 if how != "cancel" else None)
    await agent.prompt("Pay.")
    if how == "cancel":
        await checkpointer.cancel("t", "c1", "no")
    else:
        await asyncio.sleep(0.06)
        await (checkpointer.expire("t", "c1") if how == "expire" else checkpointer.expire_due())
    [due] = await Continuations(checkpointer).list()
    assert (due.thread_id, due.resumer, due.state) == ("t", "desk", "due")
    assert await Worker(checkpointer, desk.resumers()).run_due() == 1
    assert desk.paid == []
    assert (await ended(checkpointer, "t")).attempts == 1


async def test_without_a_resumer_nothing_becomes_due(checkpointer: SqlCheckpointer) -> None:
    desk = Desk()
    await desk.agent("t", checkpointer).prompt("Pay.")
    await checkpointer.settle("t", "c1", {"decision": "approve"})
    assert await Continuations(checkpointer).list(with_done=True) == []
    with pytest.raises(InvalidAgent, match="checkpointer"):
        Agent(model=ScriptedModel([]), resumer="desk")


async def test_several_answers_are_one_continuation(checkpointer: SqlCheckpointer) -> None:
    calls = [ToolCall(f"c{n}", "pay", {"cents": n}) for n in range(3)]
    desk = Desk(lambda: [calls, "Done."])
    await desk.agent("t", checkpointer, resumer="desk").prompt("Pay.")
    for call in calls:
        await checkpointer.settle("t", call.id, {"decision": "approve"})
    assert len(await Continuations(checkpointer).list()) == 1
    assert await Worker(checkpointer, desk.resumers()).run_due() == 1
    assert desk.paid == [0, 1, 2]


async def test_the_next_question_goes_on_as_well(checkpointer: SqlCheckpointer) -> None:
    desk = Desk(lambda: [ToolCall("c1", "pay", {"cents": 1}), ToolCall("c2", "pay", {"cents": 2}), "Done."])
    made: list[int] = []

    def make(thread_id: str, store: Any) -> Agent:
        made.append(1)
        return desk.agent(thread_id, store, at=len(made))

    await desk.agent("t", checkpointer, resumer="desk").prompt("Pay.")
    worker = Worker(checkpointer, {"desk": agent_resumer(make)})
    for call_id in ("c1", "c2"):
        await checkpointer.settle("t", call_id, {"decision": "approve"})
        assert await worker.run_due() == 1
    assert desk.paid == [1, 2]


async def test_a_subagents_question_resumes_the_agent_at_the_top(checkpointer: SqlCheckpointer) -> None:
    desk = Desk()
    child = AgentSpec("child", ScriptedModel([ToolCall("k1", "pay", {"cents": 7}), "Paid."]), [desk.pay])
    top = [ToolCall("c1", "child", {"prompt": "Pay."}), "All done."]

    def make(thread_id: str, store: Any, at: int = 1) -> Agent:
        return Agent(
            model=ScriptedModel(top[at:]), subagents=[child], checkpointer=store, thread_id=thread_id
        )

    agent = make("t", checkpointer, 0)
    agent.goes_on_by("desk")
    paused = await agent.prompt("Go.")
    [approval] = paused.pending_approvals
    [open_request] = await checkpointer.pending()
    assert open_request.thread_id != "t"
    await checkpointer.settle(open_request.thread_id, approval.question_id, {"decision": "approve"})
    [due] = await Continuations(checkpointer).list()
    assert due.thread_id == "t"
    assert await Worker(checkpointer, {"desk": agent_resumer(make)}).run_due() == 1
    assert desk.paid == [7]
    stored = await checkpointer.load("t")
    assert stored is not None
    assert stored.messages[-1].text == "All done."


async def test_a_gate_goes_on_by_any_function(checkpointer: SqlCheckpointer) -> None:
    resumed: list[str] = []

    async def resume(continuation: Continuation) -> None:
        resumed.append(continuation.thread_id)

    async with Gate(checkpointer) as gate, Worker(checkpointer, {"graph": resume}):
        await gate.open("graph:7:c1", Action(tool="pay", args={}, resumer="graph", resumes="graph-thread-7"))
        await gate.answer("graph:7:c1", {"decision": "approve"})
        await ended(checkpointer, "graph-thread-7")
    assert resumed == ["graph-thread-7"]


async def test_a_resumer_that_fails_is_seen_and_tried_again(checkpointer: SqlCheckpointer) -> None:
    desk, attempts = Desk(), list[int]()
    good = desk.resumers()["desk"]

    async def flaky(continuation: Continuation) -> object:
        attempts.append(continuation.attempts)
        if len(attempts) < 2:
            raise RuntimeError("the model is down")
        return await good(continuation)

    await desk.agent("t", checkpointer, resumer="desk").prompt("Pay.")
    await checkpointer.settle("t", "c1", {"decision": "approve"})
    worker = Worker(checkpointer, {"desk": flaky})
    assert await worker.run_due() == 1
    [failed] = await Continuations(checkpointer).list()
    assert (failed.state, failed.error, failed.attempts) == ("failed", "RuntimeError: the model is down", 1)
    assert failed.due_at is not None
    assert failed.due_at > time.time() - 1
    assert desk.paid == []
    again = await Continuations(checkpointer).retry("t")
    assert (again.state, again.attempts, again.error) == ("due", 0, None)
    assert await worker.run_due() == 1
    assert desk.paid == [5]
    with pytest.raises(StoreError, match="no continuation"):
        await Continuations(checkpointer).retry("unknown")


async def test_after_many_failures_only_a_person_tries_again(
    checkpointer: SqlCheckpointer, monkeypatch: Any
) -> None:
    monkeypatch.setattr("askfirst.workers.attempt.back_off", lambda attempts: 0.0)

    async def never(continuation: Continuation) -> None:
        raise RuntimeError("no")

    desk = Desk()
    await desk.agent("t", checkpointer, resumer="desk").prompt("Pay.")
    await checkpointer.settle("t", "c1", {"decision": "approve"})
    assert await Worker(checkpointer, {"desk": never}).run_due() == 10
    [stuck] = await Continuations(checkpointer).list()
    assert (stuck.state, stuck.due_at, stuck.attempts) == ("failed", None, 10)


async def test_later_is_no_failure(checkpointer: SqlCheckpointer) -> None:
    seen: list[int] = []

    async def busy(continuation: Continuation) -> None:
        seen.append(continuation.attempts)
        if len(seen) < 3:
            raise ResumeLater("another worker has it", 0.01)

    desk = Desk()
    await desk.agent("t", checkpointer, resumer="desk").prompt("Pay.")
    async with Worker(checkpointer, {"desk": busy}):
        await checkpointer.settle("t", "c1", {"decision": "approve"})
        await ended(checkpointer, "t")
    assert seen == [1, 1, 1]


async def test_what_is_answered_while_it_runs_is_due_again(checkpointer: SqlCheckpointer) -> None:
    runs: list[int] = []
    began, may_end = asyncio.Event(), asyncio.Event()

    async def slow(continuation: Continuation) -> None:
        runs.append(1)
        began.set()
        await may_end.wait()

    calls = [ToolCall("c1", "pay", {"cents": 1}), ToolCall("c2", "pay", {"cents": 2})]
    desk = Desk(lambda: [calls, "Done."])
    await desk.agent("t", checkpointer, resumer="desk").prompt("Pay.")
    async with Worker(checkpointer, {"desk": slow}, concurrency=1):
        await checkpointer.settle("t", "c1", {"decision": "approve"})
        async with asyncio.timeout(PATIENCE):
            await began.wait()
        await checkpointer.settle("t", "c2", {"decision": "approve"})
        may_end.set()
        await ended(checkpointer, "t")
    assert len(runs) == 2


async def test_what_a_dead_worker_held_is_taken_over(checkpointer: SqlCheckpointer) -> None:
    desk = Desk()
    await desk.agent("t", checkpointer, resumer="desk").prompt("Pay.")
    await checkpointer.settle("t", "c1", {"decision": "approve"})
    [held] = await Continuations(checkpointer).take("dead", 1, 0.1, ["desk"])
    assert held.state == "running"
    assert await Continuations(checkpointer).take("other", 1, 30, ["desk"]) == []
    async with Worker(checkpointer, desk.resumers()):
        await ended(checkpointer, "t")
    assert desk.paid == [5]
    assert not await Continuations(checkpointer).done(held), "its lease is lost"


async def test_a_worker_takes_only_what_it_knows(checkpointer: SqlCheckpointer) -> None:
    desk = Desk()
    await desk.agent("t", checkpointer, resumer="desk").prompt("Pay.")
    await checkpointer.settle("t", "c1", {"decision": "approve"})

    async def other(continuation: Continuation) -> None:
        raise AssertionError

    assert await Worker(checkpointer, {"other": other}).run_due() == 0
    with pytest.raises(ValueError, match="resumer"):
        Worker(checkpointer, {})


async def test_many_threads_go_on_and_each_once(checkpointer: SqlCheckpointer) -> None:
    desk, count = Desk(), 30
    for number in range(count):
        await desk.agent(f"t{number}", checkpointer, resumer="desk").prompt("Pay.")
    workers = [Worker(checkpointer, desk.resumers(), concurrency=4) for _ in range(3)]
    async with workers[0], workers[1], workers[2]:
        for number in range(count):
            await checkpointer.settle(f"t{number}", "c1", {"decision": "approve"})
        for number in range(count):
            await ended(checkpointer, f"t{number}")
    assert desk.paid == [5] * count


async def test_a_deleted_thread_does_not_go_on(checkpointer: SqlCheckpointer) -> None:
    desk = Desk()
    await desk.agent("t", checkpointer, resumer="desk").prompt("Pay.")
    await checkpointer.settle("t", "c1", {"decision": "approve"})
    await checkpointer.delete("t")
    assert await Continuations(checkpointer).list(with_done=True) == []
