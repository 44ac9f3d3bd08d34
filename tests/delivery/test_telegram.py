"""Telegram: against a server that checks what the platform checks, and presses the buttons."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Any

import httpx2
import pytest
from kit.patience import PATIENCE
from kit.stores import Database
from kit.telegram_server import CHAT, STRANGER, TOKEN, Refusal, TelegramServer, bad, telegram_server, utf16
from kit.warm_python import warm_python

from askfirst.delivery import telegram_presses
from askfirst.delivery.base import (
    OPEN_LABEL,
    Button,
    Delivery,
    Ended,
    Notice,
    Press,
    PressAnswer,
    PressDelivery,
    Sent,
)
from askfirst.delivery.stored_posts import KEPT_SECONDS
from askfirst.delivery.telegram import TelegramDelivery
from askfirst.errors import DeliveryError
from askfirst.hitl.testing import FakeClock

pytestmark = pytest.mark.anyio

SECRET = "xYzReviewTokenThatNobodyMaySee"  # noqa: S105
LINK = f"https://books.example/review/case_1?token={SECRET}"
BUTTONS = (Button("approve", "Approve"), Button("reject", "Reject"))
BODY = "Publish the post?"
ASKED = Notice("review", "case_1", BODY, LINK, BUTTONS, facts={"service": "books.example"}, whole=True)
SAID = f"books.example asks for a decision\n\n{BODY}"
ENDED = Ended("case_1", "completed", "Approved.", action="approve", by="Ada Lovelace")


@pytest.fixture
async def telegram() -> AsyncGenerator[TelegramServer]:
    async with telegram_server() as server:
        yield server


def delivery_to(telegram: TelegramServer, **options: Any) -> TelegramDelivery:
    return TelegramDelivery(TOKEN, CHAT, base_url=telegram.url, **options)


class Desk:
    """What an agent does with presses: the first one counts."""

    def __init__(self, answer: PressAnswer | BaseException | None = None) -> None:
        self.presses: list[Press] = []
        self.answer = answer

    async def __call__(self, press: Press) -> PressAnswer:
        self.presses.append(press)
        if isinstance(self.answer, BaseException):
            raise self.answer
        if self.answer is not None:
            return self.answer
        if len(self.presses) == 1:
            return PressAnswer("done", "Approved.")
        return PressAnswer("closed", "Somebody was faster.")


def message_of(sent: Sent) -> int:
    return int(sent.place["message"])


# Sending.


async def test_it_is_a_delivery_that_hears_presses(telegram: TelegramServer) -> None:
    delivery: Delivery = delivery_to(telegram)
    assert isinstance(delivery, PressDelivery)
    assert delivery.shows_buttons


async def test_a_notice_becomes_a_message_with_link_and_buttons(telegram: TelegramServer) -> None:
    sent = await delivery_to(telegram).send(ASKED)
    message = telegram.messages[message_of(sent)]
    assert message["chat_id"] == CHAT
    assert message["text"] == SAID
    approve, reject, page = telegram.buttons(message_of(sent))
    assert (approve["text"], reject["text"], page["text"]) == ("Approve", "Reject", OPEN_LABEL)
    assert page["url"] == LINK
    assert approve["callback_data"] == f"hitl:{sent.place['key']}:approve"
    assert (sent.delivery, sent.case_id) == ("telegram", "case_1")
    assert Sent(**json.loads(json.dumps(asdict(sent)))) == sent
    assert SECRET not in json.dumps(asdict(sent))


async def test_agent_text_is_inert_and_nothing_of_it_is_hidden(telegram: TelegramServer) -> None:
    body = "<b>*Approved*</b> at https://evil.example @everyone /approve \u202egnp.exe\x1b[2J\nnext line"
    sent = await delivery_to(telegram).send(Notice("review", "case_1", body, LINK))
    message = telegram.messages[message_of(sent)]
    assert "parse_mode" not in message
    shown = body.replace("\u202e", "<U+202E>").replace("\x1b", "<U+001B>")
    heading = "A service asks for a decision"
    assert message["text"] == f"{heading}\n\n{shown}"
    assert message["entities"] == [
        {"type": "bold", "offset": 0, "length": len(heading)},
        {"type": "pre", "offset": len(heading) + 2, "length": utf16(shown)},
    ]
    assert message["link_preview_options"] == {"is_disabled": True}


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600", "\u202e"])
async def test_a_long_text_is_cut_where_it_can_be_seen(telegram: TelegramServer, letter: str) -> None:
    delivery = delivery_to(telegram)
    sent = await delivery.send(Notice("review", "case_1", letter * 50_000, LINK, BUTTONS))
    text = telegram.messages[message_of(sent)]["text"]
    assert 4000 < utf16(text) <= 4096
    assert "more characters on the page" in text
    await delivery.update(sent, Ended("case_1", "cancelled", "Cancelled: " + letter * 50_000))
    text = telegram.messages[message_of(sent)]["text"]
    assert "Cancelled: " in text
    assert utf16(text) <= 4096


@pytest.mark.parametrize("body", ["", " \n\n "])
async def test_a_notice_without_words_is_sent_all_the_same(telegram: TelegramServer, body: str) -> None:
    sent = await delivery_to(telegram).send(Notice("review", "case_1", body, LINK))
    assert telegram.messages[message_of(sent)]["text"].endswith("\n\nCase case_1")


@pytest.mark.parametrize(
    "url",
    ["http://localhost:8000/r?token=t", "http://127.0.0.1:8000/r?token=t", "http://[::1]:8000/r?token=t"],
)
async def test_a_link_to_this_machine_stands_in_the_text(telegram: TelegramServer, url: str) -> None:
    sent = await delivery_to(telegram).send(Notice("review", "case_1", "y" * 9000, url, BUTTONS))
    message = telegram.messages[message_of(sent)]
    assert message["text"].endswith(f" more characters on the page)\n\n{url}")
    assert [button["text"] for button in telegram.buttons(message_of(sent))] == ["Reject"]
    assert len(telegram.called("sendMessage")) == 1
    block = message["entities"][-1]  # the link is not part of it, so it can be pressed
    assert block["offset"] + block["length"] == utf16(message["text"]) - len(f"\n\n{url}")


async def test_a_link_that_telegram_refuses_as_button_stands_in_the_text(telegram: TelegramServer) -> None:
    telegram.refusals["sendMessage"] = [bad("BUTTON_URL_INVALID")]
    sent = await delivery_to(telegram).send(ASKED)
    assert telegram.messages[message_of(sent)]["text"] == f"{SAID}\n\n{LINK}"


async def test_actions_that_are_too_long_for_a_button_work(telegram: TelegramServer) -> None:
    long = "x-" + "ü" * 100
    desk = Desk()
    delivery = delivery_to(telegram)
    notice = Notice(
        "review", "case_1", "?", LINK, (Button(long, "L" * 300), Button("x-2", "Other")), whole=True
    )
    sent = await delivery.send(notice)
    label = telegram.buttons(message_of(sent))[0]["text"]
    assert "more characters" in label
    async with delivery.listening(desk):
        await telegram.told(await telegram.press(message_of(sent), label))
    assert [press.action for press in desk.presses] == [long]


async def test_progress_makes_no_noise(telegram: TelegramServer) -> None:
    sent = await delivery_to(telegram).send(Notice("progress", "case_1", "Step 2 of 3"))
    message = telegram.messages[message_of(sent)]
    assert message["disable_notification"] is True
    assert "reply_markup" not in message


async def test_a_group_that_became_a_supergroup_is_followed(telegram: TelegramServer) -> None:
    telegram.chats = {-2002}
    moved = Refusal(
        400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=-2002
    )
    telegram.refusals["sendMessage"] = [moved]
    desk, delivery = Desk(), delivery_to(telegram)
    sent = await delivery.send(ASKED)
    assert sent.place["chat"] == -2002
    async with delivery.listening(desk):
        assert await telegram.told(await telegram.press(message_of(sent), "Approve")) == "Approved."


# What goes wrong.


async def test_rate_limits_say_how_long_to_wait(telegram: TelegramServer) -> None:
    telegram.refusals["sendMessage"] = [
        Refusal(429, "Too Many Requests: retry after 17", retry_after=17),
    ]
    delivery = delivery_to(telegram)
    with pytest.raises(DeliveryError) as caught:
        await delivery.send(ASKED)
    assert caught.value.retry_after == 17
    assert not caught.value.permanent
    await delivery.send(ASKED)


@pytest.mark.parametrize(
    ("refusal", "permanent"),
    [
        (Refusal(500, "Internal Server Error"), False),
        (Refusal(403, "Forbidden: bot was blocked by the user"), True),
        (bad("chat not found"), True),
        (Refusal(401, "Unauthorized"), True),
    ],
)
async def test_refusals_say_whether_to_try_again(
    telegram: TelegramServer, refusal: Refusal, permanent: bool
) -> None:
    telegram.refusals["sendMessage"] = [refusal]
    with pytest.raises(DeliveryError) as caught:
        await delivery_to(telegram).send(ASKED)
    assert caught.value.permanent is permanent
    assert str(caught.value).startswith("telegram: Telegram ")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n<h1>Welcome</h1>",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\n<html",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
        b"nonsense\r\n\r\n",
    ],
)
async def test_broken_answers_are_worth_another_try(telegram: TelegramServer, line: bytes) -> None:
    telegram.refusals["sendMessage"] = [line]
    delivery = delivery_to(telegram)
    with pytest.raises(DeliveryError) as caught:
        await delivery.send(ASKED)
    assert not caught.value.permanent
    await delivery.send(ASKED)


async def test_a_link_beyond_all_limits_is_refused_before_anything_is_sent(telegram: TelegramServer) -> None:
    with pytest.raises(DeliveryError, match="longer than a message"):
        await delivery_to(telegram).send(Notice("review", "case_1", "?", LINK + "x" * 5000))
    assert telegram.calls == []


@pytest.mark.parametrize("token", ["", "hello", "4711:x/../y", "4711:AAF-not a token"])
async def test_what_is_no_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(DeliveryError) as caught:
        TelegramDelivery(token, CHAT)
    assert caught.value.permanent
    assert not token or token not in str(caught.value)


async def test_a_chat_is_named_by_its_number(telegram: TelegramServer) -> None:
    TelegramDelivery(TOKEN, str(CHAT))
    with pytest.raises(DeliveryError, match="chat_id must be a number"):
        TelegramDelivery(TOKEN, "@channel")


async def test_nothing_secret_is_in_errors_and_logs(
    telegram: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        gone = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        telegram.refusals["sendMessage"] = [
            bad(f"inline keyboard button URL '{LINK}' is wrong"),
            bad(f"something else about {LINK}"),
        ]
        for url in (telegram.url, gone):
            delivery = TelegramDelivery(TOKEN, CHAT, base_url=url)
            with pytest.raises(DeliveryError) as caught:
                await delivery.send(ASKED)
            told = f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {delivery!r} {vars(caught.value)}"
            assert TOKEN not in told
            assert SECRET not in told
    async with delivery_to(telegram).listening(Desk()):
        await telegram.until(lambda: telegram.polls)
    assert TOKEN not in caplog.text
    assert SECRET not in caplog.text
    assert "HTTP Request: POST" in caplog.text  # the library does log addresses


async def test_ones_own_http_client_lends_its_connections_only(telegram: TelegramServer) -> None:
    headers = {"authorization": "Bearer for-somebody-else", "cookie": "a=b"}
    async with httpx2.AsyncClient(headers=headers, auth=("user", "password")) as http:
        delivery = delivery_to(telegram, http=http)
        sent = await delivery.send(ASKED)
        async with delivery.listening(Desk()):
            await telegram.told(await telegram.press(message_of(sent), "Approve"))
        assert not http.is_closed


# Presses.


async def test_a_press_is_handed_on_and_the_message_says_who_decided(telegram: TelegramServer) -> None:
    desk, delivery = Desk(), delivery_to(telegram)
    sent = await delivery.send(ASKED)
    async with delivery.listening(desk):
        query = await telegram.press(message_of(sent), "Approve")
        assert await telegram.told(query) == "Approved."
        assert telegram.answers[query]["alert"] is False
        await telegram.until(lambda: not telegram.buttons(message_of(sent)))
    assert desk.presses == [
        Press("case_1", "approve", "telegram_inline_button", "telegram", "7", "Ada Lovelace"),
    ]
    assert telegram.messages[message_of(sent)]["text"] == f"{SAID}\n\nApproved. (Ada Lovelace)"
    assert telegram.updates == []
    await delivery.update(sent, Ended("case_1", "completed", "Approved by Ada Lovelace.", by="Ada Lovelace"))
    assert telegram.messages[message_of(sent)]["text"] == f"{SAID}\n\nApproved by Ada Lovelace."


async def test_the_second_press_is_told_that_it_is_closed(telegram: TelegramServer) -> None:
    desk, delivery = Desk(), delivery_to(telegram)
    sent = await delivery.send(ASKED)
    first = await telegram.press(message_of(sent), "Approve")
    second = await telegram.press(message_of(sent), "Reject")  # in the same breath
    async with delivery.listening(desk):
        assert await telegram.told(first) == "Approved."
        assert await telegram.told(second) == telegram_presses.CLOSED
    assert [press.action for press in desk.presses] == ["approve"]


async def test_a_press_that_the_service_finds_closed_takes_the_buttons_away(telegram: TelegramServer) -> None:
    desk, delivery = Desk(PressAnswer("closed", "Its time is up.")), delivery_to(telegram)
    sent = await delivery.send(ASKED)
    async with delivery.listening(desk):
        query = await telegram.press(message_of(sent), "Approve")
        assert await telegram.told(query) == "Its time is up."
        assert telegram.answers[query]["alert"] is True
        await telegram.until(lambda: not telegram.buttons(message_of(sent)))
    assert telegram.messages[message_of(sent)]["text"] == SAID


async def test_a_late_press_is_told_that_it_is_closed(telegram: TelegramServer) -> None:
    desk, delivery = Desk(), delivery_to(telegram)
    sent = await delivery.send(ASKED)
    [approve, *_] = telegram.buttons(message_of(sent))
    await delivery.update(sent, Ended("case_1", "expired", "Nobody decided in time."))
    async with delivery.listening(desk):
        query = await telegram.press(message_of(sent), "", data=approve["callback_data"])
        assert await telegram.told(query) == telegram_presses.CLOSED
    assert desk.presses == []
    assert telegram.messages[message_of(sent)]["text"].endswith("Nobody decided in time.")


async def test_a_stranger_is_told_no_and_nothing_happens(telegram: TelegramServer) -> None:
    desk, delivery = Desk(), delivery_to(telegram, reviewers={7})
    sent = await delivery.send(ASKED)
    before = dict(telegram.messages[message_of(sent)])
    async with delivery.listening(desk):
        stranger = await telegram.press(message_of(sent), "Approve", user=STRANGER)
        assert await telegram.told(stranger) == telegram_presses.NOT_YOURS
        elsewhere = await telegram.press(message_of(sent), "Approve", chat={"id": -9})
        assert await telegram.told(elsewhere) == telegram_presses.NOT_YOURS
        assert desk.presses == []
        assert telegram.messages[message_of(sent)] == before
        await telegram.told(await telegram.press(message_of(sent), "Approve"))
    assert [press.platform_user_id for press in desk.presses] == ["7"]


async def test_data_that_no_button_has_does_nothing(telegram: TelegramServer) -> None:
    desk, delivery = Desk(), delivery_to(telegram)
    sent = await delivery.send(ASKED)
    key = sent.place["key"]
    async with delivery.listening(desk):
        for data in (
            f"hitl:{key}:delete_all",
            "hitl:AAAAAAAAAAAA:approve",
            "hitl:",
            "",
            "other",
            f"hitl:{key}",
        ):
            query = await telegram.press(message_of(sent), "", data=data)
            assert await telegram.told(query) == telegram_presses.UNKNOWN
        await telegram.add_update({"message": {"text": "hello"}})
        await telegram.until(lambda: not telegram.updates)
    assert desk.presses == []


async def test_the_page_is_pointed_to_when_it_has_to_be_decided_there(telegram: TelegramServer) -> None:
    desk, delivery = Desk(PressAnswer("to_page", "Please decide on the page.", LINK)), delivery_to(telegram)
    sent = await delivery.send(ASKED)
    async with delivery.listening(desk):
        query = await telegram.press(message_of(sent), "Approve")
        assert await telegram.told(query) == "Please decide on the page."
    assert telegram.buttons(message_of(sent))[-1]["url"] == LINK
    assert SECRET not in json.dumps(telegram.answers)


async def test_a_press_that_fails_can_be_repeated(
    telegram: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    desk, delivery = Desk(RuntimeError(f"about {SECRET}")), delivery_to(telegram)
    sent = await delivery.send(ASKED)
    async with delivery.listening(desk):
        query = await telegram.press(message_of(sent), "Approve")
        assert await telegram.told(query) == telegram_presses.FAILED
        desk.answer = PressAnswer("done", "Approved.")
        assert await telegram.told(await telegram.press(message_of(sent), "Approve")) == "Approved."
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text


async def test_what_is_told_is_cut_to_what_telegram_takes(telegram: TelegramServer) -> None:
    desk, delivery = Desk(PressAnswer("failed", "\U0001f600" * 500)), delivery_to(telegram)
    sent = await delivery.send(ASKED)
    async with delivery.listening(desk):
        told = await telegram.told(await telegram.press(message_of(sent), "Approve"))
    assert utf16(told) <= 200
    assert "more characters" in told


async def test_a_press_that_is_too_old_to_be_answered_counts(telegram: TelegramServer) -> None:
    telegram.old_queries = True
    desk, delivery = Desk(), delivery_to(telegram)
    sent = await delivery.send(ASKED)
    async with delivery.listening(desk):
        await telegram.press(message_of(sent), "Approve")
        await telegram.until(lambda: not telegram.buttons(message_of(sent)))
    assert len(desk.presses) == 1


async def test_a_slow_press_does_not_hold_up_the_others(telegram: TelegramServer) -> None:
    release = asyncio.Event()

    async def on_press(press: Press) -> PressAnswer:
        if press.case_id == "case_1":
            await release.wait()
        return PressAnswer("done", f"{press.case_id} decided")

    delivery = delivery_to(telegram)
    one = await delivery.send(ASKED)
    two = await delivery.send(Notice("review", "case_2", "?", LINK, BUTTONS, whole=True))
    slow = await telegram.press(message_of(one), "Approve")
    quick = await telegram.press(message_of(two), "Approve")
    async with delivery.listening(on_press):
        assert await telegram.told(quick) == "case_2 decided"
        assert slow not in telegram.answers
        release.set()
        assert await telegram.told(slow) == "case_1 decided"


async def test_leaving_sees_a_press_through(telegram: TelegramServer) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def on_press(press: Press) -> PressAnswer:
        begun.set()
        await release.wait()
        return PressAnswer("done", "Approved.")

    delivery = delivery_to(telegram)
    sent = await delivery.send(ASKED)
    async with delivery.listening(on_press):
        query = await telegram.press(message_of(sent), "Approve")
        await begun.wait()
        asyncio.get_running_loop().call_soon(release.set)
    assert telegram.answers[query]["text"] == "Approved."
    assert telegram.updates == []  # and it was confirmed


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_press_whose_reader_was_killed_comes_again(
    telegram: TelegramServer, database: Database
) -> None:
    async with database.checkpointer() as store:
        delivery, desk = delivery_to(telegram, store=store), Desk()
        sent = await delivery.send(ASKED)
        query = await telegram.press(message_of(sent), "Approve")
        command = [*warm_python(), "-m", "kit.telegram_listener", telegram.url, database.address]
        reader = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert reader.stdout is not None
        assert await reader.stdout.readline() == b"case_1 approve\n"
        reader.kill()
        await reader.communicate()
        assert len(telegram.updates) == 1
        async with delivery.listening(desk):
            assert await telegram.told(query) == "Approved."
    assert [press.action for press in desk.presses] == ["approve"]
    assert telegram.updates == []


async def test_listening_twice_is_refused(telegram: TelegramServer) -> None:
    delivery = delivery_to(telegram)
    async with delivery.listening(Desk()):
        with pytest.raises(DeliveryError, match="listening already"):
            async with delivery.listening(Desk()):
                pass
    async with delivery.listening(Desk()):
        pass


# Reading goes on, whatever happens.


async def waiting(telegram: TelegramServer, polls: int) -> None:
    await telegram.until(lambda: telegram.polls >= polls)


async def test_two_readers_of_one_bot_are_told_of_each_other(
    telegram: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    async with delivery_to(telegram, clock=clock).listening(Desk()):
        await waiting(telegram, 1)
        async with delivery_to(telegram).listening(Desk()):
            await waiting(telegram, 2)
            await logged(
                caplog, "another program reads this bot's presses; only one program may listen for a bot"
            )
            [record] = [each for each in caplog.records if "another program" in each.getMessage()]
            assert record.levelno == logging.ERROR
        await clock.advance(60)
        await waiting(telegram, 3)


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while text not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_reading_waits_as_long_as_telegram_asks(
    telegram: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    telegram.refusals["getUpdates"] = [Refusal(429, "Too Many Requests: retry after 33", retry_after=33)]
    delivery = delivery_to(telegram, clock=clock)
    async with delivery.listening(Desk()):
        await logged(caplog, "trying again in 33 s")
        await clock.advance(32)
        assert telegram.polls == 0
        await clock.advance(1)
        await waiting(telegram, 1)


@pytest.mark.parametrize("trouble", [b"", Refusal(502, "Bad Gateway"), Refusal(401, "Unauthorized")])
async def test_reading_goes_on_after_trouble(
    telegram: TelegramServer, caplog: pytest.LogCaptureFixture, trouble: Refusal | bytes
) -> None:
    clock, desk = FakeClock(), Desk()
    telegram.refusals["getUpdates"] = [trouble, trouble, trouble]
    delivery = delivery_to(telegram, clock=clock)
    sent = await delivery.send(ASKED)
    query = await telegram.press(message_of(sent), "Approve")
    async with delivery.listening(desk):
        for times in (1, 2, 3):
            await repeated(caplog, "presses cannot be read", times)
            await clock.advance(60)
        assert await telegram.told(query) == "Approved."


async def repeated(caplog: pytest.LogCaptureFixture, text: str, times: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while caplog.text.count(text) < times:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


# Updates.


async def test_an_update_that_changes_nothing_is_fine(telegram: TelegramServer) -> None:
    delivery = delivery_to(telegram)
    sent = await delivery.send(ASKED)
    await delivery.update(sent, ENDED)
    await delivery.update(sent, ENDED)
    assert telegram.messages[message_of(sent)]["text"] == f"{SAID}\n\nApproved. (Ada Lovelace)"
    assert len(telegram.called("editMessageText")) == 2


async def test_the_link_goes_when_the_case_ends(telegram: TelegramServer) -> None:
    delivery = delivery_to(telegram)
    sent = await delivery.send(Notice("review", "case_1", "?", f"http://localhost/r?token={SECRET}"))
    assert SECRET in json.dumps(telegram.messages)
    await delivery.update(sent, ENDED)
    assert SECRET not in json.dumps(telegram.messages)


async def test_a_message_that_is_gone_needs_no_update(
    telegram: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = delivery_to(telegram)
    sent = await delivery.send(ASKED)
    telegram.messages.clear()
    await delivery.update(sent, ENDED)
    assert "message to edit not found" in caplog.text


async def test_an_update_that_fails_says_so(telegram: TelegramServer) -> None:
    delivery = delivery_to(telegram)
    sent = await delivery.send(ASKED)
    telegram.refusals["editMessageText"] = [Refusal(429, "Too Many Requests: retry after 3", retry_after=3)]
    with pytest.raises(DeliveryError) as caught:
        await delivery.update(sent, ENDED)
    assert caught.value.retry_after == 3
    await delivery.update(sent, ENDED)
    assert telegram.messages[message_of(sent)]["text"].startswith(SAID)


# Restarts.


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mysql"], indirect=True)
async def test_buttons_work_after_a_restart(telegram: TelegramServer, database: Database) -> None:
    async with database.checkpointer() as store:
        sent = await delivery_to(telegram, store=store).send(ASKED)
    async with database.checkpointer() as store:
        desk, delivery = Desk(), delivery_to(telegram, store=store)
        async with delivery.listening(desk):
            query = await telegram.press(message_of(sent), "Approve")
            assert await telegram.told(query) == "Approved."
    assert [press.case_id for press in desk.presses] == ["case_1"]
    async with database.checkpointer() as store:
        delivery = delivery_to(telegram, store=store)
        await delivery.update(sent, ENDED)
        assert telegram.messages[message_of(sent)]["text"] == f"{SAID}\n\nApproved. (Ada Lovelace)"
        stored = await store.list_checkpoints("askfirst.telegram")
        assert SECRET not in json.dumps([each.body for each in stored])


async def test_without_a_store_a_restart_is_told(telegram: TelegramServer) -> None:
    sent = await delivery_to(telegram).send(ASKED)
    desk, delivery = Desk(), delivery_to(telegram)
    async with delivery.listening(desk):
        query = await telegram.press(message_of(sent), "Approve")
        assert await telegram.told(query) == telegram_presses.UNKNOWN
    await delivery.update(sent, ENDED)
    assert telegram.messages[message_of(sent)]["text"] == "Case case_1\n\nApproved. (Ada Lovelace)"
    assert desk.presses == []


@pytest.mark.parametrize("database", ["memory", "sqlite"], indirect=True)
async def test_what_is_old_is_forgotten(telegram: TelegramServer, database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as store:
        options: dict[str, Any] = {} if database.kind == "memory" else {"store": store}
        delivery = delivery_to(telegram, clock=clock, **options)
        sent = await delivery.send(ASKED)
        await clock.advance(KEPT_SECONDS + 1)
        young = await delivery.send(ASKED)
        desk = Desk()
        async with delivery.listening(desk):
            assert (
                await telegram.told(await telegram.press(message_of(sent), "Approve"))
                == telegram_presses.UNKNOWN
            )
            await telegram.told(await telegram.press(message_of(young), "Approve"))
        assert len(desk.presses) == 1
