"""The gate's crash matrix and its races: one decision and one effect for each key, whichever processes die or race.

As in `test_crashes`, a scenario is run once to learn its crash points. Then a process is killed at each of them, and
a new process makes the same call again.
"""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kit.crash_cases import lives
from kit.crash_table import tally
from kit.lives_gates import SCENARIOS, Scenario, done, live, race
from kit.store_urls import STORES, StoreUrls
from kit.warm_tracks import is_cold

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.gate.key_state import thread_of
from askfirst.hitl.testing import RaceOutcome, RaceTrack

pytestmark = pytest.mark.anyio

LIVE = f"{live.__module__}:{live.__name__}"
RACE = f"{race.__module__}:{race.__name__}"


@dataclass
class Case:
    """A key, and the point at which the process that calls it is killed."""

    scenario: str
    point: str
    skip: int
    key: str
    effects: Path

    def job(self, url: str, crash: tuple[str, int] | None) -> dict[str, Any]:
        told = {"url": url, "scenario": self.scenario, "key": self.key, "effects": str(self.effects)}
        return {**told, "crash": crash}

    def __str__(self) -> str:
        return f"gate, {self.scenario}: killed at {self.point} ({self.skip + 1})"


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("store", STORES)
async def test_a_caller_may_die_anywhere(
    store: str, scenario: str, store_urls: StoreUrls, race_track: RaceTrack, tmp_path: Path
) -> None:
    url = store_urls.get(store)
    slug = f"{tmp_path.name}-{scenario}".replace(" ", "-").replace(",", "")
    if is_cold(race_track, LIVE, url):
        warm = Case(scenario, "", 0, f"{slug}-warm-up", tmp_path / "warm-up")
        await race_track.race(LIVE, [], warm_up=warm.job(url, None))
    model = Case(scenario, "", 0, f"{slug}-whole", tmp_path / "whole")
    (whole,) = await race_track.race(LIVE, [model.job(url, None)])
    assert whole.won, whole
    assert whole.value["ran"]
    assert len(done(model.effects)) == 1
    seen: Counter[str] = Counter()
    cases: list[Case] = []
    for number, point in enumerate(whole.value["reached"]):
        cases.append(Case(scenario, point, seen[point], f"{slug}-{number}", tmp_path / f"effects-{number}"))
        seen[point] += 1
    assert len(cases) >= (9 if SCENARIOS[scenario].asks else 7), "the scenario passes too few points"
    deaths = await lives(race_track, LIVE, [case.job(url, (case.point, case.skip)) for case in cases])
    for case, death in zip(cases, deaths, strict=True):
        assert death.signal == signal.SIGKILL, f"{case}: not killed, but {death}"
    before = [done(case.effects) for case in cases]
    ends = await lives(race_track, LIVE, [case.job(url, None) for case in cases])
    again = await lives(race_track, LIVE, [case.job(url, None) for case in cases])
    problems = [
        problem
        for case, had, end, last in zip(cases, before, ends, again, strict=True)
        for problem in _judge(store, case, had, end, last)
    ]
    assert not problems, "\n".join(problems)


def _judge(store: str, case: Case, had: list[str], end: RaceOutcome, last: RaceOutcome) -> list[str]:
    """The faults of a key whose caller was killed and which was called twice more, each as a sentence."""
    row, scenario = tally(store), SCENARIOS[case.scenario]
    row.tried += 1
    if not (end.won and last.won):
        row.lost.append(str(case))
        return [f"{case}: not ended, but {end}, {last}"]
    row.resumed += 1
    effects, problems = done(case.effects), list[str]()
    if last.value["ran"] != end.value["ran"] or last.value["result"] != end.value["result"]:
        problems.append(f"{case}: {end.value['result']!r} at first, then {last.value['result']!r}")
    if last.value["retried"]:
        problems.append(f"{case}: a person was asked again though all was done")
    allowed = _allowed(scenario, had, end)
    if len(effects) not in allowed:
        row.doubled.append(f"{case}: {len(effects)} effects")
        problems.append(f"{case}: {len(effects)} effects, not {allowed}")
    if scenario.edits and set(effects) - {"2"}:
        problems.append(f"{case}: ran with other arguments than were approved: {effects}")
    return problems


def _allowed(scenario: Scenario, had: list[str], end: RaceOutcome) -> tuple[int, ...]:
    """How many effects there may be: one; more only if a person chose a retry, or the effect is idempotent."""
    if scenario.effect == "idempotent":
        return (1, 2)
    if end.value["retried"]:
        return (1 + len(had),)
    if not end.value["ran"]:  # in doubt, and a person chose to skip it
        return (len(had),)
    return (1,)


@pytest.mark.parametrize("scenario", ["once, then skip", "allowed, then skip"])
@pytest.mark.parametrize("callers", [2, 10, 50])
@pytest.mark.parametrize("store", STORES)
async def test_processes_race_for_one_key(
    store: str, callers: int, scenario: str, store_urls: StoreUrls, race_track: RaceTrack, tmp_path: Path
) -> None:
    url, effects = store_urls.get(store), tmp_path / "effects"
    case = Case(scenario, "", 0, f"{tmp_path.name}-race", effects)
    if is_cold(race_track, RACE, url):
        warm = Case(scenario, "", 0, f"{tmp_path.name}-warm-up", tmp_path / "warm-up")
        await race_track.race(RACE, [], warm_up=warm.job(url, None))
    ends = await race_track.race(RACE, [case.job(url, None)] * callers)
    assert [end.value["result"] for end in ends if end.won] == ["paid 1"] * callers, ends
    assert done(effects) == ["1"]
    async with checkpointer_from_url(url) as checkpointer:
        stored = await checkpointer.load(thread_of(case.key))
        assert stored is not None
        assert not stored.effects
        assert [message.role for message in stored.messages] == ["assistant", "tool"]
