"""Reminders: at each time, once, while the case is pending or opened, never after its end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kit.client_rig import Person, rig, until
from kit.running_service import HandClock
from kit.scripted_server import Said, scripted

from askfirst.client import HitlClient
from askfirst.client.case_wait import Reminders, may_remind, times_of
from askfirst.hitl.testing import FakeClock

pytestmark = pytest.mark.anyio

HOUR = 3600.0
PATH = "/reviews/review_1/status"


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


# When to remind.


def test_one_time_several_and_none() -> None:
    one, two = (datetime.fromtimestamp(at, UTC) for at in (1000, 2000))
    assert times_of(None) == []
    assert times_of(one) == [1000.0]
    assert times_of([two, one, two]) == [1000.0, 2000.0]


def test_each_is_due_once_and_those_that_were_missed_are_one() -> None:
    reminders = Reminders([10, 20, 30])
    assert not reminders.due(9)
    assert reminders.due(10)
    assert not reminders.due(10)
    assert reminders.due(35)
    assert not reminders.due(99)
    assert reminders.next is None


def test_what_is_done_with_stays_so_in_another_process() -> None:
    reminders = Reminders([10, 20], [10])
    assert reminders.next == 20
    assert not reminders.due(15)
    assert reminders.due(20)
    assert reminders.done == (10, 20)


def test_the_service_and_we_do_not_both_remind() -> None:
    reminders = Reminders([1000, 5000])
    assert reminders.told(1000, "1")
    assert not reminders.due(1001)
    assert reminders.due(5000)
    assert not reminders.told(5002, "2")


def test_the_services_time_counts_however_late_its_clock_is() -> None:
    reminders = Reminders([10_000])
    assert reminders.due(10_000)
    assert not reminders.told(10_001, "1"), "told an hour later by our clock, about the same time"


def test_what_the_service_adds_is_told_once_however_often_it_says_so() -> None:
    reminders = Reminders([])
    assert reminders.told(1000, "1")
    assert not reminders.told(1000, "1")
    assert not reminders.told(1001, None)
    assert reminders.told(9000, "2")


def test_only_while_nobody_is_at_work_on_it() -> None:
    assert [
        state
        for state in ("pending", "opened", "in_progress", "completed", "expired", "cancelled")
        if may_remind(state)  # type: ignore[arg-type]
    ] == ["pending", "opened"]


# On the clock.


@pytest.mark.parametrize("status", ["pending", "opened", "in_progress"])
async def test_the_service_is_asked_before_the_person_is_reminded(status: str) -> None:
    clock, person = FakeClock(), Person()
    async with scripted() as server, HitlClient(deliver=person, clock=clock, progress=False) as client:
        at = [moment(clock.now() + 10), moment(clock.now() + 20)]
        offer = server.offer(reminder_at=at, expires_at="2099-01-01T00:00:00Z")
        done = {"status": "cancelled", "case_id": "review_1", "cancelled_at": "2026-01-01T00:00:00Z"}
        server.script["/orders"] = [Said(202, offer)]
        server.script[PATH] = [Said(200, {"status": status, "case_id": "review_1"}), Said(200, done)]
        asking = asyncio.create_task(client.request("POST", f"{server.url}/orders", json={}))
        first = await person.got()
        await clock.advance(10)
        (live,) = client._desk.live.values()
        await until(lambda: live.state.reminded)
        reminders = 0 if status == "in_progress" else 1
        if reminders:
            again = await person.got("reminder")
            assert again.review_url == first.review_url
            assert again.text.startswith("Reminder: ")
        await clock.advance(10)
        assert (await asking).cancelled
        assert person.kinds.count("reminder") == reminders, "none after the end"


async def test_while_the_service_is_away_nobody_is_reminded() -> None:
    clock, person = FakeClock(), Person()
    async with scripted() as server, HitlClient(deliver=person, clock=clock) as client:
        offer = server.offer(reminder_at=moment(clock.now() + 10), expires_at="2099-01-01T00:00:00Z")
        server.script["/orders"] = [Said(202, offer)]
        server.script[PATH] = [Said(500), Said(200, {"status": "pending", "case_id": "review_1"})]
        asking = asyncio.create_task(client.request("POST", f"{server.url}/orders", json={}))
        await person.got()
        await clock.advance(10)
        (live,) = client._desk.live.values()
        await until(lambda: live._waiting._plan.failures == 1)
        assert "reminder" not in person.kinds
        await clock.advance(60)
        await person.got("reminder")
        asking.cancel()


async def test_our_service_reminds_and_so_do_we_and_the_person_hears_it_once(tmp_path: Path) -> None:
    theirs = HandClock()
    ours = FakeClock(theirs.now() + HOUR - 10)  # far ahead: a poll that is under way survives no long jump
    service: Any = {"clock": theirs}
    async with rig(tmp_path, service=service, clock=ours, progress=False) as at:
        times = [moment(theirs.now() + seconds) for seconds in (HOUR, HOUR + 120)]
        asking = at.ask(reminder_at=times, timeout="24h")
        notice = await at.person.got()
        theirs.turn(HOUR)  # it tells first
        await at.person.got("reminder")
        await ours.advance(130)  # now we are first
        await at.person.got("reminder", number=2)
        theirs.turn(120)
        (live,) = at.client._desk.live.values()
        before = live.state.last_event_id
        await until(lambda: live.state.last_event_id != before)
        await at.answer(notice, "approve")
        await asking
        assert at.person.kinds == ["review", "reminder", "reminder"]
