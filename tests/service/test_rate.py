"""At most 60 requests a minute for one case, however many processes are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.running_service import HandClock
from kit.stores import SHARED, Database

from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.service.cases import Cases
from askfirst.service.new_review import ReviewRequest
from askfirst.service.rate import KEPT, LIMIT, CaseRate
from askfirst.store import case_access

pytestmark = pytest.mark.anyio
MOST, MINUTE = LIMIT.most, LIMIT.window / 1000
OWNER = "someone"


@dataclass
class Process:
    """As much of a process as answers polls."""

    cases: Cases
    rate: CaseRate

    @classmethod
    def on(cls, store: SqlCheckpointer, clock: HandClock) -> Process:
        cases = Cases(store, clock=clock)
        return cls(cases, CaseRate(cases.engine, clock))

    async def open(self) -> str:
        review = ReviewRequest(type="approval", prompt="Please decide.", timeout="7d")
        return (await self.cases.create(OWNER, review)).case.case_id

    async def poll(self, case_id: str) -> int | None:
        asked = await self.cases.engine.read(partial(case_access.case_by_owner, case_id, OWNER))
        assert asked.row is not None
        return await self.rate.poll(case_id, asked.times)

    async def polls(self, case_id: str, count: int) -> int:
        """How many of so many are answered."""
        return [await self.poll(case_id) for _ in range(count)].count(None)


@dataclass
class Rig:
    """Two processes on one database, and the clock of both."""

    here: Process
    there: Process
    clock: HandClock


@pytest.fixture
async def rig(database: Database) -> AsyncIterator[Rig]:
    clock = HandClock()
    async with database.checkpointer(clock=clock) as one, database.checkpointer(clock=clock) as other:
        yield Rig(Process.on(one, clock), Process.on(other, clock), clock)


on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)


@on_sqlite
async def test_sixty_then_wait_until_the_first_is_a_minute_ago(rig: Rig) -> None:
    case_id, other = await rig.here.open(), await rig.here.open()
    assert await rig.here.polls(case_id, 60) == 60
    rig.clock.turn(0.5)
    assert await rig.here.poll(case_id) == 60
    assert await rig.here.poll(other) is None
    rig.clock.turn(59.4)
    assert await rig.here.poll(case_id) == 1
    rig.clock.turn(0.1)
    assert await rig.here.poll(case_id) is None


@on_sqlite
async def test_who_is_refused_is_not_kept_waiting_for_it(rig: Rig) -> None:
    case_id = await rig.here.open()
    await rig.here.polls(case_id, 60)
    for _ in range(59):
        rig.clock.turn(1)
        assert await rig.here.poll(case_id) is not None
    rig.clock.turn(1)
    assert await rig.here.poll(case_id) is None


@each_store
async def test_two_processes_count_as_one(rig: Rig) -> None:
    case_id = await rig.here.open()
    answers = [await process.poll(case_id) for _ in range(31) for process in (rig.here, rig.there)]
    assert answers == [None] * 60 + [60, 60]
    rig.clock.turn(60)
    assert await rig.there.polls(case_id, 61) == 60
    assert await rig.here.poll(case_id) == 60


@each_store
async def test_many_at_once_in_two_processes_get_sixty_answers(rig: Rig) -> None:
    case_id = await rig.here.open()
    for process in (rig.here, rig.there):  # what each keeps to itself is told with its first that counts
        await process.polls(case_id, KEPT)
    waits = await asyncio.gather(
        *(process.poll(case_id) for _ in range(40) for process in (rig.here, rig.there))
    )
    # One of them may fill the minute before the other has told what it kept.
    assert 60 - 2 * KEPT <= waits.count(None) <= 60 - KEPT


@each_store
async def test_what_another_process_has_kept_is_told_in_time(rig: Rig) -> None:
    case_id = await rig.here.open()
    assert await rig.there.polls(case_id, KEPT) == KEPT
    assert await rig.here.polls(case_id, 10) == 10
    await rig.there.rate.catch_up()
    assert await rig.here.polls(case_id, 60) == 50 - KEPT
    assert await rig.there.poll(case_id) == 60


@on_sqlite
async def test_at_worst_a_minute_has_what_another_process_has_not_told(rig: Rig) -> None:
    case_id = await rig.here.open()
    assert await rig.there.polls(case_id, KEPT) == KEPT
    assert await rig.here.polls(case_id, 100) == 60  # all within the half second
    assert await rig.there.polls(case_id, 10) == 0


@on_sqlite
async def test_a_poller_who_waits_as_told_costs_no_write(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    case_id, writes = await rig.here.open(), list[str]()
    monkeypatch.setattr(case_access, "count_poll", lambda case_id, *_, **__: writes.append(case_id))
    for place in range(40):
        assert await (rig.here, rig.there)[place % 3 == 0].poll(case_id) is None
        await rig.here.rate.catch_up()
        rig.clock.turn(30)
    assert writes == []


@on_sqlite
async def test_a_case_that_was_hammered_is_left_alone_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    case_id, writes = await rig.here.open(), list[str]()
    await rig.here.polls(case_id, 60)
    count = case_access.count_poll

    def counting(case_id: str, *args: Any, **named: Any) -> Any:
        writes.append(case_id)
        return count(case_id, *args, **named)

    monkeypatch.setattr(case_access, "count_poll", counting)
    for _ in range(10):
        rig.clock.turn(30)
        await rig.here.poll(case_id)
    assert len(writes) <= 1


@on_sqlite
async def test_answers_by_messenger_are_counted_for_all(rig: Rig) -> None:
    case_id = await rig.here.open()
    for place in range(60):
        assert await (rig.here, rig.there)[place % 2].rate.submission(case_id) is None
    for process in (rig.here, rig.there):
        assert await process.rate.submission(case_id) == 60
        assert await process.poll(case_id) is None  # which is another matter


@on_sqlite
async def test_memory_is_bounded_and_given_back(rig: Rig) -> None:
    rate = CaseRate(rig.here.cases.engine, rig.clock, cases=100)
    for number in range(1000):
        await rate.poll(f"case-{number}", ())
    assert len(rate._cases) == 100
    rig.clock.turn(61)
    await rate.poll("another", ())
    assert list(rate._cases) == ["another"]


@on_sqlite
async def test_a_clock_that_is_set_back_makes_nobody_wait_longer(rig: Rig) -> None:
    case_id = await rig.here.open()
    await rig.here.polls(case_id, 60)
    rig.clock.turn(-30)
    wait = await rig.here.poll(case_id)
    assert wait is not None
    assert wait <= 90
    rig.clock.turn(-3600)
    assert await rig.here.poll(case_id) is None


@on_sqlite
async def test_what_was_counted_is_deleted_with_the_case(rig: Rig) -> None:
    case_id = await rig.here.open()
    await rig.here.polls(case_id, 10)
    await rig.here.cases.cancel(await rig.here.cases.get(case_id), "enough", OWNER)
    assert await rig.there.cases.engine.read(partial(case_access.busy_cases, 0, "poll")) == [case_id]
    rig.clock.turn(86_400)
    assert await rig.here.cases.purge(0.5) == 1
    assert await rig.there.cases.engine.read(partial(case_access.busy_cases, 0, "poll")) == []


Asked = tuple[float, int, int]
"""How many tenths of a second pass, which process is asked, and for which case."""


def test_no_minute_has_more_than_sixty_and_waiting_as_told_helps() -> None:
    """Whatever comes: as long as what is kept is told in time."""
    with asyncio.Runner() as runner:
        clock = HandClock()
        store = runner.run(MemoryCheckpointer(clock=clock).__aenter__())

        async def play(asked: Sequence[Asked]) -> None:
            processes = [Process.on(store, clock) for _ in range(3)]
            cases = [await processes[0].open() for _ in range(2)]
            allowed: dict[str, list[float]] = {case_id: [] for case_id in cases}
            for pause, which, place in asked:
                clock.turn(pause / 10)
                wait = await processes[which].poll(cases[place])
                if wait is None:
                    allowed[cases[place]].append(clock.now())
                else:
                    assert 1 <= wait <= MINUTE
                for process in processes:
                    await process.rate.catch_up()
            for case_id, times in allowed.items():
                for first, beyond in zip(times, times[MOST:], strict=False):
                    assert beyond - first >= MINUTE - 0.001
                wait = await processes[0].poll(case_id)
                clock.turn(wait or 0)
                assert wait is None or await processes[1].poll(case_id) is None

        @settings(max_examples=25, deadline=None)
        @given(
            st.lists(
                st.tuples(st.floats(0, 5), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=200
            )
        )
        def property_holds(asked: list[Asked]) -> None:
            runner.run(play(asked))

        try:
            property_holds()
        finally:
            runner.run(store.__aexit__(None, None, None))
