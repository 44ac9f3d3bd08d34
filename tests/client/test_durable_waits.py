"""Waits in a store: in one pair of hands at a time, taken over from the dead, and remembered when they end."""

from __future__ import annotations

import asyncio
import time

import pytest
from kit.patience import PATIENCE
from kit.stores import Database

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.client.durable import KEPT_SECONDS, KeptWait, Wait, Waits
from askfirst.errors import CheckpointNotPendingError, HitlDetached, StoreError
from askfirst.hitl.testing import FakeClock
from askfirst.messages import JsonObject

pytestmark = pytest.mark.anyio

STATE: JsonObject = {"version": 1, "hitl": {"case_id": "review_1"}, "sent": []}


async def _begin(wait: Wait) -> None:
    assert wait.status == "new"
    await wait.sending("digest")
    await wait.waiting(STATE)


async def _seen(wait: Wait) -> tuple[str, str | None, JsonObject | None]:
    return wait.status, wait.digest, wait.state


async def kept(waits: Waits) -> list[KeptWait]:
    return [each async for each in waits.kept()]


async def test_a_wait_from_begin_to_end(checkpointer: SqlCheckpointer) -> None:
    waits = Waits(checkpointer)

    async def send(wait: Wait) -> None:
        assert await _seen(wait) == ("new", None, None)
        await wait.sending("digest")

    async def go_on(wait: Wait) -> None:
        assert await _seen(wait) == ("sending", "digest", None)
        await wait.waiting(STATE)
        await wait.waiting({**STATE, "seen": "opened"})

    async def end(wait: Wait) -> str:
        assert await _seen(wait) == ("waiting", "digest", {**STATE, "seen": "opened"})
        await wait.ended({"poll": "again"})
        return "outcome"

    await waits.work_on("a key", send)
    await waits.work_on("a key", go_on)
    assert await kept(waits) == [KeptWait("a key")]
    assert await waits.work_on("a key", end) == "outcome"
    assert await kept(waits) == []
    # In any other process too, and for good: what has ended is remembered, and not begun again.
    elsewhere = Waits(checkpointer)
    assert await elsewhere.work_on("a key", _seen) == ("ended", "digest", {"poll": "again"})
    with pytest.raises(StoreError, match="has ended"):
        await elsewhere.work_on("a key", lambda wait: wait.waiting(STATE))


@pytest.mark.parametrize("database", ["memory"], indirect=True)
async def test_keys_of_all_kinds(checkpointer: SqlCheckpointer) -> None:
    waits = Waits(checkpointer)
    keys = ["", "a", "A", "a ", "x" * 10_000, "日本 \x00 "]
    for key in keys:
        await waits.work_on(key, _begin)
    assert {each.key for each in await kept(waits)} == set(keys)


async def test_one_after_the_other(checkpointer: SqlCheckpointer) -> None:
    one, two = Waits(checkpointer), Waits(checkpointer)
    inside, leave = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def first(wait: Wait) -> None:
        await _begin(wait)
        inside.set()
        await leave.wait()
        order.append("first")

    async def second(wait: Wait) -> None:
        order.append("second")
        assert wait.status == "waiting"

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(one.work_on("key", first))
        await inside.wait()
        waiting = tasks.create_task(two.work_on("key", second))
        with pytest.raises(CheckpointNotPendingError):
            await two.forget("key")
        assert [each.key for each in await kept(two)] == ["key"]
        await one.work_on("another", _begin)  # which is nobody's business but its own
        assert not waiting.done()
        leave.set()
    assert order == ["first", "second"]


@pytest.mark.parametrize("how", [ValueError("no"), HitlDetached(), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("database", ["memory"], indirect=True)
async def test_however_it_is_left_another_can_go_on_at_once(
    checkpointer: SqlCheckpointer, how: BaseException
) -> None:
    async def leave(wait: Wait) -> None:
        await _begin(wait)
        raise how

    with pytest.raises(type(how)):
        await Waits(checkpointer, claim_seconds=3600).work_on("key", leave)
    async with asyncio.timeout(PATIENCE):
        assert (await Waits(checkpointer).work_on("key", _seen))[0] == "waiting"


async def test_a_wait_that_is_dropped_was_never_there(checkpointer: SqlCheckpointer) -> None:
    waits = Waits(checkpointer)

    async def drop(wait: Wait) -> None:
        await wait.sending("digest")
        await wait.dropped()
        assert wait.status == "new"

    await waits.work_on("key", drop)
    assert await kept(waits) == []
    assert await waits.find("key") is None
    await waits.work_on("key", _begin)
    found = await waits.find("key")
    assert found is not None
    assert found.status == "waiting"
    await waits.forget("key")
    assert await waits.find("key") is None
    assert await kept(waits) == []


async def test_who_stood_still_for_too_long_loses_the_wait_and_gets_it_back(database: Database) -> None:
    clock = FakeClock(time.time())
    async with database.checkpointer(clock=clock) as store:
        one, two = Waits(store, claim_seconds=60), Waits(store, claim_seconds=60)
        inside, go_on = asyncio.Event(), asyncio.Event()
        lives: list[str] = []

        async def slow(wait: Wait) -> str:
            lives.append(wait.status)
            if wait.status == "ended":
                return "heard of it"
            await _begin(wait)
            inside.set()
            await go_on.wait()
            await wait.waiting({"written": "by the one that lost it"})
            raise AssertionError("it went on with a wait that was another's")

        async def quick(wait: Wait) -> None:
            assert wait.state == STATE
            go_on.set()
            await asyncio.sleep(0)  # the other wakes up, and tries to write
            await wait.waiting({"written": "by the one that has it"})
            await wait.ended({"ended": "by the other"})

        losing = asyncio.create_task(one.work_on("key", slow))
        await inside.wait()
        await clock.advance(61)
        await two.work_on("key", quick)
        assert await losing == "heard of it"
        found = await two.find("key")
    assert lives == ["new", "ended"]
    assert found is not None
    assert found.state == {"ended": "by the other"}


@pytest.mark.parametrize("database", ["memory"], indirect=True)
async def test_a_claim_is_renewed_while_the_work_goes_on(checkpointer: SqlCheckpointer) -> None:
    one, two = Waits(checkpointer, claim_seconds=0.2), Waits(checkpointer, claim_seconds=0.2)
    inside, leave = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def first(wait: Wait) -> None:
        inside.set()
        await leave.wait()
        done.append("first")

    async def second(wait: Wait) -> None:
        done.append("second")

    async def count_renewals() -> None:
        seen: set[int] = set()
        while len(seen) < 6:  # longer than any claim lasts by itself
            (claim,) = await checkpointer.list_checkpoints("askfirst.client", state="resolving")
            seen.add(claim.claimed_until or 0)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(one.work_on("key", first))
        await inside.wait()
        tasks.create_task(two.work_on("key", second))
        await count_renewals()
        assert done == []
        leave.set()
    assert done == ["first", "second"]


async def test_what_ended_long_ago_is_forgotten(database: Database) -> None:
    clock = FakeClock(time.time())
    async with database.checkpointer(clock=clock) as store:
        waits = Waits(store, clock=clock)

        async def end(wait: Wait) -> None:
            await wait.sending("digest")
            await wait.ended({})

        for key in ("one", "two"):
            await waits.work_on(key, end)
        await clock.advance(KEPT_SECONDS - 1)
        await waits.work_on("three", end)
        assert (await waits.work_on("one", _seen))[0] == "ended"
        await clock.advance(2)
        await waits.work_on("four", end)
        assert [await waits.find(key) is None for key in ("one", "two", "three", "four")] == [
            *(True, True, False, False)
        ]
        assert len(await store.list_checkpoints("askfirst.client")) == 2


@pytest.mark.parametrize("database", ["memory"], indirect=True)
async def test_a_wait_belongs_to_its_thread(checkpointer: SqlCheckpointer) -> None:
    waits = Waits(checkpointer)
    await waits.work_on("key", _begin, thread_id="thread-1")
    assert await kept(waits) == [KeptWait("key", "thread-1")]
