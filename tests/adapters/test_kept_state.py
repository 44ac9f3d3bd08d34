"""What is kept of a framework's run: appended, read by any process, and not by a writer who has not seen all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from askfirst import SQLiteCheckpointer
from askfirst.adapters import kept_state
from askfirst.errors import HitlInvalidRequest

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
