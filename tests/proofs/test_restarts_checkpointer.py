"""A server is killed and started again at random: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from kit.database_servers import ThrowawayMySQL, ThrowawayPostgres, start_own
from kit.patience import PATIENCE
from kit.stores import asked, connect, effect, said
from kit.throwaway_servers import Throwaway

from askfirst.checkpointer.base import RunRecord
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.messages import AssistantMessage, ToolResultMessage
from askfirst.store import server_engine

pytestmark = pytest.mark.anyio
CYCLES = 80


class Progress:
    """A count of commits. Restarts follow the count, not the clock, so that a slow machine makes progress too."""

    def __init__(self) -> None:
        self._commits = 0
        self._made = asyncio.Event()

    def commit(self) -> None:
        self._commits += 1
        self._made.set()

    async def more(self, commits: int) -> None:
        """Wait for this many more commits."""
        goal = self._commits + commits
        while self._commits < goal:
            self._made.clear()
            await self._made.wait()


@pytest.mark.parametrize(("kind", "product"), [("postgres", ThrowawayPostgres), ("mysql", ThrowawayMySQL)])
async def test_cycles_go_on_while_the_server_is_restarted(
    kind: str, product: type[Throwaway], monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a restart may take longer than the store retries to connect, which is not tested here.
    monkeypatch.setattr(server_engine, "RECONNECT_SECONDS", PATIENCE)
    server = await asyncio.to_thread(start_own, product)
    try:
        async with connect(kind, server.dsn) as asking, connect(kind, server.dsn) as answering:
            progress = Progress()
            trouble = asyncio.create_task(make_trouble(server, progress))
            numbers = iter(range(CYCLES))
            async with asyncio.TaskGroup() as tasks:
                for _ in range(4):
                    tasks.create_task(run_cycles(asking, answering, numbers, progress))
            trouble.cancel()
            restarts = await trouble
            assert restarts > 1
            for number in range(CYCLES):
                thread = await asking.load(f"t{number}")
                assert thread is not None
                assert [message.role for message in thread.messages] == [
                    "user",
                    "assistant",
                    "tool",
                    "assistant",
                ]
                assert (thread.requests["call-1"].status, thread.effects) == ("answered", {})
    finally:
        await asyncio.to_thread(server.close)


async def make_trouble(server: Throwaway, progress: Progress) -> int:
    """Kill or stop the server and start it again, until cancelled; returns how often."""
    chance, restarts = random.Random(3), 0
    while True:
        end = server.kill if chance.random() < 0.5 else server.stop
        restart = asyncio.ensure_future(asyncio.to_thread(lambda end=end: (end(), server.start())))
        try:
            await asyncio.shield(restart)
            restarts += 1
            await progress.more(chance.randint(1, 60))
        except asyncio.CancelledError:
            await restart
            return restarts


async def run_cycles(
    asking: SqlCheckpointer, answering: SqlCheckpointer, numbers: Iterator[int], progress: Progress
) -> None:
    for number in numbers:
        async with asyncio.timeout(PATIENCE):
            thread_id = f"t{number}"
            fence, _ = await asked(asking, thread_id)
            progress.commit()
            waiter = asyncio.create_task(asking.settled(thread_id, "call-1"))
            await answering.settle(thread_id, "call-1", {"decision": "approve"})
            progress.commit()
            assert (await waiter).status == "answered"
            fence = await asking.commit(thread_id, said(started=[effect()]), fence=fence, acquire=True)
            progress.commit()
            result = said(ToolResultMessage("call-1", "send", "sent"), ended=["call-1"])
            fence = await asking.commit(thread_id, result, fence=fence)
            progress.commit()
            end = said(AssistantMessage("Done."), run=RunRecord("agent", "completed"), release=True)
            await asking.commit(thread_id, end, fence=fence)
            progress.commit()
