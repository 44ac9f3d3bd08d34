"""The pages of every type and state: what they say, what they offer, and what they keep to themselves."""

from __future__ import annotations

import dataclasses
import json
import re
from html import unescape
from typing import Any

import pytest
from kit import page_cases as cases
from kit.page_cases import ASKED, CLOSED_CASES, DAY, EMAIL_ARGS, NOW, OPEN_CASES, TOKEN
from kit.page_text import Page

from askfirst.protocol import State
from askfirst.requests import AskRequest, EscalateRequest, Question
from askfirst.service.assets import STATIC, assets
from askfirst.service.case import Case
from askfirst.service.pages import PAGE_HEADERS, render_case, render_unknown


def html_of(case: Case, **given: Any) -> str:
    return render_case(case, **{"token": TOKEN, "base_path": "/hitl", "now": NOW, **given})


def page_of(case: Case, **given: Any) -> Page:
    return Page(html_of(case, **given))


def buttons(page: Page) -> list[str | None]:
    """What the buttons that send something send; those that sort a list are no decisions."""
    found = [each.attrs for each in page.all("button") if "value" in each.attrs]
    return [it["value"] for it in found if it.get("name") != "by"]


ALL_CASES = {**OPEN_CASES, **CLOSED_CASES}
every_case = pytest.mark.parametrize("case", ALL_CASES.values(), ids=list(ALL_CASES))
open_cases = pytest.mark.parametrize("case", OPEN_CASES.values(), ids=list(OPEN_CASES))


@every_case
def test_a_page_has_landmarks_one_heading_and_nothing_inline(case: Case) -> None:
    html = html_of(case)
    page = Page(html)
    assert [len(page.all(tag)) for tag in ("header", "main", "h1", "title")] == [1] * 4
    assert not page.all("style")
    scripts = [str(each.attrs.get("src")) for each in page.all("script")]
    assert scripts[0] == f"/hitl/static/{assets()['page.js'].name}"
    assert all(each.text == "" and each.attrs.get("type") == "module" for each in page.all("script"))
    assert not [each for each in page.elements if any(name.startswith("on") for name in each.attrs)]
    assert not [each for each in page.elements if "style" in each.attrs]
    linked = {each.attrs.get(name) for each in page.elements for name in ("href", "src", "action")} - {None}
    assert all(str(link).startswith(("/hitl/", "#")) for link in linked)


@every_case
def test_ids_are_distinct_and_everything_that_points_at_one_finds_it(case: Case) -> None:
    page = page_of(case)
    ids = [each.attrs["id"] for each in page.elements if "id" in each.attrs]
    assert len(set(ids)) == len(ids)
    for each in page.elements:
        for name in ("for", "aria-labelledby", "aria-describedby"):
            assert set(str(each.attrs.get(name) or "").split()) <= set(ids)
    labelled = {each.attrs.get("for") for each in page.all("label")}
    for each in page.elements:
        if each.tag in ("textarea", "select") or (each.tag == "input" and each.attrs.get("type") == "text"):
            assert each.attrs["id"] in labelled


@open_cases
def test_nothing_that_decides_is_chosen_beforehand(case: Case) -> None:
    page = page_of(case)
    chosen = [
        each.attrs["name"] for each in page.elements if "checked" in each.attrs or "selected" in each.attrs
    ]
    assert all(str(name).startswith("arg.") for name in chosen)
    assert {each.tag for each in page.elements if "autofocus" in each.attrs} <= {"h2"}, "the title of a sheet"


@open_cases
def test_the_enter_key_decides_nothing(case: Case) -> None:
    """Enter in a field of one line presses its form's first button, which does nothing."""
    for stage in ("decide", "edit"):
        for form in re.findall(r"<form.*?</form>", html_of(case, stage=stage), re.DOTALL):
            first = re.search(r"<button[^>]*>", form)
            assert first is not None
            assert first[0] == "<button disabled hidden>", (
                "a form whose first button is off is not sent by Enter"
            )


@open_cases
def test_a_form_goes_back_to_its_own_case(case: Case) -> None:
    forms = page_of(case).all("form")
    assert forms
    for form in forms:
        assert form.attrs["action"] == f"/hitl/review/case_1/respond?token={TOKEN}"
        assert form.attrs["method"] == "post"


BUTTONS = {
    "approval": ["approve", "again", "reject", "approve"],
    "content_review": ["approve", "again", "reject", "approve"],
    "selection": ["select", "1"],
    "agent_selection": ["select", "1"],
    "free_selection": ["select", "1"],
    "every_field": ["draft", "answer", "1"],
    "agent_questions": ["draft", "answer", "1"],
    "no_form": ["answer", "1"],
    "custom": ["answer"],
    "wizard": ["draft", "next", "1"],
    "confirmation": ["cancel", "confirm", "1"],
    "agent_confirmation": ["cancel", "confirm"],
    "escalation": ["1"],
    "service_escalation": ["1"],
    "service_escalation_params": ["1"],
}
"""Those that send something, in order: what lets nothing happen stands left of what acts."""


@pytest.mark.parametrize("name", OPEN_CASES)
def test_each_type_has_its_buttons(name: str) -> None:
    assert buttons(page_of(OPEN_CASES[name])) == BUTTONS[name]


def test_the_call_stands_first_and_whole() -> None:
    case = cases.approval()
    html = html_of(case)
    assert html.index('class="act card"') < html.index('class="why panel"') < html.index('class="decide"')
    page = Page(html)
    (act,) = page.all("section", class_="act")
    assert "send_email" in act.text
    inside = [
        each.text for tag in ("div", "ol") for each in page.all(tag, class_="text") if "act" in each.inside
    ]
    assert {EMAIL_ARGS["to"], EMAIL_ARGS["subject"], EMAIL_ARGS["body"], "1250.5", "No"} <= set(inside)
    assert "attachments" in act.text
    assert "invoice.pdf" in act.text
    assert case.digest is not None
    assert case.digest in html
    (why,) = page.all("section", class_="why")
    assert "Why you are asked" in why.text
    assert "More than 1,000 needs a second look." in why.text
    assert not page.all("details", class_="words")


def test_whose_words_are_whose() -> None:
    """The rules' are not the agent's, and what a program may have written is not said to be the model's."""
    details = {
        "reason": "It is night.",
        "matched_rule_id": "night-shift",
        "agent_path": ["desk", "helper"],
        "principal": "bob",
        "note": "The customer asked for it.",
    }
    page = page_of(cases.approval(details=details))
    (why,), (words,) = page.all("section", class_="why"), page.all("details", class_="words")
    for text in ("Why you are asked", "It is night.", "night-shift"):
        assert text in why.text
        assert text not in words.text
    (asker,) = page.all("div", class_="asker")
    assert "helper asks" in asker.text
    assert "desk / helper" in asker.text
    assert "for bob" in asker.text
    assert "From the agent’s side" in words.text
    assert "unchecked" in words.text
    assert "The customer asked for it." in words.text
    assert "The customer" not in why.text

    assert "asks you" in page_of(cases.agent_selection()).all("div", class_="asker")[0].text
    service = page_of(cases.selection())
    assert "in its own words:" in service.all("div", class_="asker")[0].text
    assert service.all("h1", class_="said")[0].text == "“Select which jobs to apply for”"
    for case in (cases.agent_confirmation(), cases.escalation()):
        (words,) = page_of(case).all("details", class_="words")
        assert "From the agent’s side" in words.text
        assert "Written by the agent, or by the program around it." in words.text


def test_a_reason_that_is_no_text_stays_with_the_rest() -> None:
    page = page_of(cases.approval(details={"reason": {"a": 1}, "agent_path": "x"}))
    assert not page.all("section", class_="why")
    (words,) = page.all("details", class_="words")
    assert "agent_path" in words.text
    assert "reason" in words.text


def test_what_a_request_is_comes_from_the_request_alone() -> None:
    case = dataclasses.replace(
        cases.approval(),
        prompt="harmless prompt",
        message="harmless message",
        context={"note": "harmless fact"},
    )
    assert "harmless" not in html_of(case)


def test_a_call_without_arguments_says_so_and_offers_no_edit() -> None:
    page = page_of(cases.approval({}))
    assert "No arguments." in page.all("section", class_="act")[0].text
    assert not [each for each in page.all("a") if "edit=1" in str(each.attrs["href"])]
    assert buttons(page) == BUTTONS["approval"]


def test_an_escalation_shows_the_call_in_doubt() -> None:
    (act,) = page_of(cases.escalation()).all("section", class_="act")
    assert "charge_card" in act.text
    assert "visa-1" in act.text


def test_an_agent_may_name_choices_of_its_own() -> None:
    case = cases.agent_case(EscalateRequest(prompt="Stuck", choices=["refund", "skip"]))
    page = page_of(case)
    assert [each.attrs["value"] for each in page.all("input", type="radio")] == ["refund", "skip"]
    assert "in its own words" in page.all("fieldset", id="action")[0].text


def test_a_service_is_quoted() -> None:
    page = page_of(cases.content_review())
    assert page.all("h1")[0].text == "“Approve production deployment of acme-web v2.4.0”"
    (words,) = page.all("section", class_="words")
    assert "What key_1 says" in words.text
    for said in ("requires approval.", "acme-web", "test_results", "unit", "847"):
        assert said in words.text


def test_choices_come_with_all_that_is_said_about_them() -> None:
    page = page_of(cases.selection())
    kinds = [each.attrs["type"] for each in page.all("input") if each.attrs["name"] == "selected"]
    assert kinds == ["checkbox"] * 3
    assert {"TechFlow GmbH", "0.94", "Klarna"} <= set(page.texts())
    one = page_of(cases.agent_selection())
    assert [each.attrs["type"] for each in one.all("input", name="selected")] == ["radio"] * 2
    assert "Like the sea" in one.texts()
    assert "Which colour should the roof be?" in one.texts()


@pytest.mark.parametrize(
    "items", [[{"title": "no id"}], [["text"]], [{"id": "a"}, {"id": "a"}], "none", [{"id": True}]]
)
def test_items_that_cannot_be_told_apart_leave_a_field_to_write_in(items: Any) -> None:
    page = page_of(cases.service_case("selection", {"items": items}))
    assert [each.attrs["id"] for each in page.all("textarea")][:2] == ["selected", "note"]


def test_every_field_type_has_its_control() -> None:
    page = page_of(cases.every_field())
    found = {
        str(each.attrs["name"]): each.attrs.get("type", each.tag)
        for each in page.elements
        if str(each.attrs.get("name")).startswith("f.")
    }
    assert found == {
        "f.name": "text",
        "f.about": "textarea",
        "f.age": "text",
        "f.start": "date",
        "f.mail": "email",
        "f.site": "url",
        "f.remote": "radio",
        "f.colour": "radio",
        "f.colours": "checkbox",
        "f.level": "text",
        "f.secret": "password",
        "f.own": "text",
    }


def test_many_options_open_as_a_list() -> None:
    options = [{"value": str(n), "label": f"Option {n}"} for n in range(8)]
    form = {"fields": [cases.field("pick", "select", options=options, default="3")]}
    page = page_of(cases.service_case("input", {"form": form}))
    assert len(page.all("select")) == 1
    assert [each.attrs["value"] for each in page.all("option") if "selected" in each.attrs] == ["3"]


def test_a_draft_and_defaults_are_restored() -> None:
    form = {"fields": [cases.field("a", "text", default="from the form"), cases.field("b", "text")]}
    case = cases.service_case("input", {"form": form})
    assert page_of(case).fields()["f.a"] == ["from the form"]
    drafted = dataclasses.replace(case, draft={"a": "mine", "b": "too"})
    assert page_of(drafted).fields()["f.a"] == ["mine"]
    assert page_of(drafted).fields()["f.b"] == ["too"]
    cleared = page_of(case, values={}, faults={"b": "is required"})
    assert cleared.fields()["f.a"] == [""], "what a person emptied stays empty"
    emptied = page_of(drafted, values={"b": "too"}, faults={"b": "is odd"})
    assert emptied.fields()["f.a"] == [""], "whatever an older draft has"


def test_a_sensitive_value_is_never_sent_back() -> None:
    case = cases.every_field(draft={"secret": "4711-0815", "name": "Ada"})
    html = html_of(case, values={"secret": "4711-0815"}, faults={"secret": "does not have the expected form"})
    assert "4711-0815" not in html
    assert "Leave it empty to keep it" in html
    summary = html_of(cases.wizard(draft={"city": "Rome", "by": "train", "card": "4111-1111"}), step=4)
    assert "4111-1111" not in summary
    assert "given, not shown" in summary
    assert "Rome" in summary
    assert "By train" in summary
    assert "4711" not in html_of(CLOSED_CASES["filled_in"])


def test_faults_are_listed_with_links_and_said_again_at_their_fields() -> None:
    faults = {
        "data.name": "is required",
        "data.age": "must be a number",
        "data": "is odd",
        "data.gone": "is unknown",
    }
    page = page_of(cases.every_field(), values={"age": "<b>"}, faults=faults)
    (problems,) = page.all("div", class_="problems")
    assert problems.attrs["role"] == "alert"
    links = [each.attrs["href"] for each in page.all("a") if "problems" in each.inside]
    assert links == ["#f-name", "#f-age"]
    assert "This is odd." in problems.text
    assert "This is unknown." in problems.text
    assert "Fill in “Full name”." in problems.text
    invalid = [each.attrs["id"] for each in page.elements if each.attrs.get("aria-invalid") == "true"]
    assert invalid == ["f-name", "f-age"]
    assert [each.text for each in page.all("p", class_="fault")] == [
        "Fill this in.",
        "Enter a number.",
    ]
    assert page.fields()["f.age"] == ["<b>"]


@pytest.mark.parametrize(
    ("case", "key"),
    [
        (cases.content_review(), "feedback"),
        (cases.escalation(), "reason"),
        (cases.selection(), "selected"),
        (cases.service_case("selection"), "selected"),
        (cases.confirmation(), "confirmed_items"),
        (cases.service_escalation(), "modified_params"),
        (cases.approval(), "edits"),
        (cases.service_case("input"), "response"),
    ],
)
def test_a_fault_leads_to_its_place_on_every_page(case: Case, key: str) -> None:
    page = page_of(case, faults={f"data.{key}": "Not like this."})
    assert [each.attrs["href"] for each in page.all("a") if "problems" in each.inside] == [f"#{key}"]
    assert [each for each in page.elements if each.attrs.get("id") == key]
    assert "Not like this." in [each.text for each in page.all("p", class_="fault")]


def test_a_fault_in_another_step_brings_that_step_up() -> None:
    case = cases.wizard(draft={"by": "train"})
    html = html_of(case, step=4, faults={"data.city": "is required"})
    assert "Step 1 of 3" in html


def test_steps_that_nobody_has_to_walk_through_are_left_out() -> None:
    by_train = cases.wizard(draft={"city": "Rome", "by": "train"})
    assert "Step 2 of 3" in html_of(by_train, step=3)
    by_car = cases.wizard(draft={"city": "Rome", "by": "car", "plate": "X"})
    assert "Step 2 of 4" in html_of(by_car, step=2)
    summary = buttons(page_of(by_car, step=4))
    assert summary[-4:] == ["back", "answer", "draft", "1"]
    assert summary[:3] == ["goto.1", "goto.2", "goto.3"], "the steps that are done"
    assert summary[3:-4] == ["goto.1", "goto.1", "goto.1"], "Change, at each of three rows"
    assert "Step 1 of 3" in html_of(by_train, step=-5)
    assert "Step 3 of 3" in html_of(by_train, step=99)


def test_a_field_that_waits_for_its_condition_is_there_for_the_script_only() -> None:
    def plate(case: Case) -> dict[str, str | None]:
        (wrapper,) = [each for each in page_of(case).elements if each.attrs.get("data-field") == "plate"]
        return wrapper.attrs

    assert {"hidden", "disabled"} <= set(plate(cases.wizard()))
    assert not {"hidden", "disabled"} & set(plate(cases.wizard(draft={"by": "car"})))


def test_a_long_question_of_an_agent_is_whole() -> None:
    prompt = "Why? " + "Because of it. " * 200
    case = cases.agent_case(AskRequest(questions=[Question(key="why", prompt=prompt.strip())]))
    assert prompt.strip() in page_of(case).texts()


def test_an_edit_is_shown_as_a_difference_before_it_is_sent() -> None:
    body = EMAIL_ARGS["body"].replace("1 March", "15 March")
    edited = {**EMAIL_ARGS, "body": body, "amount": 3}
    page = page_of(cases.approval(), values={"edits": edited, "feedback": "Later"}, step=2)
    assert [each.text for each in page.all("del")] == ["1", "1250.5"]
    assert [each.text for each in page.all("ins")] == ["15", "3"]
    assert "It is due on 115 March." in page.all("div", class_="diff")[0].text
    assert buttons(page) == ["drop", "revise", "answer"]
    assert EMAIL_ARGS["to"] in page.texts(), "what is unchanged is there too"
    assert page.fields()["feedback"] == ["Later"]


def test_a_difference_of_very_many_lines_stands_whole() -> None:
    before, after = "\n".join(map(str, range(3000))), "\n".join(map(str, range(1, 3000)))
    page = page_of(cases.approval({"text": before}), values={"edits": {"text": after}}, step=2)
    assert before in page.texts()
    assert after in page.texts()
    assert page.fields()["changed"] == [json.dumps({"text": after})]


@pytest.mark.parametrize(
    ("action", "heading"),
    [
        ("approve", "Approved: {}"),
        ("reject", "Rejected: {}"),
        ("confirm", "Confirmed: {}"),
        ("cancel", "Not confirmed: {}"),
        ("select", "Chosen: {}"),
        ("submit", "Answered: {}"),
        ("retry", "It is tried again: {}"),
        ("skip", "It is skipped: {}"),
        ("abort", "The run is stopped: {}"),
        ("edit", "Another try was asked for: {}"),
        ("refund", "Answered with “refund”: {}"),
    ],
)
def test_an_answered_case_says_so_and_offers_nothing(action: str, heading: str) -> None:
    case = cases.service_case(
        "approval", status="completed", result={"action": action, "data": {"feedback": "well <done>"}}
    )
    page = page_of(case)
    assert page.all("h1")[0].text == heading.format("“Please decide.”")
    assert not page.all("form")
    assert "well <done>" in page.texts()


def test_who_answered_and_how_is_told() -> None:
    assert "by Ada" in page_of(CLOSED_CASES["rejected"]).all("main")[0].text
    edited = page_of(CLOSED_CASES["edited"])
    assert edited.all("h1")[0].text == "Approved with changes: Send email"
    assert [each.text for each in edited.all("ins")] == ["books"]


@pytest.mark.parametrize("status", ["completed", "expired", "cancelled"])
def test_whoever_comes_second_is_told(status: State) -> None:
    case = cases.service_case("approval", status=status, result={"action": "reject", "data": {}})
    assert "was not counted" in html_of(case, notice="late")
    assert "was not counted" not in html_of(case)


def test_a_cancelled_case_quotes_its_reason() -> None:
    page = page_of(CLOSED_CASES["cancelled"])
    assert "The customer called it off." in page.all("section", class_="words")[0].text


@pytest.mark.parametrize(
    ("default", "said"),
    [("skip", "skipped"), ("reject", "rejected"), ("abort", "stop"), ("approve", "approved")],
)
def test_what_happens_without_an_answer_is_said(default: str, said: str) -> None:
    """In the state at the top of the page: in the last hour, and always where silence approves."""
    case = cases.approval(default_action=default)
    soon = page_of(case, now=ASKED + DAY - 1440).all("p", id="state")[0]
    assert soon.text.startswith("24 min left, then ")
    assert said in soon.text
    assert "soon" in str(soon.attrs["class"])
    assert "bad" in str(page_of(case, now=ASKED + DAY - 200).all("p", id="state")[0].attrs["class"])
    early = page_of(case).all("p", id="state")[0].text
    assert early == ("23 h 59 min left, then approved" if default == "approve" else "23 h 59 min left")
    late = page_of(case, now=ASKED + DAY)
    assert late.all("h1")[0].text == "Nobody answered: Send email"
    assert said in late.all("main")[0].text
    assert not late.all("form"), "an open case whose time is over can no longer be answered"


def test_a_new_round_is_named() -> None:
    case = cases.service_case(
        "approval", status="completed", next_case_id="case_2", result={"action": "edit"}
    )
    assert "case_2" in page_of(case).all("main")[0].text


def test_notices() -> None:
    assert "come back to it with the same link" in html_of(cases.wizard(), notice="saved")
    assert "brought up more" in html_of(cases.wizard(), notice="more")


def test_an_unknown_case_says_nothing_about_any() -> None:
    page = Page(render_unknown("/hitl"))
    assert not page.all("form")
    assert page.all("h1")[0].text == "There is nothing here"
    assert render_unknown() == render_unknown("")


def test_case_ids_and_tokens_are_escaped_in_addresses() -> None:
    html = html_of(dataclasses.replace(cases.approval(), case_id='a/b"?<'), token='x"&y')  # noqa: S106
    (action,) = set(re.findall(r'<form[^>]*action="([^"]*)"', html))
    assert unescape(action) == "/hitl/review/a%2Fb%22%3F%3C/respond?token=x%22%26y"


def test_the_headers_shut_everything_out() -> None:
    policy = dict(part.strip().split(" ", 1) for part in PAGE_HEADERS["Content-Security-Policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "style-src": "'self'",
        "script-src": "'self'",
        "img-src": "'self'",
        "connect-src": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    assert PAGE_HEADERS["Referrer-Policy"] == "no-referrer"
    assert PAGE_HEADERS["Cache-Control"] == "no-store"
    assert PAGE_HEADERS["X-Content-Type-Options"] == "nosniff"


def test_the_static_files_load_nothing_from_elsewhere() -> None:
    assert {path.name for path in STATIC.iterdir()} == {
        "icon.svg",
        "page.css",
        "page.js",
        "fields.js",
        "edit.js",
    }
    for name in ("page.css", "page.js", "fields.js"):
        text = (STATIC / name).read_text()
        assert "//" not in re.sub(r"^ *//.*$", "", text, flags=re.MULTILINE)
        assert "innerHTML" not in text
