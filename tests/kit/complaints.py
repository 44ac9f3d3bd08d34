"""The complaints about the page before this one, each as what a page shows when it is mended.

A predicate looks at pages of the standing set, of today or of before. It holds for the page of today, and does not
hold for the page before. Those on what is painted where are in `kit.complaints_painted`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kit.page_text import Page
from kit.standing_pages import Show

ALL = (*(f"A{n}" for n in range(1, 7)), *(f"B{n}" for n in range(1, 11)), *(f"D{n}" for n in range(1, 9)))
"""The numbers of sections A (dangerous), B (confusing) and D (ugly)."""
Look = TypeVar("Look")


@dataclass(frozen=True)
class Mended(Generic[Look]):
    """A complaint, and what a page shows when it is mended."""

    complaint: str
    holds: Callable[[Look], bool]

    def __str__(self) -> str:
        return f"{self.complaint}-{self.holds.__name__}"


WRITTEN: list[Mended[Show]] = []
"""Every predicate on what is written on a page."""


def mends(complaint: str) -> Callable[[Callable[[Show], bool]], Callable[[Show], bool]]:
    """Add a predicate."""

    def add(holds: Callable[[Show], bool]) -> Callable[[Show], bool]:
        WRITTEN.append(Mended(complaint, holds))
        return holds

    return add


def text(page: Page, tag: str = "main", **attrs: str) -> str:
    """What is written in the elements with a tag."""
    return " ".join(" ".join(each.text.split()) for each in page.all(tag, **attrs))


def bar(page: Page) -> str:
    """What is written where the decision is made."""
    return text(page, "section", class_="decide")


def buttons(page: Page) -> list[str]:
    return [" ".join(each.text.split()) for each in page.all("button")]


# A. Dangerous.


@mends("A1")
def what_was_not_opened_is_named_beside_the_decision(show: Show) -> bool:
    return "150 lines not opened" in bar(show("shell-300"))


@mends("A1")
def no_page_says_that_a_folded_call_is_whole(show: Show) -> bool:
    page = show("shell")
    folded = [each for each in page.elements if each.tag == "details" and "docker image prune" in each.text]
    return not folded


@mends("A2")
def a_decision_that_was_pressed_can_be_undone(show: Show) -> bool:
    forms = show("approved").all("form")
    return any("/undo?" in str(each.attrs.get("action")) for each in forms)


@mends("A2")
def what_is_of_high_risk_is_asked_once_more(show: Show) -> bool:
    page = show("erase")
    return any("data-second" in each.attrs for each in page.all("button")) and "Asks once more" in bar(page)


@mends("A4")
def the_heading_says_that_it_may_have_happened(show: Show) -> bool:
    return text(show("doubt"), "h1").endswith("it may or may not have happened")


@mends("A4")
def the_danger_is_said_by_the_page_itself(show: Show) -> bool:
    page = show("doubt")
    told = [each for each in page.elements if "Running it again may do it twice" in each.text]
    return bool(told) and not any("words" in each.inside or "quote" in each.inside for each in told)


@mends("A4")
def it_asks_what_was_found_and_no_button_runs_it_again_at_once(show: Show) -> bool:
    page = show("doubt")
    at_once = [each for each in page.all("button") if each.attrs.get("value") == "retry"]
    return "What did you find?" in text(page) and not at_once


@mends("A6")
def no_decision_is_called_cancel(show: Show) -> bool:
    pages = [show("confirmation"), show("confirmation-plain")]
    return not any("Cancel" in buttons(page) for page in pages)


@mends("A6")
def both_sides_say_what_they_do(show: Show) -> bool:
    named = buttons(show("confirmation"))
    return "Confirm none" in named and "Confirm all 12" in named


# B. Confusing.


@mends("B1")
def an_agent_is_named(show: Show) -> bool:
    return "refund-desk" in text(show("refund")) and "treasury" in text(show("doubt"))


@mends("B1")
def a_service_is_named_by_its_key(show: Show) -> bool:
    return "billing" in text(show("flights"))


@mends("B1")
def the_page_says_whose_it_is_and_as_whom_one_decides(show: Show) -> bool:
    page = show("refund")
    return "Shop GmbH" in text(page, "header") and "You decide as Ada Ngo" in bar(page)


AGENTS = ("refund", "transfer", "shell", "sql", "mail", "erase", "no-arguments", "chinese-call")
SERVICES = ("deployment", "silence-approves", "arabic", "chinese")


@mends("B2")
def no_two_approvals_have_the_same_heading(show: Show) -> bool:
    headings = [text(show(name), "h1") for name in (*AGENTS, *SERVICES)]
    return len(set(headings)) == len(headings)


@mends("B2")
def no_two_calls_have_the_same_tab(show: Show) -> bool:
    return len({text(show(name), "title") for name in AGENTS}) == len(AGENTS)


@mends("B2")
def the_heading_has_the_amount_and_the_object(show: Show) -> bool:
    said = text(show("refund"), "h1")
    return "49.00 EUR" in said and "A-1042" in said


@mends("B2")
def a_question_is_its_own_heading(show: Show) -> bool:
    return "What is the code word?" in text(show("question"), "h1")


@mends("B3")
def money_is_written_as_money(show: Show) -> bool:
    return "49.00 EUR" in text(show("refund"), "section", class_="act")


@mends("B3")
def a_list_is_no_json_and_nothing_is_null_or_false(show: Show) -> bool:
    said = text(show("mail"), "section", class_="act") + text(show("flights"), "fieldset")
    return "ada@example.com" in said and not re.search(r"\bnull\b|\bfalse\b|\[", said)


@mends("B3")
def hidden_characters_are_explained(show: Show) -> bool:
    return "1 hidden character. It is shown in yellow." in text(show("hidden-characters"))


@mends("B4")
def a_form_carries_a_nonce_of_its_own(show: Show) -> bool:
    return any(each.attrs.get("value") for each in show("refund").all("input", name="nonce"))


@mends("B4")
def who_pressed_twice_is_not_told_that_it_did_not_count(show: Show) -> bool:
    return "not counted" not in text(show("approved-twice"))


@mends("B5")
def a_page_follows_its_case(show: Show) -> bool:
    (body,) = show("refund").all("body")
    return "/live?" in str(body.attrs.get("data-live"))


@mends("B5")
def what_is_left_is_exact(show: Show) -> bool:
    left = {name: text(show(name), "header") for name in ("four-hours", "three-days", "refund")}
    return (
        "3 h 59 min left" in left["four-hours"]
        and "3 days left" in left["three-days"]
        and "23 h 59 min left" in left["refund"]
    )


@mends("B6")
def what_came_back_is_told(show: Show) -> bool:
    said = text(show("edited"))
    return "Paid 40.00 EUR to ada@example.com" in said and "Void the payment within 1 h" in said


@mends("B6")
def one_card_tells_what_was_decided(show: Show) -> bool:
    page = show("edited")
    return len(page.all("section", class_="act")) + len(page.all("section", class_="answer")) == 1


@mends("B6")
def an_ended_page_says_what_happens_now(show: Show) -> bool:
    said = text(show("rejected"))
    return "The agent is told. It may try another way." in said and "nothing more to do" not in said


@mends("B7")
def an_old_round_leads_to_the_next(show: Show) -> bool:
    return any("/next?" in str(each.attrs.get("href")) for each in show("changes-asked").all("a"))


@mends("B7")
def a_new_round_shows_the_note_and_the_difference(show: Show) -> bool:
    page = show("second-round")
    return "Say what is broken." in text(page) and bool(page.all("ins")) and bool(page.all("del"))


@mends("B8")
def a_rule_is_named_once_and_no_program_s_sentence_is_shown(show: Show) -> bool:
    said = text(show("erase"), "section", class_="why")
    return said.count("no-erase-without-a-person") == 1 and "requires approval" not in said


SENTENCE = re.compile(r"(?:[^:]+: )?[A-Z][^:]*\.")


@mends("B9")
def faults_are_sentences(show: Show) -> bool:
    pages = [show(name) for name in ("form-faults", "jobs-faults", "code-faults")]
    said = [each.text for page in pages for each in page.all("p", class_="fault")]
    said += [each.text for page in pages for each in page.all("li") if "problems" in each.inside]
    return bool(said) and all(SENTENCE.fullmatch(" ".join(each.split())) for each in said)


@mends("B9")
def no_field_is_called_optional_and_then_asked_for(show: Show) -> bool:
    page = show("note-faults")
    asked = {str(each.attrs["id"]).removesuffix("-fault") for each in page.all("p", class_="fault")}
    labels = [each for each in page.all("label") if each.attrs.get("for") in asked]
    return not any("optional" in each.text for each in labels)


@mends("B10")
def who_edits_reads_each_value_once(show: Show) -> bool:
    page = show("mail-edit")
    said = text(page)
    return said.count("It goes to the card that you paid with.") == 1


@mends("B10")
def a_list_is_edited_as_lines(show: Show) -> bool:
    fields = [each.text.strip() for each in show("mail-edit").all("textarea")]
    return "ada@example.com" in fields and not any(each.startswith("[") for each in fields)


@mends("B10")
def one_button_leads_to_the_check_and_one_rejects(show: Show) -> bool:
    page = show("mail-edit")
    words = [f"{each.text} {each.attrs.get('data-changed', '')}" for each in page.all("button")]
    leads = [each for each in words if re.search(r"changes", each)]
    return len(leads) == 1 and "Reject" in bar(page)


@mends("B10")
def a_difference_is_of_words(show: Show) -> bool:
    page = show("mail-check")
    gone = [each.text for each in page.all("del")]
    new = [each.text for each in page.all("ins")]
    return len(gone) == len(new) > 0 and all(len(each) <= len("3 to 5") for each in (*gone, *new))


# D. Ugly, as far as it can be read.


@mends("D4")
def no_heading_stands_before_the_decision(show: Show) -> bool:
    return "Your decision" not in [each.text for each in show("refund").all("h2")]


@mends("D6")
def no_label_has_a_type_word(show: Show) -> bool:
    named = " ".join(each.text for name in ("erase", "shell", "mail") for each in show(name).all("dt"))
    return not re.search(r"yes or no|\bnumber\b|\bnothing\b|\bobject\b", named)
