"""A crowd on one thread: agents with a shared store or with separate ones, with and without channels, do random acts
at any time while people answer. One of them wins each race, and nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from kit.lives_agents import faults
from kit.patience import PATIENCE
from kit.stores import Database

from askfirst import Agent, AgentSpec, ToolContext, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import AskfirstError
from askfirst.hitl import CheckpointedChannel, ask_user_tool
from askfirst.hitl.testing import NoopChannel
from askfirst.messages import Message, ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

THREAD = "thread"
EPISODES = {"memory": 30, "sqlite": 12, "postgres": 4, "mysql": 3}
DEEDS = 40

Act = Callable[[Agent], Awaitable[object]]


class Crowd:
    """Three agents on one thread, the deeds of their tools, and the acts that ended in a way that is not allowed."""

    def __init__(self, seed: int, stores: list[SqlCheckpointer], *, delegates: bool) -> None:
        self.dice = random.Random(seed)
        self.stores = stores
        self._delegates = delegates
        self.ran: Counter[tuple[str, str, int]] = Counter()
        self.surprises: list[BaseException] = []
        self._calls = 0
        self.pay = tool(name="pay", requires_approval=True)(self._pay)
        self._acts: list[Act] = [
            *(self._prompt, self._prompt, self._resume, self._resume, self._cancel_soon, self._cancel_soon),
            *(self._answer, self._answer, self._answer, self._respond, self._expire),
            *(self._supersede, self._abort_pending, self._stop),
            *(Agent.detach, Agent.load, Agent.load_pending_hitl_request),
        ]
        with_channel = self.dice.choice([(), (1, 2), (0, 1, 2)])
        self.agents = [
            self._agent(stores[place % len(stores)], channel=place in with_channel) for place in range(3)
        ]

    async def _pay(self, amount: int, ctx: ToolContext) -> str:
        self.ran[ctx.thread_id, ctx.tool_call_id, ctx.attempt] += 1
        await self._pause(0, 0, 0.002)
        return "paid"

    def _agent(self, store: SqlCheckpointer, *, channel: bool = False) -> Agent:
        timeout = self.dice.choice([None, None, 0.004])
        asks = CheckpointedChannel(checkpointer=store, thread_id=THREAD, default_timeout=timeout)
        tools = [self.pay, ask_user_tool(asks if channel else NoopChannel())]
        helper = AgentSpec("helper", ScriptedModel([self._turn] * 500), tools, instructions="Help.")
        gate: Any = self.dice.choice(["batch", "each"])
        return Agent(
            model=ScriptedModel([self._delegating_turn if self._delegates else self._turn] * 500),
            tools=tools,
            subagents=[helper] if self._delegates else [],
            channel=asks if channel else None,
            checkpointer=store,
            thread_id=THREAD,
            tool_gate=gate,
        )

    def _delegating_turn(self, messages: list[Message]) -> Any:
        said = self._turn(messages)
        if isinstance(said, str) or self.dice.random() < 0.5:
            return said
        self._calls += 1
        calls = [said] if isinstance(said, ToolCall) else said
        helping = ToolCall(f"help-{self._calls}", "helper", {"prompt": "Help."})
        return self.dice.choice([[helping], [helping, *calls], [*calls, helping]])

    def _turn(self, messages: list[Message]) -> Any:
        if messages[-1].role == "tool":
            return "done"
        self._calls += 1
        match self.dice.choice(["pay", "pay twice", "ask", "talk"]):
            case "talk":
                return "hello"
            case "ask":
                asked = {"questions": [{"key": "k", "prompt": f"What about {self._calls}?"}]}
                return ToolCall(f"ask-{self._calls}", "ask_user", asked)
            case some:
                count = 1 if some == "pay" else 2
                args = {"amount": self._calls}
                return [ToolCall(f"pay-{self._calls}-{place}", "pay", args) for place in range(count)]

    # What anybody may do at any time.

    async def do_something(self) -> None:
        """One random act of a random agent; it may fail because another agent was first."""
        try:
            with suppress(AskfirstError):
                await self.dice.choice(self._acts)(self.dice.choice(self.agents))
        except Exception as surprise:
            self.surprises.append(surprise)

    async def answer(self) -> None:
        """A person answers or cancels an open request."""
        store = self.dice.choice(self.stores)
        for asked in await store.pending():
            if self.dice.random() < 0.2:
                await store.cancel(asked.thread_id, asked.question_id, "never mind")
            else:
                said = self._answer_to(asked.request.payload.kind)
                await store.settle(asked.thread_id, asked.question_id, said)

    def _answer_to(self, kind: str) -> Any:
        edit = {"decision": "edit", "edited_args": {"amount": 7}}
        answers: dict[str, list[Any]] = {
            "approve": [{"decision": "approve"}, {"decision": "deny"}, edit],
            "ask": [{"k": "v"}],
            "escalate": ["retry", "skip", "abort"],
        }
        return self.dice.choice(answers[kind])

    async def _prompt(self, agent: Agent) -> None:
        await agent.prompt("go")

    async def _supersede(self, agent: Agent) -> None:
        await agent.prompt("go", on_pending="supersede")

    async def _resume(self, agent: Agent) -> None:
        await agent.resume()

    async def _abort_pending(self, agent: Agent) -> None:
        await agent.abort_pending("enough")

    async def _answer(self, _: Agent) -> None:
        await self.answer()

    async def _expire(self, _: Agent) -> None:
        await self.dice.choice(self.stores).expire_due()

    async def _respond(self, agent: Agent) -> None:
        asked = await agent.load_pending_hitl_request()
        if asked is not None:
            await agent.respond(question_id=asked.question_id, answer=self._answer_to(asked.payload.kind))

    async def _stop(self, agent: Agent) -> None:
        agent.abort()

    async def _cancel_soon(self, agent: Agent) -> None:
        """Start a run and cancel it soon, like a web server that shuts down, or a reader who leaves."""
        work = agent.resume() if self.dice.random() < 0.5 else agent.prompt("go")
        task = asyncio.ensure_future(work)
        await self._pause(0, 0.001, 0.003)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    async def _pause(self, *seconds: float) -> None:
        await asyncio.sleep(self.dice.choice(seconds))

    # How it goes.

    async def run(self) -> None:
        """Run all acts at once until they end, then bring the thread to its end."""
        tasks: set[asyncio.Task[None]] = set()
        for _ in range(DEEDS):
            tasks.add(asyncio.create_task(self.do_something()))
            await self._pause(0, 0.001, 0.004)
        while tasks:
            _, tasks = await asyncio.wait(tasks, timeout=0.01)
            await self._answer_in_time()
        while not await self._is_over():
            await self._answer_in_time()

    async def _answer_in_time(self) -> None:
        with suppress(AskfirstError):  # another agent was first
            await self.answer()

    async def _is_over(self) -> bool:
        if await self.stores[0].load(THREAD) is None:
            return True
        fresh = self._agent(self.stores[0])
        return (await fresh.resume()).status in ("completed", "aborted", "failed")

    async def look(self) -> None:
        """Check what has to hold at this moment."""
        assert self.surprises == []
        assert [ran for ran, times in self.ran.items() if times > 1] == [], "a body ran twice"
        for store in self.stores:
            for listed in await store.threads():
                thread = await store.load(listed.thread_id)
                assert thread is not None
                assert faults(thread.messages) == []
                assert not thread.is_leased
            assert await store.pending() == []

    async def go_on(self) -> None:
        """Check that every agent still works: each is prompted, and its run ends."""
        for agent in self.agents:
            told = asyncio.create_task(agent.prompt("one more thing"))
            while not (await asyncio.wait([told], timeout=0.01))[0]:
                await self._answer_in_time()
            if told.result().status == "paused":
                while not await self._is_over():
                    await self._answer_in_time()


@pytest.mark.parametrize("delegates", [False, True], ids=["alone", "with subagents"])
async def test_a_crowd_does_nothing_twice_and_leaves_nothing_lying(
    database: Database, delegates: bool
) -> None:
    for seed in range(EPISODES[database.kind]):
        async with AsyncExitStack() as stack:
            count = 1 if database.kind == "memory" else 2
            stores = [await stack.enter_async_context(database.checkpointer()) for _ in range(count)]
            crowd = Crowd(seed, stores, delegates=delegates)
            async with asyncio.timeout(PATIENCE):
                await crowd.run()
                await crowd.look()
                await crowd.go_on()
                await crowd.look()
            await stores[0].delete(THREAD)
            assert await stores[0].threads() == []
