"""Acts are linked into the audit trail behind those who do them: by anybody, once, in nobody's way."""

from __future__ import annotations

import asyncio
import json
import signal
from functools import partial

import pytest
from kit.stores import SERVERS, SHARED, Database, asked
from kit.warm_python import warm_python

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.service.audit import export, verify
from askfirst.store import audit, audit_chain
from askfirst.store.audit import Entry
from askfirst.store.audit_chain import FIRST_HEAD, GENESIS, HEAD, LOCKED_HEAD, link, link_all
from askfirst.store.statement import Transaction

pytestmark = pytest.mark.anyio


async def process(database: Database, name: str, acts: int, *, dies: bool = False) -> int:
    """Run a process that acts and links; how it ended."""
    job = json.dumps([database.kind, database.address, name, acts, dies])
    started = await asyncio.create_subprocess_exec(*warm_python(), "-m", "kit.audit_linker", job)
    return await started.wait()


def entry(number: int) -> Entry:
    return Entry("test.act", f"subject-{number}", "ann", number)


async def act(checkpointer: SqlCheckpointer, number: int) -> None:
    await checkpointer.engine.write(partial(audit.append, [entry(number)]))


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_many_processes_act_while_others_link_and_one_is_killed(database: Database) -> None:
    async with database.checkpointer() as checkpointer:
        ends = await asyncio.gather(
            *(process(database, f"p{number}", 20) for number in range(3)),
            process(database, "dead", 8, dies=True),
        )
        assert sorted(ends) == [-signal.SIGKILL, 0, 0, 0]
        verdict = await verify(checkpointer.engine)
        assert (verdict.faults, verdict.rows + verdict.unlinked) == ((), 68)
        await link_all(checkpointer.engine)
        verdict = await verify(checkpointer.engine)
        assert (verdict.faults, verdict.rows, verdict.unlinked) == ((), 68, 0)
        subjects = [json.loads(line)["subject"] async for line in export(checkpointer.engine)]
        assert len(set(subjects)) == 68


@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_whoever_finds_no_chain_leaves_linking_to_one_who_has_just_begun_it(database: Database) -> None:
    loop, missed, locked, done = asyncio.get_running_loop(), *(asyncio.Event() for _ in range(3))

    def late() -> Transaction[int]:
        """As `link`, but between its look at the head and its writing of the first, another begins, and links."""
        linking, found = link(), None
        while True:
            try:
                statement, values = linking.send(found)
            except StopIteration as end:
                return end.value
            if statement is FIRST_HEAD:
                loop.call_soon(missed.set)
                yield from _until(locked)
            found = yield statement, values

    def early() -> Transaction[None]:
        yield FIRST_HEAD, {"hash": GENESIS}

    def slow() -> Transaction[None]:
        yield LOCKED_HEAD, {}
        loop.call_soon(locked.set)
        yield from _until(done)

    async with database.checkpointer() as first, database.checkpointer() as second:
        linking = asyncio.ensure_future(second.engine.write(late))
        await missed.wait()
        await first.engine.write(early)
        held = asyncio.ensure_future(first.engine.write(slow))
        try:
            assert await linking == 0
            assert not held.done()
        finally:
            done.set()
            await held


def _until(event: asyncio.Event) -> Transaction[None]:
    """Go on with a transaction when this has happened, so that it holds its locks till then."""
    while not event.is_set():
        yield HEAD, {}


@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_nobody_waits_for_whoever_links(database: Database) -> None:
    """Neither those who act nor those who would link: what the other leaves is linked later."""
    going, done = asyncio.Event(), asyncio.Event()

    async with database.checkpointer() as first, database.checkpointer() as second:
        await act(first, 0)
        await link_all(first.engine)
        loop = asyncio.get_running_loop()

        def slow() -> Transaction[int]:
            yield LOCKED_HEAD, {}
            loop.call_soon(going.set)
            for _ in range(10_000):  # it holds the lock until the others are through
                yield audit_chain.HEAD, {}
                if done.is_set():
                    break
            return 0

        held = asyncio.ensure_future(first.engine.write(slow))
        await going.wait()
        await act(second, 1)
        assert await link_all(second.engine) == 0
        assert not held.done()
        done.set()
        await held
        assert await link_all(second.engine) == 1


async def test_a_store_links_after_so_many_acts_by_itself(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_chain, "EVERY", 4)
    monkeypatch.setattr(audit_chain, "SECONDS", 3600.0)
    for number in range(3):
        await asked(checkpointer, f"t{number}")
    assert (await verify(checkpointer.engine)).unlinked == 3
    await asked(checkpointer, "t3")
    if (job := checkpointer._store._linker._linking) is not None:
        await asyncio.wait({job})
    verdict = await verify(checkpointer.engine)
    assert (verdict.rows + verdict.unlinked, verdict.rows >= 3, verdict.is_whole) == (4, True, True)


async def test_an_act_goes_on_where_the_chain_cannot(
    checkpointer: SqlCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has broken the chain has not stopped the record: acts are written, and verify says what is wrong."""
    await act(checkpointer, 1)
    await link_all(checkpointer.engine)

    def behead() -> Transaction[None]:
        yield audit_chain.MOVE_HEAD, {"seq": 0, "hash": audit_chain.GENESIS}

    await checkpointer.engine.write(behead)
    await act(checkpointer, 2)
    verdict = await verify(checkpointer.engine)
    assert (verdict.is_whole, verdict.rows, verdict.unlinked) == (False, 1, 1)
