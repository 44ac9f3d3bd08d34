"""Many processes on one database: each lease and each answer has one winner, and every waiter wakes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit import racers_store
from kit.stores import SHARED, Database, asked

from askfirst.hitl.testing import RaceTrack

pytestmark = pytest.mark.anyio
PROCESSES = 8


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_eight_processes_race_for_sixty_leases_and_sixty_answers(
    database: Database, race_track: RaceTrack
) -> None:
    shared = {"kind": database.kind, "address": database.address}
    await racers_store.warm_up(race_track, **shared)
    async with database.checkpointer() as checkpointer:
        fences = [(await asked(checkpointer, f"t{claim}"))[0] for claim in range(racers_store.CLAIMS)]
        await asked(checkpointer, "signal")
        jobs = [{**shared, "number": number, "fences": fences} for number in range(PROCESSES)]
        racing = asyncio.create_task(race_track.race(racers_store.RACE, jobs))
        while not racing.done() and not await is_answered(checkpointer, racers_store.CLAIMS - 1):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await checkpointer.settle("signal", "call-1", {"decision": "approve"}, by="the parent")
        outcomes = await racing
        assert [outcome for outcome in outcomes if not outcome.won] == []
        results = [outcome.value for outcome in outcomes]
        assert {result["woken_by"] for result in results} == {"the parent"}
        everything = list(range(racers_store.CLAIMS))
        assert sorted(claim for result in results for claim in result["claimed"]) == everything
        assert sorted(claim for result in results for claim in result["settled"]) == everything
        for result in results:
            await check_winner(checkpointer, result, fences)


async def is_answered(checkpointer: Any, claim: int) -> bool:
    """Whether a process waits for the signal of an answer, or is about to."""
    return (await checkpointer.request(f"t{claim}", "call-1")).status == "answered"


async def check_winner(checkpointer: Any, result: dict[str, Any], fences: list[int]) -> None:
    """Assert that the tables agree with what a process was told."""
    number = result["number"]
    for claim in result["claimed"]:
        thread = await checkpointer.load(f"t{claim}")
        assert (thread.fence, thread.lease_owner) == (fences[claim] + 1, f"process {number}")
        assert [message.text for message in thread.messages[2:]] == [f"claimed by {number}"]
    for claim in result["settled"]:
        request = await checkpointer.request(f"t{claim}", "call-1")
        assert request.answered_by == str(number)
        assert request.answer.decision == ("approve" if number % 2 else "deny")
