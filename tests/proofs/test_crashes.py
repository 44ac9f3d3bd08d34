"""The crash matrix: processes are killed at every commit and around every tool body, and their threads are resumed.

Each scenario is run once to learn the crash points that it passes. Then for every point a process is killed there
with SIGKILL, and a new process resumes the thread. The stored state and the effects are checked after the kill and at
the end. The table is printed at the end of the test run.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kit.crash_cases import attempt_of, lives, until_lapsed
from kit.crash_table import Tally, tally
from kit.lives_agents import SCENARIOS, Scenario, entries, faults, live
from kit.store_urls import STORES, StoreUrls
from kit.warm_tracks import is_cold

from askfirst.checkpointer.base import Checkpointer, StoredThread
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.hitl.testing import RaceOutcome, RaceTrack

pytestmark = pytest.mark.anyio

LIVE = f"{live.__module__}:{live.__name__}"


@dataclass
class Case:
    """One thread, and the point at which the process that works on it is killed."""

    scenario: str
    point: str
    skip: int
    thread_id: str
    effects: Path
    reached: list[str]
    """All points up to the crash, that one included if it stands after a commit."""
    crashed: StoredThread | None = None
    done_before: list[dict[str, Any]] = field(default_factory=list)

    def job(self, url: str, crash: tuple[str, int] | None) -> dict[str, Any]:
        return {
            "url": url,
            "scenario": self.scenario,
            "thread_id": self.thread_id,
            "effects": str(self.effects),
            "crash": crash,
        }

    def __str__(self) -> str:
        return f"{self.scenario}: killed at {self.point} ({self.skip + 1})"


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("store", STORES)
async def test_a_process_may_die_anywhere(
    store: str, scenario: str, store_urls: StoreUrls, race_track: RaceTrack, tmp_path: Path
) -> None:
    url = store_urls.get(store)
    if is_cold(race_track, LIVE, url):
        await _warm_up(url, race_track, tmp_path)
    cases = await _cases(url, scenario, race_track, tmp_path)
    assert len(cases) >= 8, "the scenario passes too few points"
    async with checkpointer_from_url(url) as checkpointer:
        deaths = await lives(race_track, LIVE, [case.job(url, (case.point, case.skip)) for case in cases])
        for case, death in zip(cases, deaths, strict=True):
            assert death.signal == signal.SIGKILL, f"{case}: not killed, but {death}"
            case.crashed = await checkpointer.load(case.thread_id)
            case.done_before = entries(case.effects)
        ends = await lives(race_track, LIVE, [case.job(url, None) for case in cases])
        problems = [
            problem
            for case, end in zip(cases, ends, strict=True)
            for problem in await _judge(case, end, checkpointer, tally(store))
        ]
    assert not problems, "\n".join(problems)


async def _warm_up(url: str, track: RaceTrack, folder: Path) -> None:
    """Run one life in the process that the others are forked from."""
    model = Case("once, then skip", "", 0, f"{folder.name}-warm-up", folder / "warm-up", [])
    await track.race(LIVE, [], warm_up=model.job(url, None))


async def _cases(url: str, scenario: str, track: RaceTrack, folder: Path) -> list[Case]:
    """Run a scenario once without a crash; every point that it passes is a case."""
    slug = f"{folder.name}-{scenario}".replace(" ", "-").replace(",", "")
    model = Case(scenario, "", 0, f"{slug}-whole", folder / "whole", [])
    await _prepare(url, [model], track)
    (whole,) = await track.race(LIVE, [model.job(url, None)])
    assert whole.won, whole
    assert whole.value["status"] == "completed"
    assert len(entries(model.effects)) == _effects_of_an_undisturbed_life(SCENARIOS[scenario])
    seen: Counter[str] = Counter()
    cases: list[Case] = []
    for place, point in enumerate(whole.value["reached"]):
        so_far = whole.value["reached"][: place + (not point.startswith("before:"))]
        number = len(cases)
        effects = folder / f"effects-{number}"
        cases.append(Case(scenario, point, seen[point], f"{slug}-{number}", effects, so_far))
        seen[point] += 1
    await _prepare(url, cases, track)
    return cases


async def _prepare(url: str, cases: list[Case], track: RaceTrack) -> None:
    """For a scenario that begins with an effect in doubt: have a process die within the effect, for each case."""
    first_crash = SCENARIOS[cases[0].scenario].first_crash
    if first_crash is not None:
        for death in await lives(track, LIVE, [case.job(url, (first_crash, 0)) for case in cases]):
            assert death.signal == signal.SIGKILL, death
        async with checkpointer_from_url(url) as checkpointer:
            for case in cases:
                await until_lapsed(checkpointer, case.thread_id)


def _effects_of_an_undisturbed_life(scenario: Scenario) -> int:
    if scenario.first_crash is None:
        return sum(call.name != "ask_user" for call in scenario.calls)
    return int(scenario.first_crash.startswith("body.during")) + (scenario.doubt == "retry")


async def _judge(case: Case, end: RaceOutcome, checkpointer: Checkpointer, row: Tally) -> list[str]:
    """The faults of a thread that was killed and resumed, each as a sentence."""
    row.tried += 1
    final = await checkpointer.load(case.thread_id)
    if not end.won or end.value["status"] != "completed" or final is None:
        row.lost.append(str(case))
        return [f"{case}: not completed, but {end}"]
    row.resumed += 1
    broken = _transcript_problems(case, final)
    lost = _lost_requests(case, end, final)
    doubled = _wrong_effects(case, final)
    row.broken += broken
    row.lost += lost
    row.doubled += doubled
    return [f"{case}: {problem}" for problem in [*broken, *lost, *doubled]]


def _transcript_problems(case: Case, final: StoredThread) -> list[str]:
    before = case.crashed.messages if case.crashed is not None else []
    problems = faults(final.messages)
    if final.messages[: len(before)] != before:
        problems.append("the transcript changed before its end")
    if final.messages[-1].role != "assistant" or final.messages[-1].text != "done":
        problems.append(f"the last word is {final.messages[-1]}")
    if final.effects or final.lease_owner is not None:
        problems.append(f"something is still open: {final.effects}, {final.lease_owner}")
    return problems


def _lost_requests(case: Case, end: RaceOutcome, final: StoredThread) -> list[str]:
    """The requests and answers that the crash lost: every request stays open, every answer stays settled, and nobody
    answers twice."""
    problems: list[str] = []
    before = case.crashed.requests if case.crashed is not None else {}
    opened, settled = case.reached.count("request.opened"), case.reached.count("request.settled")
    begun = case.reached.count(
        "before:request.settled"
    )  # a waiting process may get an answer before the crash point after its commit
    answered = [known for known in before.values() if known.status == "answered"]
    earlier = 1 if SCENARIOS[case.scenario].first_crash else 0  # the approval that the first life was given
    if opened and not before:
        problems.append("the request is gone")
    if not settled <= len(answered) - earlier <= begun:
        problems.append(f"{settled} answers were committed and {len(answered) - earlier} are stored")
    for known in before.values():
        now = final.requests[known.question_id]
        if attempt_of(now.request) > attempt_of(known.request):
            continue  # in doubt again, which is another request
        if now.request != known.request:
            problems.append(f"{known.question_id} was asked anew")
        if known.status == "answered" and (now != known or known.question_id in end.value["answered"]):
            problems.append(f"{known.question_id} was answered anew")
    problems += [
        f"{now.question_id} is {now.status}" for now in final.requests.values() if now.status != "answered"
    ]
    return problems


def _wrong_effects(case: Case, final: StoredThread) -> list[str]:
    """The faults of the effects: exactly one if nothing was in doubt; else as many as the tool's kind and the person
    allow."""
    scenario, problems = SCENARIOS[case.scenario], []
    in_doubt = set(case.crashed.effects) if case.crashed is not None else set()
    done = entries(case.effects)
    for call in scenario.calls:
        times = [entry for entry in done if entry["call"] == call.id]
        before = sum(entry["call"] == call.id for entry in case.done_before)
        expected = _expected_times(call.name, scenario, before, in_doubt=call.id in in_doubt, case=case)
        if len(times) != expected:
            problems.append(f"{call.name} took effect {len(times)} times, not {expected}")
        if len({entry["key"] for entry in times}) > 1:
            problems.append(f"{call.name} was repeated with another key")
        if call.name != "look" and len({entry["attempt"] for entry in times}) != len(times):
            problems.append(f"{call.name} was repeated as the same attempt")
        if any(entry["n"] != (7 if scenario.answer == "edit" else call.args["amount"]) for entry in times):
            problems.append(f"{call.name} ran with other arguments than were approved")
    return problems


def _expected_times(name: str, scenario: Scenario, before: int, *, in_doubt: bool, case: Case) -> int:
    if name == "ask_user":
        return 0
    resolved = case.crashed is not None and any(
        message.role == "tool" and message.tool_name == name for message in case.crashed.messages
    )
    if name in ("pay", "step"):
        if in_doubt:
            return before + (scenario.doubt == "retry")
        if scenario.first_crash is not None:  # it was in doubt in the life before, which a person has settled
            return before
        return 1
    return before if resolved else before + 1
