"""The processes of the race tests: each opens the store, reports that it is ready, and acts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from askfirst import Agent, ApprovalResponse, ToolContext, tool
from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.clock import SystemClock
from askfirst.errors import HitlStaleAnswer
from askfirst.hitl import CheckpointedChannel
from askfirst.messages import Message, ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel
from kit.lives_agents import append
from kit.patience import PATIENCE

CALL = "call-pay"
Start = Callable[[], Awaitable[None]]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition without an event, by polling, with a time-out."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("what was waited for did not come")
        await asyncio.sleep(0.01)


def agent_on(
    checkpointer: Checkpointer,
    thread_id: str,
    folder: Path,
    *,
    wait_for: int = 0,
    timeout: float | None = None,
) -> Agent:
    """An agent whose tool records that it ran, and first waits until a number of other processes have given up."""

    @tool(requires_approval=True)
    async def pay(amount: int, ctx: ToolContext) -> str:
        effect = {"call": ctx.tool_call_id, "attempt": ctx.attempt, "amount": amount}
        await asyncio.to_thread(append, folder / "effects", effect)
        if wait_for:
            await until(lambda: len(list(folder.glob("gave-up-*"))) >= wait_for)
        return f"paid {amount}"

    channel = None
    if timeout is not None:
        channel = CheckpointedChannel(checkpointer=checkpointer, thread_id=thread_id, default_timeout=timeout)
    return Agent(
        model=ScriptedModel([_turn] * 100),
        tools=[pay],
        channel=channel,
        checkpointer=checkpointer,
        thread_id=thread_id,
    )


def _turn(messages: list[Message]) -> Any:
    return "done" if isinstance(messages[-1], ToolResultMessage) else ToolCall(CALL, "pay", {"amount": 5})


async def act(job: dict[str, Any], start: Start) -> str:
    """One racer. It returns the status that it reached; if it was too late, it raises."""
    thread_id, folder = job["thread_id"], Path(job["folder"])
    clock = _Tomorrow() if job["act"] == "time_out" else None
    async with checkpointer_from_url(job["url"], clock=clock) as store:
        waits = job["act"] == "wait"
        agent = agent_on(
            store, thread_id, folder, wait_for=job.get("wait_for", 0), timeout=3600.0 if waits else None
        )
        await store.load(thread_id)
        return await _ACTS[job["act"]](agent, store, job, start)


async def _answer(agent: Agent, store: Checkpointer, job: dict[str, Any], start: Start) -> str:
    await start()
    result = await agent.respond(question_id=CALL, answer={"decision": job["act"]}, by=job["by"], via="race")
    return result.status if result is not None else "delivered"


async def _answer_with(agent: Agent, store: Checkpointer, job: dict[str, Any], start: Start) -> str:
    """Answer by the pending approval instead of the request."""
    await start()
    response = ApprovalResponse(id=CALL, decision=job["act"].removesuffix("_with"))
    return (await agent.resume_with([response], by=job["by"], via="race")).status


async def _cancel(agent: Agent, store: Checkpointer, job: dict[str, Any], start: Start) -> str:
    await start()
    return (await store.cancel(agent.thread_id, CALL, by=job["by"])).status


async def _time_out(agent: Agent, store: Checkpointer, job: dict[str, Any], start: Start) -> str:
    await start()
    settled = await store.expire(agent.thread_id, CALL)
    if settled.status != "timed_out":
        raise HitlStaleAnswer(CALL, settled.status)
    return settled.status


async def _abort(agent: Agent, store: Checkpointer, job: dict[str, Any], start: Start) -> str:
    await start()
    await agent.abort_pending(f"by {job['by']}")
    return "aborted"


async def _resume(agent: Agent, store: Checkpointer, job: dict[str, Any], start: Start) -> str:
    await start()
    status = (await agent.resume()).status
    if status == "suspended":
        (Path(job["folder"]) / f"gave-up-{job['by']}").touch()
    return status


async def _prompt(agent: Agent, store: Checkpointer, job: dict[str, Any], start: Start) -> str:
    await start()
    return (await agent.prompt(f"go, says {job['by']}")).status


async def _wait(agent: Agent, store: Checkpointer, job: dict[str, Any], start: Start) -> str:
    """Wait for the person's answer in this process, through a channel, before the other racers begin to answer."""
    waiting = asyncio.create_task(agent.resume())
    await until(lambda: waiting.done() or agent.in_flight_hitl_request is not None)
    await start()
    return (await waiting).status


async def _warm_up(agent: Agent, store: Checkpointer, job: dict[str, Any], start: Start) -> str:
    """Run all code paths once, to load them."""
    await agent.prompt("go")
    result = await agent.respond(answer={"decision": "approve"})
    return result.status if result is not None else "delivered"


_ACTS = {
    "approve": _answer,
    "deny": _answer,
    "approve_with": _answer_with,
    "deny_with": _answer_with,
    "cancel": _cancel,
    "time_out": _time_out,
    "abort": _abort,
    "resume": _resume,
    "prompt": _prompt,
    "wait": _wait,
    "warm_up": _warm_up,
}


class _Tomorrow(SystemClock):
    def now(self) -> float:
        return super().now() + 86400
