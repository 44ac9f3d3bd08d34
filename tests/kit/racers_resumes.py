"""The processes of the races to resume a paused run; see proofs/test_races_run_checkpoints.py."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from askfirst import Agent, AgentSpec, RunCheckpoint, ToolContext, tool
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpoints import RunCheckpointStore, resume_checkpoint
from askfirst.hitl.testing import crash_at
from kit.deeds import approve, call, delegate, script
from kit.lives_agents import append

Start = Callable[[], Awaitable[None]]


def payer(folder: Path, *, dies: bool = False) -> AgentSpec:
    """An agent that pays twice, if people approve; its tool records the payment, and then may kill the process."""

    @tool(requires_approval=True)
    async def pay(what: str, ctx: ToolContext) -> str:
        await asyncio.to_thread(append, folder / "effects", {"what": what, "attempt": ctx.attempt})
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"paid {what}"

    return AgentSpec("payer", script([call("c1", "pay", "a"), call("c2", "pay", "b")], "done"), tools=[pay])


def family(folder: Path) -> AgentSpec:
    """An agent with two subagents that pay, each after its own subagent has paid."""
    clerk = payer(folder)

    def managed(name: str) -> AgentSpec:
        model = script([delegate("d", "payer")], [call("c1", "pay", name)], f"{name} is done")
        return AgentSpec(name, model, tools=clerk.tools, subagents=[clerk])

    turn = [delegate("l", "left"), delegate("r", "right")]
    return AgentSpec("boss", script(turn, "done"), subagents=[managed("left"), managed("right")])


async def act(job: dict[str, Any], start: Start) -> Any:
    """One racer. It returns the status that it reached; if it was too late, it raises."""
    folder = Path(job["folder"])
    async with checkpointer_from_url(job["url"]) as memory:
        store = RunCheckpointStore(memory, claim_ttl_seconds=600)
        match job["act"]:
            case "resume":
                spec = payer(folder, dies=job.get("dies", False))
                await memory.get_checkpoint(job["checkpoint_id"], "payer")
                await start()
                with crash_at(job["crash"]) if job.get("crash") else nullcontext():
                    result = await resume_checkpoint(
                        spec, job["checkpoint_id"], approve("c1", "c2"), store=store, by=job["by"]
                    )
                return result.status
            case "save":
                checkpoint = RunCheckpoint.from_json(job["checkpoint"])
                await memory.load("nothing")
                await start()
                return await store.save("payer", checkpoint)
            case "tree":
                agent = Agent.from_spec(family(folder), checkpointer=memory, thread_id=job["thread_id"])
                await memory.load(job["thread_id"])
                await start()
                return (await agent.resume()).status
            case "tree_with":
                agent = Agent.from_spec(family(folder), checkpointer=memory, thread_id=job["thread_id"])
                await memory.load(job["thread_id"])
                await start()
                return (await agent.resume_with(approve(*job["ids"]), by=job["by"])).status
    raise ValueError(job["act"])
