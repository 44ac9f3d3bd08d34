"""What stands between the start that is written and the body: a lease that may have lapsed, a subagent's store."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from askfirst import Agent, AgentEvent, AgentSpec, tool
from askfirst.agent import journal
from askfirst.checkpointer.base import Step, StoredThread
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.clock import SystemClock
from askfirst.errors import StoreError
from askfirst.events import ToolStartedEvent
from askfirst.messages import AssistantMessage, ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


class Later(SystemClock):
    """A worker that comes when the lease has lapsed."""

    def now(self) -> float:
        return super().now() + 31


@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_process_that_stood_still_starts_no_body_of_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: Any, taken_over: bool
) -> None:
    """As after SIGSTOP: the start is written, the lease lapses, another goes on, and this one wakes."""
    ran: list[int] = []

    @tool(effect=effect)
    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    async with SQLiteCheckpointer(tmp_path / "a.db") as ours:
        model = ScriptedModel([ToolCall("c1", "pay", {"amount": 5}), "done"])
        agent = Agent(model=model, tools=[pay], checkpointer=ours, thread_id="t")

        async def stand_still(event: AgentEvent) -> None:
            if isinstance(event, ToolStartedEvent):
                if taken_over:
                    async with SQLiteCheckpointer(tmp_path / "a.db", clock=Later()) as other:
                        stored = await other.load("t")
                        assert stored is not None
                        assert "c1" in stored.effects
                        await other.commit("t", Step("other"), fence=stored.fence, acquire=True)
                woke = time.monotonic() + 31
                monkeypatch.setattr(journal, "time", SimpleNamespace(monotonic=lambda: woke))

        agent.subscribe(stand_still)
        result = await agent.prompt("go")
        assert (result.status, ran) == (("suspended", []) if taken_over else ("completed", [5]))


async def test_bodies_that_start_together_make_sure_of_the_lease_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    async with SQLiteCheckpointer(tmp_path / "a.db") as store:
        calls = [ToolCall(f"c{amount}", "pay", {"amount": amount}) for amount in range(3)]
        agent = Agent(model=ScriptedModel([calls, "done"]), tools=[pay], checkpointer=store, thread_id="t")

        def stand_still(event: AgentEvent) -> None:
            if isinstance(event, ToolStartedEvent):
                woke = time.monotonic() + 31
                monkeypatch.setattr(journal, "time", SimpleNamespace(monotonic=lambda: woke))

        agent.subscribe(stand_still)
        result = await agent.prompt("go")
        assert (result.status, sorted(ran)) == ("completed", [0, 1, 2])


class Flaky(MemoryCheckpointer):
    """Fails once, for a thread under the first one's."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.fails = False
        self._method = method

    def _check(self, method: str, thread_id: str) -> None:
        if self.fails and method == self._method and thread_id != "t":
            self.fails = False
            raise StoreError("the connection was lost")

    async def load(self, thread_id: str) -> StoredThread | None:
        self._check("load", thread_id)
        return await super().load(thread_id)

    async def commit(self, thread_id: str, step: Step, *, fence: int, acquire: bool = False) -> int:
        if step.started:
            self._check("commit", thread_id)
        return await super().commit(thread_id, step, fence=fence, acquire=acquire)


@pytest.mark.parametrize("method", ["load", "commit"])
@pytest.mark.parametrize("beside", [False, True])
async def test_a_store_that_fails_a_subagent_ends_no_call(method: str, beside: bool) -> None:
    """The model is not told that the subagent failed: it would call it again, beside the one that is at it."""
    ran: list[int] = []

    @tool(requires_approval=True)
    async def charge(amount: int) -> str:
        ran.append(amount)
        return "charged"

    @tool
    async def note() -> str:
        return "noted"

    def said(messages: Any, *turns: Any) -> Any:
        return turns[sum(isinstance(message, AssistantMessage) for message in messages)]

    first = [ToolCall("d0", "clerk", {"prompt": "charge"}), *([ToolCall("d1", "note", {})] if beside else [])]
    clerk = AgentSpec(
        "clerk",
        ScriptedModel([lambda it: said(it, [ToolCall("c1", "charge", {"amount": 5})], "charged")] * 9),
        [charge],
    )
    boss = AgentSpec(
        "boss", ScriptedModel([lambda it: said(it, first, "done")] * 9), [note], subagents=[clerk]
    )
    async with Flaky(method) as store:
        paused = await Agent.from_spec(boss, checkpointer=store, thread_id="t").prompt("go")
        assert paused.status == "paused"
        (request,) = await store.pending()
        if method == "commit":
            await store.settle(request.thread_id, request.question_id, {"decision": "approve"})
        store.fails = True
        with pytest.raises(StoreError, match="lost"):
            await Agent.from_spec(boss, checkpointer=store, thread_id="t").resume()
        assert ran == []
        if method == "load":
            await store.settle(request.thread_id, request.question_id, {"decision": "approve"})
        result = await Agent.from_spec(boss, checkpointer=store, thread_id="t").resume()
        assert (result.status, result.text, ran) == ("completed", "done", [5])
