"""A case in a few lines of plain text, in which nothing hides or acts."""

from __future__ import annotations

from typing import Any

from askfirst.display import Display
from askfirst.requests import ApproveRequest, HitlRequest
from askfirst.service.case import Case
from askfirst.service.notice_text import notice_text

REFUND = Display(
    sentence="Pay back {cents:money:EUR} for order {order}",
    labels={"cents": "Amount"},
    formats={"cents": "money:EUR"},
    important=["cents", "order"],
    risk="high",
)


def case(payload: ApproveRequest | None = None, **fields: Any) -> Case:
    request = None if payload is None else HitlRequest(question_id="c1", payload=payload, created_at=0)
    return Case(
        case_id="c",
        type="approval",
        status="pending",
        version=1,
        prompt=fields.pop("prompt", "p"),
        created_at=0,
        expires_at=1,
        request=request,
        **fields,
    )


def approve(args: dict[str, Any], display: Display) -> Case:
    payload = ApproveRequest(
        tool_name="pay_refund",
        tool_call_id="c1",
        args=args,
        digest="d",
        display=display.shown(args),
        details={"agent_path": ["desk"]},
    )
    return case(payload)


def test_a_message_has_the_authors_sentence_and_the_important_facts() -> None:
    said = notice_text(approve({"cents": 4900, "order": "A-1042", "token": "hush"}, REFUND))
    assert said.subject == "Pay back 49.00 EUR for order A-1042 · desk asks"
    assert said.is_trusted
    assert said.facts == (("Amount", "49.00 EUR"), ("Order", "A-1042"))
    assert said.risk == "high"


def test_without_words_the_name_of_the_tool_is_made_readable() -> None:
    said = notice_text(approve({"cents": 1}, Display()))
    assert (said.sentence, said.facts) == ("Pay refund", ())


def test_a_services_own_words_are_not_trusted() -> None:
    shown = {"title": "Harmless", "sentence": "Harmless"}
    said = notice_text(case(prompt="Refund\n49 EUR?", shown=shown, key_id="k"), "billing")
    assert (said.sentence, said.is_trusted, said.asker) == ("Refund 49 EUR?", False, "billing")


def test_nothing_hides_or_acts_in_it() -> None:
    evil = "a\u202eb\n\x1b[31m" + "x" * 500
    said = notice_text(approve({"cents": 1, "order": evil}, REFUND))
    for text in (said.sentence, *(value for _, value in said.facts)):
        assert text.isprintable()
        assert "\u202e" not in text
        assert len(text) <= 300
