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
from askfirst.display import Display
from askfirst.requests import ApproveRequest
from askfirst.service.case import Case
from askfirst.service.notices import contents_of, ended_of, notice_of
from askfirst.service.risk_patterns import NO_PATTERNS

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
    assert begins[0] == "Send"
    ours = [line.partition(".")[0] for line in begins if line.startswith(("Asked by", "Risk:"))]
    assert [line for line in ours if line != "Risk: high"] == ["Asked by an agent"]  # a pattern may match


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
    assert noticed(high).buttons[0].confirm == contents_of(high, "Desk").sentence
    unknown = case.request.payload.model_copy(update={"display": {"risk": "none"}})
    odd = replace(case, request=case.request.model_copy(update={"payload": unknown}))
    assert contents_of(odd, "Desk").risk == "critical"
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
        (
            {"status": "completed", "result": {"action": "edit", "data": {"feedback": "Less."}}},
            "Another try was asked for.",
        ),
        (
            {"status": "completed", "result": {"action": "edit", "data": {"edits": {"n": 2}}}},
            "Approved with changes.",
        ),
        (
            {
                "status": "cancelled",
                "reason": "the person cannot answer this: not mine",
                "declined_by": {"name": "Ada"},
            },
            "Declined by Ada: not mine",
        ),
        (
            {"status": "cancelled", "reason": "the person cannot answer this", "declined_by": {}},
            "Declined.",
        ),
    ],
)
def test_how_a_case_ended(changes: dict[str, Any], said: str) -> None:
    case = replace(page_cases.approval({"n": 1}, tool_name="send"), **changes)
    assert ended_of(case).text == said


# What a message says where people decide on the page.

REFUND = Display(
    sentence="Pay back {cents:money:EUR} for order {order}",
    labels={"cents": "Amount"},
    formats={"cents": "money:EUR", "token": "secret"},
    important=["cents", "order"],
    consequences=["money", "irreversible"],
)
ARGS = {"order": "A-1042", "token": "hush-hush", "cents": 4900, "note": "none", "lines": ["a", "b"]}


def refund(display: Display = REFUND, **details: Any) -> Case:
    payload = ApproveRequest(
        tool_name="pay_refund",
        tool_call_id="c1",
        args=ARGS,
        digest="d",
        display=display.shown(ARGS),
        details={"agent_path": ["desk"], **details},
    )
    return page_cases.agent_case(payload)


def told(case: Case, **options: Any) -> Notice:
    how = {"service": "Desk", "link": LINK, "with_buttons": False, **options}
    return notice_of(case, "review", **how)


def test_without_buttons_a_message_has_three_lines() -> None:
    notice = told(refund())
    what, facts, when = notice.body.split("\n")
    assert what == "Pay back 49.00 EUR for order A-1042"
    assert facts == "Amount: 49.00 EUR · Order: A-1042 · Money moves. · It cannot be undone. · Risk: high"
    assert when.startswith("Asked by desk. Open until ")
    assert when.endswith("UTC. If nobody decides by then, it is denied.")
    assert not notice.whole


def test_without_a_page_the_message_is_all_there_is() -> None:
    notice = told(refund(), link=None)
    assert "note: none" in notice.body
    assert notice.whole


def test_what_can_be_approved_in_a_message_stands_there_whole() -> None:
    notice = told(refund(Display(sentence="Pay {order}")), with_buttons=True)
    assert [each.action for each in notice.buttons] == ["approve", "reject", "edit"]
    assert 'lines: ["a", "b"]' in notice.body


def test_an_operator_may_keep_facts_out_of_messages() -> None:
    notice = told(refund(Display(sentence="Pay back order {order}")), with_buttons=True, with_facts=False)
    assert notice.body.startswith("Pay back order A-1042\nAsked by desk.")
    assert "4900" not in notice.body
    assert [each.action for each in notice.buttons] == ["reject"]  # nobody approves what is not shown


@pytest.mark.parametrize("link", [LINK, None])
def test_a_secret_is_in_no_message(link: str | None) -> None:
    secret_first = replace(REFUND, important=["token"])
    for case in (refund(), refund(secret_first)):
        notice = told(case, link=link)
        assert "hush-hush" not in str(notice)
        assert notice.contents is not None
        assert "hush-hush" not in repr(notice.contents)
    assert "Token: hidden" in told(refund(secret_first)).body


def test_without_a_sentence_the_title_or_the_tools_name_is_the_decision() -> None:
    assert contents_of(refund(Display()), "Desk").subject == "Pay refund · desk asks"
    assert contents_of(refund(Display(title="Refund a customer")), "Desk").sentence == "Refund a customer"


def test_the_words_of_a_caller_are_quoted_and_the_caller_is_named() -> None:
    case = page_cases.service_case(
        "approval", {"sum": 1}, prompt="Refund 49 EUR?", shown={"title": "Harmless"}
    )
    asked = contents_of(case, "Desk", key_name="billing")
    assert asked.subject == "“Refund 49 EUR?” · billing asks"


def test_labels_and_formats_of_a_caller_count_in_messages() -> None:
    shown = {"labels": {"sum": "Amount"}, "formats": {"sum": "money:EUR"}}
    case = page_cases.service_case("approval", {"sum": 4900}, shown=shown)
    assert told(case).body.split("\n")[1] == "Amount: 49.00 EUR"


def test_a_messengers_button_has_the_words_of_a_tools_author_and_none_of_a_caller() -> None:
    case = page_cases.service_case("approval", {"sum": 1}, shown={"approve": "Reject", "reject": "Approve"})
    labels = {each.action: each.label for each in told(case, with_buttons=True).buttons}
    assert (labels["approve"], labels["reject"]) == ("Approve", "Reject")
    own = refund(Display(sentence="Do it", approve="Pay it"))
    assert told(own, with_buttons=True).buttons[0].label == "Pay it"


def test_a_rule_and_a_risk_pattern_raise_the_risk_in_messages_too() -> None:
    plain = Display(sentence="Do it")
    assert contents_of(refund(plain), "Desk").risk == "normal"
    assert contents_of(refund(plain, risk="critical"), "Desk").risk == "critical"
    assert contents_of(refund(replace(plain, risk="high"), risk="low"), "Desk").risk == "high"
    script = page_cases.approval({"command": "rm -rf /srv"}, tool_name="run")
    assert contents_of(script, "Desk").risk == "high"
    assert actions(noticed(script)) == ["reject"]
    assert contents_of(script, "Desk", patterns=NO_PATTERNS).risk == "normal"


def test_a_mail_says_the_decision_first_and_has_one_button() -> None:
    sent: list[Any] = []

    class Server(EmailDelivery):
        async def _hand_over(self, mail: Any) -> None:
            sent.append(mail)

    with pytest.raises(StopIteration):
        Server("smtp://desk%40a.example:p@mail.a.example", to="a@a.example").send(told(refund())).send(None)
    read = message_from_bytes(sent[0].content, policy=policy.default)
    assert read["Subject"] == "Pay back 49.00 EUR for order A-1042 · desk asks"
    plain, markup = [part.get_content() for part in read.walk() if not part.is_multipart()]
    said = plain.replace("\r\n", "\n").split("\n\n")
    assert said[:2] == ["Pay back 49.00 EUR for order A-1042", "Amount: 49.00 EUR\nOrder: A-1042"]
    assert said[2] == "- Money moves.\n- It cannot be undone."
    assert said[-3].endswith("If nobody decides by then, it is denied.")
    assert said[-2:] == ["Desk asks for a decision.", f"{LINK}\n"]
    assert re.findall(r">([^<]+)</a>", markup) == ["Look at it"]


def test_a_call_in_doubt_says_so_warns_and_cannot_be_run_again_by_a_press() -> None:
    """As on its page, where running it again takes a second step; Slack asks once more, no other can."""
    notice = noticed(page_cases.escalation())
    contents = notice.contents
    assert contents is not None
    assert contents.sentence == "Charge card: it may or may not have happened"
    assert contents.subject.startswith("Charge card: it may or may not have happened · ")
    assert "Running it again may do it twice. Find out first whether it happened." in notice.body
    assert (contents.risk, contents.may_be_pressed) == ("high", False)
    assert "retry" not in [each.action for each in pressable(notice, asking_text(notice))]
    (again,) = [each for each in notice.buttons if each.action == "retry"]
    assert again.confirm == contents.sentence
    own = noticed(page_cases.service_escalation())
    assert own.contents is not None
    assert own.contents.risk == "normal", "a service that cannot go on is not in doubt about a call"
