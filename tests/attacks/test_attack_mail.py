"""Text of a case in a mail: it is shown as it was made visible, and nothing of it becomes a header or a body."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.headerregistry import HeaderRegistry, UnstructuredHeader
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.post_office import post_office
from kit.running_service import Served, serving
from kit.smtp_mailbox import Mailbox, mailbox
from kit.stores import SHARED

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.delivery.base import Notice
from askfirst.delivery.email import EmailDelivery
from askfirst.errors import DeliveryError, ServiceError
from askfirst.service.audit import export
from askfirst.service.email_codes import Mailer
from askfirst.smtp import Mail, NotComposed, compose, is_mailable
from askfirst.visible_text import visible

pytestmark = pytest.mark.anyio
on_sqlite = pytest.mark.parametrize("database", [SHARED[0]], indirect=True)
KIND = "encoded words in mail"
LINK = "https://books.example/review/case_1?token=t"
HEADERS = ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"]
ENCODED = [
    "=?utf-8?q?=0d=0aReply-To:_eve@evil.example=0d=0aX-Evil:_1?=",
    "=?utf-8?q?=0d=0aContent-Type:_text/html=0d=0a=0d=0a<a_href=https://evil.example>Review</a>?=",
    "=?utf-8?q?=E2=80=AE=E2=80=8Bgnp?=",
    "=?utf-8?b?4oCu4oCL?=",
    "=?utf-8?q?a?= =?utf-8?q?b?=",
    "=?iso-8859-1?q?=A0=85?=",
    "=?utf-8?q?unclosed",
    "a =?utf-8*en?q?=0A?= b",
    "=?unknown-charset?b?AAAA?=",
    "=?utf-8?q?=ED=A0=80?=",
    "ü =?utf-8?q?=0d=0aBcc:_all@evil.example?= ü",
    f"{'long ' * 20}=?utf-8?q?=0d=0aX-Evil:_1?=",
]
TEXTS = st.text(max_size=150) | st.sampled_from(ENCODED)
PIECES = st.lists(
    st.sampled_from(["=?", "?=", "utf-8", "?q?", "?b?", "=0d=0a", "=0A", "AAAA", " ", "  ", "ü", "😀", "a"])
    | st.text(max_size=4)
).map("".join)


def subjects(content: bytes) -> dict[str, str]:
    """The subject as different readers decode it."""
    old, new = message_from_bytes(content), message_from_bytes(content, policy=policy.default)
    raw = re.sub(r"\r?\n(?=[ \t])", "", str(old["Subject"]))
    return {
        "compat32": str(make_header(decode_header(raw))),
        "compat32, folded": str(make_header(decode_header(str(old["Subject"])))),
        "default": str(new["Subject"]),
        "registry": str(HeaderRegistry(default_class=UnstructuredHeader)("x", raw)),
    }


def mail_with(subject: str) -> Mail:
    return compose("desk@a.example", ["ann@a.example"], subject, "Body.\n", message_id="<1@a.example>")


@pytest.mark.attack("H3", KIND)
@given(TEXTS | PIECES)
def test_the_subject_that_is_read_is_the_text_that_was_made_visible(text: str) -> None:
    shown = visible(" ".join(text.split()))
    content = mail_with(shown).content
    assert set(subjects(content).values()) == {shown}
    for how in (policy.default, policy.compat32, policy.SMTP):
        read = message_from_bytes(content, policy=how)
        assert list(read.keys())[: len(HEADERS)] == HEADERS
        assert set(read.keys()) - set(HEADERS) == {
            "Content-Type",
            "Content-Transfer-Encoding",
            "MIME-Version",
        }
        assert read.get_payload() in ("Body.\r\n", "Body.\n")
    assert all(len(line) <= 76 for line in content.split(b"\r\n"))
    assert content.isascii()


@pytest.mark.attack("H3", KIND)
async def test_a_prompt_with_encoded_words_is_shown_as_it_is(attacks_tried: Callable[[int], None]) -> None:
    attacks_tried(2 * len(ENCODED))
    async with post_office() as office:
        for prompt in ENCODED:
            facts = {"service": prompt[:100], "prompt": prompt}
            await EmailDelivery(office.url(), to="ann@a.example").send(
                Notice("review", "case_1", prompt, LINK, facts=facts)
            )
    assert len(office.mails) == len(ENCODED)
    for mail, prompt in zip(office.mails, ENCODED, strict=True):
        assert {name.lower() for name in mail.keys()} == {  # noqa: SIM118
            *(name.lower() for name in HEADERS),
            "mime-version",
            "content-type",
            # what the server of the test adds
            *(name.lower() for name in mail.keys() if name.lower().startswith("x-peer")),  # noqa: SIM118
        }
        assert str(mail["Subject"]).isprintable()
        begins = str(mail["Subject"]).split("…")[0].split(" · ")[0]
        assert prompt.startswith(begins), "the sentence, then who asks"
        assert len(begins) >= min(len(prompt.rstrip()), 40)
        assert mail.get_content_type() == "multipart/alternative"
        plain = mail.get_body(("plain",))
        assert plain is not None
        assert prompt in plain.get_content()
        assert LINK in plain.get_content()


@pytest.mark.attack("H3", KIND)
@pytest.mark.parametrize(
    "address",
    [
        "=?utf-8?q?=0d=0a?=@a.example",
        "a@=?utf-8?q?=0d=0a?=",
        "ann@a.example,eve",
        "<ann@a.example>",
        "ann\u202e@a.example",
        "ann\r\nBcc:eve@evil.example",
    ],
)
def test_an_address_that_would_be_read_as_something_else_is_refused_where_it_is_given(address: str) -> None:
    assert not is_mailable(address)
    with pytest.raises(NotComposed):
        compose("desk@a.example", [address], "Hello", "Hi.", message_id="<1@a.example>")
    with pytest.raises(DeliveryError, match="to must be one or several e-mail addresses such as"):
        EmailDelivery("smtp://mail.example?from=desk@a.example", to=address)
    with pytest.raises(DeliveryError, match="smtp_url is like"):
        EmailDelivery("smtp://mail.example", from_=address, to="ann@a.example")
    with pytest.raises(ServiceError, match="smtp_url is like"):
        Mailer(f"smtp://mail.example?from={address.replace('+', '%2B')}")


@pytest.mark.parametrize(
    ("subject", "message_id"),
    [("two\nlines", "<1@a.example>"), ("\ud800", "<1@a.example>"), ("Hello", "<1@a.example>\r\nX-Evil: 1")],
)
def test_what_cannot_be_written_is_an_error_of_ours(subject: str, message_id: str) -> None:
    with pytest.raises(NotComposed):
        compose("desk@a.example", ["ann@a.example"], subject, "Hi.", message_id=message_id)
    with pytest.raises(NotComposed, match="not valid Unicode"):
        compose("desk@a.example", ["ann@a.example"], "Hello", "\ud800", message_id="<1@a.example>")


@pytest.fixture
async def served(checkpointer: SqlCheckpointer) -> AsyncIterator[tuple[Served, Mailbox]]:
    async with mailbox() as box, serving(checkpointer, smtp_url=box.url) as service:
        yield service, box


@pytest.mark.attack("H3", KIND)
@on_sqlite
async def test_a_case_names_no_address_that_a_mail_would_decode(served: tuple[Served, Mailbox]) -> None:
    agent = await served[0].agent()
    for address in ("=?utf-8?q?=0d=0a?=@a.example", "a=?b@a.example"):
        body = {"type": "approval", "prompt": "Go?", "verify_email": [address]}
        answer = await agent.post("/v1/reviews", body)
        assert answer.status_code == 422
        assert "=?" in answer.text


@pytest.mark.attack("H3", KIND)
@on_sqlite
async def test_a_code_that_cannot_be_written_is_neither_counted_nor_recorded(
    served: tuple[Served, Mailbox], checkpointer: SqlCheckpointer
) -> None:
    service, box = served
    case = await (await service.agent()).open("approval", verify_email="ann@example.com")
    with addressed_to(service, "=?utf-8?q?=0d=0a?=@a.example"):  # as an earlier version let it in
        for _ in range(7):
            answer = await case.form(send_code="0")
            assert answer.status_code == 503
            assert "could not be sent" in answer.text
    assert box.mails == []
    assert "code_sent" not in "".join([line async for line in export(checkpointer.engine)])
    assert (await case.form(send_code="0")).status_code == 200
    assert len(box.codes) == 1


@contextmanager
def addressed_to(service: Served, address: str) -> Iterator[None]:
    """Meanwhile every case has this address."""
    codes: Any = service.service.email_codes
    sending = codes.send

    async def send(case: Any, *how: Any) -> Any:
        return await sending(replace(case, verify_email=(address,)), *how)

    codes.send = send
    try:
        yield
    finally:
        codes.send = sending


def test_the_library_that_decodes_is_not_used_for_text_of_others() -> None:
    """Assigning to a header of the standard library's message decodes encoded words: `askfirst.smtp` writes it."""
    for file in Path("askfirst").rglob("*.py"):
        assert not re.search(r"\w\[\"(Subject|From|To|Reply-To)\"\](, .*)? =", file.read_text("utf-8")), file
