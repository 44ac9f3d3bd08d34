"""Many processes resume one paused run: one of them gets to, each effect happens once, and the run completes."""

from __future__ import annotations

import secrets
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kit.deeds import Deeds, approve, completed, deny, mailer, pending_ids
from kit.lives_agents import entries, faults
from kit.racers_resumes import act, family, payer
from kit.store_urls import STORES, StoreUrls
from kit.stores import Database
from kit.warm_tracks import is_cold

from askfirst import Agent, AgentResult, ApprovalResponse, run_agent
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpoints import CheckpointNotPendingError, RunCheckpointStore, resume_checkpoint
from askfirst.clock import SystemClock
from askfirst.errors import InvalidCheckpoint
from askfirst.hitl.testing import FakeClock, RaceOutcome, RaceTrack
from askfirst.ids import child_thread_id

pytestmark = pytest.mark.anyio

ACT = f"{act.__module__}:{act.__name__}"
SIZES = (2, 10, 50)


class Tomorrow(SystemClock):
    """A clock by which every lease and claim of today has lapsed."""

    def now(self) -> float:
        return super().now() + 86_400


@dataclass
class Course:
    """A store, and a folder in which tools record their effects."""

    url: str
    folder: Path
    memory: SqlCheckpointer
    track: RaceTrack
    thread_id: str

    async def saved(self) -> str:
        """The id of a checkpoint of a run without a store, saved in this store."""
        paused = await run_agent(payer(self.folder), "go", thread_id=self.thread_id)
        assert paused.checkpoint is not None
        return await RunCheckpointStore(self.memory).save("payer", paused.checkpoint)

    async def run(self, count: int, **job: Any) -> list[RaceOutcome]:
        """Run this many processes that do the same, at the same time."""
        shared = {"url": self.url, "folder": str(self.folder), "thread_id": self.thread_id, **job}
        return await self.track.race(ACT, [{**shared, "by": f"racer-{n}"} for n in range(count)])

    @property
    def effects(self) -> Counter[str]:
        """How often each payment was made."""
        return Counter(entry["what"] for entry in entries(self.folder / "effects"))

    async def check(self, *thread_ids: str) -> None:
        """Assert that the transcripts are complete, no request is open, and no lease is held."""
        for thread_id in thread_ids:
            thread = await self.memory.load(thread_id)
            assert thread is not None
            assert faults(thread.messages) == []
            assert not thread.is_leased
            assert not [known for known in thread.requests.values() if known.status == "pending"]


@pytest.fixture(params=STORES)
async def course(
    request: pytest.FixtureRequest, store_urls: StoreUrls, race_track: RaceTrack, tmp_path: Path
) -> AsyncIterator[Course]:
    url = store_urls.get(request.param)
    async with checkpointer_from_url(url) as memory:
        course = Course(url, tmp_path, memory, race_track, f"race-{secrets.token_hex(8)}")
        if is_cold(race_track, ACT, url):
            warm_up = Course(url, tmp_path / "warm-up", memory, race_track, f"warm-up-{secrets.token_hex(8)}")
            warm_up.folder.mkdir()
            job = {"url": url, "folder": str(warm_up.folder), "act": "resume", "by": "nobody"}
            await race_track.race(ACT, [], warm_up={**job, "checkpoint_id": await warm_up.saved()})
        yield course


def one_winner(outcomes: list[RaceOutcome]) -> int:
    """The index of the only process that resumed. Asserts that all others were told that they did not."""
    winners = [place for place, outcome in enumerate(outcomes) if outcome.won]
    assert len(winners) == 1, outcomes
    assert {outcome.error for outcome in outcomes if not outcome.won} <= {"CheckpointNotPendingError"}
    return winners[0]


@pytest.mark.parametrize("size", SIZES)
async def test_many_processes_resume_one_checkpoint(course: Course, size: int) -> None:
    """A run without a store is saved by one process and resumed by others, at once and later: it runs once."""
    checkpoint_id = await course.saved()
    outcomes = await course.run(size, act="resume", checkpoint_id=checkpoint_id)
    winner = one_winner(outcomes)
    assert outcomes[winner].value == "completed"
    assert course.effects == {"a": 1, "b": 1}
    for outcome in outcomes:
        assert outcome.won or outcome.facts["state"] in ("resolving", "resolved")
        assert outcome.won or outcome.facts["claimed_by"]
    for question_id in ("c1", "c2"):
        stored = await course.memory.request(course.thread_id, question_id)
        assert stored is not None
        assert stored.answered_by == f"racer-{winner}"
    with pytest.raises(CheckpointNotPendingError, match="resolved"):
        await resume_checkpoint(
            payer(course.folder), checkpoint_id, approve("c1", "c2"), store=RunCheckpointStore(course.memory)
        )
    assert course.effects == {"a": 1, "b": 1}
    await course.check(course.thread_id)


async def test_many_processes_save_one_checkpoint(course: Course) -> None:
    paused = await run_agent(payer(course.folder), "go", thread_id=course.thread_id)
    assert paused.checkpoint is not None
    outcomes = await course.run(10, act="save", checkpoint=paused.checkpoint.to_json())
    assert {outcome.value for outcome in outcomes} == {paused.checkpoint.checkpoint_id}, outcomes
    thread = await course.memory.load(course.thread_id)
    assert thread is not None
    assert tuple(thread.messages) == paused.messages
    (outcome,) = await course.run(1, act="resume", checkpoint_id=paused.checkpoint.checkpoint_id)
    assert outcome.value == "completed"
    assert course.effects == {"a": 1, "b": 1}


# Workers that die.


async def resumed_tomorrow(
    course: Course, checkpoint_id: str, responses: Sequence[ApprovalResponse] = ()
) -> AgentResult:
    """The run is taken over when the dead worker's claim and lease have lapsed; its responses are stored."""
    async with checkpointer_from_url(course.url, clock=Tomorrow()) as memory:
        store = RunCheckpointStore(memory, claim_ttl_seconds=600)
        return await resume_checkpoint(payer(course.folder), checkpoint_id, responses, store=store)


async def test_what_a_dead_worker_had_begun_is_in_doubt_and_not_repeated(course: Course) -> None:
    checkpoint_id = await course.saved()
    (died,) = await course.run(1, act="resume", checkpoint_id=checkpoint_id, dies=True)
    assert died.signal == signal.SIGKILL
    began = course.effects
    assert sum(began.values()) >= 1
    with pytest.raises(CheckpointNotPendingError, match="is held by"):  # the claim outlives its holder
        await resume_checkpoint(
            payer(course.folder), checkpoint_id, [], store=RunCheckpointStore(course.memory)
        )
    paused = await resumed_tomorrow(course, checkpoint_id)
    assert pending_ids(paused) == ["c1:escalate:1", "c2:escalate:1"]
    assert {approval.kind for approval in paused.pending_approvals} == {"escalate"}
    assert course.effects == began
    assert paused.checkpoint is not None
    assert paused.checkpoint.checkpoint_id is not None
    async with checkpointer_from_url(course.url, clock=Tomorrow()) as memory:
        store = RunCheckpointStore(memory)
        responses = [
            *deny("c1:escalate:1"),
            *approve("c2:escalate:1"),
        ]  # skip one call in doubt, retry the other
        done = await resume_checkpoint(
            payer(course.folder), paused.checkpoint.checkpoint_id, responses, store=store
        )
    assert completed(done)["c2"] == "paid b"
    assert (course.effects["a"], course.effects["b"]) == (began["a"], began["b"] + 1)


@pytest.mark.parametrize("again", [(), ("c1", "c2")], ids=["on record", "sent again"])
async def test_a_worker_that_dies_before_anything_begins_is_replaced(
    course: Course, again: tuple[str, ...]
) -> None:
    """The worker that takes over may send the same responses again, as a repeated webhook does."""
    checkpoint_id = await course.saved()
    (died,) = await course.run(1, act="resume", checkpoint_id=checkpoint_id, crash="before:effect.started")
    assert died.signal == signal.SIGKILL
    assert course.effects == {}
    with pytest.raises(InvalidCheckpoint, match="'c1' is not pending here"):
        await resumed_tomorrow(course, checkpoint_id, deny("c1"))  # another decision was settled before
    assert (await resumed_tomorrow(course, checkpoint_id, approve(*again))).status == "completed"
    assert course.effects == {"a": 1, "b": 1}
    await course.check(course.thread_id)


# Trees.


def tree_threads(root: str) -> list[str]:
    left, right = child_thread_id(root, "l"), child_thread_id(root, "r")
    return [root, left, right, child_thread_id(left, "d"), child_thread_id(right, "d")]


async def finish(course: Course) -> None:
    """Answer the open requests, and assert that each payment was made once."""
    agent = Agent.from_spec(family(course.folder), checkpointer=course.memory, thread_id=course.thread_id)
    result = await agent.resume()
    while result.status == "paused":
        result = await agent.resume_with(approve(*pending_ids(result)))
    assert completed(result) == {"l": "left is done", "r": "right is done"}
    assert course.effects == {"a": 2, "b": 2, "left": 1, "right": 1}
    await course.check(*tree_threads(course.thread_id))


@pytest.mark.parametrize("size", [2, 10])
async def test_workers_that_resume_one_tree_at_once(course: Course, size: int) -> None:
    agent = Agent.from_spec(family(course.folder), checkpointer=course.memory, thread_id=course.thread_id)
    paused = await agent.prompt("go")
    assert pending_ids(paused) == ["l/d/c1", "l/d/c2", "r/d/c1", "r/d/c2"]
    _, _, _, left, right = tree_threads(course.thread_id)
    for thread_id in (left, right):
        for question_id in ("c1", "c2"):
            await course.memory.settle(thread_id, question_id, {"decision": "approve"}, by="ann")
    outcomes = await course.run(size, act="tree")
    assert {outcome.value for outcome in outcomes} <= {"paused", "suspended"}, outcomes
    assert "paused" in {outcome.value for outcome in outcomes}, outcomes  # the next calls of both subagents
    assert course.effects == {"a": 2, "b": 2}
    await finish(course)


async def test_workers_that_answer_one_tree_at_once(course: Course) -> None:
    """Each call's first answer counts, late workers are told so, and nothing runs twice."""
    agent = Agent.from_spec(family(course.folder), checkpointer=course.memory, thread_id=course.thread_id)
    ids = pending_ids(await agent.prompt("go"))
    outcomes = await course.run(4, act="tree_with", ids=ids)
    told = {outcome.error for outcome in outcomes if not outcome.won}
    assert told <= {"HitlStaleAnswer", "InvalidCheckpoint"}, outcomes
    assert {outcome.value for outcome in outcomes if outcome.won} <= {"paused", "suspended"}, outcomes
    await finish(course)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_lapsed_claim_can_be_taken_again(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as memory:
        first, second = (RunCheckpointStore(memory, claim_ttl_seconds=60) for _ in range(2))
        paused = await run_agent(mailer(Deeds()), "go")
        assert paused.checkpoint is not None
        checkpoint_id = await first.save("mailer", paused.checkpoint)
        await first.claim("mailer", checkpoint_id)
        await clock.advance(59)
        with pytest.raises(CheckpointNotPendingError):
            await second.claim("mailer", checkpoint_id)
        await clock.advance(2)
        assert (await second.claim("mailer", checkpoint_id)).retaken
        with pytest.raises(CheckpointNotPendingError):
            await first.resolve("mailer", checkpoint_id)
        await second.resolve("mailer", checkpoint_id)
