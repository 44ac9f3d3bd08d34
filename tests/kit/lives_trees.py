"""The processes of the crash matrix for trees: an agent whose subagent asks a person before it acts.

The boss lets its clerk charge somebody, which a person has to approve. Then it books the charge itself, or does so at
the same time, or lets its teller pay somebody else meanwhile. A life here is one of three: it continues until the
boss has ended; it continues until a person is asked, and ends; or it ends the pending requests, by an abort or a
newer prompt.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from askfirst import Agent, AgentSpec, Tool, ToolContext, tool
from askfirst.checkpointer import base
from askfirst.checkpointer.base import Checkpointer, Step
from askfirst.hitl import CheckpointedChannel
from askfirst.hitl.testing import crash_at
from askfirst.ids import child_thread_id
from askfirst.messages import AssistantMessage, Message, ToolCall, UserMessage
from askfirst.models import ScriptedModel
from kit.channel_rigs import asked
from kit.lives_agents import Life, Scenario, act, opened

Call = tuple[str, dict[str, Any]]
"""A tool's name, and the arguments."""

CHARGE: Call = ("charge", {"amount": 1})
PAY: Call = ("pay", {"amount": 2})
BOOK: Call = ("book", {"amount": 3})
CLERK: Call = ("clerk", {"prompt": "charge them"})
TELLER: Call = ("teller", {"prompt": "pay them"})
NEWER = "never mind"

Phase = Literal["go on", "ask", "end"]


@dataclass(frozen=True)
class TreeScenario(Scenario):
    """How the person is asked, the person's answers, and how the tree ends."""

    calls: tuple[ToolCall, ...] = ()
    turns: tuple[tuple[Call, ...], ...] = ((CLERK,), (BOOK,))
    """The calls of the boss's model, turn by turn, before its final text."""
    ends: Literal["abort", "supersede"] | None = None
    """How a tree that waits for the person is ended; the process that ends it is the one that is killed."""
    span: tuple[str | None, str | None] = (None, None)
    """The first and the last point to be killed at, if another scenario has the points before and after them."""

    @property
    def phase(self) -> Phase:
        """The phase of the process that is killed."""
        return "go on" if self.ends is None else "end"


_IN_DOUBT = "clerk body.during:charge"
_ASKED, _ACTED = "clerk before:request.opened", "clerk effect.ended"
_ENDED = "boss before:step", "boss run.ended"
TREES: dict[str, TreeScenario] = {
    "one after another": TreeScenario(),
    "by channel": TreeScenario(channel=True, span=(_ASKED, _ACTED)),
    "at the same time": TreeScenario(
        turns=((CLERK, BOOK),), span=("boss before:effect.started", "boss step")
    ),
    "two of them": TreeScenario(turns=((CLERK, TELLER),), span=("clerk request.settled", "teller run.ended")),
    "escalated": TreeScenario(first_crash=_IN_DOUBT, span=(None, _ACTED)),
    "escalated, by channel": TreeScenario(
        channel=True, doubt="retry", first_crash=_IN_DOUBT, span=(None, _ACTED)
    ),
    "aborted": TreeScenario(ends="abort"),
    "aborted, by channel": TreeScenario(ends="abort", channel=True, span=_ENDED),
    "aborted in doubt": TreeScenario(ends="abort", first_crash=_IN_DOUBT, span=_ENDED),
    "superseded": TreeScenario(ends="supersede"),
    "superseded, by channel": TreeScenario(ends="supersede", channel=True, span=_ENDED),
    "superseded in doubt": TreeScenario(ends="supersede", first_crash=_IN_DOUBT, span=_ENDED),
}


async def live_tree(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """One life. ``job["crash"]`` says where it is killed: a point with its agent's name, and how often the point is
    passed before.

    With ``job["notes"]`` it reports the points that it has passed. Without both there is no hook, as in production.
    """
    life = TreeLife(TREES[job["scenario"]], job["phase"], job["thread_id"], Path(job["effects"]))
    reached: list[str] = []
    async with opened(job["url"]) as store:
        if job["crash"] is not None:
            point, skip = job["crash"]
            with crash_at(point, skip=skip, own=True):
                assert base.hook is not None
                async with _naming(base.hook, store, life.thread_id):
                    status = await life.live(store)
        elif job["notes"]:
            async with _naming(reached.append, store, life.thread_id):
                status = await life.live(store)
        else:
            status = await life.live(store)
    return {"status": status, "reached": reached, "answered": life.answered}


_whose: ContextVar[str] = ContextVar("whose", default="?")


@asynccontextmanager
async def _naming(hook: Callable[[str], None], store: Checkpointer, thread_id: str) -> AsyncGenerator[None]:
    """Call a hook with the names of points and of their agents: ``"clerk effect.started"``."""
    stored = await store.load(thread_id)
    names = {thread_id: "boss"} | names_of(thread_id, stored.messages if stored is not None else ())

    async def named(work: Any, on: str, *args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], Step):
            names.update(names_of(on, args[0].messages))
        token = _whose.set(names.get(on, "clerk"))
        try:
            return await work(on, *args, **options)
        finally:
            _whose.reset(token)

    for method in ("commit", "settle", "cancel", "expire", "save_pending_request"):
        setattr(store, method, partial(named, getattr(store, method)))

    def tell(point: str) -> None:
        hook(f"{_whose.get()} {point}")

    before, base.hook = base.hook, tell
    try:
        yield
    finally:
        base.hook = before


def names_of(thread_id: str, messages: Sequence[Message]) -> dict[str, str]:
    """The subagents' threads for the calls on a thread, with the names of the called tools."""
    said = [message for message in messages if isinstance(message, AssistantMessage)]
    return {child_thread_id(thread_id, call.id): call.name for each in said for call in each.tool_calls}


class TreeLife(Life):
    """A boss with its clerk, and the person who is asked."""

    def __init__(self, scenario: TreeScenario, phase: Phase, thread_id: str, effects: Path) -> None:
        quiet = replace(scenario, channel=scenario.channel and phase != "ask")
        super().__init__(quiet, thread_id, effects)
        self.ends = scenario.ends if phase == "end" else None
        self.turns = scenario.turns
        self.is_answering = phase == "go on"

    def agent(self, store: Checkpointer, channel: CheckpointedChannel | None) -> Agent:
        """The boss."""
        book, *below = _parts()
        boss = AgentSpec("boss", _script(*self.turns, "done"), tools=[book], subagents=below)
        return Agent.from_spec(boss, channel=channel, checkpointer=store, thread_id=self.thread_id)

    async def drive(self, agent: Agent, store: Checkpointer) -> str:
        """Continue the run, or end its pending requests, which also ends a run that waits in this process."""
        if self.ends is None:
            return await super().drive(agent, store)
        waiting = None
        if agent.channel is not None:
            waiting = asyncio.create_task(agent.resume())
            await asked(agent.channel)
        if self.ends == "abort":
            await agent.abort_pending("enough")
            status = "aborted"
        else:
            status = (await agent.prompt(NEWER, on_pending="supersede")).status
        if waiting is not None:
            await waiting
        return status


@cache
def _parts() -> tuple[Tool, AgentSpec, AgentSpec]:
    """The tools and subagents of a boss, made in the process that lives are forked from."""

    @tool(requires_approval=True)
    async def charge(amount: int, ctx: ToolContext) -> str:
        return await _act("clerk", ctx, amount)

    @tool(requires_approval=True)
    async def pay(amount: int, ctx: ToolContext) -> str:
        return await _act("teller", ctx, amount)

    @tool
    async def book(amount: int, ctx: ToolContext) -> str:
        return await _act("boss", ctx, amount)

    clerk = AgentSpec("clerk", _script([CHARGE], "charged"), tools=[charge])
    teller = AgentSpec("teller", _script([PAY], "paid"), tools=[pay])
    return book, clerk, teller


async def _act(name: str, ctx: ToolContext, amount: int) -> str:
    _whose.set(name)  # of the body's own task, or until the next commit says whose it is
    return await act(ctx, amount)


def _script(*turns: str | Sequence[Call]) -> ScriptedModel:
    """A model whose next turn depends only on the transcript; to a newer prompt it only answers with a text.

    If it is asked again, its calls have other ids, as with a real model: so an effect of a forgotten call shows.
    """

    def say(messages: list[Message]) -> Any:
        if any(isinstance(message, UserMessage) and message.text == NEWER for message in messages):
            return "well"
        turn = turns[sum(isinstance(message, AssistantMessage) for message in messages)]
        if isinstance(turn, str):
            return turn
        return [ToolCall(f"call-{name}-{secrets.token_hex(4)}", name, args) for name, args in turn]

    return ScriptedModel([say] * 10_000)
