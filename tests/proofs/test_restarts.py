"""Two hundred cycles of asking and answering while the database server is stopped, killed and started again."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
import pytest
from kit.database_servers import ThrowawayMySQL, ThrowawayPostgres, start_own
from kit.lives_agents import faults
from kit.patience import PATIENCE

from askfirst import Agent, ToolContext, tool
from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.errors import HitlStaleAnswer, StoreError
from askfirst.messages import Message, ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel
from askfirst.requests import HitlRequest
from askfirst.store import server_engine

pytestmark = pytest.mark.anyio

CYCLES = 200
AT_ONCE = 10


@dataclass
class Ledger:
    """What happened, recorded outside of the store."""

    effects: Counter[str] = field(default_factory=Counter)
    done: set[str] = field(default_factory=set)
    errors: Counter[str] = field(default_factory=Counter)
    restarts: Counter[str] = field(default_factory=Counter)
    over: bool = False


@pytest.mark.parametrize("patient", [True, False], ids=["patient", "impatient"])
@pytest.mark.parametrize("kind", [ThrowawayPostgres, ThrowawayMySQL])
async def test_nothing_is_lost_or_doubled_while_the_server_restarts(
    kind: type[ThrowawayPostgres | ThrowawayMySQL], patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a patient store, a restart ends within the store's patience and clients get no errors. With an impatient
    store they do."""
    monkeypatch.setattr(server_engine, "RECONNECT_SECONDS", PATIENCE if patient else 0.05)
    server = await anyio.to_thread.run_sync(start_own, kind)
    ledger = Ledger()
    try:
        async with checkpointer_from_url(server.dsn, lease_seconds=2.0) as store:
            restarting = asyncio.create_task(_restart(server, ledger))
            try:
                await _run_cycles(store, ledger)
            finally:
                ledger.over = True
                await restarting
            problems = [
                problem for n in range(CYCLES) for problem in await _problems(store, f"thread-{n}", ledger)
            ]
    finally:
        await anyio.to_thread.run_sync(server.close)
    assert problems == []
    assert ledger.restarts.total() >= 4, ledger.restarts
    assert bool(ledger.errors) != patient, ledger.errors


async def _restart(server: ThrowawayPostgres | ThrowawayMySQL, ledger: Ledger) -> None:
    """Stop or kill the server again and again, each time after a random number of further cycles."""
    chance = random.Random(1)
    goal = 10
    while not ledger.over:
        await asyncio.sleep(0.002)
        if len(ledger.done) < goal:
            continue
        how = chance.choice(["kill", "kill", "stop"])
        await anyio.to_thread.run_sync(getattr(server, how))
        ledger.restarts[how] += 1
        await anyio.to_thread.run_sync(server.start)
        goal = len(ledger.done) + chance.randint(5, 35)


async def _run_cycles(store: Checkpointer, ledger: Ledger) -> None:
    """Run all cycles, some at a time."""
    numbers = iter(range(CYCLES))

    async def worker() -> None:
        for n in numbers:
            await _cycle(store, f"thread-{n}", ledger)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())


async def _cycle(store: Checkpointer, thread_id: str, ledger: Ledger) -> None:
    """One conversation, by a client that retries when the store fails."""
    agent = _agent(store, thread_id, ledger)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            known = await store.load(thread_id)
            result = await (agent.prompt("go") if known is None else agent.resume())
            if result.status == "completed":
                ledger.done.add(thread_id)
                return
            # Paused if a person is asked; suspended while the lease of a failed try has not lapsed.
            assert result.status in ("paused", "suspended"), result
            request = await agent.load_pending_hitl_request()
            if request is not None:
                await _answer(store, request, thread_id, ledger)
                continue
        except StoreError as error:
            ledger.errors[type(error).__name__] += 1
        await asyncio.sleep(0.02)  # as clients do before a retry
    pytest.fail(f"{thread_id} did not get done")


async def _answer(store: Checkpointer, request: HitlRequest, thread_id: str, ledger: Ledger) -> None:
    """Play the person, who looks at the recorded effects when asked about a call in doubt."""
    answer: Any = {"decision": "approve"}
    if request.payload.kind == "escalate":
        answer = "skip" if ledger.effects[thread_id] else "retry"
    try:
        await store.settle(thread_id, request.question_id, answer, by="ann")
    except (
        HitlStaleAnswer
    ):  # settled by an earlier try that seemed to fail; every request is checked at the end
        ledger.errors["HitlStaleAnswer"] += 1


def _agent(store: Checkpointer, thread_id: str, ledger: Ledger) -> Agent:
    @tool(requires_approval=True)
    async def pay(amount: int, ctx: ToolContext) -> str:
        ledger.effects[ctx.thread_id] += 1
        return f"paid {amount}"

    def turn(messages: list[Message]) -> Any:
        paid = isinstance(messages[-1], ToolResultMessage)
        return "done" if paid else ToolCall("call-pay", "pay", {"amount": 5})

    model = ScriptedModel([turn] * 10_000)
    return Agent(model=model, tools=[pay], checkpointer=store, thread_id=thread_id)


async def _problems(store: Checkpointer, thread_id: str, ledger: Ledger) -> list[str]:
    thread = await store.load(thread_id)
    if thread is None:
        return [f"{thread_id} is gone"]
    problems = [f"{thread_id}: {fault}" for fault in faults(thread.messages)]
    if [message.role for message in thread.messages] != ["user", "assistant", "tool", "assistant"]:
        problems.append(f"{thread_id}: {[message.role for message in thread.messages]}")
    if ledger.effects[thread_id] != 1:
        problems.append(f"{thread_id}: {ledger.effects[thread_id]} effects")
    request = thread.requests.get("call-pay")
    if request is None or request.status != "answered" or request.answered_by != "ann":
        problems.append(f"{thread_id}: the request is {request}")
    return problems
