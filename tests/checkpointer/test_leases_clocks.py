"""Clocks that are set while a lease is held: its holder keeps it as long as it lives."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kit.stores import SHARED, Database, prompt, said

from askfirst.checkpointer import leases
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import LeaseHeld
from askfirst.hitl.testing import FakeClock
from askfirst.messages import AssistantMessage, UserMessage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database", SHARED, indirect=True)]
HOUR = 3600.0


class Machines:
    """Two of them, and time that passes on both."""

    def __init__(self) -> None:
        self.ticks = 0.0
        self.here, self.there = FakeClock(), FakeClock()

    def pass_by(self, seconds: float) -> None:
        self.ticks += seconds
        self.here._now += seconds
        self.there._now += seconds


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    made = Machines()
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: made.ticks), raising=False)
    return made


async def beat(checkpointer: SqlCheckpointer) -> None:
    await checkpointer._leases._renew(checkpointer._store)


async def is_held(by: SqlCheckpointer, fence: int, thread_id: str = "t") -> bool:
    """Whether another worker is refused."""
    try:
        await by.commit(thread_id, said(), fence=fence, acquire=True)
    except LeaseHeld:
        return True
    return False


@pytest.mark.parametrize("back", [3.0, 20.0, HOUR])
async def test_a_holder_whose_clock_is_set_back_keeps_its_lease(
    database: Database, machines: Machines, back: float
) -> None:
    async with (
        database.checkpointer(clock=machines.here) as holder,
        database.checkpointer(clock=machines.there) as heir,
    ):
        fence = await holder.commit("t", prompt(), fence=0, acquire=True)
        machines.here._now -= back
        for _ in range(12):
            machines.pass_by(5)
            await beat(holder)
            assert await is_held(heir, fence)
        assert await holder.commit("t", said(AssistantMessage("Mine.")), fence=fence) == fence + 1


async def test_it_is_renewed_as_often_as_ever(database: Database, machines: Machines) -> None:
    async with database.checkpointer(clock=machines.here) as holder:
        await holder.commit("t", prompt(), fence=0, acquire=True)
        machines.here._now -= HOUR
        written: list[float] = []
        for _ in range(12):
            machines.pass_by(5)
            await beat(holder)
            thread = await holder.load("t")
            assert thread is not None
            written.append(thread.lease_until)
        assert written == sorted(written)
        assert len(set(written)) == 6  # every 10 s


async def test_a_step_of_a_clock_set_back_is_mended_by_the_next_heartbeat(
    database: Database, machines: Machines
) -> None:
    async with (
        database.checkpointer(clock=machines.here) as holder,
        database.checkpointer(clock=machines.there) as heir,
    ):
        fence = await holder.commit("t", prompt(), fence=0, acquire=True)
        machines.here._now -= HOUR
        fence = await holder.commit("t", said(UserMessage("more")), fence=fence)
        await beat(holder)
        assert await is_held(heir, fence)
        machines.pass_by(60)
        assert not await is_held(heir, fence)  # for it has not been renewed


async def test_a_clock_that_is_put_right_again_is_followed(database: Database, machines: Machines) -> None:
    async with database.checkpointer(clock=machines.here) as holder:
        await holder.commit("t", prompt(), fence=0, acquire=True)
        for ahead in (-HOUR, HOUR, 5.0):
            machines.here._now += ahead
            machines.pass_by(5)
            await beat(holder)
        thread = await holder.load("t")
        assert thread is not None
        assert thread.lease_until <= round(machines.here.now() + 30, 3)
        assert thread.lease_until > round(machines.here.now() + 15, 3)


async def test_what_is_given_back_is_free_at_once(database: Database, machines: Machines) -> None:
    async with (
        database.checkpointer(clock=machines.here) as holder,
        database.checkpointer(clock=machines.there) as heir,
    ):
        fence = await holder.commit("t", prompt(), fence=0, acquire=True)
        machines.here._now -= HOUR
        machines.pass_by(5)
        await beat(holder)
        fence = await holder.commit("t", said(release=True), fence=fence)
        await beat(holder)
        assert not await is_held(heir, fence)
