"""What comes with time, and with nobody connected: reminders, expiry, and what is owed after a restart."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kit.callback_receivers import OK, Receiver, receiving
from kit.patience import PATIENCE
from kit.running_service import SECRET, HandClock, events, fits, serving, until
from kit.stores import SHARED, Database
from sqlalchemy import select

from askfirst.protocol import ErrorBody
from askfirst.service.callbacks import TAKEN_MILLISECONDS
from askfirst.store.case_tables import callbacks
from askfirst.store.statement import Statement

pytestmark = pytest.mark.anyio


def moment(clock: HandClock, seconds: float) -> str:
    return datetime.fromtimestamp(clock.now() + seconds, UTC).isoformat()


@pytest.mark.parametrize("database", SHARED, indirect=True)
@pytest.mark.parametrize("default_action", ["skip", "abort"])
async def test_a_case_expires_with_nobody_connected(database: Database, default_action: str) -> None:
    clock = HandClock()
    async with (
        database.checkpointer(clock=clock) as store,
        serving(store, clock=clock, inline=True) as served,
    ):
        case = await (await served.agent()).open(timeout="1h", default_action=default_action)
        clock.turn(3599)
        assert (await case.poll())["status"] == "pending"
        clock.turn(1)

        async def expired() -> dict[str, Any] | None:
            polled = await case.poll()
            return polled if polled["status"] == "expired" else None

        told = await until(expired)
        assert told["default_action"] == default_action
        assert told["expired_at"] == case.hitl["expires_at"]
        for late in (await case.say("approve"), await case.press("approve")):
            assert late.status_code == 410
            assert fits(ErrorBody, late.json())["error"] == "case_expired"
        assert (await case.form(action="approve")).status_code == 410
        assert (await case.cancel()).status_code == 410
        assert (await case.visit()).status_code == 200
        heard = [
            event.event async for event in events(served.http, case.hitl["events_url"], case.agent.headers)
        ]
        assert heard == ["review.expired"]


async def test_time_is_up_before_the_sweep_comes(tmp_path: Path) -> None:
    """Nobody can answer in the moment between the deadline and the sweep that notes it."""
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/cases.db", quick=False, clock=clock, inline=True) as served:
        case = await (await served.agent()).open(timeout="1m")
        clock.turn(60)
        assert (await case.say("approve")).status_code == 410
        assert (await case.press("approve")).status_code == 410


async def test_reminders_come_once_each_and_only_while_they_help(tmp_path: Path) -> None:
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/cases.db", clock=clock) as served:
        agent = await served.agent()
        times = [moment(clock, 600), moment(clock, 1200), moment(clock, 1260), moment(clock, 3000)]
        case = await agent.open(timeout="1h", reminder_at=times)
        begun = await agent.open(
            "input",
            timeout="1h",
            reminder_at=times[0],
            context={"form": {"fields": [{"key": "a", "label": "A", "type": "text"}]}},
        )
        done = await agent.open(timeout="1h", reminder_at=times[0])
        await begun.form(step="1", intent="draft", shown=["a"], **{"f.a": "x"})
        await done.say("reject")

        async def reminded(count: int) -> None:
            async def check() -> bool:
                return await _reminders(served, case.case_id) >= count

            await until(check)
            for _ in range(3):
                await served.service.cases.sweep()
            assert await _reminders(served, case.case_id) == count

        clock.turn(600)
        await reminded(1)
        assert (await case.poll())["reminder_sent_at"]
        clock.turn(1000)  # two have come due meanwhile: one reminder is enough
        await reminded(2)
        await case.visit()
        clock.turn(1500)
        await reminded(3)
        assert (await case.poll())["status"] == "opened"
        clock.turn(1000)

        async def expired() -> bool:
            return (await case.poll())["status"] == "expired"

        await until(expired)
        assert await _reminders(served, case.case_id) == 3
        assert await _reminders(served, begun.case_id) == await _reminders(served, done.case_id) == 0


async def _reminders(served: Any, case_id: str) -> int:
    told = await served.service.cases.events(case_id, 0)
    return [event for _, event, _ in told].count("review.reminder")


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_what_came_due_while_the_service_was_away_is_made_up_for(database: Database) -> None:
    clock = HandClock()
    async with database.checkpointer(clock=clock) as store, receiving() as receiver:
        hook = f"http://127.0.0.1:{receiver.port}/hook"
        async with serving(store, quick=False, clock=clock) as served:
            agent = await served.agent()
            expiring = await agent.open(timeout="1m", hitl_callback_url=hook)
            reminding = await agent.open(timeout="1d", reminder_at=moment(clock, 30))
            headers = agent.headers
        clock.turn(3600)
        async with serving(store, clock=clock) as served:

            async def all_done() -> bool:
                return bool(receiver.requests) and await _reminders(served, reminding.case_id) == 1

            await until(all_done)
            answer = await served.http.get(f"/v1/reviews/{expiring.case_id}/status", headers=headers)
            assert answer.json()["status"] == "expired"
            assert len(receiver.requests) == 1


async def test_a_callback_is_tried_again_with_growing_pauses(tmp_path: Path) -> None:
    clock = HandClock()
    failing = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"
    async with (
        receiving(answer=failing) as receiver,
        serving(f"sqlite:///{tmp_path}/cases.db", clock=clock, secret=SECRET) as served,
    ):
        case = await (await served.agent()).open(hitl_callback_url=f"http://127.0.0.1:{receiver.port}/hook")
        await case.say("approve")

        async def tried(count: int) -> None:
            async def check() -> bool:
                [*_, (due_at,)] = await store_rows(served)
                noted = due_at != round(clock.now() * 1000) + TAKEN_MILLISECONDS
                return noted and len(receiver.requests) == count

            await until(check)

        await tried(1)
        for count, pause in ((2, 10), (3, 60)):
            [(due_at,)] = await store_rows(served)
            assert due_at == round((clock.now() + pause) * 1000)
            clock.turn(pause)
            await tried(count)
        assert await store_rows(served) == [(round((clock.now() + 360) * 1000),)]
        receiver.answer = OK
        clock.turn(360)
        await tried(4)
        assert await store_rows(served) == [(None,)]
        assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 1


async def test_a_receiver_that_hangs_keeps_no_other_waiting(tmp_path: Path) -> None:
    async with (
        receiving(answer=None) as hanging,
        receiving() as prompt,
        serving(f"sqlite:///{tmp_path}/cases.db") as served,
    ):
        agent = await served.agent()
        for receiver in (hanging, prompt):
            case = await agent.open(hitl_callback_url=f"http://127.0.0.1:{receiver.port}/hook")
            await case.cancel()

            async def called(receiver: Receiver = receiver) -> bool:
                return bool(receiver.requests)

            await until(called)

        def outcomes() -> Any:
            return (yield Statement(select(callbacks.c.outcome).where(callbacks.c.outcome.is_(None))), {})

        assert await served.service.cases.engine.read(outcomes)  # the first is under way still


async def store_rows(served: Any) -> list[tuple[int | None]]:
    """When each callback is due next."""

    def due() -> Any:
        return (yield Statement(select(callbacks.c.due_at).order_by(callbacks.c.attempts.desc())), {})

    return await served.service.cases.engine.read(due)


async def test_without_a_secret_no_callback_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASKFIRST_SECRET", raising=False)
    async with serving(f"sqlite:///{tmp_path}/cases.db", secret=None) as served:
        agent = await served.agent()
        body = {"type": "approval", "prompt": "p", "hitl_callback_url": "https://a.example/hook"}
        refused = await agent.post("/v1/reviews", body)
        assert refused.status_code == 422
        assert "hitl_callback_url" in refused.json()["faults"]


async def test_a_reminder_says_when_it_was_meant_for_and_of_what(tmp_path: Path) -> None:
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/cases.db", clock=clock) as served:
        agent = await served.agent()
        at = moment(clock, 600)
        case = await agent.open(timeout="1h", reminder_at=at, prompt="Ship it?")
        clock.turn(700)
        url, headers = f"/v1/reviews/{case.case_id}/events", agent.headers
        async with asyncio.timeout(PATIENCE), aclosing(events(served.http, url, headers)) as told:
            event = await anext(told)
        assert event.event == "review.reminder"
        assert event.data["message"] == "Ship it?"
        meant = datetime.fromisoformat(event.data["reminder_at"]) - datetime.fromisoformat(at)
        assert abs(meant) < timedelta(seconds=1)
