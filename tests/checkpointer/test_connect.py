"""From a URL to a checkpointer."""

from __future__ import annotations

from pathlib import Path

import pytest

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.mysql import MySQLCheckpointer
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import StoreError


@pytest.mark.parametrize(
    ("url", "kind", "shown"),
    [
        ("sqlite://", MemoryCheckpointer, "MemoryCheckpointer()"),
        ("sqlite:///:memory:", MemoryCheckpointer, "MemoryCheckpointer()"),
        ("sqlite:///threads.db", SQLiteCheckpointer, "SQLiteCheckpointer('threads.db')"),
        ("sqlite:////var/threads.db", SQLiteCheckpointer, "SQLiteCheckpointer('/var/threads.db')"),
        ("postgresql://me:pw@db:5432/x", PostgresCheckpointer, "PostgresCheckpointer('db:5432/x')"),
        ("postgres://db/x", PostgresCheckpointer, "PostgresCheckpointer"),
        ("postgresql+asyncpg://me@db/x", PostgresCheckpointer, "PostgresCheckpointer('db/x')"),
        ("mysql://me:pw@db/x", MySQLCheckpointer, "MySQLCheckpointer('db/x')"),
        ("mariadb+asyncmy://me@db/x", MySQLCheckpointer, "MySQLCheckpointer('db/x')"),
    ],
)
def test_the_scheme_says_which(url: str, kind: type, shown: str) -> None:
    checkpointer = checkpointer_from_url(url, owner="me")
    assert type(checkpointer) is kind
    assert repr(checkpointer).startswith(shown)
    assert "pw" not in repr(checkpointer)
    assert checkpointer.owner == "me"


@pytest.mark.parametrize("url", ["threads.db", "oracle://me:pw@db/x", "sqlite://threads.db", ""])
def test_any_other_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        checkpointer_from_url(url)
    assert "pw" not in str(caught.value)


@pytest.mark.anyio
async def test_it_opens(tmp_path: Path) -> None:
    async with checkpointer_from_url(f"sqlite:///{tmp_path / 'threads.db'}") as checkpointer:
        assert await checkpointer.load("thread") is None
    assert (tmp_path / "threads.db").exists()
