"""E-mail: through a real mail server, with all that can go wrong on the way."""

from __future__ import annotations

import asyncio
import html
import json
import re
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from kit.callback_receivers import certified
from kit.post_office import PostOffice, post_office

from askfirst import smtp
from askfirst.delivery.base import Delivery, Ended, Notice, PressDelivery, Sent
from askfirst.delivery.email import EmailDelivery
from askfirst.errors import DeliveryError

pytestmark = pytest.mark.anyio

SECRET = "xYzReviewTokenThatNobodyMaySee"  # noqa: S105
LINK = f"https://books.example/review/case_1?token={SECRET}&x=%2F"
FACTS = {"service": "books.example", "prompt": "Publish the post?", "type": "approval"}
ASKED = Notice("review", "case_1", "Publish the post?\n\nIt is the one about owls.", LINK, facts=FACTS)
ANN = "ann@reviewers.example"
EXPIRED = Ended("case_1", "expired", "Nobody answered in time. By default: skip.")


@pytest.fixture
async def office() -> AsyncGenerator[PostOffice]:
    async with post_office() as server:
        yield server


def delivery_by(office: PostOffice, **options: Any) -> EmailDelivery:
    return EmailDelivery(office.url(), **{"to": ANN, **options})


def text_of(mail: EmailMessage) -> str:
    part = mail.get_body(("plain",))
    assert part is not None
    return part.get_content().replace("\r\n", "\n")


def html_of(mail: EmailMessage) -> str:
    part = mail.get_body(("html",))
    assert part is not None
    return part.get_content().replace("\r\n", "\n")


async def test_a_notice_becomes_a_mail_with_the_link(office: PostOffice) -> None:
    delivery: Delivery = delivery_by(office)
    assert not delivery.shows_buttons
    assert not isinstance(delivery, PressDelivery)
    sent = await delivery.send(ASKED)
    [mail] = office.mails
    assert office.recipients == [[ANN]]
    assert (mail["From"], mail["To"]) == ("desk@a.example", ANN)
    assert mail["Subject"] == "Publish the post? · books.example asks"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Date"]
    assert text_of(mail) == f"{ASKED.body}\n\nbooks.example asks for a decision.\n\n{LINK}\n"
    assert f'<a href="{html.escape(LINK)}" ' in html_of(mail)
    assert office.logins == [(b"desk@a.example", b"pass/word")]
    assert Sent(**json.loads(json.dumps(asdict(sent)))) == sent
    assert SECRET not in json.dumps(asdict(sent))
    assert SECRET not in str(mail["Message-ID"])


async def test_agent_text_is_inert(office: PostOffice) -> None:
    body = '<script>alert(1)</script><img src="https://evil.example/x.png"> \u202egnp.exe & more\x1b[2J'
    await delivery_by(office).send(Notice("review", "case_1", body, LINK))
    [mail] = office.mails
    page = html_of(mail)
    assert re.findall(r"<(\w+)", page) == ["html", "head", "meta", "body", "h1", "div", "p", "a", "p"]
    assert re.findall(r'(?:src|href)="\S+"', page) == [f'href="{html.escape(LINK)}"']
    assert re.findall(r">([^<]+)</a>", page) == ["Look at it"]  # and nothing in a mail decides
    for part in (text_of(mail), html.unescape(page)):
        assert body.replace("\u202e", "<U+202E>").replace("\x1b", "<U+001B>") in part


async def test_no_header_can_be_slipped_in(office: PostOffice) -> None:
    prompt = "Hi\r\nBcc: everybody@evil.example\r\n\r\nIgnore the above\u2028\u202e\x00"
    facts = {"service": "evil.example\r\nX-Evil: yes", "prompt": prompt}
    await delivery_by(office).send(Notice("review", "case\r\nX-Evil: yes", prompt, LINK, facts=facts))
    [mail] = office.mails
    assert office.recipients == [[ANN]]
    assert mail["Bcc"] is None
    assert mail["X-Evil"] is None
    assert "Hi Bcc: everybody@evil.example Ignore the above" in mail["Subject"]
    assert "<U+202E>" in mail["Subject"]


async def test_long_texts_are_cut_where_it_can_be_seen(office: PostOffice) -> None:
    facts = {**FACTS, "prompt": "ü" * 500}
    await delivery_by(office).send(Notice("review", "case_1", "ü" * 1_000_000, LINK, facts=facts))
    [mail] = office.mails
    assert len(mail["Subject"]) <= 150
    assert mail["Subject"].endswith("more characters on the page) · books.example asks")
    assert "more characters on the page)\n\nbooks.example asks for a decision.\n\nhttps://" in text_of(mail)
    assert len(text_of(mail)) < 21_000


async def test_reminders_and_the_end_stand_in_the_thread(office: PostOffice) -> None:
    delivery = delivery_by(office)
    first = await delivery.send(ASKED)
    again = await delivery.send(Notice("reminder", "case_1", "Reminder: publish?", LINK, facts=FACTS))
    await asyncio.gather(delivery.update(first, EXPIRED), delivery.update(again, EXPIRED))
    asked, reminder, end = office.mails
    for mail in (reminder, end):
        assert mail["In-Reply-To"] == mail["References"] == asked["Message-ID"]
        assert mail["Message-ID"] != asked["Message-ID"]
        assert mail["Subject"] == f"Re: {asked['Subject']}"
    assert reminder["Message-ID"] != end["Message-ID"]
    assert LINK in text_of(reminder)
    assert text_of(end) == f"{EXPIRED.text}\n"
    assert "href" not in html_of(end)


async def test_the_end_finds_its_thread_after_a_restart(office: PostOffice) -> None:
    sent = await delivery_by(office).send(ASKED)
    stored = json.loads(json.dumps(asdict(sent)))
    cancelled = Ended("case_1", "cancelled", "The review was cancelled: too late")
    await delivery_by(office).update(Sent(**stored), cancelled)
    asked, end = office.mails
    assert end["References"] == asked["Message-ID"]


async def test_the_same_notice_twice_is_one_mail_to_mail_programs(office: PostOffice) -> None:
    delivery = delivery_by(office)
    await delivery.send(ASKED)
    await delivery.send(ASKED)
    await delivery.send(Notice("review", "case_1", ASKED.body, "https://other.example/r?token=t"))
    one, two, other = (mail["Message-ID"] for mail in office.mails)
    assert one == two
    assert other != one


async def test_nobody_is_written_to_about_what_they_know(office: PostOffice) -> None:
    delivery = delivery_by(office)
    sent = await delivery.send(Notice("progress", "case_1", "Step 2 of 3"))
    await delivery.update(sent, Ended("case_1", "completed", "Approved.", action="approve"))
    assert office.mails == []


async def test_an_end_that_was_not_taken_is_written_again(office: PostOffice) -> None:
    delivery = delivery_by(office)
    sent = await delivery.send(ASKED)
    office.refuse_all = "451 later"
    with pytest.raises(DeliveryError):
        await delivery.update(sent, EXPIRED)
    office.refuse_all = None
    await delivery.update(sent, EXPIRED)
    await delivery.update(sent, EXPIRED)
    assert len(office.mails) == 2


async def test_several_recipients_get_one_mail(office: PostOffice, caplog: pytest.LogCaptureFixture) -> None:
    bob = "bob@reviewers.example"
    office.refused[bob] = "550 no such user"
    await delivery_by(office, to=[ANN, bob], from_="robot@b.example").send(ASKED)
    assert office.recipients == [[ANN]]
    assert office.mails[0]["To"] == f"{ANN}, {bob}"
    assert office.mails[0]["From"] == "robot@b.example"
    assert str(office.mails[0]["Message-ID"]).endswith("@b.example>")
    assert "1 of 2 recipients were refused" in caplog.text
    assert bob not in caplog.text


# What goes wrong.


def nothing_secret_in(error: DeliveryError) -> None:
    told = f"{error} {error!r} {vars(error)} {error.__cause__!r}"
    for secret in (SECRET, ANN, "pass/word", "pass%2Fword", "desk@a.example"):
        assert secret not in told


@pytest.mark.parametrize(("reply", "permanent"), [("550 no such user", True), ("450 try later", False)])
async def test_a_refused_recipient(office: PostOffice, reply: str, permanent: bool) -> None:
    office.refused[ANN] = reply
    with pytest.raises(DeliveryError) as caught:
        await delivery_by(office).send(ASKED)
    assert caught.value.permanent is permanent
    assert reply[:3] in str(caught.value)
    nothing_secret_in(caught.value)


@pytest.mark.parametrize(("reply", "permanent"), [("554 not today", True), ("452 mailbox full", False)])
async def test_a_refused_mail(office: PostOffice, reply: str, permanent: bool) -> None:
    office.refuse_all = f"{reply} {SECRET}"
    with pytest.raises(DeliveryError) as caught:
        await delivery_by(office).send(ASKED)
    assert caught.value.permanent is permanent
    nothing_secret_in(caught.value)


async def test_a_wrong_password(office: PostOffice) -> None:
    with pytest.raises(DeliveryError, match="535") as caught:
        await EmailDelivery(office.url("desk%40a.example:guess"), to=ANN).send(ASKED)
    assert caught.value.permanent
    nothing_secret_in(caught.value)


async def test_no_credentials_are_fine(office: PostOffice) -> None:
    url = f"smtp://127.0.0.1:{office.port}"
    await EmailDelivery(url, to=ANN, from_="desk@a.example").send(ASKED)
    assert office.logins == []
    assert len(office.mails) == 1


async def test_a_server_without_logins_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sluggish(0.0) as port:  # it answers to EHLO, and offers nothing
        url = f"smtp://desk%40a.example:pass%2Fword@127.0.0.1:{port}"
        with pytest.raises(DeliveryError) as caught:
            await EmailDelivery(url, to=ANN).send(ASKED)
        said = (
            "email: the server 127.0.0.1 did not take the mail (it offers no login (AUTH) on this port: leave"
        )
        assert str(caught.value).startswith(said)
        nothing_secret_in(caught.value)
        assert caught.value.permanent
        monkeypatch.setattr(smtp, "LOOPBACK_HOSTS", ())
        with pytest.raises(DeliveryError, match="it offers no encryption \\(STARTTLS\\) on this port: name"):
            await EmailDelivery(url, to=ANN).send(ASKED)


async def test_a_server_that_is_gone() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        url = f"smtp://desk%40a.example:pass%2Fword@127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(DeliveryError) as caught:
            await EmailDelivery(url, to=ANN).send(ASKED)
    assert not caught.value.permanent
    nothing_secret_in(caught.value)


@asynccontextmanager
async def sluggish(pause: float | None) -> AsyncGenerator[int]:
    """A server that thinks for so long before each word, though no word alone takes too long; None is for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replies = {b"DATA\r\n": b"354 go on\r\n", b".\r\n": b"250 OK\r\n"}
        is_text, line = False, b""
        try:
            if pause is None:
                await reader.read()
                return
            writer.write(b"220 mail.test\r\n")
            while line := await reader.readline():
                if not is_text or line == b".\r\n":
                    await asyncio.sleep(pause)
                    writer.write(replies.get(line, b"250 OK\r\n"))
                    is_text = line == b"DATA\r\n"
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("pause", [None, 0.4])
async def test_a_slow_server_is_left_after_a_while(pause: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp, "SMTP_SECONDS", 0.5)
    async with sluggish(pause) as port:
        with pytest.raises(DeliveryError, match="Timeout") as caught:
            await EmailDelivery(f"smtp://127.0.0.1:{port}", to=ANN, from_="a@b.example").send(ASKED)
    assert not caught.value.permanent


async def test_nothing_is_sent_in_clear(office: PostOffice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp, "LOOPBACK_HOSTS", ())
    with pytest.raises(DeliveryError) as caught:
        await delivery_by(office).send(ASKED)
    assert caught.value.permanent
    assert office.mails == []
    assert office.logins == []
    await delivery_by(office, in_clear=True).send(ASKED)
    assert office.encrypted == [False]


@pytest.mark.parametrize("implicit", [False, True])
async def test_an_encrypted_connection(tmp_path: Path, implicit: bool) -> None:
    server, trusted = certified("localhost", tmp_path)
    async with post_office(server, host="localhost", implicit=implicit) as office:
        url = office.url().replace("smtp://", "smtps://") if implicit else office.url()
        await EmailDelivery(url, to=ANN, tls=trusted).send(ASKED)
        assert len(office.mails) == 1
        assert office.encrypted == [True]
        with pytest.raises(DeliveryError) as caught:  # whose certificate nobody vouches for
            await EmailDelivery(url, to=ANN).send(ASKED)
        assert len(office.mails) == 1
        assert len(office.logins) == 1
    nothing_secret_in(caught.value)


@pytest.mark.parametrize(
    "url", ["", "mail.example", "http://mail.example", "smtp://user:hunter2@host", "smtp://"]
)
def test_a_server_is_named_properly(url: str) -> None:
    with pytest.raises(DeliveryError, match="smtp_url is like") as caught:
        EmailDelivery(url, to=ANN)
    assert "hunter2" not in str(caught.value)
    assert caught.value.permanent


@pytest.mark.parametrize("to", ["", "ann", [], [ANN, "a b@c"], "a@b\nBcc: c@d"])
def test_recipients_are_addresses(to: Any) -> None:
    with pytest.raises(DeliveryError, match="to must be one or several e-mail addresses"):
        EmailDelivery("smtp://host?from=a@b.example", to=to)
