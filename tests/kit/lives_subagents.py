"""The processes of tests that kill, or race, a worker whose subagent waits; see agent/test_subagents_leases.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from askfirst import Agent, AgentSpec, tool
from askfirst.checkpointer import base
from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.hitl import CheckpointedChannel
from askfirst.hitl.testing import crash_at
from kit.channel_rigs import asked
from kit.deeds import call, delegate, script
from kit.lives_agents import append

APPROVE = {"decision": "approve"}


def tree(effects: Path) -> AgentSpec:
    """An agent with a subagent, which has a subagent that asks before it pays; payments are lines in a file."""

    @tool(requires_approval=True)
    async def pay(what: str) -> str:
        await asyncio.to_thread(append, effects, {"what": what})
        return f"paid {what}"

    payer = AgentSpec("payer", script([call("c1", "pay", "5")], "paid"), tools=[pay])
    clerk = AgentSpec("clerk", script([delegate("e0", "payer")], "filed"), subagents=[payer])
    return AgentSpec("boss", script([delegate("d0", "clerk")], "done"), subagents=[clerk])


def waiter_on(store: Checkpointer, effects: Path, thread_id: str) -> Agent:
    """An agent with a channel, which waits for the answer in its own process."""
    channel = CheckpointedChannel(checkpointer=store, thread_id=thread_id)
    return Agent.from_spec(tree(effects), channel=channel)


async def act(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> Any:
    """One process, by its job: asks and is killed while it waits, waits, answers, or only reads."""
    effects, thread_id = Path(job["effects"]), job["thread_id"]
    async with checkpointer_from_url(job["url"]) as store:
        agent = waiter_on(store, effects, thread_id)
        await store.load(thread_id)
        if job["act"] == "look":
            return None
        if job["act"] == "answer":
            await start()
            result = await Agent.from_spec(tree(effects), checkpointer=store, thread_id=thread_id).respond(
                answer=APPROVE, by="ann"
            )
            return None if result is None else result.status
        assert agent.channel is not None
        waiting = asyncio.create_task(agent.prompt("go") if job["act"] == "die" else agent.resume())
        await asked(agent.channel)
        if job["act"] == "die":
            with crash_at("asked", own=True):
                base.reached("asked")
        await start()
        return (await waiting).status
