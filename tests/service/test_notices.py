"""What a message says of a case: the whole of it, inert, with the buttons that may stand below it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from email import message_from_bytes, policy
from html.parser import HTMLParser
from typing import Any

import pytest
from kit import page_cases
from kit.hostile_text import CORPUS, everywhere

from askfirst.delivery.base import Notice, heading
from askfirst.delivery.email import EmailDelivery
from askfirst.delivery.teams import CARD_BYTES, asking_card
from askfirst.delivery.telegram_messages import asking_text, message, pressable, units
from askfirst.delivery.text import shown
from askfirst.service.case import Case
from askfirst.service.notices import asked_of, ended_of, notice_of

LINK = "https://reviews.example.com/review/review_1?token=abc"
ACTS = re.compile("[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


class Elements(HTMLParser):
    """The elements, links and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.links |= {value or "" for name, value in attrs if name in ("href", "src", "action")}
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def noticed(case: Case, **changes: Any) -> Notice:
    return notice_of(replace(case, **changes), "review", service="Desk", link=LINK, with_buttons=True)


def actions(notice: Notice) -> list[str]:
    """What one press decides; forms, and what is asked once more, are for deliveries that have them."""
    return [button.action for button in notice.buttons if button.is_plain]


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_text_is_inert_and_whole_or_the_link_alone(name: str) -> None:
    for case in everywhere(CORPUS[name]).values():
        notice = noticed(case)
        _check_telegram(notice)
        _check_teams(notice)
        _check_mail(notice)
        assert not ACTS.search(shown(notice.body))


def _check_telegram(notice: Notice) -> None:
    text = asking_text(notice)
    sent = message(heading(notice), text, link=notice.review_url)
    assert not ACTS.search(sent["text"])
    assert units(sent["text"]) <= 4096
    bold, pre = sent["entities"]
    written = sent["text"].encode("utf-16-le")
    inside = written[2 * pre["offset"] : 2 * (pre["offset"] + pre["length"])].decode("utf-16-le")
    outside = sent["text"].replace(inside, "", 1)
    assert outside.split() == [*heading(notice).split(), LINK]  # nothing of others is outside the block
    assert bold["offset"] == 0
    if any(button.approves for button in pressable(notice, text)):
        assert notice.whole
        assert shown(notice.body).strip() in sent["text"]


def _check_teams(notice: Notice) -> None:
    made = asking_card(notice)
    assert len(json.dumps(made).encode()) <= CARD_BYTES
    content = made["attachments"][0]["content"]
    assert content["actions"] == [{"type": "Action.OpenUrl", "title": "Open the page", "url": LINK}]
    for block in content["body"]:
        assert block["type"] == "RichTextBlock"  # Markdown is nothing there
        [run] = block["inlines"]
        assert run["type"] == "TextRun"
        assert not ACTS.search(run["text"])
        assert set(run) <= {"type", "text", "weight"}


def _check_mail(notice: Notice) -> None:
    sent: list[Any] = []

    class Server(EmailDelivery):
        async def _hand_over(self, mail: Any) -> None:
            sent.append(mail)

    delivery = Server("smtp://desk%40a.example:p@mail.a.example", to="ann@a.example")
    coroutine = delivery.send(notice)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    [mail] = sent
    head, _, _ = mail.content.decode().replace("\r\n", "\n").partition("\n\n")
    assert head.count("\nTo: ") + head.startswith("To: ") == 1
    assert not ACTS.search(head.replace("\n", ""))
    read = message_from_bytes(mail.content, policy=policy.default)
    plain, markup = [part for part in read.walk() if not part.is_multipart()]
    assert [plain.get_content_type(), markup.get_content_type()] == ["text/plain", "text/html"]
    text = plain.get_content().replace("\r\n", "\n")
    assert not ACTS.search(text)
    assert LINK in text
    page = Elements()
    page.feed(markup.get_content().replace("\r\n", "\n"))
    assert page.links == {LINK}  # a text of others makes no element and no link
    assert page.names <= {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "div",
        "p",
        "h1",
        "pre",
        "a",
        "br",
    }
    assert not ACTS.search(page.text)
    if notice.whole:
        assert shown(notice.body).strip() in text or " more characters on the page)" in text


@pytest.mark.parametrize("name", CORPUS)
def test_no_text_of_others_begins_a_line_as_ours_do(name: str) -> None:
    text = f"a\nAsked by your administrator\nRisk: low\n{CORPUS[name]}"
    notice = noticed(page_cases.approval({"note": text}, tool_name="send"))
    begins = [line for line in shown(notice.body).split("\n") if line and not line.startswith(" ")]
    assert begins[0] == "May send run?"
    assert [line for line in begins if line.startswith(("Asked by", "Risk:"))] == ["Asked by an agent"]


def test_a_risk_or_a_cut_leaves_only_the_button_that_stops() -> None:
    case = page_cases.approval({"cents": 4900}, tool_name="refund")
    assert actions(noticed(case)) == ["approve", "reject"]
    assert [each.action for each in noticed(case).buttons] == ["approve", "reject", "edit"]
    assert actions(noticed(page_cases.approval({"text": "x" * 5000}, tool_name="send"))) == ["reject"]
    assert case.request is not None
    risky = case.request.payload.model_copy(update={"display": {"risk": "high"}})
    high = replace(case, request=case.request.model_copy(update={"payload": risky}))
    plain = [each.action for each in noticed(high).buttons if each.is_plain]
    assert plain == ["reject"]  # to approve, a person is asked once more
    assert noticed(high).buttons[0].confirm == asked_of(high, "Desk").sentence
    unknown = case.request.payload.model_copy(update={"display": {"risk": "none"}})
    odd = replace(case, request=case.request.model_copy(update={"payload": unknown}))
    assert asked_of(odd, "Desk").risk == "critical"
    assert actions(noticed(odd)) == ["reject"]


def test_where_the_page_is_needed_nothing_can_be_pressed() -> None:
    case = page_cases.approval({"cents": 1}, tool_name="refund")
    assert actions(noticed(case, verify_email=("ann@a.example",))) == []
    assert actions(noticed(case, verification_policy={"requirements": {}})) == []
    assert actions(noticed(case, inline_actions=("reject",))) == ["reject"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "expired"}, "Nobody decided in time: it is denied."),
        (
            {"status": "cancelled", "reason": "not needed"},
            "Nothing is left to decide, it was withdrawn: not needed",
        ),
        (
            {
                "status": "completed",
                "result": {"action": "approve", "data": {}},
                "responded_by": {"name": "Ada"},
            },
            "Approved by Ada.",
        ),
        (
            {
                "status": "completed",
                "result": {"action": "reject", "data": {}},
                "claimed_by": {"account": "x:7"},
            },
            "Rejected by x:7 (unverified).",
        ),
        ({"status": "completed", "result": {"action": "edit", "data": {}}}, "Sent back with changes."),
    ],
)
def test_how_a_case_ended(changes: dict[str, Any], said: str) -> None:
    case = replace(page_cases.approval({"n": 1}, tool_name="send"), **changes)
    assert ended_of(case).text == said
