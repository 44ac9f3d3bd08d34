"""A state machine: agents in several processes, a person, a clock and crashes, against a plain model of the rules.

The processes are simulated: each has a separate checkpointer on one SQLite file. A process that crashes raises at the
crash point and at every later one, so that it writes nothing more. Its lease stays.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kit.lives_agents import faults
from kit.patience import PATIENCE

from askfirst import Agent, ApprovalResponse, ToolContext, tool
from askfirst.checkpointer import base
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import (
    HitlNoPendingRequest,
    HitlRequestPending,
    HitlStaleAnswer,
    InvalidCheckpoint,
    LeaseHeld,
)
from askfirst.hitl import CheckpointedChannel
from askfirst.hitl.testing import FakeClock
from askfirst.messages import Message, ToolCall, ToolResultMessage, UserMessage
from askfirst.models import ScriptedModel
from askfirst.requests import StoredRequest
from askfirst.store import sqlite_engine

THREAD = "thread"
TIMEOUT = 20.0
LEASE = 30.0
POINTS = [
    f"{when}{what}"
    for when in ("before:", "")
    for what in ("prompt", "request.opened", "effect.started", "effect.ended", "run.ended", "request.settled")
] + ["body.before", "body.after"]
AROUND_THE_BODY = ["effect.started", "body.before", "body.after", "before:effect.ended", "effect.ended"]

_process: ContextVar[_Process | None] = ContextVar("process", default=None)


SEEN: Counter[Any] = Counter()
"""How requests ended and how often calls took effect, over all runs."""


class Crash(BaseException):
    """The process is dead."""


ENDS = (Crash, HitlRequestPending, LeaseHeld, HitlStaleAnswer, HitlNoPendingRequest, InvalidCheckpoint)
"""What a process may raise: it is dead, or somebody else was first."""


class _Process:
    """A process with an agent. With a channel it waits for the person; without one it pauses and can be resumed."""

    def __init__(self, machine: HitlMachine, *, waits: bool) -> None:
        self._machine = machine
        self.waits = waits
        self.dies_at: str | None = None
        self.dead = False
        self.task: asyncio.Task[Any] | None = None

    async def start(self) -> None:
        machine = self._machine
        self.store = await SQLiteCheckpointer(
            machine.path, lease_seconds=LEASE, clock=machine.clock
        ).__aenter__()
        channel = None
        if self.waits:
            channel = CheckpointedChannel(
                checkpointer=self.store, thread_id=THREAD, default_timeout=TIMEOUT, clock=machine.clock
            )
        self.agent = Agent(
            model=ScriptedModel([_turn] * 1000),
            tools=[machine.pay],
            channel=channel,
            checkpointer=self.store,
            thread_id=THREAD,
        )

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something in this process, in the background."""
        context = copy_context()
        context.run(_process.set, self)
        self.task = asyncio.get_running_loop().create_task(work, context=context)

    @property
    def busy(self) -> bool:
        return self.task is not None and not self.task.done()

    def waits_for(self) -> str | None:
        pending = self.agent.in_flight_hitl_request if self.waits else None
        return None if pending is None else pending.question_id

    def reach(self, point: str) -> None:
        """Die if this is the crash point; a dead process raises `Crash` at every later point too."""
        if point == self.dies_at:
            self.dead = True
        if self.dead:
            raise Crash

    async def stop(self) -> None:
        """End the process at once: its task is cancelled, and its lease stays."""
        self.dead = True
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        await self.store.__aexit__(None, None, None)


def _turn(messages: list[Message]) -> Any:
    if isinstance(messages[-1], ToolResultMessage):
        return "done"
    asked = sum(isinstance(message, UserMessage) for message in messages)
    return ToolCall(f"call-{asked}", "pay", {"amount": asked})


class HitlMachine(RuleBasedStateMachine):
    """Drives two processes and a person, and compares them with a model."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name) / "threads.db"
        self.clock = FakeClock()
        self.effects: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.approved: set[str] = set()
        self.transcript: list[Message] = []
        self.known: dict[str, StoredRequest] = {}
        self.allowed: set[str] = set()
        self.pay = tool(name="pay", requires_approval=True)(self._pay)
        self._runner = asyncio.Runner()
        base.hook = _reached
        self._runner.run(self._open())

    async def _pay(self, amount: int, ctx: ToolContext) -> str:
        base.reached("body.before")
        self.effects[ctx.tool_call_id] += 1
        await asyncio.sleep(0)
        base.reached("body.after")
        return f"paid {amount}"

    async def _open(self) -> None:
        self.host = await SQLiteCheckpointer(self.path, lease_seconds=LEASE, clock=self.clock).__aenter__()
        self.processes = [_Process(self, waits=True), _Process(self, waits=False)]
        for process in self.processes:
            await process.start()

    # Processes.

    @rule(which=st.integers(0, 1), on_pending=st.sampled_from(["raise"] * 5 + ["supersede"]))
    def prompt(self, which: int, on_pending: Any) -> None:
        if on_pending == "supersede":
            self.allowed.add("superseded")
        self._do(which, lambda agent: agent.prompt("go", on_pending=on_pending))

    @rule(which=st.integers(0, 1))
    def resume(self, which: int) -> None:
        self._do(which, lambda agent: agent.resume())

    @precondition(lambda self: self.pending is None and bool(self.known))
    @rule(which=st.integers(0, 1))
    def take_over(self, which: int) -> None:
        """The leases of dead processes lapse, and a living process resumes."""
        self._runner.run(self._pass(LEASE + 1))
        self.resume(which)

    @precondition(lambda self: self.pending is not None)
    @rule(which=st.integers(0, 1))
    def abort_pending(self, which: int) -> None:
        self.allowed.add("aborted")
        self._do(which, lambda agent: agent.abort_pending("enough"))

    @precondition(lambda self: self.processes[0].waits_for() is not None)
    @rule()
    def detach(self) -> None:
        self._runner.run(self._detach(self.processes[0]))

    @precondition(lambda self: self.processes[0].busy)
    @rule()
    def cancel_the_task(self) -> None:
        """Cancel a process's task, as a web server does that shuts down: its requests stay open."""
        self._runner.run(self._cancel_task(self.processes[0].task))

    @rule(which=st.integers(0, 1))
    def crash(self, which: int) -> None:
        self._runner.run(self._replace(which))

    @rule(which=st.integers(0, 1), point=st.sampled_from(POINTS))
    def crash_soon(self, which: int, point: str) -> None:
        self.processes[which].dies_at = point

    # The person.

    @precondition(lambda self: self.pending is not None)
    @rule(
        deny=st.sampled_from([False, False, True]), doubt=st.sampled_from(["retry", "retry", "skip", "abort"])
    )
    def answer(self, deny: bool, doubt: str) -> None:
        self._runner.run(self._answer(deny, doubt))

    @precondition(lambda self: self.pending is not None and not self.processes[1].busy)
    @rule(decision=st.sampled_from(["approve", "approve", "deny"]))
    def answer_with(self, decision: Any) -> None:
        """The person answers the pending approval, by the process that resumes with the answer."""
        self._runner.run(self._answer_with(decision))

    @precondition(lambda self: self.pending is not None)
    @rule(doubt=st.sampled_from(["retry", "skip"]), point=st.sampled_from(AROUND_THE_BODY))
    def agree_and_crash(self, doubt: str, point: str) -> None:
        """The worst moments: the person approves, and the process that resumes dies around the tool's body."""
        for process in self.processes:
            process.dies_at = point
        self._runner.run(self._answer(deny=False, doubt=doubt))
        self.resume(1)

    @precondition(lambda self: self.pending is not None)
    @rule()
    def cancel(self) -> None:
        self._runner.run(self._cancel())

    @precondition(lambda self: any(known.status != "pending" for known in self.known.values()))
    @rule(data=st.data())
    def answer_too_late(self, data: st.DataObject) -> None:
        """An answer to a settled request is refused, whatever it says."""
        settled = sorted(known.question_id for known in self.known.values() if known.status != "pending")
        question_id = data.draw(st.sampled_from(settled))
        answer = {"decision": "approve"} if ":" not in question_id else "retry"
        with pytest.raises(HitlStaleAnswer) as caught:
            self._runner.run(self.host.settle(THREAD, question_id, answer))
        assert caught.value.status == self.known[question_id].status

    # Time.

    @rule(seconds=st.sampled_from([1.0, 15.0, 45.0]))
    def let_time_pass(self, seconds: float) -> None:
        self._runner.run(self._pass(seconds))

    @rule()
    def expire_due(self) -> None:
        due = sorted(known.question_id for known in self.known.values() if self._overdue(known))
        expired = self._runner.run(self.host.expire_due())
        assert sorted(each.question_id for each in expired) == due
        self._runner.run(self._come_to_rest())

    # Invariants.

    @invariant()
    def the_rules_are_kept(self) -> None:
        self._runner.run(self._look())
        self.allowed = set()

    async def _look(self) -> None:
        thread = await self.host.load(THREAD)
        messages = thread.messages if thread is not None else []
        assert messages[: len(self.transcript)] == self.transcript, "the transcript changed before its end"
        self.transcript = messages
        unresolved = [fault for fault in faults(messages) if "has no result" not in fault]
        assert unresolved == []
        for question_id, known in list(self.known.items()):
            now = await self.host.request(THREAD, question_id)
            assert now is not None, f"{question_id} is lost"
            self._check_change(known, now)
            self.known[question_id] = now
        for question_id, now in (thread.requests if thread is not None else {}).items():
            self.known.setdefault(question_id, now)
        self._check_effects(messages)

    def _check_change(self, known: StoredRequest, now: StoredRequest) -> None:
        if now.request != known.request:  # a new round: another attempt is in doubt
            assert ":escalate:" in known.question_id
            return
        if known.status != "pending":
            assert now == known, "a settled request was changed"
        elif now.status != "pending":
            allowed = self.allowed | ({"timed_out"} if self._overdue(known) else set())
            assert now.status in allowed, f"{now.question_id} became {now.status} by itself"

    def _check_effects(self, messages: list[Message]) -> None:
        for call_id, times in self.effects.items():
            assert call_id in self.approved, f"{call_id} ran without an approval"
            assert times <= 1 + self.retries[call_id], f"{call_id} took effect {times} times"
        for message in messages:
            if isinstance(message, ToolResultMessage) and not message.is_error:
                assert self.effects[message.tool_call_id] >= 1

    @property
    def pending(self) -> StoredRequest | None:
        """The pending request that was seen last."""
        return next((known for known in self.known.values() if known.status == "pending"), None)

    def _overdue(self, known: StoredRequest) -> bool:
        expires_at = known.request.expires_at
        return known.status == "pending" and expires_at is not None and expires_at <= self.clock.now()

    # Helpers.

    def _do(self, which: int, what: Any) -> None:
        process = self.processes[which]
        if not process.busy:
            self._runner.run(self._begin(process, what))

    async def _begin(self, process: _Process, what: Any) -> None:
        process.begin(what(process.agent))
        await self._come_to_rest()

    async def _detach(self, process: _Process) -> None:
        await process.agent.detach()
        assert process.task is not None
        await asyncio.wait([process.task], timeout=PATIENCE)
        assert process.task.result().status == "suspended"
        await self._come_to_rest()

    async def _cancel_task(self, task: asyncio.Task[Any] | None) -> None:
        assert task is not None
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.done()
        await self._come_to_rest()

    async def _answer(self, deny: bool, doubt: str) -> None:
        pending = self.pending
        if pending is None:
            return
        call_id = pending.question_id.partition(":")[0]
        answer: Any = doubt if ":" in pending.question_id else {"decision": "deny" if deny else "approve"}
        try:
            await self.host.settle(
                THREAD, pending.question_id, answer, by="ann", digest=pending.request.digest
            )
        except HitlStaleAnswer:
            assert self._overdue(pending), "an answer in time was refused"
        else:
            assert not self._overdue(pending), "a late answer was taken"
            self.allowed.add("answered")
            if answer == "retry":
                self.retries[call_id] += 1
            elif answer == {"decision": "approve"}:
                self.approved.add(call_id)
        await self._come_to_rest()

    async def _answer_with(self, decision: Any) -> None:
        pending, process = self.pending, self.processes[1]
        if pending is None:
            return
        shown = pending.request.digest
        response = ApprovalResponse(id=pending.question_id, decision=decision, digest=shown)
        await self._begin(process, lambda agent: agent.resume_with([response], by="bob"))
        now = await self.host.request(THREAD, pending.question_id)
        assert now is not None
        # A call in doubt may be in doubt again by now, but only if the person chose a retry.
        settled = now.answered_by == "bob" or now.request != pending.request
        if not settled:
            assert process.dead or self._overdue(pending), "an answer in time was not taken"
            return
        assert not self._overdue(pending), "a late answer was taken"
        self.allowed.add("answered")
        SEEN["answered with"] += 1
        call_id = pending.question_id.partition(":")[0]
        if decision == "approve" and ":" in pending.question_id:
            self.retries[call_id] += 1
        elif decision == "approve":
            self.approved.add(call_id)

    async def _cancel(self) -> None:
        pending = self.pending
        if pending is None:
            return
        try:
            await self.host.cancel(THREAD, pending.question_id, "never mind")
            assert not self._overdue(pending)
            self.allowed.add("cancelled")
        except HitlStaleAnswer:
            assert self._overdue(pending)
        await self._come_to_rest()

    async def _pass(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await self._come_to_rest()

    async def _replace(self, which: int) -> None:
        """End a process, and start another in its place."""
        await self.processes[which].stop()
        self.processes[which] = _Process(self, waits=which == 0)
        await self.processes[which].start()

    async def _come_to_rest(self) -> None:
        """Let every process work until it is done, is dead, or waits for a person."""
        deadline = time.monotonic() + PATIENCE
        while not await self._at_rest():
            assert time.monotonic() < deadline, "the processes do not come to rest"
            await self.clock.advance(0)
            await asyncio.sleep(0.001)
        for which, process in enumerate(self.processes):
            if process.task is not None and process.task.done():
                await self._check_end(process, process.task)
            if process.dead:
                await self._replace(which)

    async def _check_end(self, process: _Process, task: asyncio.Task[Any]) -> None:
        """Assert that a process's task ended in one of the allowed ways."""
        try:
            result = task.result()
        except (*ENDS, asyncio.CancelledError):
            return
        if result is None:  # `abort_pending` returns nothing
            return
        SEEN["channel" if process.waits else "no channel", result.status] += 1
        assert (result.status == "paused") == bool(result.pending_approvals) == bool(result.checkpoint)
        if process.waits:
            assert result.status != "paused", "a process with a channel waits for the person"
        elif result.status == "suspended":
            assert "person" not in (result.reason or ""), "only another worker keeps it from pausing"
        elif result.status == "paused":
            assert result.checkpoint.stored
            for pending in result.pending_approvals:
                asked = await self.host.request(THREAD, pending.id)
                assert asked is not None, "told before it was stored"
                assert pending.kind == asked.request.payload.kind

    async def _at_rest(self) -> bool:
        for process in self.processes:
            if (
                process.busy and not process.dead
            ):  # a process that died while it watched a deadline waits for ever
                question_id = process.waits_for()
                known = await self.host.request(THREAD, question_id) if question_id is not None else None
                if known is None or known.status != "pending" or self._overdue(known):
                    return False
        return True

    def teardown(self) -> None:
        try:
            self._runner.run(self._finish())
            SEEN.update((known.request.payload.kind, known.status) for known in self.known.values())
            SEEN.update(("effects", times) for times in self.effects.values())
            SEEN.update(("retries", times) for times in self.retries.values())
        finally:
            base.hook = None
            self._runner.close()
            self._folder.cleanup()

    async def _finish(self) -> None:
        """Bring the thread to its end, whatever happened to it."""
        for which in (0, 1):
            await self._replace(which)
        await self.clock.advance(LEASE + 1)
        agent = self.processes[1].agent
        for turn in range(len(self.known), len(self.known) + 10):
            if (await self.host.load(THREAD)) is None:
                break
            result = await agent.resume()
            await self._look_once_more()
            assert result.status != "suspended", f"nobody else is at it: {result}"
            if result.status != "paused":
                break
            await self._answer(deny=False, doubt="retry" if turn % 2 else "skip")
        else:
            raise AssertionError(f"the thread is stuck: {result}")
        assert faults(await agent.load()) == []
        for process in self.processes:
            await process.stop()
        await self.host.__aexit__(None, None, None)

    async def _look_once_more(self) -> None:
        self.allowed |= {"answered", "timed_out"}
        await self._look()


def _reached(point: str) -> None:
    process = _process.get()
    if process is not None:
        process.reach(point)


@pytest.fixture(autouse=True)
def quick_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_engine, "PROBE_SECONDS", 0.001)


RUNS = settings(
    max_examples=200,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # shrinking a failure takes longer than reading it
    suppress_health_check=list(HealthCheck),
)


def test_the_rules_hold_whatever_happens() -> None:
    SEEN.clear()
    run_state_machine_as_test(HitlMachine, settings=RUNS)
    for status in ("answered", "cancelled", "timed_out", "aborted", "superseded"):
        assert SEEN["approve", status], f"no approval was ever {status}: {SEEN}"
    assert SEEN["escalate", "answered"], SEEN
    assert SEEN["no channel", "paused"], f"nothing ever paused: {SEEN}"
    assert SEEN["channel", "suspended"], SEEN
    assert SEEN["answered with"], f"no pending approval was ever answered: {SEEN}"
    assert SEEN["effects", 1], SEEN
    assert SEEN["retries", 1], f"nobody ever retried: {SEEN}"
