"""Expiring what is overdue while others do the same: nothing overdue is left when it returns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.stores import SHARED, Database, confirmation

from askfirst.checkpointer import sql
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.requests import HitlRequest
from askfirst.store import requests
from askfirst.store.rows import Expired

pytestmark = pytest.mark.anyio


def overdue() -> HitlRequest:
    return confirmation("q").model_copy(update={"timeout_seconds": 1.0})


async def all_overdue(checkpointer: SqlCheckpointer, count: int) -> None:
    for number in range(count):
        await checkpointer.save_pending_request(f"t{number:02}", overdue())


async def test_a_batch_that_others_were_first_to_settle_is_not_the_last(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, or in part."""
    monkeypatch.setattr(sql, "_EXPIRED_AT_ONCE", 4)
    await all_overdue(checkpointer, 12)
    won = [0, 1, 4]
    expire_due = requests.expire_due

    def outrun(now: int, limit: int, write_id: int) -> Any:
        """Others settle all of the batch but the first few, after it was found."""
        found = yield requests.DUE, {"now": now, "limit": limit}
        mine = won.pop(0) if won else limit
        for row in found[mine:]:
            theirs = {"thread_id": row[0], "question_id": row[1], "round": row[2], "now": now}
            ended = {"answer": None, "reason": None, "answered_by": None, "via": None, "write_id": 7}
            yield requests.SETTLE, {**theirs, **ended, "status": "timed_out"}
        expired = yield from expire_due(now, mine, write_id) if mine else _nothing()
        return Expired(len(found), expired.rows)

    monkeypatch.setattr(requests, "expire_due", outrun)
    assert len(await checkpointer.expire_due()) == 5
    assert await checkpointer.pending() == []


def _nothing() -> Any:
    yield requests.OPEN_IDS, {"thread_id": "none"}
    return Expired(0, [])


async def test_no_more_are_settled_than_were_asked_for(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "_EXPIRED_AT_ONCE", 4)
    await all_overdue(checkpointer, 9)
    assert len(await checkpointer.expire_due(limit=6)) == 6
    assert len(await checkpointer.pending()) == 3
    assert len(await checkpointer.expire_due(limit=6)) == 3


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_two_at_once_leave_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_EXPIRED_AT_ONCE", 10)
    async with database.checkpointer() as here, database.checkpointer() as there:
        for _ in range(4):
            await all_overdue(here, 35)
            some, rest = await asyncio.gather(here.expire_due(limit=10), there.expire_due())
            assert await here.pending() == []
            assert len(some) + len(rest) == 35
