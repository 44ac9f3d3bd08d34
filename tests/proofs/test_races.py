"""Races between processes: one wins, the others are told that they lost, there is one effect, and the record
agrees."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kit.lives_agents import entries, faults
from kit.patience import PATIENCE
from kit.racers_agents import CALL, act, agent_on, until
from kit.store_urls import STORES, StoreUrls
from kit.warm_tracks import is_cold

from askfirst.agent.result import AgentResult
from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.hitl.testing import Aborts, Cancels, RaceOutcome, RaceTrack, TimesOut, race_answers
from askfirst.messages import ToolResultMessage, UserMessage

pytestmark = pytest.mark.anyio

ACT = f"{act.__module__}:{act.__name__}"
SIZES = (2, 10, 50)
HELD = ("LeaseHeld", "HitlRequestPending")


@dataclass
class Course:
    """A thread that processes race for."""

    url: str
    folder: Path
    thread_id: str
    store: Checkpointer
    track: RaceTrack

    async def pause(self, *, timeout: float | None = None) -> None:
        """Have the thread wait for a person, with no process at work on it."""
        agent = agent_on(self.store, self.thread_id, self.folder, timeout=timeout)
        asking = asyncio.create_task(agent.prompt("go"))
        if timeout is not None:
            await until(lambda: asking.done() or agent.in_flight_hitl_request is not None)
            await agent.detach()
        assert (await asking).status == ("paused" if timeout is None else "suspended")

    async def run(self, acts: list[str], **job: Any) -> list[RaceOutcome]:
        """Run one process for each act, all at the same time."""
        shared = {"url": self.url, "folder": str(self.folder), "thread_id": self.thread_id, **job}
        return await self.track.race(
            ACT, [{**shared, "act": name, "by": f"racer-{n}"} for n, name in enumerate(acts)]
        )

    async def finish(self) -> AgentResult:
        """Resume the thread until nothing is left to do."""
        return await agent_on(self.store, self.thread_id, self.folder).resume()

    @property
    def effects(self) -> int:
        """How often the tool took effect."""
        return len(entries(self.folder / "effects"))

    async def result(self) -> ToolResultMessage:
        """The call's only result, from a transcript without faults."""
        thread = await self.store.load(self.thread_id)
        assert thread is not None
        assert faults(thread.messages) == []
        (result,) = [message for message in thread.messages if isinstance(message, ToolResultMessage)]
        return result


@pytest.fixture(params=STORES)
async def course(
    request: pytest.FixtureRequest, store_urls: StoreUrls, race_track: RaceTrack, tmp_path: Path
) -> AsyncIterator[Course]:
    url = store_urls.get(request.param)
    if is_cold(race_track, ACT, url):
        warm_up = {"url": url, "folder": str(tmp_path), "thread_id": f"warm-up-{tmp_path}", "act": "warm_up"}
        await race_track.race(ACT, [], warm_up=warm_up)
        (tmp_path / "effects").unlink()
    async with checkpointer_from_url(url) as store:
        yield Course(url, tmp_path, f"race-{tmp_path}", store, race_track)


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> int:
    return request.param


def _one_winner(outcomes: list[RaceOutcome], told: tuple[str, ...] = ("HitlStaleAnswer",)) -> int:
    """The index of the only winner. Asserts that all others were told that they lost."""
    winners = [place for place, outcome in enumerate(outcomes) if outcome.won]
    losers = Counter(outcome.error for outcome in outcomes if not outcome.won)
    assert len(winners) == 1, (outcomes, losers)
    assert set(losers) <= set(told), losers
    return winners[0]


async def _the_record_agrees(course: Course, decision: str, winner: int | None) -> None:
    """Assert that transcript and request agree with what happened, and name who did it."""
    trace = ((await course.result()).details or {}).get("hitl", {})
    assert trace.get("decision") == decision
    stored = await course.store.request(course.thread_id, CALL)
    assert stored is not None
    if winner is not None:
        assert stored.answered_by == f"racer-{winner}"
    if decision.startswith("human_"):
        assert stored.status == "answered"
        assert trace["answered_by"] == stored.answered_by
    else:
        assert stored.status == decision
    assert course.effects == (decision == "human_approve")


async def test_all_approve(course: Course, size: int) -> None:
    await course.pause()
    outcomes = await course.run(["approve"] * size)
    winner = _one_winner(outcomes)
    assert outcomes[winner].value == "completed"
    assert {outcome.facts["status"] for outcome in outcomes if not outcome.won} == {"answered"}
    await _the_record_agrees(course, "human_approve", winner)


async def test_approve_against_deny(course: Course, size: int) -> None:
    await course.pause()
    acts = ["approve", "deny"] * (size // 2)
    outcomes = await course.run(acts)
    winner = _one_winner(outcomes)
    assert outcomes[winner].value == "completed"
    await _the_record_agrees(course, f"human_{acts[winner]}", winner)


async def test_answers_to_the_request_against_answers_to_the_pending_approval(
    course: Course, size: int
) -> None:
    await course.pause()
    acts = ["approve", "deny_with", "approve_with", "deny"] * size
    outcomes = await course.run(acts[:size])
    winner = _one_winner(outcomes, ("HitlStaleAnswer", "InvalidCheckpoint"))
    assert outcomes[winner].value == "completed"
    await _the_record_agrees(course, f"human_{acts[winner].removesuffix('_with')}", winner)


async def test_answer_against_cancel(course: Course, size: int) -> None:
    await course.pause()
    acts = ["approve", "cancel"] * (size // 2)
    outcomes = await course.run(acts)
    winner = _one_winner(outcomes)
    assert (await course.finish()).status == "completed"
    await _the_record_agrees(course, "human_approve" if acts[winner] == "approve" else "cancelled", winner)


async def test_answer_against_time_out(course: Course, size: int) -> None:
    """By the clocks of half of the processes, the deadline has passed."""
    await course.pause(timeout=3600)
    acts = ["approve", "time_out"] * (size // 2)
    outcomes = await course.run(acts)
    won = {acts[place] for place, outcome in enumerate(outcomes) if outcome.won}
    assert len(won) == 1, outcomes
    told = {(outcome.error, outcome.facts.get("status")) for outcome in outcomes if not outcome.won}
    assert (await course.finish()).status == "completed"
    if won == {"time_out"}:
        assert told == {("HitlStaleAnswer", "timed_out")}
        assert (
            sum(outcome.won for outcome in outcomes) == size // 2
        )  # to find a request timed out is not to settle it
        await _the_record_agrees(course, "timed_out", None)
    else:
        assert told == {("HitlStaleAnswer", "answered")}
        await _the_record_agrees(course, "human_approve", _one_winner(outcomes))


async def test_answer_against_abort(course: Course, size: int) -> None:
    await course.pause()
    acts = ["approve", "abort"] * (size // 2)
    outcomes = await course.run(acts)
    winner = _one_winner(outcomes, ("HitlStaleAnswer", "HitlNoPendingRequest"))
    ended = await course.finish()
    if acts[winner] == "approve":
        assert ended.status == "completed"
        await _the_record_agrees(course, "human_approve", winner)
        return
    assert ended.status == "aborted"
    assert ended.reason == f"by racer-{winner}"
    stored = await course.store.request(course.thread_id, CALL)
    assert stored is not None
    assert (stored.status, stored.reason) == ("aborted", f"by racer-{winner}")
    assert (await course.result()).is_error
    assert course.effects == 0


async def test_resume_against_resume_while_the_first_still_runs(course: Course, size: int) -> None:
    await course.pause()
    await course.store.settle(course.thread_id, CALL, {"decision": "approve"}, by="ann")
    outcomes = await course.run(["resume"] * size, wait_for=size - 1)
    assert Counter(outcome.value for outcome in outcomes) == {"completed": 1, "suspended": size - 1}, outcomes
    await _the_record_agrees(course, "human_approve", None)


async def test_prompt_against_prompt(course: Course, size: int) -> None:
    outcomes = await course.run(["prompt"] * size)
    winner = _one_winner(outcomes, HELD)
    assert outcomes[winner].value == "paused"
    thread = await course.store.load(course.thread_id)
    assert thread is not None
    asked = [message.text for message in thread.messages if isinstance(message, UserMessage)]
    assert asked == [f"go, says racer-{winner}"]
    (open_request,) = [known for known in thread.requests.values() if known.status == "pending"]
    assert open_request.question_id == CALL
    await course.store.settle(course.thread_id, CALL, {"decision": "approve"}, by="ann")
    assert (await course.finish()).status == "completed"
    await _the_record_agrees(course, "human_approve", None)


async def test_an_answer_given_while_another_process_waits_for_it(course: Course, size: int) -> None:
    """The process that gets the answer first resumes: the waiting one or the answering one, not both."""
    await course.pause()
    outcomes = await course.run(["wait"] + ["approve"] * (size - 1))
    waiter, answerers = outcomes[0], outcomes[1:]
    winner = 1 + _one_winner(answerers)
    assert {waiter.value, outcomes[winner].value} <= {"completed", "suspended"}
    assert "completed" in (waiter.value, outcomes[winner].value), outcomes
    await _the_record_agrees(course, "human_approve", winner)


async def test_the_race_helper(course: Course, size: int) -> None:
    await course.pause(timeout=3600)
    rivals: list[Any] = [Cancels("changed my mind"), TimesOut(), Aborts(), {"decision": "deny"}]
    answers = [rivals[n % 4] if n % 2 else {"decision": "approve"} for n in range(size)]
    outcomes = await race_answers(course.url, course.thread_id, CALL, answers, track=course.track)
    stored = await course.store.request(course.thread_id, CALL)
    assert stored is not None
    assert {outcome.value for outcome in outcomes if outcome.won} == {stored.status}, outcomes
    told = {outcome.error for outcome in outcomes if not outcome.won}
    assert told <= {"HitlStaleAnswer", "HitlNoPendingRequest"}, outcomes
    if stored.status == "answered":
        (winner,) = [place for place, outcome in enumerate(outcomes) if outcome.won]
        assert stored.answered_by == f"racer-{winner}"
        assert stored.answer.decision == answers[winner]["decision"]
    assert course.effects == 0  # this process only answers


async def test_the_race_helper_makes_its_own_track(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    async with checkpointer_from_url(url) as store:
        await agent_on(store, "t", tmp_path).prompt("go")
        for decision, error in (
            ("perhaps", "HitlInvalidAnswer"),
            ("approve", None),
            ("deny", "HitlStaleAnswer"),
        ):
            (outcome,) = await race_answers(url, "t", CALL, [{"decision": decision}])
            assert outcome.error == error
        assert (await race_answers(url, "t", "other", [True]))[0].error == "HitlNoPendingRequest"


async def test_who_looks_can_be_cancelled_at_any_moment(course: Course) -> None:
    """A database driver may swallow a cancellation; then a channel that is detached would wait for ever."""

    async def look() -> None:
        while True:
            await course.store.request(course.thread_id, CALL)

    for moment in range(100):
        looking = asyncio.create_task(look())
        await asyncio.sleep(0.001 + moment / 100_000)
        looking.cancel()
        ended, _ = await asyncio.wait([looking], timeout=PATIENCE)
        assert ended, f"the cancellation was lost at moment {moment}"


async def die(job: Any, start: Any) -> None:
    """A racer that ends without returning or raising."""
    if job == "hang":
        await asyncio.Event().wait()
    if job == "exit":
        raise SystemExit(3)
    signal.raise_signal(signal.SIGKILL)


async def test_a_racer_that_dies_is_reported(race_track: RaceTrack) -> None:
    killed, left = await race_track.race(f"{__name__}:die", ["kill", "exit"])
    assert (killed.signal, killed.won) == (signal.SIGKILL, False)
    assert (left.error, left.won) == ("SystemExit", False)


async def test_racers_that_hang_are_ended() -> None:
    with RaceTrack() as track:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await track.race(f"{__name__}:die", ["hang"] * 2, timeout=0.5)
        assert time.monotonic() - began < 60
