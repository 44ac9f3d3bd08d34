"""API keys: shown once, kept as hashes, revoked for good."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from kit.lost_commits import break_once
from kit.stores import SERVERS, SHARED, Database

from askfirst.account import os_account
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import StoreError
from askfirst.hitl.testing import FakeClock
from askfirst.service.audit import export, verify
from askfirst.service.keys import Keys

pytestmark = pytest.mark.anyio


async def acts(checkpointer: SqlCheckpointer) -> list[tuple[str, str, str, Any]]:
    rows = [json.loads(line) async for line in export(checkpointer.engine)]
    return [(row["act"], row["subject"], row["actor"], row["detail"]) for row in rows]


async def found(keys: Keys, text: str) -> str | None:
    key = await keys.find(text)
    return None if key is None else key.key_id


async def test_a_key_is_issued_found_and_revoked(checkpointer: SqlCheckpointer) -> None:
    clock = FakeClock()
    keys = Keys(checkpointer.engine, clock=clock)
    key_id, text = await keys.issue("billing \0 ünit", by="cli")
    assert re.fullmatch(r"askfirst_[A-Za-z0-9_-]{43}", text)
    assert await found(keys, text) == key_id
    assert await found(keys, "askfirst_" + "x" * 43) is None
    await clock.advance(5)
    assert await keys.revoke(key_id, by="cli")
    assert await found(keys, text) is None
    assert not await keys.revoke(key_id, by="cli")
    assert not await keys.revoke("key_unknown", by="cli")
    (listed,) = await keys.listing()
    assert (listed.key_id, listed.name) == (key_id, "billing \0 ünit")
    assert (listed.created_at, listed.revoked_at) == (1_700_000_000.0, 1_700_000_005.0)
    assert await acts(checkpointer) == [
        ("key.created", key_id, os_account(), {"name": "billing \0 ünit", "claimed": "cli"}),
        ("key.revoked", key_id, os_account(), {"claimed": "cli"}),
    ]
    assert (await verify(checkpointer.engine)).is_whole


async def test_keys_are_listed_oldest_first_and_names_may_repeat(checkpointer: SqlCheckpointer) -> None:
    clock = FakeClock()
    keys = Keys(checkpointer.engine, clock=clock)
    issued = []
    for name in ("b", "a", "b"):
        issued.append((await keys.issue(name, by="cli")).key_id)
        await clock.advance(1)
    assert [key.key_id for key in await keys.listing()] == issued


async def test_one_of_many_who_revoke_a_key_does(checkpointer: SqlCheckpointer) -> None:
    keys = Keys(checkpointer.engine)
    key_id, _ = await keys.issue("a", by="cli")
    revoked = await asyncio.gather(*(keys.revoke(key_id, by=str(n)) for n in range(10)))
    assert sorted(revoked) == [False] * 9 + [True]
    assert len(await acts(checkpointer)) == 2


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_revoked_key_ends_at_once_in_every_process(database: Database) -> None:
    async with database.checkpointer() as one, database.checkpointer() as other:
        here, there = Keys(one.engine), Keys(other.engine)
        key_id, text = await here.issue("a", by="cli")
        for keys in (here, there, here, there):
            assert await found(keys, text) == key_id
        await here.revoke(key_id, by="cli")
        for keys in (there, here):
            assert await found(keys, text) is None


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_connection_lost_during_commit_makes_and_ends_one_key(
    checkpointer: SqlCheckpointer, committed: bool, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Keys(checkpointer.engine)
    break_once(monkeypatch, database.kind, committed=committed)
    key_id, text = await keys.issue("a", by="cli")
    assert await found(keys, text) == key_id
    break_once(monkeypatch, database.kind, committed=committed)
    assert await keys.revoke(key_id, by="cli")
    assert [act for act, *_ in await acts(checkpointer)] == ["key.created", "key.revoked"]


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "\ud800"])
async def test_a_key_needs_a_proper_name(checkpointer: SqlCheckpointer, name: str) -> None:
    with pytest.raises(StoreError, match="a key's name"):
        await Keys(checkpointer.engine).issue(name, by="cli")
    assert await acts(checkpointer) == []


# The text of a key.


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    async with SQLiteCheckpointer(tmp_path / "keys.db") as checkpointer:
        yield checkpointer


async def test_the_text_is_nowhere_but_in_what_was_returned(store: SqlCheckpointer, tmp_path: Path) -> None:
    keys = Keys(store.engine)
    issued = await keys.issue("a", by="cli")
    assert await found(keys, issued.text) == issued.key_id
    assert issued.text not in repr(issued)
    assert issued.text not in repr(vars(keys))
    connection = sqlite3.connect(tmp_path / "keys.db")
    assert issued.text not in "\n".join(connection.iterdump())
    connection.close()


async def test_what_has_not_the_shape_of_a_key_is_not_looked_for(
    store: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, reads = Keys(store.engine), []
    text = (await keys.issue("a", by="cli")).text
    read = store.engine.read
    monkeypatch.setattr(store.engine, "read", lambda work: (reads.append(work), read(work))[1])
    assert await found(keys, text) is not None
    assert len(reads) == 1
    for wrong in ("", "askfirst_", "askfirst_short", "x" * 50, "askfirst_" + "é" * 43, text + "x", "\ud800"):
        assert await found(keys, wrong) is None
    assert len(reads) == 1
