"""Telling people: each place is told at least once, told again when it fails, and told how it ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import pytest
from kit.patience import PATIENCE
from kit.post_office import post_office
from kit.running_service import HandClock, Served, serving, until
from kit.stores import SHARED, Database, asked
from kit.telegram_server import CHAT, STRANGER, TOKEN, Refusal, telegram_server

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.delivery import EmailDelivery, TelegramDelivery
from askfirst.delivery.base import Ended, Notice, Sent
from askfirst.errors import DeliveryError
from askfirst.requests import ApproveRequest, HitlRequest
from askfirst.service import button_listener, deliveries
from askfirst.service.audit import export, verify
from askfirst.service.button_listener import ButtonListener
from askfirst.service.cases import Cases
from askfirst.service.deliveries import FIRST_PAUSE
from askfirst.service.places import Decider, Place
from askfirst.service.schedule import Moment, Schedule, Step
from askfirst.store import deliveries as delivery_store
from askfirst.store.case_rows import DeliveryRow

pytestmark = pytest.mark.anyio
ADA = {"telegram:7": Decider("Ada Lovelace", "ada@a.example")}
HOUR = 3600.0


@dataclass
class Board:
    """A place that keeps what is put up there; ``broken`` is what it raises."""

    name: str = "board"
    shows_buttons: bool = True
    broken: Exception | None = None
    notices: list[Notice] = field(default_factory=list[Notice])
    ends: list[Ended] = field(default_factory=list[Ended])

    async def send(self, notice: Notice) -> Sent:
        if self.broken is not None:
            raise self.broken
        self.notices.append(notice)
        return Sent(self.name, notice.case_id, {"number": len(self.notices)})

    async def update(self, sent: Sent, ended: Ended) -> None:
        if self.broken is not None:
            raise self.broken
        self.ends.append(ended)

    def to(self, target: str) -> Board:
        return Board(f"{self.name}:{target}", notices=self.notices, ends=self.ends)


def question(clock: HandClock, hours: float = 24, name: str = "call-1") -> HitlRequest:
    payload = ApproveRequest(
        tool_name="refund",
        tool_call_id=name,
        args={"order": "A-1042", "cents": 4900},
        digest="d" * 64,
        display={
            "sentence": "Pay back 49.00 EUR for order A-1042",
            "labels": {"cents": "Amount"},
            "formats": {"cents": "money:EUR"},
            "consequences": ["money", "people:2", "custom:The customer is told by mail."],
        },
        details={"principal": "ann", "agent_path": ["desk", "refunds"]},
    )
    return HitlRequest(question_id=name, payload=payload, created_at=clock.time, timeout_seconds=hours * HOUR)


async def rows(served: Served) -> list[DeliveryRow]:
    return await served.service.cases.engine.read(partial(delivery_store.page, 100))


async def in_state(served: Served, *states: str) -> list[DeliveryRow]:
    """The messages, once they are in these states."""

    async def there() -> list[DeliveryRow] | None:
        found = await rows(served)
        return found if sorted(row.state for row in found) == sorted(states) else None

    return await until(there)


@asynccontextmanager
async def told(
    database: Database, clock: HandClock, *deliver: Any, **options: Any
) -> AsyncGenerator[tuple[SqlCheckpointer, Served]]:
    async with (
        database.checkpointer(clock=clock) as store,
        serving(store, clock=clock, deliver=list(deliver), **options) as served,
    ):
        yield store, served


async def _with_errors(served: Served, count: int) -> list[DeliveryRow] | None:
    found = await rows(served)
    return found if sum(row.error is not None for row in found) == count else None


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_every_case_of_an_agent_is_told_and_its_end(database: Database) -> None:
    clock, board, other = HandClock(), Board(), Board("other")
    async with database.checkpointer(clock=clock) as store:
        await asked(store, "t", question(clock))
        async with serving(
            store, clock=clock, deliver=[Place("board", board, ADA), other], name="Desk"
        ) as served:
            await in_state(served, "sent", "sent")
            [notice] = board.notices
            assert [button.action for button in notice.buttons] == ["approve", "reject", "edit"]
            [plain] = other.notices
            assert plain.buttons == ()  # nobody is on a list there
            assert plain.review_url != notice.review_url
            for text in (
                "Pay back 49.00 EUR for order A-1042",
                "order: A-1042",
                "Amount: 49.00 EUR (4900)",
                "- Money moves.\n- It reaches 2 people.\n- The customer is told by mail.",
                "Asked by desk / refunds on behalf of ann",
                "it is denied",
            ):
                assert text in notice.body
            assert notice.review_url is not None
            page = await served.http.get(notice.review_url)
            assert page.status_code == 200
            # Decided elsewhere: from the command line, or by another process.
            await store.settle("t", "call-1", {"decision": "approve"}, by="ann", via="cli")
            await in_state(served, "done", "done")
    assert [ended.text for ended in board.ends + other.ends] == ["Approved by ann (unverified)."] * 2


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_place_that_fails_is_told_again_and_delays_no_other(database: Database) -> None:
    clock, board, other = HandClock(), Board(broken=ConnectionError("token 123")), Board("other")
    async with told(database, clock, board, other) as (store, served):
        await asked(store, "t", question(clock))
        found = await until(partial(_with_errors, served, 1))
        failing = next(row for row in found if row.error)
        assert (failing.place, failing.state, failing.error) == ("board", "due", "board: ConnectionError")
        assert failing.due_at == clock.time * 1000 + FIRST_PAUSE
        await in_state(served, "due", "sent")  # the other one has been told
        board.broken = None
        clock.turn(FIRST_PAUSE / 1000)
        await in_state(served, "sent", "sent")
        assert len(board.notices) == len(other.notices) == 1


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_button_in_telegram_decides_and_the_mail_says_so(database: Database) -> None:
    clock = HandClock()
    async with telegram_server() as telegram, post_office() as box:
        phone = TelegramDelivery(TOKEN, CHAT, base_url=telegram.url)
        mail = EmailDelivery(box.url(), to="ann@a.example", in_clear=True, outcomes=True)
        async with told(database, clock, Place("phone", phone, ADA), mail) as (store, served):
            await asked(store, "t", question(clock))
            await in_state(served, "sent", "sent")
            [(message, shown)] = telegram.messages.items()
            assert "Amount: 49.00 EUR (4900)" in shown["text"]
            refused = await telegram.press(message, "Approve", user=STRANGER)
            assert "You may not decide this" in await telegram.told(refused)
            pressed = await telegram.press(message, "Approve")
            assert await telegram.told(pressed) == "Approved by Ada Lovelace."
            await in_state(served, "done", "done")
            again = await telegram.press(message, "Approve", data=_data(shown, "Approve"))
            assert "decided already" in await telegram.told(again)
            settled = await store.request("t", "call-1")
            await served.service.cases.link()
            assert (await verify(store.engine)).is_whole
            acts = [json.loads(line) async for line in export(store.engine)]
        told_acts = [act["detail"] for act in acts if act["act"] == "case.delivered"]
        assert sorted((each["via"], each["kind"]) for each in told_acts) == [
            ("email", "review"),
            ("phone", "review"),
        ]
        [refusal] = [act for act in acts if act["act"] == "case.refused"]
        assert (refusal["detail"]["claimed"], refusal["detail"]["via"]) == (
            "telegram:8",
            "telegram_inline_button",
        )
        [answer] = [act for act in acts if act["act"] == "case.answered"]
        assert (answer["actor"], answer["detail"]["account"]) == ("ada@a.example", "telegram:7")
        assert settled is not None
        assert (settled.answered_by, settled.via) == ("ada@a.example", "telegram_inline_button")
        assert "Approved by Ada Lovelace." in telegram.messages[message]["text"]
        assert telegram.buttons(message) == []
        asked_mail, ended_mail = box.mails
        assert ended_mail["In-Reply-To"] == asked_mail["Message-ID"]
        body = ended_mail.get_body(("plain",))
        assert body is not None
        assert "Approved by Ada Lovelace." in body.get_content()


def _data(message: dict[str, Any], label: str) -> str:
    buttons = [button for row in message["reply_markup"]["inline_keyboard"] for button in row]
    return next(button["callback_data"] for button in buttons if button["text"] == label)


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_reminders_a_warning_and_the_next_one_come_with_nobody_there(database: Database) -> None:
    clock, board = HandClock(), Board()
    schedule = Schedule(
        remind=(Moment.read("25 %"), Moment.read("12h")),
        warn=HOUR,
        then=Step.read("board:#ops at 50 %"),
    )

    async def later(hours: float, *states: str) -> None:
        """A process begins after so many hours, does what fell due meanwhile, and ends."""
        clock.turn(hours * HOUR)
        async with told(database, clock, board, schedule=schedule) as (_, served):
            await in_state(served, *states)

    async with database.checkpointer(clock=clock) as store:
        await asked(store, "t", question(clock))
    await later(0, "sent", *["due"] * 4)
    await later(5, "sent", *["due"] * 4)
    assert [notice.kind for notice in board.notices] == ["review"]
    await later(7.5, "sent", "sent", "sent", "dropped", "due")  # two reminders and the next one fell due
    assert sorted(notice.kind for notice in board.notices) == ["escalation", "reminder", "review"]
    reminder = next(notice for notice in board.notices if notice.kind == "reminder")
    assert reminder.follows == Sent("board", reminder.case_id, {"number": 1})
    await later(11, *["sent"] * 4, "dropped")
    assert [notice.kind for notice in board.notices][-1] == "warning"
    await later(0.1, *["sent"] * 4, "dropped")  # once each
    assert len(board.notices) == 4
    await later(2, *["done"] * 4, "dropped")
    assert [ended.kind for ended in board.ends] == ["expired"] * 4
    assert board.ends[0].text == "Nobody decided in time: it is denied."


async def test_what_was_not_sent_when_it_is_decided_is_not_sent_any_more(database: Database) -> None:
    clock, board = HandClock(), Board(broken=DeliveryError("board", "away"))
    async with told(database, clock, board) as (store, served):
        await asked(store, "t", question(clock))
        await until(partial(_with_errors, served, 1))
        await store.settle("t", "call-1", {"decision": "deny"}, by="ann", via="cli")
        await in_state(served, "dropped")
        board.broken = None
        clock.turn(HOUR)
        await in_state(served, "dropped")
    assert board.notices == board.ends == []


async def test_telegram_that_lies_or_asks_to_wait_is_told_again(database: Database) -> None:
    clock = HandClock()
    async with telegram_server() as telegram:
        telegram.refusals["sendMessage"] = [
            Refusal(429, "Too Many Requests: retry after 600", retry_after=600),
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlies",
        ]
        phone = TelegramDelivery(TOKEN, CHAT, base_url=telegram.url)
        async with told(database, clock, phone) as (store, served):
            await asked(store, "t", question(clock))
            [row] = await until(partial(_with_errors, served, 1))
            assert row.due_at == (clock.time + 600) * 1000
            assert TOKEN not in (row.error or "")
            clock.turn(600)
            [row] = await until(partial(_tried, served, 2))
            assert row.error == "telegram: the response is not from Telegram (200)"
            clock.turn(600)
            await in_state(served, "sent")
            assert len(telegram.messages) == 1


async def _tried(served: Served, times: int) -> list[DeliveryRow] | None:
    found = await rows(served)
    return found if [(row.attempts, row.state) for row in found] == [(times, "due")] else None


@pytest.mark.parametrize("links", ["caller", "service"])
async def test_a_caller_may_leave_it_to_the_service_to_tell_people(database: Database, links: str) -> None:
    clock, board = HandClock(), Board()
    async with told(database, clock, board, links=links) as (_, served):
        agent = await served.agent()
        await agent.open(prompt="Not told, unless all are")
        opened = await agent.open(prompt="Publish?", notify=True, context={"title": "Spring"})
        wanted = 1 if links == "caller" else 2
        await in_state(served, *["sent"] * wanted)
        assert len(board.notices) == wanted
        notice = next(each for each in board.notices if each.case_id == opened.case_id)
        assert notice.body.startswith("“Publish?”\nTitle: Spring\nAsked by agent. Open until ")
        assert "If nobody decides by then, it is skipped." in notice.body


async def test_without_deliveries_nothing_can_be_left_to_the_service(database: Database) -> None:
    async with told(database, HandClock()) as (_, served):
        agent = await served.agent()
        answer = await agent.post("/v1/reviews", {"type": "approval", "prompt": "Publish?", "notify": True})
        assert answer.status_code == 422
        assert "this service has no deliveries" in answer.text


async def test_a_slow_place_delays_no_request_and_no_other_place(database: Database) -> None:
    clock, slow, quick, asked_slow = HandClock(), Board("slow"), Board("quick"), asyncio.Event()

    async def never(notice: Notice) -> Sent:
        asked_slow.set()
        await asyncio.Event().wait()
        raise AssertionError

    slow.send = never  # type: ignore[method-assign]
    async with told(database, clock, slow, quick, links="service") as (_, served):
        agent = await served.agent()
        for number in range(10):
            await agent.open(prompt=f"Number {number}?")
        async with asyncio.timeout(PATIENCE):
            await asked_slow.wait()

        async def are_told() -> bool:
            return len(quick.notices) == 10

        await until(are_told)
        assert slow.notices == []


async def test_one_process_listens_at_a_time_and_another_takes_over(database: Database) -> None:
    clock = HandClock()
    async with telegram_server() as telegram, database.checkpointer(clock=clock) as store:
        cases = Cases(store, clock=clock)
        place = Place("phone", TelegramDelivery(TOKEN, CHAT, base_url=telegram.url), ADA)
        first, second = (ButtonListener(cases, place.stored_in(store, clock)) for _ in range(2))
        with mock.patch.object(button_listener, "RENEW_SECONDS", 0.01):
            one = asyncio.create_task(first.run())
            await telegram.until(lambda: telegram.polls == 1)
            other = asyncio.create_task(second.run())
            update = {"message": {"text": "a poll ends, and the next one begins"}}
            await telegram.add_update(update)
            await telegram.until(lambda: telegram.polls == 2 and not telegram.updates)
            one.cancel()
            await asyncio.wait({one})
            await telegram.until(lambda: telegram.polls >= 3)
            other.cancel()
            await asyncio.wait({other})


async def test_a_mail_server_that_is_full_or_away_gets_it_later(database: Database) -> None:
    clock = HandClock()
    async with post_office() as box:
        mail = EmailDelivery(box.url(), to="ann@a.example", in_clear=True, outcomes=True)
        box.refuse_all = "452 4.3.1 Insufficient system storage"
        async with told(database, clock, mail) as (store, served):
            await asked(store, "t", question(clock))
            [row] = await until(partial(_with_errors, served, 1))
            assert row.error == ("email: the server 127.0.0.1 did not take the mail (SMTPDataError, 452)")
            box.refuse_all = None
        port, box.port = box.port, 9
        away = EmailDelivery(box.url(), to="ann@a.example", in_clear=True, outcomes=True)
        clock.turn(HOUR / 2)
        async with told(database, clock, away) as (_, served):
            [row] = await until(partial(_tried, served, 2))
            assert "SMTPConnectError" in (row.error or "")
        box.port = port
        clock.turn(HOUR / 2)
        async with told(database, clock, mail) as (_, served):
            await in_state(served, "sent")
        assert len(box.mails) == 1


async def test_a_place_that_never_answers_is_given_up_for_now(database: Database) -> None:
    clock, slow = HandClock(), Board("slow")

    async def never(notice: Notice) -> Sent:
        await asyncio.Event().wait()
        raise AssertionError

    slow.send = never  # type: ignore[method-assign]
    with mock.patch.object(deliveries, "SECONDS", 0.01):
        async with told(database, clock, slow) as (store, served):
            await asked(store, "t", question(clock))
            [row] = await until(partial(_with_errors, served, 1))
            assert (row.state, row.error) == ("due", "slow: no answer in time")
