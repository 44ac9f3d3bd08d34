"""What an open store does not survive, and says so: its file taken away, and a fork."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.stores import Database, approval, confirmation, connect

from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import StoreError


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    copy.replace(path)


@pytest.mark.anyio
@pytest.mark.parametrize("lose", [removed, replaced])
async def test_a_file_that_is_removed_or_replaced_is_not_written_to(
    lose: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "threads.db"
    async with SQLiteCheckpointer(path) as checkpointer:
        await checkpointer.save_pending_request("one", confirmation("q"))
        lose(path)
        for number in range(3):  # some of them together
            tried = [
                checkpointer.save_pending_request(f"t{number}-{it}", confirmation("q")) for it in range(3)
            ]
            for failure in await asyncio.gather(*tried, return_exceptions=True):
                assert isinstance(failure, StoreError)
                assert "was removed or replaced while it was open" in str(failure)
    async with SQLiteCheckpointer(path) as checkpointer:
        await checkpointer.save_pending_request("two", confirmation("q"))
        assert "two" in [it.thread_id for it in await checkpointer.pending()]


@pytest.mark.anyio
async def test_a_file_is_the_same_from_another_folder_and_by_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "threads.db")
    monkeypatch.chdir(tmp_path)
    for name in ("threads.db", "link.db"):
        async with SQLiteCheckpointer(name) as checkpointer:
            monkeypatch.chdir(tmp_path / "elsewhere")
            await checkpointer.save_pending_request(name, confirmation("q"))
            monkeypatch.chdir(tmp_path)
    async with SQLiteCheckpointer(tmp_path / "threads.db") as checkpointer:
        assert sorted(it.thread_id for it in await checkpointer.pending()) == ["link.db", "threads.db"]


@pytest.mark.anyio
async def test_memory_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with MemoryCheckpointer() as checkpointer:
        await checkpointer.save_pending_request("t", confirmation("q"))
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(StoreError, match="empty"):
        SQLiteCheckpointer("")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_store_is_of_no_use_in_a_forked_process(database: Database) -> None:
    """It says so, instead of waiting for threads and connections that are the parent's; the parent goes on."""
    loop = asyncio.new_event_loop()
    checkpointer = connect(database.kind, database.address)
    loop.run_until_complete(checkpointer.__aenter__())
    try:
        loop.run_until_complete(checkpointer.save_pending_request("t", approval()))
        told, telling = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # should it wait for what never comes
            try:
                os.write(telling, _said_of(loop, checkpointer).encode())
            finally:
                os._exit(0)
        os.close(telling)
        os.waitpid(child, 0)
        with os.fdopen(told) as lines:
            said = lines.read().splitlines()
        assert len(said) == 4
        assert all("opened before the process was forked" in it for it in said), said
        settled = loop.run_until_complete(checkpointer.settle("t", "call-1", {"decision": "approve"}))
        assert settled.status == "answered"
    finally:
        loop.run_until_complete(checkpointer.__aexit__(None, None, None))
        loop.close()


def _said_of(loop: asyncio.AbstractEventLoop, checkpointer: Any) -> str:
    """What becomes of a checkpointer's methods, a line each."""
    said: list[str] = []
    for work in (
        lambda: checkpointer.settle("t", "call-1", {"decision": "approve"}),
        lambda: checkpointer.load("t"),
        lambda: checkpointer.settled("t", "call-1"),
        lambda: checkpointer.__aexit__(None, None, None),
    ):
        try:
            said.append(repr(loop.run_until_complete(work())))
        except StoreError as error:
            said.append(str(error))
    return "\n".join(said)
