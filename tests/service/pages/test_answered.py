"""The page of a case that has ended: what was answered, in the words in which it was asked, or what was asked."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from kit import page_cases as cases
from kit.page_cases import NOW, TOKEN
from kit.page_text import Page

from askfirst.protocol import State
from askfirst.requests import AskRequest, Question
from askfirst.service.case import Case
from askfirst.service.pages import render_case


def closed(case: Case, action: str, data: dict[str, Any]) -> Page:
    """The page of a case that was answered so."""
    answered = dataclasses.replace(
        case, status="completed", ended_at=NOW, result={"action": action, "data": data}
    )
    return shown(answered)


def ended(case: Case, status: State) -> Page:
    """The page of a case that nobody answered."""
    return shown(dataclasses.replace(case, status=status, ended_at=NOW))


def shown(case: Case) -> Page:
    return Page(render_case(case, token=TOKEN, base_path="", now=NOW))


def told(page: Page) -> dict[str, str]:
    """What stands under each label of the answer."""
    names = [each.text.strip() for each in page.all("dt") if "answer" in each.inside]
    values = [each.text.strip() for each in page.all("dd") if "answer" in each.inside]
    return dict(zip(names, values, strict=True))


def test_a_form_is_shown_with_its_labels_and_the_labels_of_its_options() -> None:
    data = {
        "name": "Ada",
        "age": 36,
        "remote": True,
        "colour": "red",
        "colours": ["red", "green"],
        "secret": "4711",
    }
    page = closed(cases.every_field(), "submit", data)
    assert told(page) == {
        "Full name": "Ada",
        "Age": "36",
        "Do you work remotely?": "Yes",
        "Favourite colour": "Red",
        "All colours": "Red\nGreen",
        "Bank PIN": "given, not shown",
    }
    assert "4711" not in str(page.elements)


def test_an_agents_questions_are_shown_whole() -> None:
    page = closed(cases.agent_questions(), "submit", {"q1": "Askfirst", "q2": "other", "q2_other": "EUPL"})
    assert told(page) == {
        "What should the project be called?": "Askfirst",
        "Under which licence?": "Another",
        "In your own words": "EUPL",
    }
    long = "Why? " * 100
    asked = cases.agent_case(AskRequest(questions=[Question(key="why", prompt=long)]))
    assert set(told(closed(asked, "submit", {"q1": "so"}))) == {long.strip()}


def test_chosen_items_are_shown_by_their_titles() -> None:
    page = closed(cases.selection(), "select", {"selected": ["job_1", "job_3"], "note": "both"})
    assert told(page) == {"Chosen": "Senior Frontend Engineer\nFrontend Tech Lead", "Note": "both"}
    page = closed(cases.agent_selection(), "select", {"selected": ["blue"]})
    assert told(page) == {"Chosen": "Blue"}
    page = closed(cases.agent_selection(required=False), "select", {"selected": []})
    assert told(page) == {"Chosen": "nothing"}
    page = closed(cases.confirmation(), "confirm", {"confirmed_items": ["email_2"]})
    assert told(page) == {"Confirmed": "Zalando"}


def test_choices_of_the_same_name_can_still_be_told_apart() -> None:
    twins = [{"id": "a", "title": "Engineer"}, {"id": "b", "title": "Engineer"}, {"id": "c", "title": "Cook"}]
    page = closed(cases.selection(items=twins), "select", {"selected": ["b", "c"]})
    assert told(page) == {"Chosen": "Engineer (b)\nCook"}


@pytest.mark.parametrize(
    ("case", "action", "data", "answer"),
    [
        (cases.approval(), "reject", {"feedback": "Too dear."}, {"Note": "Too dear."}),
        (cases.escalation(), "skip", {"reason": "Never mind."}, {"Note": "Never mind."}),
        (cases.service_case("input"), "submit", {"response": "swordfish"}, {"Answer": "swordfish"}),
        (cases.service_case("x-poll"), "submit", {"stars": 5}, {"stars": "5"}),
        (cases.service_case("selection"), "select", {"selected": ["mine"]}, {"Chosen": "mine"}),
    ],
    ids=["approval", "escalation", "no form", "a type of one's own", "no items"],
)
def test_other_answers_have_the_names_of_their_fields(
    case: Case, action: str, data: dict[str, Any], answer: dict[str, str]
) -> None:
    assert told(closed(case, action, data)) == answer


@pytest.mark.parametrize("status", ["expired", "cancelled"])
def test_what_was_asked_is_told_where_nobody_answered(status: State) -> None:
    page = ended(cases.agent_questions(), status)
    (words,) = page.all("details", class_="words")
    assert "In the agent’s words" in words.text
    for question in ("What should the project be called?", "Under which licence?"):
        assert question in words.text
    assert "Senior Frontend Engineer" in ended(cases.selection(), status).all("main")[0].text
    assert "Bank PIN" in ended(cases.every_field(), status).all("main")[0].text


def test_a_call_keeps_the_names_of_its_arguments() -> None:
    edits = {**cases.EMAIL_ARGS, "to": "books@acme.example"}
    page = closed(cases.approval(), "edit", {"edits": edits, "feedback": "Other books."})
    labels = list(told(page))
    assert labels[0].split() == ["to"]
    assert labels[-1] == "Note"


def test_who_declined_reads_their_reason_and_no_field_of_the_protocol() -> None:
    asked = cases.selection()
    case = dataclasses.replace(
        asked,
        shown={"decline": True},
        status="completed",
        ended_at=NOW,
        result={"action": "select", "data": {"declined": True, "note": "None fits."}},
    )
    said = shown(case).html
    assert "None fits." in said
    assert "beyond what was asked for" not in said
