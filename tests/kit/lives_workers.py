"""The processes of the workers' crash matrix: each runs continuations until it is killed or all have ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from askfirst import Agent, tool
from askfirst.agent.tools import Tool
from askfirst.checkpointer import base
from askfirst.checkpointer.base import Checkpointer
from askfirst.errors import HitlStaleAnswer
from askfirst.hitl.testing import crash_at
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.workers import Continuation, Continuations, Worker, agent_resumer
from kit.lives_agents import LEASE_SECONDS, opened
from kit.patience import PATIENCE


def payer(effects: Path) -> Tool:
    """A tool that needs approval, and records its effects in a file."""

    @tool(requires_approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        base.reached("body.before")
        line = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(line, f"{cents}\n".encode())
        finally:
            os.close(line)
        base.reached("body.during")
        return "paid"

    return pay


def agent_of(thread_id: str, store: Checkpointer, effects: Path, at: int) -> Agent:
    """The agent, with its script from turn ``at`` on; each thread has its own resumer."""
    turns = [ToolCall("c1", "pay", {"cents": 5}), "Done."][at:]
    return Agent(
        model=ScriptedModel(turns),
        tools=[payer(effects)],
        checkpointer=store,
        thread_id=thread_id,
        resumer=thread_id,
    )


async def work(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """A worker, until its threads have been resumed; ``job["crash"]`` says where it is killed."""
    effects, crash, reached = Path(job["effects"]), job["crash"], list[str]()

    async def resume(continuation: Continuation) -> object:
        base.reached("resume.before")
        result = await agent_resumer(
            lambda thread_id, store: agent_of(thread_id, store, effects / thread_id, 1)
        )(continuation)
        base.reached("resume.after")
        return result

    base.hook = reached.append
    try:
        with nullcontext() if crash is None else crash_at(crash[0], skip=crash[1], own=True):
            async with opened(job["url"]) as store:
                await start()
                resumers = dict.fromkeys(job["threads"], resume)
                async with Worker(store, resumers, lease_seconds=LEASE_SECONDS) as worker:
                    await _done(worker.continuations, job["threads"], job["doubt"], store)
    finally:
        base.hook = None
    return {"reached": reached}


async def _done(known: Continuations, threads: list[str], doubt: str, store: Checkpointer) -> None:
    """Wait until all threads have ended; a person decides about calls in doubt."""
    async with asyncio.timeout(PATIENCE):
        left = set(threads)
        while left:
            for thread_id in list(left):
                pending = await store.load_pending_request(thread_id)
                if pending is not None and pending.payload.kind == "escalate":
                    with suppress(HitlStaleAnswer):  # somebody else has said it
                        await store.settle(thread_id, pending.question_id, doubt, digest=pending.digest)
                stored = await store.load(thread_id)
                if stored is not None and stored.run is not None and stored.run.status == "completed":
                    continuation = await known.of(thread_id)
                    if continuation is not None and continuation.state == "done":
                        left.discard(thread_id)
            await asyncio.sleep(0.02)
