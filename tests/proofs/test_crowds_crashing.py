"""A crowd on one thread in which any process may die at any time: during a write, in a tool's body, or while waiting.

Nothing is lost, done twice or done without approval, and the record agrees. See `mortal_crowds` and `deed_records`.
"""

from __future__ import annotations

import asyncio

import pytest
from kit.deed_records import lies
from kit.lost_commits import breaking_some
from kit.mortal_crowds import Crowd
from kit.mortal_stores import LEASE_SECONDS
from kit.patience import PATIENCE
from kit.stores import Database

from askfirst.hitl.testing import FakeClock

pytestmark = pytest.mark.anyio

EPISODES = {"memory": 10, "sqlite": 3, "postgres": 2, "mysql": 2}
DEEDS = 40


async def episode(database: Database, seed: int, *, delegates: bool) -> Crowd:
    """One crowd, from its first act until it is at rest."""
    async with database.checkpointer(clock=FakeClock(), lease_seconds=LEASE_SECONDS) as desk:
        async with asyncio.timeout(PATIENCE), Crowd(seed, database, desk, delegates=delegates) as crowd:
            with breaking_some(database.kind, crowd.dice, risk=0.02):
                await crowd.run(DEEDS)
            await look(crowd)
            await crowd.go_on()
            await look(crowd)
        await desk.delete("thread")
        assert await desk.threads() == [], f"seed {seed}"
    return crowd


async def look(crowd: Crowd) -> None:
    """Check what has to hold at this moment."""
    wrong = [*map(repr, crowd.surprises), *await lies(crowd.desk, crowd.truth)]
    assert not wrong, f"seed {crowd.seed}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("delegates", [False, True], ids=["alone", "with subagents"])
async def test_a_crowd_that_dies_does_nothing_twice_and_loses_nothing(
    database: Database, delegates: bool
) -> None:
    crowds = [await episode(database, seed, delegates=delegates) for seed in range(EPISODES[database.kind])]
    assert sum(crowd.deaths for crowd in crowds) or len(crowds) < 10, "nobody died"
