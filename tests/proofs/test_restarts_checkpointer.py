"""A server that is killed and started again at random: nothing lost, nothing doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from kit.database_servers import ThrowawayMySQL, ThrowawayPostgres, start_own
from kit.stores import asked, connect, effect, said
from kit.throwaway_servers import Throwaway

from askfirst.checkpointer.base import RunRecord
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.messages import AssistantMessage, ToolResultMessage

pytestmark = pytest.mark.anyio
CYCLES = 80


@pytest.mark.parametrize(("kind", "product"), [("postgres", ThrowawayPostgres), ("mysql", ThrowawayMySQL)])
async def test_cycles_go_on_while_the_server_is_restarted(kind: str, product: type[Throwaway]) -> None:
    server = await asyncio.to_thread(start_own, product)
    try:
        async with connect(kind, server.dsn) as asking, connect(kind, server.dsn) as answering:
            trouble = asyncio.create_task(make_trouble(server))
            numbers = iter(range(CYCLES))
            async with asyncio.timeout(100), asyncio.TaskGroup() as tasks:
                for _ in range(4):
                    tasks.create_task(run_cycles(asking, answering, numbers))
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


async def make_trouble(server: Throwaway) -> int:
    """Kill or stop the server, start it again, and so on; returns how often."""
    chance, restarts = random.Random(3), 0
    while True:
        end = server.kill if chance.random() < 0.5 else server.stop
        restart = asyncio.ensure_future(asyncio.to_thread(lambda end=end: (end(), server.start())))
        try:
            await asyncio.shield(restart)
            restarts += 1
            await asyncio.sleep(chance.uniform(0.01, 0.3))
        except asyncio.CancelledError:
            await restart
            return restarts


async def run_cycles(asking: SqlCheckpointer, answering: SqlCheckpointer, numbers: Iterator[int]) -> None:
    for number in numbers:
        thread_id = f"t{number}"
        fence, _ = await asked(asking, thread_id)
        waiter = asyncio.create_task(asking.settled(thread_id, "call-1"))
        await answering.settle(thread_id, "call-1", {"decision": "approve"})
        assert (await waiter).status == "answered"
        fence = await asking.commit(thread_id, said(started=[effect()]), fence=fence, acquire=True)
        result = said(ToolResultMessage("call-1", "send", "sent"), ended=["call-1"])
        fence = await asking.commit(thread_id, result, fence=fence)
        end = said(AssistantMessage("Done."), run=RunRecord("agent", "completed"), release=True)
        await asking.commit(thread_id, end, fence=fence)
