"""The crash matrix for trees: processes are killed at every commit of an agent and of its subagent, then resumed.

It works like test_crashes.py, and leaves out the points of a single agent, which are tested there. A person skips
every call in doubt, unless the scenario says otherwise. It has its own rows in the table.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kit.crash_cases import attempt_of, lives, until_lapsed
from kit.crash_table import Tally, tally
from kit.lives_agents import entries, faults
from kit.lives_trees import (
    BOOK,
    CHARGE,
    CLERK,
    PAY,
    TELLER,
    TREES,
    Call,
    Phase,
    TreeScenario,
    live_tree,
    names_of,
)
from kit.store_urls import STORES, StoreUrls
from kit.warm_tracks import is_cold

from askfirst.checkpointer.base import Checkpointer, StoredThread
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.hitl.testing import RaceOutcome, RaceTrack
from askfirst.messages import ToolResultMessage
from askfirst.requests import StoredRequest

pytestmark = pytest.mark.anyio

LIVE = f"{live_tree.__module__}:{live_tree.__name__}"

ACTS = {"boss": BOOK, "clerk": CHARGE, "teller": PAY}
BELOW = {"clerk": (CLERK, "charged"), "teller": (TELLER, "paid")}
"""How those below the boss are called, and what they say in the end."""

Threads = dict[str, StoredThread]
"""By whose they are; without those that are not stored yet."""


@dataclass
class Case:
    """One tree, and the point at which the process that works on it is killed."""

    name: str
    url: str
    thread_id: str
    effects: Path
    point: str = ""
    skip: int = 0
    reached: list[str] = field(default_factory=list[str])
    """All points up to the crash, that one included if it stands after a commit."""
    crashed: Threads = field(default_factory=dict[str, StoredThread])
    done_before: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def scenario(self) -> TreeScenario:
        return TREES[self.name]

    @property
    def below(self) -> list[str]:
        """The subagents that the boss calls."""
        return [
            name for name, (call, _) in BELOW.items() if any(call in turn for turn in self.scenario.turns)
        ]

    @property
    def is_cut(self) -> bool:
        """Whether the clerk had been ended before the crash, and its requests with it."""
        point = "effect.ended" if self.scenario.first_crash else "run.ended"  # both are one commit
        return self.scenario.ends is not None and f"clerk {point}" in self.reached

    @property
    def is_over(self) -> bool:
        """Whether the newer prompt was stored before the crash."""
        return self.scenario.ends == "supersede" and "boss prompt" in self.reached

    def job(
        self, phase: Phase, crash: tuple[str, int] | None = None, *, notes: bool = False
    ) -> dict[str, Any]:
        return {
            "url": self.url,
            "scenario": self.name,
            "thread_id": self.thread_id,
            "effects": str(self.effects),
            "phase": phase,
            "crash": crash,
            "notes": notes,
        }

    def __str__(self) -> str:
        return f"tree, {self.name}: killed at {self.point} ({self.skip + 1})"


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("store", STORES)
async def test_a_process_with_a_tree_may_die_anywhere(
    store: str, name: str, store_urls: StoreUrls, race_track: RaceTrack, tmp_path: Path
) -> None:
    url = store_urls.get(store)
    async with checkpointer_from_url(url) as checkpointer:
        cases = await _cases(name, url, race_track, tmp_path, checkpointer)
        phase = TREES[name].phase
        deaths = await lives(race_track, LIVE, [case.job(phase, (case.point, case.skip)) for case in cases])
        crashed = await _trees(checkpointer, cases)
        for case, death in zip(cases, deaths, strict=True):
            assert death.signal == signal.SIGKILL, f"{case}: not killed, but {death}"
            case.crashed = crashed[case.thread_id]
            case.done_before = entries(case.effects)
        ends = await lives(race_track, LIVE, [case.job("go on") for case in cases])
        final = await _trees(checkpointer, cases)
    row = tally(f"{store}, tree")
    problems = [
        problem
        for case, end in zip(cases, ends, strict=True)
        for problem in _judge(case, end, final[case.thread_id], row)
    ]
    assert not problems, "\n".join(problems)


# The cases.


async def _cases(
    name: str, url: str, track: RaceTrack, folder: Path, checkpointer: Checkpointer
) -> list[Case]:
    """Run a scenario once without a crash; every point that it passes, and that is not tested elsewhere, is a
    case."""
    if is_cold(track, LIVE, url):
        first = Case(next(iter(TREES)), url, f"{folder.name}-warm-up", folder / "warm-up")
        await track.race(LIVE, [], warm_up=first.job("go on", notes=True))
    whole = Case(name, url, f"{folder.name}-whole", folder / "whole")
    await _prepare([whole], track, checkpointer)
    (life,) = await track.race(LIVE, [whole.job(whole.scenario.phase, notes=True)])
    assert life.won, life
    assert life.value["status"] == ("aborted" if whole.scenario.ends == "abort" else "completed"), life
    cases = list(_cases_of(whole, life.value["reached"], folder))
    assert len(cases) >= 4, f"the scenario passes too few points: {life.value['reached']}"
    assert {case.point.split()[0] for case in cases} == {"boss", *whole.below}
    await _prepare(cases, track, checkpointer)
    return cases


def _cases_of(whole: Case, reached: list[str], folder: Path) -> Iterator[Case]:
    """A case for every point within the scenario's span, or within all of it.

    Within a span, the stored state before a commit is the state after the previous one: the two points are one case.
    """
    first, last = whole.scenario.span
    assert {first, last} <= {None, *reached}, f"there are other points by now: {reached}"
    begin = 0 if first is None else reached.index(first)
    end = len(reached) if last is None else reached.index(last) + 1
    seen: Counter[str] = Counter(reached[:begin])
    for place in range(begin, end):
        point, is_before = reached[place], "before:" in reached[place] and "body." not in reached[place]
        is_same = is_before and place > begin and "body." not in reached[place - 1]
        if whole.scenario.span == (None, None) or not is_same:
            so_far, effects = reached[: place + (not is_before)], folder / f"effects-{place}"
            yield Case(
                whole.name, whole.url, f"{whole.thread_id}-{place}", effects, point, seen[point], so_far
            )
        seen[point] += 1


async def _prepare(cases: list[Case], track: RaceTrack, checkpointer: Checkpointer) -> None:
    """Bring each tree to where its scenario begins: with an effect in doubt, waiting for a person, or both."""
    scenario = cases[0].scenario
    if scenario.first_crash is not None:
        jobs = [case.job("go on", (scenario.first_crash, 0)) for case in cases]
        for death in await lives(track, LIVE, jobs):
            assert death.signal == signal.SIGKILL, death
        for tree in (await _trees(checkpointer, cases)).values():
            for thread in tree.values():
                await until_lapsed(checkpointer, thread.thread_id)
    if scenario.ends is not None:
        for outcome in await lives(track, LIVE, [case.job("ask") for case in cases]):
            assert outcome.won, outcome
            assert outcome.value["status"] == "paused", outcome


async def _trees(checkpointer: Checkpointer, cases: list[Case]) -> dict[str, Threads]:
    """The stored threads of each tree, by the boss's thread. A thread that belongs to no call of the boss has only an
    id."""
    trees: dict[str, Threads] = {}
    for case in cases:
        boss = await checkpointer.load(case.thread_id)
        trees[case.thread_id] = {} if boss is None else {"boss": boss}
    for info in await checkpointer.threads(limit=100_000):
        tree = trees.get(info.parent_thread_id or "")
        if tree is not None and info.parent_thread_id and (thread := await checkpointer.load(info.thread_id)):
            boss = tree.get("boss")
            names = {} if boss is None else names_of(info.parent_thread_id, boss.messages)
            tree[names.get(info.thread_id, info.thread_id)] = thread
    return trees


# The checks.


def _judge(case: Case, end: RaceOutcome, final: Threads, row: Tally) -> list[str]:
    """The faults of a tree that was killed and resumed, each as a sentence."""
    row.tried += 1
    status = "aborted" if case.is_cut and not case.is_over else "completed"
    if not end.won or end.value["status"] != status or not {"boss", *case.below} <= final.keys():
        row.lost.append(str(case))
        return [f"{case}: not {status}, but {end}"]
    row.resumed += 1
    broken = list(_broken(case, final))
    lost = list(_lost(case, end, final))
    doubled = list(_doubled(case, final))
    row.broken += broken
    row.lost += lost
    row.doubled += doubled
    return [f"{case}: {problem}" for problem in [*broken, *lost, *doubled]]


def _broken(case: Case, final: Threads) -> Iterator[str]:
    """The faults of the transcripts: each is complete, has only grown, and agrees with the others on how the run
    ended."""
    last_words = {"boss": "done"} | {name: BELOW[name][1] for name in case.below}
    if case.is_cut:
        last_words = {"boss": "well" if case.is_over else "", "clerk": ""}
    if len(final) != len(last_words):
        yield f"there are others: {', '.join(final)}"
    for name, said in last_words.items():
        before = case.crashed[name].messages if name in case.crashed else []
        thread = final[name]
        yield from (f"{name}: {fault}" for fault in faults(thread.messages))
        if thread.messages[: len(before)] != before:
            yield f"the transcript of the {name} changed before its end"
        last = thread.messages[-1]
        if last.role != "assistant" or last.text != said or (last.stop_reason == "aborted") != (said == ""):
            yield f"the last word of the {name} is {last}"
        if thread.effects or thread.lease_owner is not None:
            yield f"something of the {name} is still open: {thread.effects}, {thread.lease_owner}"
    for name in case.below:
        result = _result(final["boss"], BELOW[name][0])
        expected = "unknown" if case.is_cut else BELOW[name][1]
        if result is None or result.is_error != case.is_cut or expected not in result.text:
            yield f"what the {name} did is told as {result}"


_ENDED = {"abort": "aborted", "supersede": "superseded", None: "answered"}


def _lost(case: Case, end: RaceOutcome, final: Threads) -> Iterator[str]:
    """The requests and answers that were lost: each request stays open, each settlement stays, and nobody answers
    twice."""
    before = [known for thread in case.crashed.values() for known in thread.requests.values()]
    after = {name: now for thread in final.values() for name, now in thread.requests.items()}
    yield from _lost_by_crash(case, before)
    for known in before:
        now, is_answered_anew = after.get(known.question_id), known.question_id in end.value["answered"]
        if now is None:
            yield f"{known.question_id} is gone"
            continue
        if attempt_of(now.request) > attempt_of(known.request):
            continue  # in doubt again, which is another request
        if now.request != known.request:
            yield f"{known.question_id} was asked anew"
        if known.status == "pending" and not is_answered_anew:
            yield f"{known.question_id} was not answered"
        elif known.status != "pending" and (now != known or is_answered_anew):
            yield f"{known.question_id} was {known.status}, and then {now}"
    for now in after.values():
        if now.status not in ("answered", _ENDED[case.scenario.ends]):
            yield f"{now.question_id} is {now.status}"


def _lost_by_crash(case: Case, before: list[StoredRequest]) -> Iterator[str]:
    """What is not stored right after the crash although it was committed before."""
    scenario = case.scenario
    earlier = 1 if scenario.first_crash else 0  # the approval that the first life was given
    if (earlier or scenario.ends or "clerk request.opened" in case.reached) and not before:
        yield "the request is gone"
    settled, begun = (
        sum(point.endswith(f" {which}request.settled") for point in case.reached) for which in ("", "before:")
    )
    answers = sum(known.status == "answered" for known in before) - earlier
    if (
        not settled <= answers <= begun
    ):  # a waiting process may get an answer before the crash point after its commit
        yield f"{settled} answers were committed and {answers} are stored"
    ended = sum(known.status == _ENDED[scenario.ends] for known in before) if scenario.ends else 0
    if ended != case.is_cut:
        yield f"{int(case.is_cut)} requests were ended, and {ended} are stored so"


def _doubled(case: Case, final: Threads) -> Iterator[str]:
    """The wrong effects: exactly one if nothing was in doubt, else as many as the person allows."""
    done = entries(case.effects)
    for owner, call in ACTS.items():
        if owner not in final:
            continue
        name, args = call
        times = [entry for entry in done if entry["tool"] == name]
        expected = _expected_times(case, owner, call)
        if len(times) != expected:
            yield f"{name} took effect {len(times)} times, not {expected}"
        if len({entry["key"] for entry in times}) > 1:
            yield f"{name} was repeated with another key"
        if len({entry["attempt"] for entry in times}) != len(times):
            yield f"{name} was repeated as the same attempt"
        if any(entry["n"] != args["amount"] for entry in times):
            yield f"{name} ran with other arguments than were shown"
        result = _result(final[owner], call)
        if result is not None and not result.is_error and not times:
            yield f"{name} has a result and took no effect"
        asked = any(it.request.payload.kind == "escalate" for it in final[owner].requests.values())
        if asked and not _is_in_doubt(case, owner, call) and not case.scenario.first_crash:
            yield f"a person was asked about {name}, which was not in doubt"


def _expected_times(case: Case, owner: str, call: Call) -> int:
    before = sum(entry["tool"] == call[0] for entry in case.done_before)
    if _is_in_doubt(case, owner, call):
        return before + (case.scenario.doubt == "retry" and not case.is_cut)
    if case.is_cut or (owner in case.crashed and _result(case.crashed[owner], call) is not None):
        return before
    return 1 if owner in case.below or any(call in turn for turn in case.scenario.turns) else 0


def _is_in_doubt(case: Case, owner: str, call: Call) -> bool:
    crashed = case.crashed.get(owner)
    return crashed is not None and any(it.tool_name == call[0] for it in crashed.effects.values())


def _result(thread: StoredThread, call: Call) -> ToolResultMessage | None:
    """The result of a call; a sound transcript has exactly one."""
    of_tools = [message for message in thread.messages if isinstance(message, ToolResultMessage)]
    return next((message for message in of_tools if message.tool_name == call[0]), None)
