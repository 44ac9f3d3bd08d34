"""Apprise: what reaches a real server on this machine, through its own plug-ins."""

from __future__ import annotations

import asyncio
import html
import json
import logging
import re
import socket
from collections.abc import AsyncGenerator
from dataclasses import replace
from email.message import EmailMessage
from typing import Any

import pytest
from kit.callback_receivers import Receiver, receiving
from kit.hostile_text import CORPUS, everywhere
from kit.post_office import post_office

from askfirst.delivery import apprise
from askfirst.delivery.apprise import AppriseDelivery, AppriseTarget, targets_of
from askfirst.delivery.base import Delivery, Ended, Notice, PressDelivery
from askfirst.errors import DeliveryError
from askfirst.service.notices import notice_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:'imghdr' is deprecated"),  # which Apprise imports
]

SECRET = "xYzReviewTokenThatNobodyMaySee"  # noqa: S105
ACTS = re.compile("[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
KEY = "hunter2inThePath"
LINK = f"https://books.example/review/case_1?token={SECRET}&x=a_b-c"
FACTS = {"service": "books.example", "prompt": "Publish the post?", "type": "approval"}
ASKED = Notice("review", "case_1", "Publish the post?\n\nIt is the one about owls.", LINK, facts=FACTS)
TITLE = "books.example asks for a decision"


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with receiving() as server:
        yield server


def url_of(receiver: Receiver, **options: str) -> str:
    more = "".join(f"?{name}={value}" for name, value in options.items())
    return f"json://user:{KEY}@127.0.0.1:{receiver.port}/{KEY}{more}"


def bodies(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for _, _, body in receiver.requests]


async def test_a_notice_is_carried_with_its_link(receiver: Receiver) -> None:
    delivery: Delivery = AppriseDelivery(url_of(receiver))
    assert not delivery.shows_buttons
    assert not isinstance(delivery, PressDelivery)
    sent = await delivery.send(ASKED)
    assert (sent.delivery, sent.case_id, sent.place) == ("apprise", "case_1", {})
    [body] = bodies(receiver)
    assert body["title"] == TITLE
    assert body["message"] == f"{ASKED.body}\n\n{LINK}"
    assert body["type"] == "info"


async def test_hidden_characters_are_shown(receiver: Receiver) -> None:
    text = "<b>:smile:</b> \\n \u202egnp.exe\x1b[2J"
    await AppriseDelivery(url_of(receiver)).send(Notice("review", "case_1", text, LINK))
    [body] = bodies(receiver)
    assert body["message"].startswith("<b>:smile:</b> \\n <U+202E>gnp.exe<U+001B>[2J\n\n")


async def test_long_texts_are_cut_where_it_can_be_seen(receiver: Receiver) -> None:
    await AppriseDelivery(url_of(receiver)).send(Notice("review", "case_1", "x" * 100_000, LINK))
    [body] = bodies(receiver)
    assert len(body["message"]) <= 20_000
    assert body["message"].endswith(f" more characters on the page)\n\n{LINK}")


async def test_a_mail_through_apprise() -> None:
    async with post_office() as office:
        url = f"mailto://127.0.0.1:{office.port}?from=desk@a.example&to=ann@b.example&mode=insecure"
        await AppriseDelivery(url).send(ASKED)
        [mail] = office.mails
    assert mail["Subject"] == TITLE
    part = mail.get_body(("plain",))
    assert isinstance(part, EmailMessage)
    assert part.get_content().replace("\r\n", "\n").strip() == f"{ASKED.body}\n\n{LINK}"


# Formats and limits of places that cannot be reached from here.


def place(url: str) -> AppriseTarget:
    [found] = targets_of([url])
    return found


DISCORD = "discord://1234567890/abcdefghijklmnop"
TELEGRAM = "tgram://123456789:abcdefg_hijklmnop/12345"
GOOGLE_CHAT = "gchat://workspace/key/token"
SMS = "twilio://AC" + "a" * 32 + ":" + "b" * 32 + "@15551234567/15557654321"
HOSTILE = Notice(
    "review",
    "case_1",
    "**Approved** [here](https://evil.example) <a href='x'>link</a> & `code`",
    LINK,
    facts=FACTS,
)


@pytest.mark.parametrize("url", [DISCORD, GOOGLE_CHAT])
def test_markdown_is_escaped_and_the_link_is_whole(url: str) -> None:
    _, body = place(url)._within_limits(HOSTILE)  # pyright: ignore[reportPrivateUsage]
    assert body.startswith(r"\*\*Approved\*\* \[here\]\(https://evil\.example\) \<a")
    assert body.endswith(f"\n\n<{LINK}>")


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("url", [DISCORD, GOOGLE_CHAT, TELEGRAM, SMS])
def test_hostile_text_is_inert(url: str, name: str) -> None:
    for case in everywhere(CORPUS[name]).values():
        notice = notice_of(case, "review", service="Desk", link=LINK, with_buttons=True)
        title, body = place(url)._within_limits(notice)  # pyright: ignore[reportPrivateUsage]
        assert not ACTS.search(title + body)
        if url == TELEGRAM:
            assert re.findall(r'href="([^"]*)"', body) == [html.escape(LINK)]
            assert not set(re.findall(r"<(\w+)", body)) - {"a", "br"}


def test_nobody_is_mentioned_by_others_text() -> None:
    text = "@everyone @here <@123> <@&4> <@!5> ada@example.com"
    _, body = place(DISCORD)._within_limits(replace(HOSTILE, body=text))  # pyright: ignore[reportPrivateUsage]
    assert not re.search(r"@(everyone|here|\d|&|!)", body)
    assert r"ada@example\.com" in body


async def test_markdown_arrives_escaped(receiver: Receiver) -> None:
    await AppriseDelivery(f"mmost://127.0.0.1:{receiver.port}/{'a' * 24}").send(HOSTILE)
    [body] = bodies(receiver)
    assert r"\*\*Approved\*\* \[here\]\(https" in body["text"]
    assert body["text"].endswith(f"\n\n<{LINK}>")


def test_html_is_escaped_and_the_link_can_be_pressed() -> None:
    _, body = place(TELEGRAM)._within_limits(HOSTILE)  # pyright: ignore[reportPrivateUsage]
    assert html.escape("<a href='x'>link</a> & `code`") in body
    assert body.endswith(f'<a href="{html.escape(LINK)}">{html.escape(LINK)}</a>')


@pytest.mark.parametrize("letter", ["x", "*", "<", "ü"])
@pytest.mark.parametrize(("url", "limit"), [(DISCORD, 2000), (TELEGRAM, 4096), (SMS, 160)])
def test_the_text_gives_way_to_the_link(url: str, limit: int, letter: str) -> None:
    notice = Notice("review", "case_1", letter * 10_000, LINK, facts=FACTS)
    title, body = place(url)._within_limits(notice)  # pyright: ignore[reportPrivateUsage]
    assert len(title) + len(body) <= limit
    assert LINK in html.unescape(body)
    assert "…" in body


def test_a_link_that_does_not_fit_is_told() -> None:
    problem = place(SMS).send(Notice("review", "case_1", "?", LINK + "x" * 200))
    assert problem is not None
    assert problem.permanent
    assert "the link is too long for Twilio" in str(problem)


# Ends.


async def test_nobody_is_told_what_they_know(receiver: Receiver) -> None:
    delivery = AppriseDelivery(url_of(receiver))
    sent = await delivery.send(Notice("progress", "case_1", "Step 2 of 3"))
    await delivery.update(sent, Ended("case_1", "completed", "Approved.", action="approve"))
    assert receiver.requests == []


async def test_that_nobody_decided_is_told_once(receiver: Receiver) -> None:
    delivery = AppriseDelivery(url_of(receiver))
    first = await delivery.send(ASKED)
    again = await delivery.send(Notice("reminder", "case_1", "Reminder", LINK))
    expired = Ended("case_1", "expired", "Nobody answered in time.")
    await asyncio.gather(delivery.update(first, expired), delivery.update(again, expired))
    assert [body["message"] for body in bodies(receiver)[2:]] == ["Nobody answered in time."]


# What goes wrong.


@pytest.mark.parametrize(("status", "permanent"), [(500, False), (429, False), (404, True), (401, True)])
async def test_a_refusal_is_an_error_without_secrets(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, status: int, permanent: bool
) -> None:
    caplog.set_level(logging.NOTSET + 1)
    for name in ("apprise", "urllib3"):
        caplog.set_level(logging.NOTSET + 1, logger=name)
    receiver.answer = b"HTTP/1.1 %d x\r\nContent-Length: 2\r\n\r\nno" % status
    with pytest.raises(DeliveryError) as caught:
        await AppriseDelivery(url_of(receiver)).send(ASKED)
    error = caught.value
    assert error.permanent is permanent
    assert str(status) in str(error)
    for told in (f"{error} {error!r} {vars(error)} {error.__cause__!r}", caplog.text):
        assert SECRET not in told
        assert KEY not in told
        assert "owls" not in told


async def test_a_server_that_is_gone() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(DeliveryError) as caught:
            await AppriseDelivery(f"json://127.0.0.1:{nobody.getsockname()[1]}/{KEY}").send(ASKED)
    assert not caught.value.permanent
    assert KEY not in str(caught.value)


async def test_a_server_that_never_answers_does_not_hold_up_the_loop(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apprise, "SECONDS", 0.2)
    receiver.answer = None
    delivery = AppriseDelivery(url_of(receiver, rto="1"))
    with pytest.raises(DeliveryError, match="no answer within"):
        await delivery.send(ASKED)


async def test_what_one_place_took_is_not_sent_there_again(receiver: Receiver) -> None:
    async with receiving() as other:
        other.answer = b"HTTP/1.1 503 x\r\nContent-Length: 2\r\n\r\nno"
        delivery = AppriseDelivery([url_of(receiver), url_of(other)])
        with pytest.raises(DeliveryError):
            await delivery.send(ASKED)
        other.answer = receiver.answer
        await delivery.send(ASKED)
        assert (len(receiver.requests), len(other.requests)) == (1, 2)
        await delivery.send(ASKED)  # a new one
        assert (len(receiver.requests), len(other.requests)) == (2, 3)


async def test_an_address_that_apprise_does_not_know(caplog: pytest.LogCaptureFixture) -> None:
    delivery = AppriseDelivery(["json://localhost", f"nosuch://{KEY}"])
    with pytest.raises(DeliveryError, match="Apprise cannot use the URL number 2") as caught:
        await delivery.send(ASKED)
    assert caught.value.permanent
    assert KEY not in str(caught.value) + caplog.text


@pytest.mark.parametrize("urls", ["", [], ["discord"], ["json://a", KEY]])
def test_addresses_have_a_scheme(urls: Any) -> None:
    with pytest.raises(DeliveryError, match="urls must be one or several URLs") as caught:
        AppriseDelivery(urls)
    assert KEY not in str(caught.value)


async def test_what_others_log_with_apprise_is_left_alone(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    await AppriseDelivery(url_of(receiver)).send(ASKED)
    logging.getLogger("apprise").warning("something of yours")
    assert "something of yours" in caplog.text
