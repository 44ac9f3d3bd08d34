"""The processes of the crash matrix: agents that live until they are killed, or until their thread is done.

A *life* is one process with an agent on a stored thread. It prompts if the thread does not exist, else it resumes. It
also plays the person and answers the requests. It ends when the run has ended, unless it is killed before.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from askfirst import Agent, AgentResult, ApprovalResponse, PendingApproval, ToolContext, tool
from askfirst.agent.tools import Tool
from askfirst.checkpointer import base
from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlNoPendingRequest, HitlStaleAnswer
from askfirst.hitl import CheckpointedChannel, ask_user_tool
from askfirst.hitl.testing import crash_at
from askfirst.messages import AssistantMessage, Message, ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel
from askfirst.requests import HitlRequest
from kit.patience import PATIENCE

LEASE_SECONDS = 0.5
QUESTION = {"questions": [{"key": "colour", "prompt": "Which colour?"}]}


@dataclass(frozen=True)
class Scenario:
    """The model's calls, how a person is asked, and the person's answers."""

    calls: tuple[ToolCall, ...]
    channel: bool = False
    doubt: Literal["skip", "retry"] = "skip"
    answer: Literal["approve", "edit"] = "approve"
    at_once: bool = False
    """Whether the person answers all pending requests at once, by `resume_with`."""
    first_crash: str | None = None
    """The point at which an earlier life is killed, so that the matrix's lives find an effect in doubt."""


def _call(name: str, number: int = 1) -> ToolCall:
    return ToolCall(f"call-{name}-{number}", name, {"amount": number})


_ONCE = (_call("pay"),)
SCENARIOS: dict[str, Scenario] = {
    "once, then skip": Scenario(_ONCE),
    "once, then retry": Scenario(_ONCE, doubt="retry"),
    "once, edited": Scenario(_ONCE, answer="edit"),
    "once, by channel": Scenario(_ONCE, channel=True),
    "idempotent": Scenario((_call("mail"),)),
    "none": Scenario((_call("look"),)),
    "in parallel": Scenario((_call("pay"), _call("mail"), _call("look"))),
    "in parallel, at once": Scenario((_call("pay"), _call("mail"), _call("look")), at_once=True),
    "in parallel, by channel": Scenario((_call("pay"), _call("mail")), channel=True, doubt="retry"),
    "one after another": Scenario((_call("step", 1), _call("step", 2)), doubt="retry"),
    "ask_user": Scenario((ToolCall("call-ask", "ask_user", QUESTION),), channel=True),
    "escalated, skip": Scenario(_ONCE, first_crash="body.during:pay"),
    "escalated, retry": Scenario(_ONCE, doubt="retry", first_crash="body.during:pay"),
    "escalated, by channel": Scenario(_ONCE, channel=True, doubt="retry", first_crash="body.before:pay"),
}


async def live(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """One life. ``job["crash"]`` says where it is killed: a point, and how often the point is passed before."""
    scenario = SCENARIOS[job["scenario"]]
    life = Life(scenario, job["thread_id"], Path(job["effects"]))
    reached: list[str] = []
    crash = job["crash"]
    base.hook = reached.append
    try:
        with nullcontext() if crash is None else crash_at(crash[0], skip=crash[1], own=True):
            async with opened(job["url"]) as store:
                status = await life.live(store)
    finally:
        base.hook = None
    return {"status": status, "reached": reached, "answered": life.answered}


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Checkpointer]:
    """A store whose leases lapse soon."""
    with sure_of_its_lease():
        async with checkpointer_from_url(url, lease_seconds=LEASE_SECONDS) as store:
            yield store


@contextmanager
def sure_of_its_lease() -> Generator[None]:
    """Switch off the extra commits by which a slow process renews its short lease; a fast process makes none.

    So a life passes the same crash points on a busy machine as on a quiet one.
    """
    with mock.patch.object(SqlCheckpointer, "lease_seconds", 30.0):
        yield


class Life:
    """An agent on its thread, and the person whom it asks."""

    def __init__(self, scenario: Scenario, thread_id: str, effects: Path) -> None:
        self.scenario = scenario
        self.thread_id = thread_id
        _effects.append(effects)
        self.answered: list[str] = []
        self.is_answering = True
        """Whether the person answers."""

    async def live(self, store: Checkpointer) -> str:
        """Continue until the run has ended; if a dead process holds the lease, wait until it lapses."""
        channel = None
        if self.scenario.channel:
            channel = CheckpointedChannel(checkpointer=store, thread_id=self.thread_id)
        agent = self.agent(store, channel)
        host = asyncio.create_task(self._serve(channel)) if channel and self.is_answering else None
        try:
            return await self.drive(agent, store)
        finally:
            if host is not None:
                host.cancel()
                await asyncio.wait([host])

    def agent(self, store: Checkpointer, channel: CheckpointedChannel | None) -> Agent:
        """The agent of this life."""
        return Agent(
            model=ScriptedModel([self._turn] * 10_000),
            tools=[*_tools(), *([ask_user_tool(channel)] if channel else [])],
            channel=channel,
            checkpointer=store,
            thread_id=self.thread_id,
        )

    async def drive(self, agent: Agent, store: Checkpointer) -> str:
        """Run the agent to its end; returns the run's final status."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            known = await store.load(self.thread_id)
            result = await (agent.prompt("go") if known is None else agent.resume())
            while self.is_answering and result.status in ("paused", "suspended"):
                request = await agent.load_pending_hitl_request()
                if request is None:
                    break
                result = await self._answer(agent, request, result)
            if result.status != "suspended":
                return result.status
            lapses = known.lease_until if known is not None and known.lease_owner else 0
            await asyncio.sleep(max(lapses - time.time(), 0.05))
        return f"suspended for {PATIENCE} s: {result.reason}"

    async def _answer(self, agent: Agent, request: HitlRequest, result: AgentResult) -> Any:
        if self.scenario.at_once and result.status == "paused":
            return await self._respond_at_once(agent, result.pending_approvals)
        return await self._respond(agent, request)

    async def _respond_at_once(self, agent: Agent, pending: Sequence[PendingApproval]) -> Any:
        approve = self.scenario.doubt == "retry"  # of a call in doubt, a denial says to skip it
        responses = [
            ApprovalResponse(id=each.id, decision="approve" if each.kind == "approve" or approve else "deny")
            for each in pending
        ]
        result = await agent.resume_with(responses, by="ann")
        self.answered += [each.question_id for each in pending]
        return result

    async def _respond(self, agent: Agent, request: HitlRequest) -> Any:
        result = await agent.respond(
            question_id=request.question_id, answer=reply(request, self.scenario), by="ann"
        )
        self.answered.append(request.question_id)
        return result

    async def _serve(self, channel: CheckpointedChannel) -> None:
        async for request in channel.subscribe():
            with suppress(HitlStaleAnswer, HitlNoPendingRequest):
                await channel.answer(request.question_id, reply(request, self.scenario), by="ann")
                self.answered.append(request.question_id)

    def _turn(self, messages: list[Message]) -> Any:
        """Call the tools once, then end with a text."""
        said = any(isinstance(message, AssistantMessage) for message in messages)
        return "done" if said else list(self.scenario.calls)


def reply(request: HitlRequest, scenario: Scenario) -> Any:
    """The person's answer."""
    match request.payload.kind:
        case "approve" if scenario.answer == "edit":
            return {"decision": "edit", "edited_args": {"amount": 7}}
        case "approve":
            return {"decision": "approve"}
        case "ask":
            return {"colour": "red"}
        case _:
            return scenario.doubt


_effects: list[Path] = []
"""The files for the tools' effects; the last one belongs to this process's life."""


async def act(ctx: ToolContext, amount: int) -> str:
    """The effect: a line on disk, with a crash point before and after it."""
    base.reached(f"body.before:{ctx.tool_name}")
    await asyncio.sleep(0)
    which = {"call": ctx.tool_call_id, "tool": ctx.tool_name, "key": ctx.idempotency_key}
    append(_effects[-1], {**which, "attempt": ctx.attempt, "n": amount})
    base.reached(f"body.during:{ctx.tool_name}")
    await asyncio.sleep(0)
    base.reached(f"body.after:{ctx.tool_name}")
    return f"did it with {amount}"


@cache
def _tools() -> Sequence[Tool]:
    """The tools, made in the process that lives are forked from: making them takes longer than the rest of a life."""

    @tool(requires_approval=True)
    async def pay(amount: int, ctx: ToolContext) -> str:
        return await act(ctx, amount)

    @tool(requires_approval=True, effect="idempotent")
    async def mail(amount: int, ctx: ToolContext) -> str:
        return await act(ctx, amount)

    @tool(requires_approval=True, effect="none")
    async def look(amount: int, ctx: ToolContext) -> str:
        return await act(ctx, amount)

    @tool(requires_approval=True, execution_mode="sequential")
    async def step(amount: int, ctx: ToolContext) -> str:
        return await act(ctx, amount)

    return [pay, mail, look, step]


def append(path: Path, entry: dict[str, Any]) -> None:
    """Append a whole line to a file, and flush it to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(entry).encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def entries(path: Path) -> list[dict[str, Any]]:
    """The lines of such a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def faults(messages: Sequence[Message]) -> list[str]:
    """The faults of a finished transcript: calls without a result, and results that come twice or without a call."""
    open_calls: dict[str, ToolCall] = {}
    found: list[str] = []
    for place, message in enumerate(messages):
        if isinstance(message, ToolResultMessage):
            if open_calls.pop(message.tool_call_id, None) is None:
                found.append(f"message {place} is a result of {message.tool_call_id}, which is not open")
        else:
            found += [f"message {place} comes before the result of {call_id}" for call_id in open_calls]
            open_calls = {}
        if isinstance(message, AssistantMessage):
            open_calls = {call.id: call for call in message.tool_calls}
    found += [f"{call_id} has no result" for call_id in open_calls]
    return found
