"""Notices of cases: one that fails is given again, over restarts, and shown to whoever looks after the service."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kit.running_service import HandClock, Served, serving, until
from kit.stores import SHARED, Database, approval, asked

from askfirst.service.case import Case
from askfirst.service.cases import ON_CASE_BACKOFF
from askfirst.store.case_queues import all_failed

pytestmark = pytest.mark.anyio
SECRET = "https://hooks.example/T0K3N"  # noqa: S105
FIRST, LONGEST = (each / 1000 for each in ON_CASE_BACKOFF)


class Host:
    """A host that cannot be told while ``broken``."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.broken = True

    async def on_case(self, case: Case) -> None:
        self.heard.append(case.case_id)
        if self.broken:
            raise ConnectionRefusedError(f"nobody takes {SECRET}")

    async def hears(self, count: int) -> None:
        """Wait until it has heard so often."""

        async def heard() -> bool:
            return len(self.heard) >= count

        await until(heard)


async def failed(served: Served, tries: int = 0) -> list[Any]:
    """What is noted of failures, once there were so many."""

    def read() -> Any:
        return (yield from all_failed(10))

    async def noted() -> list[Any] | None:
        found = await served.service.cases.engine.read(read)
        return [found] if sum(each.tries for each in found) >= tries else None

    [found] = await until(noted)
    return found


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_notice_that_fails_is_given_again_over_restarts(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    clock, host = HandClock(), Host()
    async with database.checkpointer(clock=clock) as store:
        await asked(store, "t", approval())
        async with serving(store, clock=clock, on_case=host.on_case) as served:
            [noted] = await failed(served, 1)
            assert (noted.tries, noted.since, noted.error) == (1, clock.time * 1000, "ConnectionRefusedError")
            clock.turn(FIRST)
            await failed(served, 2)
            clock.turn(FIRST)  # not yet: it is twice as long now
            await served.service.cases.adopt()
        assert len(host.heard) == 2
        async with serving(store, clock=clock, on_case=host.on_case) as served:
            clock.turn(FIRST)
            [noted] = await failed(served, 3)
            assert noted.since == (clock.time - 3 * FIRST) * 1000
            host.broken = False
            clock.turn(4 * FIRST)
            await host.hears(4)

            async def forgotten() -> bool:
                return await served.service.cases.take_on_case_call() is None and not await failed(served)

            await until(forgotten)
            clock.turn(LONGEST)
            assert await served.service.cases.take_on_case_call() is None
    assert len(host.heard) == 4
    assert len(set(host.heard)) == 1
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1  # once, not each time
    said = errors[0].getMessage()
    assert "on_case failed for review_" in said
    assert "ConnectionRefusedError at test_cases_telling.py:" in said
    assert SECRET not in caplog.text
