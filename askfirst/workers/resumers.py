"""Resumers: functions that continue a thread when a person has answered."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from askfirst.agent.agent import Agent
from askfirst.checkpointer.base import Checkpointer
from askfirst.errors import ResumeFailed, ResumeLater
from askfirst.workers.continuations import Continuation

Resumer = Callable[[Continuation], Awaitable[object]]
"""An async function that continues a continuation's thread. It may be called again, so it has to find out what is
left to do."""


def agent_resumer(
    make_agent: Callable[[str, Checkpointer], Agent | Awaitable[Agent]],
) -> Resumer:
    """A resumer for our own agents: ``make_agent(thread_id, checkpointer)`` gives the agent of a thread.

    The agent needs no channel: where people have to decide again, it pauses, and their answer makes its continuation
    due once more. Its subagents go on with it.
    """

    async def resume(continuation: Continuation) -> Any:
        store = continuation.checkpointer
        if store is None:
            raise ResumeFailed("the continuation is of no store")
        made = make_agent(continuation.thread_id, store)
        agent = await made if inspect.isawaitable(made) else made
        agent.goes_on_by(continuation.resumer)
        result = await agent.resume()
        if result.status == "suspended":
            raise ResumeLater(result.reason or "another worker has the thread")
        if result.status == "failed":
            raise ResumeFailed(result.reason or "the run failed")
        return result

    return resume
