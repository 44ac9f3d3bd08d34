"""Answered means going on: workers are killed at every point between an answer and the run's end, and others take
over."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kit.crash_table import tally
from kit.lives_workers import agent_of, work
from kit.store_urls import STORES, StoreUrls
from kit.warm_tracks import is_cold

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.hitl.testing import RaceTrack
from askfirst.workers import Continuations

pytestmark = pytest.mark.anyio

WORK = f"{work.__module__}:{work.__name__}"
_WHOLE_TRIES = 10


async def _answered(store: SqlCheckpointer, thread_id: str, effects: Path) -> None:
    """A thread that paused for a person, who has approved since."""
    paused = await agent_of(thread_id, store, effects / thread_id, 0).prompt("Pay.")
    assert paused.status == "paused"
    await store.settle(thread_id, "c1", {"decision": "approve"})


def _job(url: str, effects: Path, threads: list[str], crash: tuple[str, int] | None) -> dict[str, Any]:
    return {"url": url, "effects": str(effects), "threads": threads, "crash": crash, "doubt": "skip"}


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("store", STORES)
async def test_a_worker_may_die_anywhere(
    store: str, workers: int, store_urls: StoreUrls, race_track: RaceTrack, tmp_path: Path
) -> None:
    url, slug = store_urls.get(store), f"{tmp_path.name}-{workers}"
    async with checkpointer_from_url(url) as checkpointer:
        if is_cold(race_track, WORK, url):
            await _answered(checkpointer, f"{slug}-warm", tmp_path)
            await race_track.race(WORK, [], warm_up=_job(url, tmp_path, [f"{slug}-warm"], None))
        for number in range(
            _WHOLE_TRIES
        ):  # on a busy machine a lease may lapse, and then the thread is resumed twice
            name = f"{slug}-whole-{number}"
            await _answered(checkpointer, name, tmp_path)
            (whole,) = await race_track.race(WORK, [_job(url, tmp_path, [name], None)])
            assert whole.won, whole
            if whole.value["reached"].count("resume.before") == 1:
                break
        else:
            raise AssertionError("no worker went on with a thread in one resume")
        points: list[tuple[str, int]] = []
        seen: Counter[str] = Counter()
        for point in whole.value["reached"]:
            points.append((point, seen[point]))
            seen[point] += 1
        assert len(points) >= 8, points
        row = tally(store)
        for number, point in enumerate(points):
            thread_id = f"{slug}-{number}"
            await _answered(checkpointer, thread_id, tmp_path)
            (death,) = await race_track.race(WORK, [_job(url, tmp_path, [thread_id], point)])
            assert death.signal == signal.SIGKILL, f"{point}: not killed, but {death}"
        threads = [f"{slug}-{number}" for number in range(len(points))]
        ends = await race_track.race(WORK, [_job(url, tmp_path, threads, None)] * workers)
        assert all(end.won for end in ends), ends
        known = Continuations(checkpointer)
        for point, thread_id in zip(points, threads, strict=True):
            row.tried += 1
            row.resumed += 1
            effects = tmp_path / thread_id
            done = effects.read_text().split() if effects.exists() else []
            assert len(done) <= 1, f"{point}: {done}"
            stored = await checkpointer.load(thread_id)
            assert stored is not None
            assert stored.messages[-1].text == "Done.", f"{point}: {stored.messages[-1]}"
            if point[0] not in (
                "body.before",
                "effect.started",
            ):  # otherwise a person chose to skip the call in doubt
                assert done == ["5"], f"{point}: {done}"
            continuation = await known.of(thread_id)
            assert continuation is not None
            assert continuation.state == "done"
