"""What a browser posts, read back: every type, every button, every kind of value."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import page_cases as cases
from kit.hostile_text import ANY_TEXT, ANY_VALUE
from kit.page_cases import EMAIL_ARGS
from kit.page_forms import edit_page_of, page_of, post, settled

from askfirst.messages import canonical_json
from askfirst.service.answers import clean_answer
from askfirst.service.case import Case
from askfirst.service.pages import languages, read_submission

PIN = "4711"


# Approval.


@pytest.mark.parametrize("action", ["approve", "reject"])
def test_approve_and_reject(action: str) -> None:
    case = cases.approval()
    assert settled(post(case, action=action), case) == (action, {})
    said = post(case, action=action, feedback="Line one\r\nline two")
    assert settled(said, case) == (action, {} if action == "approve" else {"feedback": "Line one\nline two"})
    noted = post(case, action=action, note="For you")
    assert settled(noted, case) == (action, {"feedback": "For you"} if action == "approve" else {})


def test_a_quick_reason_leads_the_words() -> None:
    case = cases.approval()
    said = post(case, action="reject", quick="0", feedback="It was 40.")
    assert settled(said, case) == ("reject", {"feedback": "Wrong amount\nIt was 40."})
    assert settled(post(case, action="reject", quick="2"), case) == ("reject", {"feedback": "Not now"})
    own = read_submission(case, {"action": ["reject"], "quick": ["1"]}, reasons=["Too late", "Too dear"])
    assert own.data == {"feedback": "Too dear"}
    for odd in ("4", "-1", "x", "99999"):
        assert settled(post(case, action="reject", quick=odd), case) == ("reject", {})
    chinese = read_submission(case, {"action": ["reject"], "quick": ["1"]}, languages()["zh-Hans"])
    assert chinese.data == {"feedback": "对象不对"}


@pytest.mark.parametrize("case", [cases.approval(), cases.content_review()])
def test_another_try_needs_no_words(case: Case) -> None:
    assert settled(post(case, action="again"), case) == ("edit", {"feedback": "Please try it another way."})
    said = post(case, action="again", feedback="Shorter")
    assert settled(said, case) == ("edit", {"feedback": "Shorter"})


def test_declining_is_an_answer_where_the_service_allows_it() -> None:
    for silent, action in ((cases.selection(), "select"), (cases.every_field(), "submit")):
        assert [each for each in page_of(silent).all("button") if each.attrs.get("name") == "decline"]
        assert post(silent, decline="1").intent == "decline", "the service cancels it then"
        closed = dataclasses.replace(silent, shown={"decline": False})
        assert not [each for each in page_of(closed).all("button") if each.attrs.get("name") == "decline"]
        case = dataclasses.replace(closed, shown={"decline": True})
        assert [each for each in page_of(case).all("button") if each.attrs.get("name") == "decline"]
        said = post(case, decline="1", decline_reason="Not mine")
        assert (said.intent, said.action) == ("decline", action)
        assert clean_answer(case, action, said.data) == {"declined": True, "note": "Not mine"}


def test_a_service_may_be_asked_for_changes() -> None:
    case = cases.content_review()
    assert post(case, action="edit").faults == {"feedback": "Say what should be different."}
    assert settled(post(case, action="edit", feedback="Shorter"), case) == ("edit", {"feedback": "Shorter"})


@pytest.mark.parametrize("action", ["", "confirm", "approve ", "APPROVE"])
@pytest.mark.parametrize("case", [cases.approval(), cases.confirmation(), cases.escalation()])
def test_no_button_is_no_answer(case: Case, action: str) -> None:
    if case.type == "confirmation" and action == "confirm":
        return
    submission = post(case, action=action)
    assert submission.action == ""
    assert submission.faults == {"action": "Press one of the buttons."}


def test_an_edit_is_previewed_and_then_sent() -> None:
    case = cases.approval()
    changes = {
        "arg__0": "books@acme.example",
        "arg__3": " 99 ",
        "arg__4": "true",
        "arg__5": "[]",
        "arg__6": '"x@y"',
    }
    first = post(case, edit_page_of(case), action="edit", intent="preview", **changes)
    edited = {
        **EMAIL_ARGS,
        "to": "books@acme.example",
        "amount": 99,
        "urgent": True,
        "attachments": [],
        "cc": "x@y",
    }
    assert (first.intent, first.action, first.goto, first.faults) == ("preview", "edit", 2, {})
    assert first.data == {"edits": edited}
    preview = page_of(case, values=first.data, step=first.goto)
    assert settled(post(case, preview, intent="answer"), case) == ("edit", {"edits": edited})
    again = post(case, preview, intent="revise")
    assert (again.intent, again.goto, again.data) == ("revise", 1, {"edits": edited})
    refilled = page_of(case, values=again.data, step=again.goto)
    assert refilled.fields()["arg.3"] == ["99"]


def test_an_edit_that_changes_nothing_is_no_edit() -> None:
    submission = post(cases.approval(), action="edit", intent="preview")
    assert submission.faults == {"edits": "Nothing is changed yet."}


def test_what_cannot_be_read_is_shown_again_as_it_was_typed() -> None:
    case = cases.approval()
    submission = post(case, action="edit", intent="preview", arg__3="lots", arg__4="maybe", arg__5="[1,")
    assert submission.faults == {
        "edits.amount": "must be a number",
        "edits.urgent": "must be true or false",
        "edits.attachments": "is not JSON",
    }
    page = page_of(case, values=submission.data, faults=submission.faults, step=submission.goto)
    assert page.fields()["arg.3"] == ["lots"]
    assert page.fields()["arg.5"] == ["[1,"]


def test_a_value_too_long_to_edit_stays_as_it_is() -> None:
    case = cases.approval({"long": "x" * 60_000, "short": "a"})
    assert "arg.0" not in page_of(case).fields()
    submission = post(case, action="edit", intent="preview", arg__1="b")
    assert submission.data["edits"] == {"long": "x" * 60_000, "short": "b"}


@pytest.mark.parametrize("edits", ["", "[]", "{", "NaN"])
def test_changes_that_did_not_arrive_are_not_sent(edits: str) -> None:
    submission = post(cases.approval(), action="edit", intent="answer", edits=edits)
    assert submission.intent == "preview"
    assert list(submission.faults) == ["edits"]


@given(st.dictionaries(ANY_TEXT, ANY_VALUE, min_size=1, max_size=4))
def test_fields_that_nobody_touched_change_nothing(args: dict[str, Any]) -> None:
    """Whatever the argument: through the field, the browser and back it is the same."""
    submission = post(cases.approval(args), action="edit", intent="preview")
    assert submission.faults == {"edits": "Nothing is changed yet."}
    assert canonical_json(submission.data["edits"]) == canonical_json(args)


@given(st.dictionaries(ANY_TEXT, ANY_VALUE, min_size=1, max_size=4))
def test_a_preview_sends_exactly_what_it_shows(edited: dict[str, Any]) -> None:
    case = cases.approval({"was": "here"})
    preview = page_of(case, values={"edits": edited}, step=2)
    assert canonical_json(post(case, preview, intent="answer").data["edits"]) == canonical_json(edited)


# Selection and confirmation.


def test_a_selection() -> None:
    case = cases.selection()
    assert settled(post(case, selected=["2", "0", "99"], note="Both"), case) == (
        "select",
        {"selected": ["job_1", "job_3"], "note": "Both"},
    )
    one = cases.agent_selection()
    assert settled(post(one, selected="1"), one) == ("select", {"selected": ["green"]})


def test_chosen_items_are_still_chosen_when_the_page_comes_again() -> None:
    page = page_of(cases.selection(), values={"selected": ["job_2"]}, faults={"note": "is too long"})
    assert page.fields()["selected"] == ["1"]


def test_a_selection_without_items_takes_lines() -> None:
    case = cases.service_case("selection")
    assert settled(post(case, selected="a\r\n\r\n b "), case) == ("select", {"selected": ["a", "b"]})


def test_a_confirmation_of_items() -> None:
    case = cases.confirmation()
    assert post(case, action="confirm").faults == {
        "confirmed_items": "Choose what you confirm, or confirm none."
    }
    assert settled(post(case, action="confirm", confirmed_items="1"), case) == (
        "confirm",
        {"confirmed_items": ["email_2"]},
    )
    assert settled(post(case, action="cancel", confirmed_items="1"), case) == ("cancel", {})
    agents = cases.agent_confirmation()
    assert settled(post(agents, action="confirm"), agents) == ("confirm", {})


# Escalation.


def test_an_escalation() -> None:
    case = cases.escalation()
    assert settled(post(case, action="retry"), case) == ("retry", {})
    assert settled(post(case, action="abort", reason="Enough"), case) == ("abort", {"reason": "Enough"})
    first = post(case, action="retry", intent="preview", arg__0="41")
    assert first.data == {"modified_params": {"amount": 41, "card": "visa-1"}}
    preview = page_of(case, values=first.data, step=first.goto)
    assert settled(post(case, preview, intent="answer"), case) == ("retry", first.data)


def test_parameters_of_a_service_that_names_none() -> None:
    case = cases.service_escalation()
    said = post(case, action="retry", modified_params='{"limit": 5}')
    assert settled(said, case) == ("retry", {"modified_params": {"limit": 5}})
    wrong = post(case, action="retry", modified_params="{limit}")
    assert wrong.faults == {"modified_params": "is not JSON"}
    assert page_of(case, values=wrong.data, faults=wrong.faults).fields()["modified_params"] == ["{limit}"]
    assert settled(post(case, action="skip", modified_params="{limit}"), case) == ("skip", {})


# Forms.

FILLED = {
    "name": "Ada",
    "about": "One\ntwo",
    "age": 36,
    "start": "2026-03-01",
    "mail": "ada@acme.example",
    "site": "https://acme.example",
    "remote": False,
    "colour": "red",
    "colours": ["red", "green"],
    "level": 2.5,
    "secret": PIN,
    "own": "thing",
}


def test_every_field_type_goes_round() -> None:
    case = cases.every_field()
    page = page_of(case, values={key: value for key, value in FILLED.items() if key != "secret"})
    assert settled(post(case, page, f__secret=PIN, intent="answer"), case) == ("submit", FILLED)


@pytest.mark.parametrize("typed", ["thirty", "1e999", "NaN", "true", "0x10"])
def test_a_number_that_is_none_stays_as_typed(typed: str) -> None:
    assert post(cases.every_field(), intent="answer", f__age=typed).data["age"] == typed


def test_empty_fields_are_no_answers() -> None:
    assert post(cases.every_field(), intent="answer", f__name="  ").data == {}


def test_a_wizard_from_end_to_end() -> None:
    case = cases.wizard()
    more = post(case, intent="next", f__city="Rome", f__by="car")
    assert (more.intent, more.goto) == ("more", 1), "the number plate has not been asked for yet"
    page = page_of(case, values=more.data, notice="more")
    first = post(case, page, intent="next", f__plate="B 1")
    assert (first.intent, first.goto) == ("next", 2)
    case = dataclasses.replace(case, draft=first.data)
    second = post(case, page_of(case, step=2), intent="next", f__days="3")
    assert (second.goto, second.data["days"]) == (3, 3)
    case = dataclasses.replace(case, draft=second.data)
    third = post(case, page_of(case, step=3), intent="next", f__card="4111")
    assert third.goto == 4
    case = dataclasses.replace(case, draft=third.data)
    kept = post(case, page_of(case, step=3), intent="draft")
    assert (kept.intent, kept.data["card"]) == ("draft", "4111"), "an empty sensitive field means: as it was"
    assert settled(post(case, page_of(case, step=4), intent="answer"), case) == (
        "submit",
        {"city": "Rome", "by": "car", "plate": "B 1", "days": 3, "card": "4111"},
    )
    back = post(case, page_of(case, step=4), intent="back")
    assert (back.intent, back.goto) == ("back", 3)


def test_a_condition_that_no_longer_holds_takes_its_answers_along() -> None:
    case = cases.wizard(draft={"city": "Rome", "by": "car", "plate": "B 1", "days": 3})
    submission = post(case, page_of(case), intent="next", f__by="train")
    assert submission.data == {"city": "Rome", "by": "train"}
    assert submission.goto == 3
    assert post(case, page_of(case, step=3), intent="back").goto == 2


@pytest.mark.parametrize("step", ["0", "-1", "99999999999", "x", "", "²"])
def test_a_step_that_is_none_harms_nothing(step: str) -> None:
    submission = read_submission(cases.wizard(), {"step": [step], "intent": ["next"], "f.city": ["Rome"]})
    assert submission.intent in ("next", "more")


def test_without_a_form_there_is_one_answer() -> None:
    for case in (cases.service_case("input"), cases.service_case("x-poll")):
        assert settled(post(case, response="Yes\r\nno"), case) == ("submit", {"response": "Yes\nno"})


@given(
    st.sampled_from(list(cases.OPEN_CASES.values())),
    st.dictionaries(
        st.sampled_from(
            [
                "action",
                "intent",
                "step",
                "shown",
                "selected",
                "confirmed_items",
                "edits",
                "modified_params",
                "arg.0",
            ]
        )
        | st.text(max_size=5),
        st.lists(
            st.text(max_size=9) | st.sampled_from(["edit", "retry", "answer", "preview", "{}", "1"]),
            max_size=3,
        ),
    ),
)
def test_whatever_is_posted_is_read_and_shown_again(case: Case, posted: dict[str, list[str]]) -> None:
    submission = read_submission(case, posted)
    page_of(case, values=submission.data, faults=submission.faults, step=submission.step)
    page_of(case, values=submission.data, step=submission.goto)


def test_what_was_filled_in_is_in_no_repr() -> None:
    assert PIN not in repr(post(cases.every_field(), f__secret=PIN))
