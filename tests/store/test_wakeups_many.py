"""Many who wait in one process on SQLite: one statement looks after all of them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import ExitStack
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.stores import Database, approval, asked, confirmation

from askfirst.store import requests, sqlite_engine
from askfirst.store.sqlite_engine import migrate
from askfirst.store.wakeups import Key

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]
YES = {"decision": "approve"}
ODD = ["t", "a \"b\" 'c'", "back\\slash", "[1, 2]", "é", "е\u0301", "🙂", "%_", " x", "\t\n"]


def test_it_is_a_lookup_for_each_however_many_are_open(database: Database) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    sql, arguments, _ = requests.LISTED_STILL_OPEN.form(sqlite_engine._DIALECT)
    steps = connection.execute(f"EXPLAIN QUERY PLAN {sql}", arguments({"keys": "[]"})).fetchall()
    connection.close()
    plan = [str(step[3]) for step in steps]
    assert len(plan) == 2, plan
    assert plan[0].startswith("SCAN k "), plan
    assert plan[1].startswith("SEARCH r "), plan
    assert plan[1].endswith("(thread_id=? AND question_id=?)"), plan


async def test_it_finds_what_a_lookup_of_each_finds(database: Database) -> None:
    async with database.checkpointer() as checkpointer:
        for thread_id in ODD:
            await asked(checkpointer, thread_id, approval(), confirmation("other"), confirmation(thread_id))
        for thread_id in ODD[::2]:
            await checkpointer.settle(thread_id, "call-1", YES)
        for thread_id in ODD[::4]:
            await checkpointer.save_pending_request(thread_id, approval(created_at=1_700_000_001.0))
        keys = [(it, question) for it in [*ODD, "unknown"] for question in ("call-1", "other", it)]
        read = checkpointer._store.engine.read
        listed = await read(lambda: requests.listed_still_open(keys))
        assert listed == await read(lambda: requests.still_open(keys))
        rounds = [listed.get((it, "call-1")) for it in ODD]
        assert rounds == [{0: 2, 2: None}.get(number % 4, 1) for number in range(len(ODD))]
        assert all(listed[it, "other"] == listed[it, it] == 1 for it in ODD)


async def test_a_write_elsewhere_costs_one_statement_not_one_for_every_fifty(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_engine, "PROBE_SECONDS", 0.0)
    looked: list[int] = []

    async def counted(keys: list[Key]) -> dict[Key, int]:
        looked.append(len(keys))
        return await still_open(keys)

    async with database.checkpointer() as here, database.checkpointer() as there, asyncio.timeout(PATIENCE):
        await asked(here)
        engine: Any = here._store.engine
        still_open = engine._still_open
        monkeypatch.setattr(engine, "_still_open", counted)
        with ExitStack() as others:
            for number in range(1000):
                others.enter_context(here._store.hub.waiting((f"other{number}", "q")))
            waiter = asyncio.create_task(here.settled("t", "call-1"))
            await there.settle("t", "call-1", YES)
            assert (await waiter).status == "answered"
    assert max(looked) == 1001
    assert not [count for count in looked if count < 1000]
