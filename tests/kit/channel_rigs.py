"""The kinds of channels, each with its store of requests, so that one test runs over all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from askfirst import Agent
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.hitl import CheckpointedChannel, HitlChannel, HitlRequest, InMemoryChannel
from askfirst.hitl.testing import FakeClock

KINDS = ("in_memory", "sqlite", "own")
"""`InMemoryChannel`, and `CheckpointedChannel` on SQLite and on a user's own checkpointer."""
STORED = ("sqlite",)
"""The kinds with a checkpointer that settles requests itself."""


class Keeper:
    """A user's own checkpointer with the two methods that the seeds prescribe; it stores JSON."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.broken = False

    async def save_pending_request(self, thread_id: str, request: HitlRequest | None) -> None:
        if self.broken:
            raise OSError("the disk is full")
        if request is None:
            self.kept.pop(thread_id, None)
        else:
            self.kept[thread_id] = request.model_dump_json()

    async def load_pending_request(self, thread_id: str) -> HitlRequest | None:
        kept = self.kept.get(thread_id)
        return None if kept is None else HitlRequest.model_validate_json(kept)


class Rig:
    """One kind of channel, with a `FakeClock`."""

    def __init__(self, kind: str, checkpointer: Any, clock: FakeClock) -> None:
        self.kind = kind
        self.checkpointer = checkpointer
        self.clock = clock
        self._tasks: list[asyncio.Task[Any]] = []

    def channel(self, **options: Any) -> InMemoryChannel:
        """A channel of this kind; all channels of a rig share one store."""
        if self.kind == "in_memory":
            options.pop("allow_inside_custom_tool", None)
            return InMemoryChannel(**options, clock=self.clock)
        return CheckpointedChannel(checkpointer=self.checkpointer, thread_id="t", **options, clock=self.clock)

    def agent(self, channel: HitlChannel | None = None, **options: Any) -> Agent:
        """An agent of thread ``t`` with a channel of this kind."""
        return Agent(channel=channel or self.channel(), thread_id="t", **options)

    def later(self, agent: Agent, channel: HitlChannel | None = None, **options: Any) -> Agent:
        """An agent that continues another agent's thread, as in another process.

        Without a store it gets the other agent's transcript and channel.
        """
        if self.kind in STORED:
            return self.agent(channel, **options)
        channel = agent.channel if self.kind == "in_memory" else channel
        return self.agent(channel, messages=agent.messages, **options)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that is cancelled at the end of the test."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def close(self) -> None:
        """Cancel the tasks that are still running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def open_rig(kind: str, path: Path) -> AsyncIterator[Rig]:
    """A rig of this kind, closed in the end."""
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        checkpointer: Any = None
        if kind == "sqlite":
            checkpointer = await stack.enter_async_context(SQLiteCheckpointer(path / "t.db", clock=clock))
        elif kind == "own":
            checkpointer = Keeper()
        rig = Rig(kind, checkpointer, clock)
        stack.push_async_callback(rig.close)
        yield rig


@pytest.fixture(params=KINDS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A channel of each kind in turn."""
    async with open_rig(request.param, tmp_path) as rig:
        yield rig


@pytest.fixture(params=STORED)
async def stored_rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A channel of each kind in `STORED`, in turn."""
    async with open_rig(request.param, tmp_path) as rig:
        yield rig


async def asked(channel: HitlChannel) -> HitlRequest:
    """The channel's pending request, or its next one."""
    return await anext(aiter(channel.subscribe()))
