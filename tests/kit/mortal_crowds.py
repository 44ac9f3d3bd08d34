"""A crowd of agents on one thread that die at random moments, while others continue and people answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from askfirst import Agent, AgentSpec, ApprovalResponse, Tool, ToolContext, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import AskfirstError
from askfirst.hitl import CheckpointedChannel, ask_user_tool
from askfirst.hitl.testing import FakeClock, NoopChannel
from askfirst.models import ScriptedModel
from askfirst.store.store import Store
from kit.crowd_models import CallingModels
from kit.deed_records import Deed, Said, Truth, heard, told
from kit.mortal_stores import LEASE_SECONDS, Life, mortal
from kit.stores import Database

THREAD = "thread"
AT_ONCE = 3
RISK = 0.04
TIMEOUT = 20.0
EFFECTS = {"pay": "once", "mail": "idempotent", "look": "none", "note": "once", "step": "once"}
FREE = frozenset({"note"})


@dataclass(eq=False)
class Member:
    """A simulated process with an agent on the thread."""

    crowd: Crowd
    life: Life
    store: SqlCheckpointer
    agent: Agent

    async def live(self, act: Act) -> None:
        """Run an act. It may fail: the process may die, another member may be first, or the store may fail."""
        task = asyncio.current_task()
        assert task is not None
        self.life.tasks.add(task)
        member.set(self)
        try:
            with suppress(AskfirstError):
                await act(self)
        except BaseException as surprise:
            if not self.life.is_over:
                self.crowd.surprises.append(surprise)
        finally:
            self.life.tasks.discard(task)


member: ContextVar[Member] = ContextVar("member")
"""The simulated process that the current code runs in."""
Act = Callable[[Member], Awaitable[object]]


async def _body(amount: int, ctx: ToolContext) -> str:
    return await member.get().crowd.do(member.get().life, amount, ctx)


@cache
def _tools() -> list[Tool]:
    return [
        tool(name="pay", requires_approval=True)(_body),
        tool(name="mail", requires_approval=True, effect="idempotent")(_body),
        tool(name="look", requires_approval=True, effect="none")(_body),
        tool(name="note")(_body),
        tool(name="step", requires_approval=True, execution_mode="sequential")(_body),
    ]


class Crowd:
    """Three simulated processes at a time, each with its own store handle; a dead one is replaced."""

    def __init__(self, seed: int, database: Database, desk: SqlCheckpointer, *, delegates: bool) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.clock = desk._clock
        assert isinstance(self.clock, FakeClock)
        self.desk = desk
        """The store handle of the people, who do not crash."""
        self.truth = Truth(effects=EFFECTS, free=FREE)
        self.surprises: list[BaseException] = []
        self.members: list[Member] = []
        self._database = database
        self._delegates = delegates
        self._answers = 0
        self.models = CallingModels(self.dice, tuple(EFFECTS))
        self._gate: Any = self.dice.choice(["batch", "each", None])
        self.truth.in_order = self._gate == "batch" and not delegates
        self._channels = self.dice.choice([0, 0.5, 1])
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Crowd:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    # Members.

    async def join(self, *, risk: float = RISK) -> Member:
        """A new process."""
        life = Life(self.dice, risk=risk)
        shared: Store | None = self.desk._store if self._database.kind == "memory" else None
        store = await self._stack.enter_async_context(mortal(self._database, life, self.clock, shared))
        joined = Member(self, life, store, self._agent(store))
        self.members.append(joined)
        return joined

    async def _somebody(self) -> Member:
        living = [it for it in self.members if not it.life.is_over]
        if len(living) < AT_ONCE:
            return await self.join()
        return self.dice.choice(living)

    def _agent(self, store: SqlCheckpointer) -> Agent:
        has_channel = self.dice.random() < self._channels
        timeout = self.dice.choice([None, None, TIMEOUT])
        asks = CheckpointedChannel(
            checkpointer=store, thread_id=THREAD, default_timeout=timeout, clock=self.clock
        )
        tools = [*_tools(), ask_user_tool(asks if has_channel else NoopChannel())]
        gate: Any = self._gate or self.dice.choice(["batch", "each"])
        clerk = AgentSpec("clerk", ScriptedModel([self.models.turn] * 500), tools, tool_gate=gate)
        helper = AgentSpec(
            "helper",
            ScriptedModel([self.models.helping_turn] * 500),
            tools,
            subagents=[clerk],
            tool_gate=gate,
        )
        return Agent(
            model=ScriptedModel([self.models.delegating_turn if self._delegates else self.models.turn] * 500),
            tools=tools,
            subagents=[helper] if self._delegates else [],
            channel=asks if has_channel else None,
            checkpointer=store,
            thread_id=THREAD,
            tool_gate=gate,
        )

    # Tools.

    async def do(self, life: Life, amount: int, ctx: ToolContext) -> str:
        """The body of every tool."""
        life.risk()
        self.truth.deeds.append(
            Deed(ctx.thread_id, ctx.tool_call_id, ctx.attempt, ctx.tool_name, amount, ctx.idempotency_key)
        )
        life.risk()
        await self.pause()
        life.risk()
        return told(ctx.tool_name, amount, ctx.attempt)

    # Acts that any member may do at any time.

    async def do_something(self) -> None:
        """One random act of a random member."""
        somebody = await self._somebody()
        await somebody.live(self.dice.choice(self._acts))

    async def _prompt(self, somebody: Member) -> None:
        await somebody.agent.prompt("go")

    async def _supersede(self, somebody: Member) -> None:
        await somebody.agent.prompt("go", on_pending="supersede")

    async def _resume(self, somebody: Member) -> None:
        await somebody.agent.resume()

    async def _abort_pending(self, somebody: Member) -> None:
        await somebody.agent.abort_pending("enough")

    async def _stop(self, somebody: Member) -> None:
        somebody.agent.abort()

    async def _detach(self, somebody: Member) -> None:
        await somebody.agent.detach()

    async def _load(self, somebody: Member) -> None:
        await somebody.agent.load()

    async def _expire(self, somebody: Member) -> None:
        await somebody.store.expire_due()

    async def _cancel_soon(self, somebody: Member) -> None:
        """Start a run and cancel it soon, like a web server that shuts down."""
        agent = somebody.agent
        task = asyncio.ensure_future(agent.resume() if self.dice.random() < 0.5 else agent.prompt("go"))
        somebody.life.tasks.add(task)
        try:
            await self.pause()
            task.cancel()
            await asyncio.wait([task])
        finally:
            somebody.life.tasks.discard(task)
        if not task.cancelled():
            task.result()

    async def _read_a_little(self, somebody: Member) -> None:
        """Read a few events of a stream and close it, like a browser that is closed."""
        events = somebody.agent.stream("go", abort_on_leave=True)
        try:
            for _ in range(self.dice.choice([1, 5, 20])):
                await anext(events)
        except StopAsyncIteration:
            pass
        finally:
            await events.aclose()  # type: ignore[attr-defined]

    async def _kill(self, somebody: Member) -> None:
        somebody.life.end()

    async def _time_passes(self, _: Member) -> None:
        await self.pass_time(self.dice.choice([0.6, 1.1]))

    async def pass_time(self, leases: float) -> None:
        """Advance the clock by a number of lease lengths: living members may renew theirs in time, or not."""
        await self.clock.advance(LEASE_SECONDS * leases)

    async def _answer_there(self, somebody: Member) -> None:
        await self.answer(somebody.store)

    async def _answer(self, _: Member) -> None:
        await self.answer(self.desk)

    async def _respond(self, somebody: Member) -> None:
        asked = await somebody.agent.load_pending_hitl_request()
        if asked is not None:
            said, by = self._answer_to(asked.payload.kind), self._person()
            named = asked.question_id if self.dice.random() < 0.8 else None
            await self._say(by, said, somebody.agent.respond(question_id=named, answer=said, by=by))

    async def _resume_with(self, somebody: Member) -> None:
        paused = await somebody.agent.resume()
        if paused.pending_approvals:
            some = self.dice.sample(
                paused.pending_approvals, self.dice.randint(1, len(paused.pending_approvals))
            )
            said = [
                ApprovalResponse(
                    id=it.id, decision=self.dice.choice(["approve", "approve", "deny"]), digest=it.digest
                )
                for it in some
            ]
            await somebody.agent.resume_with(said, by=self._person())

    @property
    def _acts(self) -> list[Act]:
        return [
            *[self._prompt] * 3,
            *[self._resume] * 4,
            *[self._answer] * 5,
            *[self._answer_there] * 2,
            *[self._cancel_soon, self._read_a_little, self._kill],
            *[self._respond, self._respond, self._resume_with, self._resume_with, self._expire],
            *[self._supersede, self._abort_pending, self._stop, self._detach, self._load],
            *[self._time_passes] * 3,
        ]

    # Answers.

    async def answer(self, store: SqlCheckpointer) -> None:
        """A person answers or cancels an open request."""
        for asked in await store.pending():
            where, chance = (asked.thread_id, asked.question_id), self.dice.random()
            if chance < 0.1:
                await store.cancel(*where, "never mind")
            elif chance < 0.9:
                said, by = self._answer_to(asked.request.payload.kind), self._person()
                await self._say(by, said, store.settle(*where, said, by=by))

    async def _say(self, by: str, said: Any, saying: Awaitable[object]) -> None:
        try:
            await saying
        except BaseException as error:
            self.truth.said.append(Said(by, said, heard(error)))
            raise
        self.truth.said.append(Said(by, said, heard(None)))

    def _person(self) -> str:
        self._answers += 1
        return f"person {self._answers}"

    def _answer_to(self, kind: str) -> Any:
        edit = {"decision": "edit", "edited_args": {"amount": 1000 + self.models.next()}}
        other = {"action": "retry", "modified_params": {"amount": 2000 + self.models.next()}}
        approve = {"decision": "approve"}
        answers: dict[str, list[Any]] = {
            "approve": [approve, approve, approve, {"decision": "deny"}, edit],
            "ask": [{"k": "v"}],
            "escalate": ["retry", "retry", "skip", "abort", other],
        }
        return self.dice.choice(answers[kind])

    async def pause(self) -> None:
        """Yield, so that other tasks run."""
        moment = self.dice.choice([0, 0, 0.0005, 0.002])
        await asyncio.sleep(moment)

    # The whole episode.

    async def run(self, deeds: int) -> None:
        """Run all acts at once, until every member has ended or died; then bring the thread to its end."""
        tasks: set[asyncio.Task[None]] = set()
        for _ in range(deeds):
            tasks.add(asyncio.create_task(self.do_something()))
            await self.pause()
        while tasks:
            _, tasks = await asyncio.wait(tasks, timeout=0.005)
            await self._answer_in_time()
        await self.bury()
        await self.rest()

    @property
    def deaths(self) -> int:
        """How many have died."""
        return sum(it.life.is_over for it in self.members)

    async def bury(self) -> None:
        """Wait until the writes that dead members had sent have arrived or failed."""
        unheard = [job for it in self.members for job in it.life.unheard]
        if unheard:
            await asyncio.wait(unheard)

    async def rest(self) -> None:
        """Resume, with a member that does not die, until nothing is left to do; leases of dead members lapse."""
        if await self.desk.load(THREAD) is None:
            return
        await self.pass_time(2)
        while True:
            fresh = await self.join(risk=0)
            going_on = asyncio.create_task(self._going_on(fresh))
            while not (await asyncio.wait([going_on], timeout=0.005))[0]:
                await self._answer_in_time()
            if going_on.result() in ("completed", "aborted", "failed"):
                return
            await self._answer_in_time()

    async def _going_on(self, fresh: Member) -> str:
        member.set(fresh)
        return (await fresh.agent.resume()).status

    async def go_on(self) -> None:
        """Check that every living member still works: each is prompted, and its run ends."""
        for it in list(self.members):
            if it.life.is_over:
                continue
            it.life.calm()
            told_so = asyncio.create_task(self._prompted(it))
            while not (await asyncio.wait([told_so], timeout=0.005))[0]:
                await self._answer_in_time()
            assert told_so.result() != "suspended"
            if told_so.result() == "paused":
                await self.rest()

    async def _prompted(self, it: Member) -> str:
        member.set(it)
        return (await it.agent.prompt("one more thing")).status

    async def _answer_in_time(self) -> None:
        with suppress(AskfirstError):  # another member was first
            await self.answer(self.desk)
