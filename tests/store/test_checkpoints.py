"""Checkpoints under trouble: many tasks at once, callers that are cancelled, connections lost, and costs."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import Any

import pytest
from kit.lost_commits import break_once
from kit.stores import SERVERS, Database

from askfirst.checkpointer.base import StoredCheckpoint
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import CheckpointNotPendingError
from askfirst.hitl.testing import FakeClock
from askfirst.store import checkpoints, sqlite_engine
from askfirst.store.rows import CheckpointRow, Holding
from askfirst.store.sqlite_engine import migrate

pytestmark = pytest.mark.anyio
BODY = {"pending": ["call-1"]}
TTL: dict[str, Any] = {"ttl_seconds": 60}


def test_no_list_walks_through_what_is_resolved_or_of_others() -> None:
    """SQLite's own word that a list costs what it returns, however many others there are."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    for name, index in (("AGENT", "of_agent (agent_id=?"), ("THREAD", "of_thread (thread_id=?")):
        for statement in (f"OF_{name}", f"OF_{name}_IN_STATE"):
            sql = getattr(checkpoints, statement).form(sqlite_engine._DIALECT).sql
            steps = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?")).fetchall()
            plan = [step[3] for step in steps if "askfirst_checkpoints" in step[3]]
            ranges = [step for step in plan if f"{index} AND state=? AND created_at>?)" in step]
            assert len(ranges) == (1 if statement.endswith("STATE") else 3), (statement, plan)
            assert ranges == plan, (statement, plan)
    connection.close()


async def test_twenty_tasks_claim_and_one_of_them_wins(checkpointer: SqlCheckpointer) -> None:
    for number in range(5):
        await checkpointer.save_checkpoint(f"c{number}", "agent", BODY)
        results = await asyncio.gather(
            *(checkpointer.claim_checkpoint(f"c{number}", "agent", by=f"w{n}", **TTL) for n in range(20)),
            return_exceptions=True,
        )
        (winner,) = [result for result in results if isinstance(result, StoredCheckpoint)]
        losers = [result for result in results if isinstance(result, CheckpointNotPendingError)]
        assert [loser.claimed_by for loser in losers] == [winner.claimed_by] * 19


async def test_twenty_tasks_save_one_new_checkpoint(checkpointer: SqlCheckpointer) -> None:
    await asyncio.gather(*(checkpointer.save_checkpoint("c", "agent", {"n": n}) for n in range(20)))
    (saved,) = await checkpointer.list_checkpoints("agent")
    assert saved.body["n"] in range(20)


async def test_a_cancelled_claim_happened_or_did_not(checkpointer: SqlCheckpointer) -> None:
    for number in range(12):
        name = f"c{number}"
        await checkpointer.save_checkpoint(name, "agent", BODY)
        claiming = asyncio.create_task(checkpointer.claim_checkpoint(name, "agent", by="ann", **TTL))
        for _ in range(number % 6):
            await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.wait([claiming])
        found = await checkpointer.get_checkpoint(name, "agent")
        assert found is not None
        before = (found.state, found.claimed_by)
        assert before in (("pending", None), ("resolving", "ann"))
        with suppress(CheckpointNotPendingError):
            await checkpointer.claim_checkpoint(name, "agent", by="bob", **TTL)
        found = await checkpointer.get_checkpoint(name, "agent")
        assert found is not None
        assert found.claimed_by == (before[1] or "bob"), "it landed afterwards"


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_connection_lost_during_commit_neither_loses_nor_doubles_a_claim(
    database: Database, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as keeper:

        def lose() -> None:
            break_once(monkeypatch, database.kind, committed=committed)

        lose()
        await keeper.save_checkpoint("c", "agent", {})
        lose()
        await keeper.save_checkpoint("c", "agent", BODY)
        lose()
        claimed = await keeper.claim_checkpoint("c", "agent", by="ann", **TTL)
        assert (claimed.claimed_by, claimed.retaken, claimed.body) == ("ann", False, BODY)
        lose()
        await keeper.renew_checkpoint("c", "agent", by="ann", **TTL)
        lose()
        await keeper.release_checkpoint("c", "agent", by="ann")
        await keeper.claim_checkpoint("c", "agent", by="ann", **TTL)
        await clock.advance(60)
        lose()
        retaken = await keeper.claim_checkpoint("c", "agent", by="bob", **TTL)
        assert (retaken.claimed_by, retaken.retaken) == ("bob", True)
        lose()
        await keeper.resolve_checkpoint("c", "agent", by="bob")
        (resolved,) = await keeper.list_checkpoints("agent", state="resolved")
        assert resolved.claimed_by == "bob"
        lose()
        await keeper.delete_checkpoint("c", "agent")
        assert await keeper.list_checkpoints("agent") == []


# Transactions by hand: on a server, somebody else may be faster between any two statements.

ROW = CheckpointRow("c", "agent", None, "{}", "pending", None, None, 0, 1, 1, write_id=11)
ANN = Holding("c", "agent", None, by="ann", now=5, write_id=12, until=65)


def test_a_claim_that_is_overtaken_looks_again_and_loses() -> None:
    claiming = checkpoints.claim(ANN)
    assert next(claiming)[0] is checkpoints.CHECKPOINT
    statement, params = claiming.send([ROW])
    assert statement is checkpoints.MOVE
    assert (params["seen"], params["write_id"], params["claimed_by"]) == (11, 12, "ann")  # type: ignore[call-overload]
    assert claiming.send(0)[0] is checkpoints.CHECKPOINT
    with pytest.raises(CheckpointNotPendingError) as failed:
        claiming.send([ROW._replace(state="resolving", claimed_by="bob", claimed_until=70, write_id=13)])
    assert (failed.value.claimed_by, failed.value.claimed_until) == ("bob", 0.07)


def test_a_claim_that_is_overtaken_by_a_new_body_gets_the_new_body() -> None:
    claiming = checkpoints.claim(ANN)
    next(claiming)
    claiming.send([ROW])
    claiming.send(0)
    assert claiming.send([ROW._replace(body='{"new":1}', write_id=13)])[1]["seen"] == 13  # type: ignore[call-overload]
    with pytest.raises(StopIteration) as stop:
        claiming.send(1)
    assert (stop.value.value.body, stop.value.value.claimed_by) == ('{"new":1}', "ann")


def test_a_save_and_a_removal_that_are_overtaken_look_again() -> None:
    taken = ROW._replace(state="resolving", claimed_by="bob", claimed_until=70, write_id=13)
    for transaction in (checkpoints.save(ROW._replace(write_id=12)), checkpoints.remove("c", "agent", 5)):
        next(transaction)
        transaction.send([ROW])
        assert transaction.send(0)[0] is checkpoints.CHECKPOINT
        with pytest.raises(CheckpointNotPendingError):
            transaction.send([taken])
