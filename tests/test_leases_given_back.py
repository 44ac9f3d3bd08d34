"""However a run ends, its thread is leased to nobody afterwards: a client that hangs up locks nobody out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import pytest
from stores import Database

from assent import Agent, tool
from assent.checkpointer.sql import SqlCheckpointer
from assent.messages import ToolCall
from assent.models import ScriptedModel

pytestmark = pytest.mark.anyio


@tool(effect="none")
def look() -> str:
    """Look."""
    return "seen"


def _agent(store: SqlCheckpointer, thread_id: str) -> Agent:
    turns = [ToolCall("c1", "look", {}), "Done.", "And done again."]
    return Agent(model=ScriptedModel(turns), tools=[look], checkpointer=store, thread_id=thread_id)


async def _left(store: SqlCheckpointer, thread_id: str) -> str | None:
    stored = await store.load(thread_id)
    assert stored is not None
    return stored.lease_owner


def _cancelling(store: SqlCheckpointer, task: Callable[[], asyncio.Task[Any]], at: int, times: int) -> Any:
    """A store that is called off, ``times`` times, while its so-manieth step is being written."""
    commit, count = store.commit, 0

    async def commit_and_cancel(*args: Any, **options: Any) -> int:
        nonlocal count
        count += 1
        for number in range(times if count >= at else 0):
            asyncio.get_running_loop().call_later(number * 0.001, task().cancel)
        return await commit(*args, **options)

    return mock.patch.object(store, "commit", commit_and_cancel)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("times", [1, 2])
async def test_a_run_that_is_cancelled_while_it_writes(database: Database, at: int, times: int) -> None:
    async with database.checkpointer() as store:
        agent = _agent(store, "t")
        task: list[asyncio.Task[Any]] = []

        async def prompt() -> None:
            await agent.prompt("go")

        with _cancelling(store, lambda: task[0], at, times):
            task.append(asyncio.create_task(prompt()))
            await asyncio.wait(task)
        assert task[0].cancelled()
        assert await _left(store, "t") is None
        assert (await _agent(store, "t").resume()).status == "completed"


async def _by_abort(agent: Agent, cut: Callable[[], Awaitable[None]]) -> None:
    async def listen(event: Any) -> None:
        if event.type == "tool_ended":
            agent.abort()
        elif event.type == "message_ended" and getattr(event.message, "stop_reason", None) == "aborted":
            await cut()

    agent.subscribe(listen)


async def test_a_run_that_is_cancelled_while_listeners_hear_of_its_end(database: Database) -> None:
    async with database.checkpointer() as store:
        agent = _agent(store, "t")
        task: list[asyncio.Task[Any]] = []

        async def cut() -> None:
            task[0].cancel()
            await asyncio.Event().wait()

        await _by_abort(agent, cut)
        task.append(asyncio.create_task(agent.prompt("go")))
        await asyncio.wait(task)
        assert task[0].cancelled()
        assert await _left(store, "t") is None
