"""Grants on every store: kept by session and key, found until they expire, gone once revoked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.lost_commits import break_once
from kit.stores import SERVERS, SHARED, Database

from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import StoreError
from askfirst.store import grants

pytestmark = pytest.mark.anyio
LONG = "ann:mail:send:" + "f" * 5000
ALLOW: dict[str, Any] = {"allowed": True, "by": "ann 🙂 \0"}
ALWAYS: dict[str, Any] = {"created_at": 1, "expires_at": None}


async def test_what_is_granted_is_found(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.save_grant("s", LONG, ALLOW, created_at=10, expires_at=20)
    await checkpointer.save_grant("s", "short", {"n": 2}, created_at=5, expires_at=None)
    await checkpointer.save_grant("other", "short", {"n": 3}, **ALWAYS)
    keys = ["none", "short", LONG, "short"]
    assert await checkpointer.find_grants("s", keys, 19) == [("short", {"n": 2}), (LONG, ALLOW)]
    assert await checkpointer.find_grants("s", keys, 20) == [("short", {"n": 2})]
    assert await checkpointer.list_grants("s", 19) == [("short", {"n": 2}), (LONG, ALLOW)]
    assert await checkpointer.list_grants("s", 20) == [("short", {"n": 2})]
    assert await checkpointer.find_grants("nobody", keys, 0) == []
    assert await checkpointer.find_grants("s", [], 0) == []


async def test_a_grant_of_the_same_key_takes_its_place(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.save_grant("s", LONG, ALLOW, created_at=1, expires_at=2)
    await checkpointer.save_grant("s", LONG, {"n": 2}, created_at=3, expires_at=None)
    assert await checkpointer.list_grants("s", 100) == [(LONG, {"n": 2})]


@pytest.mark.parametrize(
    "pair", [("a", "A"), ("a", "a "), ("é", "e\u0301"), ("", " "), (LONG, LONG + "f"), ("\0", "")]
)
async def test_keys_are_told_apart_by_every_character(
    checkpointer: SqlCheckpointer, pair: tuple[str, str]
) -> None:
    for key in pair:
        await checkpointer.save_grant("s", key, {"key": len(key)}, **ALWAYS)
    assert await checkpointer.find_grants("s", pair, 1) == [(key, {"key": len(key)}) for key in pair]


async def test_a_revoked_grant_counts_no_more(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.save_grant("s", "k", ALLOW, **ALWAYS)
    assert await checkpointer.delete_grant("other", "k") is False
    assert await checkpointer.delete_grant("s", "k") is True
    assert await checkpointer.find_grants("s", ["k"], 1) == []
    assert await checkpointer.delete_grant("s", "k") is False


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_grants_are_seen_by_every_process_and_survive(database: Database) -> None:
    async with database.checkpointer() as here, database.checkpointer() as there:
        await here.save_grant("s", "k", ALLOW, **ALWAYS)
        assert await there.find_grants("s", ["k"], 1) == [("k", ALLOW)]
        assert await there.delete_grant("s", "k")
        assert await here.find_grants("s", ["k"], 1) == []
        await there.save_grant("s", "kept", ALLOW, **ALWAYS)
    async with database.checkpointer() as later:
        assert await later.list_grants("s", 1) == [("kept", ALLOW)]


@pytest.mark.parametrize("count", [1, 49, 50, 51, 120])
async def test_many_keys_are_looked_up_at_once(checkpointer: SqlCheckpointer, count: int) -> None:
    keys = [f"k{number}" for number in range(count)]
    for number in range(0, count, 3):
        await checkpointer.save_grant("s", keys[number], {"n": number}, **ALWAYS)
    found = await checkpointer.find_grants("s", keys[::-1], 1)
    assert found == [(keys[n], {"n": n}) for n in reversed(range(0, count, 3))]


@pytest.mark.parametrize(("count", "statements"), [(0, 0), (1, 1), (50, 1), (51, 2)])
def test_fifty_keys_take_one_statement(count: int, statements: int) -> None:
    finding, seen = grants.find_grants("s", [str(n) for n in range(count)], 1), 0
    with suppress(StopIteration):
        next(finding)
        while True:
            seen += 1
            finding.send([])
    assert seen == statements


async def test_what_has_expired_is_removed_when_the_session_gets_a_new_grant(
    checkpointer: SqlCheckpointer,
) -> None:
    for session in ("s", "other"):
        await checkpointer.save_grant(session, "old", ALLOW, created_at=1, expires_at=10)
    await checkpointer.save_grant("s", "valid", ALLOW, created_at=2, expires_at=11)
    await checkpointer.save_grant("s", "new", ALLOW, created_at=10, expires_at=None)
    assert [key for key, _ in await checkpointer.list_grants("s", 0)] == ["valid", "new"]
    assert [key for key, _ in await checkpointer.list_grants("other", 0)] == ["old"]


async def test_twenty_tasks_grant_and_revoke_at_once(checkpointer: SqlCheckpointer) -> None:
    await asyncio.gather(*(checkpointer.save_grant("s", f"k{n % 4}", {"n": n}, **ALWAYS) for n in range(20)))
    assert {key for key, _ in await checkpointer.list_grants("s", 1)} == {"k0", "k1", "k2", "k3"}
    revoked = await asyncio.gather(*(checkpointer.delete_grant("s", f"k{n % 4}") for n in range(20)))
    assert sum(revoked) == 4
    assert await checkpointer.list_grants("s", 1) == []


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_connection_lost_during_commit_loses_no_grant(
    database: Database, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.checkpointer() as keeper:
        break_once(monkeypatch, database.kind, committed=committed)
        await keeper.save_grant("s", "k", ALLOW, **ALWAYS)
        assert await keeper.list_grants("s", 1) == [("k", ALLOW)]
        for there in (True, False):
            break_once(monkeypatch, database.kind, committed=committed)
            assert await keeper.delete_grant("s", "k") is there
        assert await keeper.list_grants("s", 1) == []


@pytest.mark.parametrize("session", ["", "x" * 256, "a\0b"])
async def test_a_session_is_an_id(checkpointer: SqlCheckpointer, session: str) -> None:
    attempts = [
        checkpointer.save_grant(session, "k", {}, **ALWAYS),
        checkpointer.find_grants(session, ["k"], 1),
        checkpointer.list_grants(session, 1),
        checkpointer.delete_grant(session, "k"),
    ]
    for attempt in attempts:
        with pytest.raises(StoreError, match="session"):
            await attempt


async def test_what_is_no_text_or_no_json_is_refused(checkpointer: SqlCheckpointer) -> None:
    with pytest.raises(StoreError, match=r"key .* is not valid Unicode"):
        await checkpointer.save_grant("s", "\ud800", {}, **ALWAYS)
    with pytest.raises(StoreError, match="not valid JSON"):
        await checkpointer.save_grant("s", "k", {"n": float("inf")}, **ALWAYS)
    assert await checkpointer.list_grants("s", 1) == []


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SAVES = st.tuples(KEYS, st.integers(0, 50), st.none() | st.integers(0, 50))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(SAVES, max_size=12), st.integers(0, 60))
def test_grants_are_a_dictionary_with_expiry(saves: list[tuple[str, int, int | None]], now: int) -> None:
    async def check() -> None:
        expected: dict[str, tuple[int, int | None]] = {}
        async with MemoryCheckpointer() as keeper:
            for key, at, until in sorted(saves, key=lambda it: it[1]):  # time goes forward
                await keeper.save_grant("s", key, {"at": at}, created_at=at, expires_at=until)
                expected = {k: v for k, v in expected.items() if v[1] is None or v[1] > at}
                expected[key] = (at, until)
            valid = {k: {"at": at} for k, (at, until) in expected.items() if until is None or until > now}
            assert dict(await keeper.list_grants("s", now)) == valid
            assert dict(await keeper.find_grants("s", [it[0] for it in saves], now)) == valid

    asyncio.run(check())
