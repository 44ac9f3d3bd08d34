"""What is kept of a framework's run: appended, read by any process, and not by a writer who has not seen all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from askfirst import SQLiteCheckpointer
from askfirst.adapters import kept_state
from askfirst.adapters.kept_state import KeptRun, kept_resumer
from askfirst.errors import HitlInvalidRequest, ResumeFailed
from askfirst.workers.continuations import Continuation

pytestmark = pytest.mark.anyio


async def test_a_state_is_what_all_changes_say(tmp_path: Path) -> None:
    states: list[dict[str, Any]] = [
        {"messages": ["a"], "usage": {"in": 1}, "old": 1},
        {"messages": ["a", "b", {"c": "\x00"}], "usage": {"in": 2}},
        {"messages": ["a", "x"], "usage": {"in": 2}, "new": None},
        {"messages": "none", "usage": {"in": 2}, "new": None},
        {"messages": ["again"]},
        {},
    ]
    async with SQLiteCheckpointer(tmp_path / "a.db") as store:
        known = await kept_state.load(store, "test", "r1")
        assert known.state is None
        for state in states:
            written = await kept_state.keep(store, known, state)
            assert written is not None
            known = written
            assert await kept_state.load(store, "test", "r1") == known
        stored = await store.load("kept:test:r1")
        assert stored is not None
        assert len(stored.messages) == len(states)
        assert not stored.is_leased


async def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "a.db") as store:
        known = await kept_state.load(store, "test", "r1")
        long = ["x" * 1000] * 50
        known = await kept_state.keep(store, known, {"messages": long})
        assert known is not None
        known = await kept_state.keep(store, known, {"messages": [*long, "y"]})
        assert known is not None
        assert await kept_state.keep(store, known, {"messages": [*long, "y"]}) is known
        stored = await store.load("kept:test:r1")
        assert stored is not None
        assert [message.text for message in stored.messages][1:] == ['{"grown":{"messages":[50,["y"]]}}']


async def test_a_writer_who_has_not_seen_what_another_wrote_writes_nothing(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "a.db") as store:
        empty = await kept_state.load(store, "test", "r1")
        assert await kept_state.keep(store, empty, {"by": "first"}) is not None
        assert await kept_state.keep(store, empty, {"by": "second"}) is None
        assert (await kept_state.load(store, "test", "r1")).state == {"by": "first"}


async def test_a_state_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "a.db") as store:
        empty = await kept_state.load(store, "test", "r1")
        with pytest.raises(HitlInvalidRequest, match="nobody was asked"):
            await kept_state.keep(store, empty, {"text": "x" * kept_state.MOST_BYTES})
        assert await store.load("kept:test:r1") is None


def test_every_run_has_a_thread() -> None:
    names = ["r1", "r" * 300, "é", "r1 "]
    threads = {kept_state.kept_thread("test", name) for name in names}
    assert len(threads) == len(names)
    assert all(len(it) <= 210 and it.isascii() for it in threads)


async def test_a_run_that_another_process_went_on_with_keeps_nothing_more(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "a.db") as store:
        mine, theirs = (KeptRun(store, "framework", "r1") for _ in range(2))
        assert await mine.load() is None
        assert await theirs.load() is None
        assert await mine.keep({"turns": [1]})
        assert not await theirs.keep({"turns": [9]})
        assert not await theirs.keep({"turns": [1, 9]})
        assert await theirs.load() == {"turns": [1]}
        assert await theirs.keep({"turns": [1, 2]})
        assert await KeptRun(store, "framework", "r1").state() == {"turns": [1, 2]}


async def test_a_resumer_says_so_where_nothing_is_kept(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "a.db") as store:
        gone: list[str] = []

        async def go_on(run: KeptRun) -> None:
            gone.append(run.run)

        resume = kept_resumer("framework", go_on)
        due = Continuation("r1", "framework", "running", 1, None, None, 0.0, 0.0)
        with pytest.raises(ResumeFailed, match="has no checkpointer"):
            await resume(due)
        with pytest.raises(ResumeFailed, match="the store has no state of the run 'r1'"):
            await resume(replace(due, checkpointer=store))
        await KeptRun(store, "framework", "r1").keep({"turns": []})
        await resume(replace(due, checkpointer=store))
        assert gone == ["r1"]
