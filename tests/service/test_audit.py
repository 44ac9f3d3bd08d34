"""The audit trail: a chain that many append to, and that shows whatever is done to it."""

# ruff: noqa: S608  (tampering is written by hand)

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.stores import SHARED, Database

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.digests import canonical_json
from askfirst.errors import StoreError
from askfirst.service import audit as trail
from askfirst.service.audit import Verdict, export, verify
from askfirst.store import audit, audit_chain
from askfirst.store.audit import Entry
from askfirst.store.audit_chain import GENESIS, link_all
from askfirst.store.engine import Engine
from askfirst.store.sqlite_engine import SQLiteEngine

pytestmark = pytest.mark.anyio


def entry(number: int, **fields: Any) -> Entry:
    return Entry(
        **{"act": "case.created", "subject": f"case-{number}", "actor": "ann", "at": number, **fields}
    )


async def append(engine: Engine, *entries: Entry) -> None:
    await engine.write(partial(audit.append, entries))
    await link_all(engine)


async def lines(engine: Engine) -> list[dict[str, Any]]:
    return [json.loads(line) async for line in export(engine)]


# On every store.


async def test_an_empty_trail_is_whole(checkpointer: SqlCheckpointer) -> None:
    await append(checkpointer.engine)
    assert await verify(checkpointer.engine) == Verdict(0, GENESIS, (), 0)
    assert await lines(checkpointer.engine) == []


async def test_each_row_is_bound_to_the_one_before(checkpointer: SqlCheckpointer) -> None:
    detail = {"via": "wéb \0 \u2028", "n": 2**60, "half": 0.5, "none": None}
    await append(checkpointer.engine, entry(1), entry(2, detail=detail))
    await append(checkpointer.engine, entry(3, actor="", subject="x" * 600, act="key.revoked"))
    rows = await lines(checkpointer.engine)
    assert [row["seq"] for row in rows] == [1, 2, 3]
    assert [row["previous"] for row in rows] == [GENESIS, rows[0]["hash"], rows[1]["hash"]]
    assert rows[1]["detail"] == detail
    assert rows[2] == {
        "seq": 3,
        "at": 3,
        "actor": "",
        "act": "key.revoked",
        "subject": "x" * 600,
        "detail": {},
        "act_id": rows[2]["act_id"],
        "content": rows[2]["content"],
        "previous": rows[1]["hash"],
        "hash": rows[2]["hash"],
    }
    for row in rows:  # by the documentation alone
        own = {name: row[name] for name in ("act_id", "at", "actor", "act", "subject", "detail")}
        assert hashlib.sha256(canonical_json(own)).hexdigest() == row["content"]
        facts = {name: row[name] for name in ("seq", "previous", "content")}
        assert hashlib.sha256(canonical_json(facts)).hexdigest() == row["hash"]
    assert await verify(checkpointer.engine) == Verdict(3, rows[2]["hash"], (), 0)


async def test_many_writers_make_one_chain(database: Database) -> None:
    async with database.checkpointer() as first:
        others = [database.checkpointer(), database.checkpointer()]
        for other in others:
            await other.__aenter__()
        engines = [first.engine, *(other.engine for other in others)]
        writes = [append(engines[n % len(engines)], entry(n), entry(-n)) for n in range(60)]
        *_, verdict = await asyncio.gather(*writes, verify(first.engine))
        assert verdict.is_whole  # what was appended while it read is no fault
        for other in others:
            await other.__aexit__(None, None, None)
        await link_all(first.engine)  # whoever found another linking has left it to them
        assert (await verify(first.engine)).rows == 120
        rows = await lines(first.engine)
        assert sorted(row["at"] for row in rows) == sorted([*range(60), *(-n for n in range(60))])
        places = {row["at"]: row["seq"] for row in rows}
        assert all(places[n] < places[-n] for n in range(1, 60))  # in the order in which they were done


async def test_a_transaction_that_fails_leaves_no_row(checkpointer: SqlCheckpointer) -> None:
    def fails() -> Any:
        yield from audit.append([entry(1)])
        raise StoreError("after all")

    with pytest.raises(StoreError, match="after all"):
        await checkpointer.engine.write(fails)
    assert await verify(checkpointer.engine) == Verdict(0, GENESIS, (), 0)
    await append(checkpointer.engine, entry(2))
    assert [row["seq"] for row in await lines(checkpointer.engine)] == [1]


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_long_trails_are_read_page_by_page(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "PAGE_ROWS", 4)
    for size in (3, 1, 1, 7):  # the pages end before, at and after the trail's end
        await append(checkpointer.engine, *(entry(n) for n in range(size)))
        rows = await lines(checkpointer.engine)
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        assert await verify(checkpointer.engine) == Verdict(len(rows), rows[-1]["hash"], (), 0)


@pytest.mark.parametrize("act", ["", "x" * 65, "ünicode"])
async def test_an_act_has_a_short_plain_name(act: str) -> None:
    with pytest.raises(StoreError, match="an act is named"):
        next(audit.append([entry(1, act=act)]))


async def test_what_is_no_text_cannot_be_kept() -> None:
    for broken in (entry(1, actor="\ud800"), entry(1, detail={"x": float("nan")})):
        with pytest.raises(StoreError, match="this cannot be kept"):
            next(audit.append([broken]))


# Tampered with.


@pytest.fixture
async def engine(tmp_path: Path) -> Any:
    engine = SQLiteEngine(tmp_path / "trail.db")
    await engine.open()
    await append(engine, *(entry(n, detail={"n": n}) for n in range(1, 9)))
    yield engine
    await engine.close()


def tamper(engine: SQLiteEngine, *statements: str) -> None:
    connection = sqlite3.connect(engine.path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


ROW = "askfirst_audit"
HEAD = "askfirst_audit_head"
TAMPERED = {
    "a time": ([f"UPDATE {ROW} SET at = 99 WHERE seq = 4"], [(4, "row 4 was altered")]),
    "an actor": ([f"UPDATE {ROW} SET actor = '\"eve\"' WHERE seq = 4"], [(4, "row 4 was altered")]),
    "an act": ([f"UPDATE {ROW} SET act = 'x' WHERE seq = 1"], [(1, "row 1 was altered")]),
    "a subject": ([f"UPDATE {ROW} SET subject = '\"x\"' WHERE seq = 8"], [(8, "row 8 was altered")]),
    "a detail": ([f"UPDATE {ROW} SET detail = '{{\"n\":0}}' WHERE seq = 4"], [(4, "row 4 was altered")]),
    "only its spelling": (
        [f"UPDATE {ROW} SET detail = '{{\"n\": 4}}' WHERE seq = 4"],
        [(4, "row 4 was altered")],
    ),
    "no JSON": ([f"UPDATE {ROW} SET detail = 'oops' WHERE seq = 4"], [(4, "row 4 was altered")]),
    "no text": ([f"UPDATE {ROW} SET actor = x'00' WHERE seq = 4"], [(4, "row 4 was altered")]),
    "its own hash": (
        [f"UPDATE {ROW} SET content = '{'f' * 64}' WHERE seq = 4"],
        [(4, "row 4 was altered")],
    ),
    "its act's id": ([f"UPDATE {ROW} SET act_id = NULL WHERE seq = 4"], [(4, "row 4 was altered")]),
    "where it is looked for": ([f"UPDATE {ROW} SET about = 'x' WHERE seq = 4"], [(4, "row 4 was altered")]),
    "as if it were old": (
        [f"UPDATE {ROW} SET act_id = NULL, about = NULL, content = NULL WHERE seq = 4"],
        [(4, "row 4 was altered")],
    ),
    "a hash": (
        [f"UPDATE {ROW} SET hash = '{'f' * 64}' WHERE seq = 4"],
        [(4, "row 4 was altered"), (5, "row 4 was altered: row 5 was chained to another hash")],
    ),
    "one removed": ([f"DELETE FROM {ROW} WHERE seq = 4"], [(5, "row 4 is missing")]),
    "some removed": ([f"DELETE FROM {ROW} WHERE seq IN (4, 5, 6)"], [(7, "rows 4 to 6 are missing")]),
    "the first removed": ([f"DELETE FROM {ROW} WHERE seq = 1"], [(2, "row 1 is missing")]),
    "the tail removed": ([f"DELETE FROM {ROW} WHERE seq > 6"], [(8, "rows 7 to 8 are missing")]),
    "all removed": ([f"DELETE FROM {ROW}"], [(8, "rows 1 to 8 are missing")]),
    "one before all": (
        [
            (
                f"INSERT INTO {ROW} SELECT 0, at, actor, act, subject, detail, previous, hash, act_id, about, "
                f"content FROM {ROW} WHERE seq = 1"
            )
        ],
        [(0, "row 0 was inserted")],
    ),
    "one behind all": (
        [
            (
                f"INSERT INTO {ROW} SELECT 9, at, actor, act, subject, detail, hash, hash, act_id, about, content "
                f"FROM {ROW} WHERE seq = 8"
            )
        ],
        [(9, "row 9 was inserted")],
    ),
    "one under no number": (
        [
            (
                f"INSERT INTO {ROW} SELECT 'x', at, actor, act, subject, detail, hash, hash, act_id, about, content "
                f"FROM {ROW} WHERE seq = 8"
            )
        ],
        [("x", "row x was inserted")],
    ),
    "the head removed": ([f"DELETE FROM {HEAD}"], [(8, "the head of the chain is missing")]),
    "the head set back": (
        [f"UPDATE {HEAD} SET seq = 6, hash = (SELECT hash FROM {ROW} WHERE seq = 6)"],
        [(7, "row 7 was inserted"), (8, "row 8 was inserted")],
    ),
    "the head's hash": (
        [f"UPDATE {HEAD} SET hash = '{'f' * 64}'"],
        [(8, "row 8 was altered: the head of the chain has another hash")],
    ),
}


@pytest.mark.parametrize(("statements", "faults"), TAMPERED.values(), ids=TAMPERED)
@pytest.mark.parametrize("rows_at_once", [3, 500])
async def test_tampering_is_found_and_named(
    engine: SQLiteEngine,
    statements: list[str],
    faults: list[tuple[int, str]],
    rows_at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trail, "PAGE_ROWS", rows_at_once)
    tamper(engine, *statements)
    verdict = await verify(engine)
    assert not verdict.is_whole
    assert [fault.seq for fault in verdict.faults] == [seq for seq, _ in faults]
    for fault, (_, problem) in zip(verdict.faults, faults, strict=True):
        assert fault.problem.startswith(problem)


def rewritten(rows: list[dict[str, Any]], first: int, change: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows with one changed and its hash made to fit."""
    for row in rows:
        if row["seq"] == first:
            row = {**row, **change}
            own = {name: row[name] for name in audit_chain.OWN}
            row["content"] = audit.digest(own)
            row["hash"] = audit_chain.link_hash(row["seq"], row["previous"], row["content"])
        yield row


async def test_a_row_whose_hash_was_made_to_fit_is_found_by_the_next(engine: SQLiteEngine) -> None:
    for seq, told_by in (
        (3, "row 4 was chained to another hash"),
        (8, "the head of the chain has another hash"),
    ):
        (new,) = [row for row in rewritten(await lines(engine), seq, {"at": 77}) if row["seq"] == seq]
        fitting = f"content = '{new['content']}', hash = '{new['hash']}'"
        tamper(engine, f"UPDATE {ROW} SET at = 77, {fitting} WHERE seq = {seq}")
        faults = (await verify(engine)).faults
        assert faults[-1].problem.startswith(f"row {seq} was altered: {told_by}")


async def test_a_first_row_with_something_before_it_is_found(engine: SQLiteEngine) -> None:
    new, *_ = rewritten(await lines(engine), 1, {"previous": "a" * 64})
    tamper(engine, f"UPDATE {ROW} SET previous = '{'a' * 64}', hash = '{new['hash']}' WHERE seq = 1")
    first, second = (await verify(engine)).faults
    assert first.problem == "row 1 was altered: it is the first, but names a row before it"
    assert second.problem == "row 1 was altered: row 2 was chained to another hash"


async def test_a_row_slipped_in_by_moving_the_others_up_is_found(engine: SQLiteEngine) -> None:
    tamper(
        engine,
        *(f"UPDATE {ROW} SET seq = {seq + 1} WHERE seq = {seq}" for seq in range(8, 3, -1)),
        f"INSERT INTO {ROW} SELECT 4, at, actor, act, subject, detail, hash, hash, act_id, about, content "
        f"FROM {ROW} WHERE seq = 3",
        f"UPDATE {HEAD} SET seq = 9",
    )
    assert [fault.seq for fault in (await verify(engine)).faults] == [4, 5, 6, 7, 8, 9]


async def test_faults_beyond_the_first_hundred_are_counted(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "FAULTS_NAMED", 3)
    tamper(engine, f"UPDATE {ROW} SET at = -1")
    verdict = await verify(engine)
    assert ([fault.seq for fault in verdict.faults], verdict.fault_count) == ([1, 2, 3], 8)


async def test_a_tampered_trail_can_be_exported(engine: SQLiteEngine) -> None:
    tamper(engine, f"UPDATE {ROW} SET detail = 'oops' WHERE seq = 4")
    rows = await lines(engine)
    assert (len(rows), rows[3]["detail"]) == (8, "oops")


# Any trail, any single change.

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
ENTRIES = st.lists(
    st.builds(
        Entry,
        act=st.sampled_from(["case.created", "key.revoked"]),
        subject=TEXTS,
        actor=TEXTS,
        at=st.integers(0, 2**50),
        detail=st.dictionaries(TEXTS, JSON, max_size=3),
    ),
    min_size=1,
    max_size=5,
)
CHANGES: dict[str, Callable[[Any], Any]] = {
    "at": lambda at: at + 1,
    "actor": lambda text: json.dumps(json.loads(text) + "!"),
    "act": lambda act: act + "!",
    "subject": lambda text: json.dumps(json.loads(text) + "!"),
    "detail": lambda text: json.dumps({**json.loads(text), "more": 1}),
    "previous": lambda text: text[::-1] if text != text[::-1] else "1" * 64,
    "hash": lambda text: text[::-1],
    "act_id": lambda text: text[::-1] + "x",
    "content": lambda text: text[::-1],
    "about": lambda text: text + "x",
}


def chained(entries: list[Entry]) -> list[audit_chain.AuditRow]:
    _, rows = next(audit.append(entries))
    acts = [audit.Act(**row) for row in (rows if isinstance(rows, list) else [rows])]  # type: ignore[arg-type]
    return list(audit_chain._linked(audit_chain.START, acts))


def judged(rows: list[audit_chain.AuditRow], head: audit_chain.Head) -> Verdict:
    walk = trail._Verification()
    for row in rows:
        walk.step(row, head)
    walk.end(audit_chain.AuditPage(head, rows, head))
    return walk.verdict()


@given(entries=ENTRIES, data=st.data())
def test_any_change_to_any_row_shows(entries: list[Entry], data: st.DataObject) -> None:
    rows = chained(entries)
    head = audit_chain.Head(rows[-1].seq, rows[-1].hash)
    assert judged(rows, head).is_whole
    at = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.sampled_from(sorted(CHANGES)))
    changed = rows[at]._replace(**{column: CHANGES[column](getattr(rows[at], column))})
    faults = judged([*rows[:at], changed, *rows[at + 1 :]], head).faults
    assert faults
    assert faults[0].seq == rows[at].seq
    assert judged([*rows[:at], *rows[at + 1 :]], head).faults
