"""Many processes over one database: each lease and each answer has one winner, and every waiter wakes."""

from __future__ import annotations

import asyncio
import multiprocessing

import pytest
import store_race
from stores import SHARED, Database, asked

pytestmark = pytest.mark.anyio
PROCESSES = 8


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_eight_processes_race_for_sixty_leases_and_sixty_answers(database: Database) -> None:
    spawn = multiprocessing.get_context("spawn")
    start, reports = spawn.Barrier(PROCESSES + 1), spawn.Queue()
    async with database.checkpointer() as checkpointer:
        for claim in range(store_race.CLAIMS):
            await asked(checkpointer, f"t{claim}")
        await asked(checkpointer, "signal")
        arguments = (database.kind, database.address)
        processes = [
            spawn.Process(target=store_race.run, args=(*arguments, number, start, reports), daemon=True)
            for number in range(PROCESSES)
        ]
        for process in processes:
            await asyncio.to_thread(process.start)
        await asyncio.to_thread(start.wait, 60)
        await checkpointer.settle("signal", "call-1", {"decision": "approve"}, by="the parent")
        results = [await asyncio.to_thread(reports.get, True, 60) for _ in processes]
        for process in processes:
            await asyncio.to_thread(process.join, 60)
        assert {result.woken_by for result in results} == {"the parent"}
        everything = list(range(store_race.CLAIMS))
        assert sorted(claim for result in results for claim in result.claimed) == everything
        assert sorted(claim for result in results for claim in result.settled) == everything
        for result in results:
            await check_winner(checkpointer, result)


async def check_winner(checkpointer: object, result: store_race.Report) -> None:
    """The tables agree with what a process was told."""
    for claim in result.claimed:
        thread = await checkpointer.load(f"t{claim}")  # type: ignore[attr-defined]
        assert (thread.fence, thread.lease_owner) == (3, f"process {result.number}")
        assert [message.text for message in thread.messages[2:]] == [f"claimed by {result.number}"]
    for claim in result.settled:
        request = await checkpointer.request(f"t{claim}", "call-1")  # type: ignore[attr-defined]
        assert request.answered_by == str(result.number)
        assert request.answer.decision == ("approve" if result.number % 2 else "deny")
