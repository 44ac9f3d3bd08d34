"""Many processes race for one checkpoint: one holds the claim, and the others are told which."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from kit.racers_claims import AGENT, TTL_SECONDS, act
from kit.store_urls import STORES, StoreUrls
from kit.warm_tracks import is_cold

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.hitl.testing import FakeClock, RaceOutcome, RaceTrack

pytestmark = pytest.mark.anyio
ACT = f"{act.__module__}:{act.__name__}"
SIZES = (2, 10, 50)
BODY = {"pending": ["call-1"]}


@dataclass
class Course:
    """A checkpoint that processes race for."""

    url: str
    store: SqlCheckpointer
    track: RaceTrack
    checkpoint_id: str = field(default_factory=lambda: secrets.token_hex(8))

    async def lapse(self) -> None:
        """Have the checkpoint claimed by a worker whose claim has lapsed long ago."""
        async with checkpointer_from_url(self.url, clock=FakeClock()) as past:
            await past.claim_checkpoint(self.checkpoint_id, AGENT, by="the dead", ttl_seconds=60)

    async def run(self, acts: list[str]) -> list[RaceOutcome]:
        """Run one process for each act, all at the same time."""
        shared = {"url": self.url, "checkpoint_id": self.checkpoint_id}
        jobs = [{**shared, "act": name, "by": f"racer-{n}"} for n, name in enumerate(acts)]
        for job in jobs:
            if job["act"] == "resolve":
                job["by"] = "the dead"
        return await self.track.race(ACT, jobs)

    async def check(self, outcomes: list[RaceOutcome], holder: str, state: str) -> None:
        """Assert that the store agrees with the outcomes, and that each loser was told the holder."""
        stored = await self.store.get_checkpoint(self.checkpoint_id, AGENT)
        assert stored is not None
        assert (stored.state, stored.claimed_by) == (state, holder)
        for outcome in outcomes:
            if not outcome.won:
                facts = (outcome.error, outcome.facts["state"], outcome.facts["claimed_by"])
                assert facts == ("CheckpointNotPendingError", state, holder)
                assert outcome.facts["claimed_until"] == stored.claimed_until
                assert f"by {holder!r}" in outcome.message


@pytest.fixture(params=STORES)
async def course(
    request: pytest.FixtureRequest, store_urls: StoreUrls, race_track: RaceTrack
) -> AsyncIterator[Course]:
    url = store_urls.get(request.param)
    async with checkpointer_from_url(url) as store:
        course = Course(url, store, race_track)
        if is_cold(race_track, ACT, url):
            warm_up = {"url": url, "checkpoint_id": secrets.token_hex(8), "act": "claim", "by": "nobody"}
            await store.save_checkpoint(warm_up["checkpoint_id"], AGENT, BODY)
            await race_track.race(ACT, [], warm_up=warm_up)
        await store.save_checkpoint(course.checkpoint_id, AGENT, BODY)
        yield course


def the_winner(outcomes: list[RaceOutcome]) -> tuple[str, Any]:
    """The name and the value of the only winner."""
    winners = [(f"racer-{place}", outcome.value) for place, outcome in enumerate(outcomes) if outcome.won]
    assert len(winners) == 1, outcomes
    return winners[0]


@pytest.mark.parametrize("size", SIZES)
async def test_one_of_many_claims_it(course: Course, size: int) -> None:
    outcomes = await course.run(["claim"] * size)
    holder, value = the_winner(outcomes)
    assert value == {"by": holder, "retaken": False, "body": BODY}
    await course.check(outcomes, holder, "resolving")


@pytest.mark.parametrize("size", SIZES)
async def test_one_of_many_takes_a_lapsed_claim_over(course: Course, size: int) -> None:
    await course.lapse()
    outcomes = await course.run(["claim"] * size)
    holder, value = the_winner(outcomes)
    assert value == {"by": holder, "retaken": True, "body": BODY}
    await course.check(outcomes, holder, "resolving")


async def test_a_lapsed_holder_resolves_or_is_overtaken_never_both(course: Course) -> None:
    await course.lapse()
    outcomes = await course.run(["resolve", *["claim"] * 9])
    holder, value = the_winner(outcomes)
    if value == "resolved":
        await course.check(outcomes, "the dead", "resolved")
    else:
        await course.check(outcomes, holder, "resolving")
        until = [outcome.facts["claimed_until"] for outcome in outcomes if not outcome.won]
        assert len(set(until)) == 1
        await course.store.resolve_checkpoint(course.checkpoint_id, AGENT, by=holder)


async def test_a_claim_is_held_for_its_time(course: Course) -> None:
    """Also by another clock than the holder's: the stored time counts."""
    (outcome,) = await course.run(["claim"])
    assert outcome.won
    stored = await course.store.get_checkpoint(course.checkpoint_id, AGENT)
    assert stored is not None
    assert stored.claimed_until == pytest.approx(stored.updated_at + TTL_SECONDS, abs=1e-3)
