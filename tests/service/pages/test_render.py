"""The pages of every type and state: what they say, what they offer, and what they keep to themselves."""

from __future__ import annotations

import dataclasses
import re
from html import unescape
from typing import Any

import pytest
from kit import page_cases as cases
from kit.page_cases import ASKED, CLOSED_CASES, DAY, EMAIL_ARGS, NOW, OPEN_CASES, TOKEN
from kit.page_text import Page

from askfirst.protocol import State
from askfirst.requests import AskRequest, EscalateRequest, Question
from askfirst.service.case import Case
from askfirst.service.pages import PAGE_HEADERS, STATIC, render_case, render_unknown


def html_of(case: Case, **given: Any) -> str:
    return render_case(case, **{"token": TOKEN, "base_path": "/hitl", "now": NOW, **given})


def page_of(case: Case, **given: Any) -> Page:
    return Page(html_of(case, **given))


def buttons(page: Page) -> list[str | None]:
    return [each.attrs["value"] for each in page.all("button")]


ALL_CASES = {**OPEN_CASES, **CLOSED_CASES}
every_case = pytest.mark.parametrize("case", ALL_CASES.values(), ids=list(ALL_CASES))
open_cases = pytest.mark.parametrize("case", OPEN_CASES.values(), ids=list(OPEN_CASES))


@every_case
def test_a_page_has_landmarks_one_heading_and_nothing_inline(case: Case) -> None:
    html = html_of(case)
    page = Page(html)
    assert [len(page.all(tag)) for tag in ("header", "main", "footer", "h1", "title")] == [1] * 5
    assert not page.all("style")
    assert [each.attrs.get("src") for each in page.all("script")] == ["/hitl/static/page.js"]
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
    assert not [each for each in page.elements if "autofocus" in each.attrs]


@open_cases
def test_the_enter_key_decides_nothing(case: Case) -> None:
    """Enter in a field of one line presses its form's first button; that may be none that decides."""
    if case.type == "input" or case.type.startswith("x-"):
        return
    for form in re.findall(r"<form.*?</form>", html_of(case), re.DOTALL):
        if re.search(r'<input[^>]*type="(text|password|email|url|date)"', form):
            first = re.search(r"<button[^>]*>", form)
            assert first is not None
            assert 'name="action"' not in first[0]


@open_cases
def test_a_form_goes_back_to_its_own_case(case: Case) -> None:
    forms = page_of(case).all("form")
    assert forms
    for form in forms:
        assert form.attrs["action"] == f"/hitl/review/case_1/respond?token={TOKEN}"
        assert form.attrs["method"] == "post"


BUTTONS = {
    "approval": ["preview", "approve", "reject"],
    "content_review": ["approve", "edit", "reject"],
    "selection": ["select"],
    "agent_selection": ["select"],
    "free_selection": ["select"],
    "every_field": ["answer", "draft"],
    "agent_questions": ["answer", "draft"],
    "no_form": ["answer"],
    "custom": ["answer"],
    "wizard": ["next", "draft"],
    "confirmation": ["confirm", "cancel"],
    "agent_confirmation": ["confirm", "cancel"],
    "escalation": ["preview", "retry", "skip", "abort"],
    "service_escalation": ["retry", "skip", "abort"],
    "service_escalation_params": ["preview", "retry", "skip", "abort"],
}


@pytest.mark.parametrize("name", OPEN_CASES)
def test_each_type_has_its_buttons(name: str) -> None:
    assert buttons(page_of(OPEN_CASES[name])) == BUTTONS[name]


def test_the_call_stands_first_and_whole() -> None:
    case = cases.approval()
    html = html_of(case)
    assert html.index('class="act"') < html.index('class="why"') < html.index('class="decide"')
    page = Page(html)
    (act,) = page.all("section", class_="act")
    assert "send_email" in act.text
    inside = [each.text for each in page.all("div", class_="text") if "act" in each.inside]
    assert inside[:3] == [EMAIL_ARGS["to"], EMAIL_ARGS["subject"], EMAIL_ARGS["body"]]
    assert inside[3:5] == ["1250.5", "false"]
    assert case.digest is not None
    assert case.digest in html
    (why,) = page.all("section", class_="why")
    assert "Why you are asked" in why.text
    assert "More than 1,000 needs a second look." in why.text
    assert not page.all("section", class_="words")


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
    (why,), (words,) = page.all("section", class_="why"), page.all("section", class_="words")
    for text in ("Why you are asked", "It is night.", "Rule", "night-shift", "desk / helper", "bob"):
        assert text in why.text
        assert text not in words.text
    assert "From the agent’s side" in words.text
    assert "The customer asked for it." in words.text
    assert "The customer" not in why.text

    def heading(case: Case) -> str:
        (words,) = page_of(case).all("section", class_="words")
        return words.text

    assert "In the agent’s words" in heading(cases.agent_selection())
    assert "In the asking service’s words" in heading(cases.selection())
    for case in (cases.agent_confirmation(), cases.escalation()):
        assert "From the agent’s side" in heading(case)
        assert "Written by the agent, or by the program around it." in heading(case)


def test_a_reason_that_is_no_text_stays_with_the_rest() -> None:
    page = page_of(cases.approval(details={"reason": {"a": 1}, "agent_path": "x"}))
    assert not page.all("section", class_="why")
    (words,) = page.all("section", class_="words")
    assert "agent_path" in words.text


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
    assert buttons(page) == ["approve", "reject"]


def test_an_escalation_shows_the_call_in_doubt() -> None:
    (act,) = page_of(cases.escalation()).all("section", class_="act")
    assert "charge_card" in act.text
    assert "visa-1" in act.text


def test_an_agent_may_name_choices_of_its_own() -> None:
    case = cases.agent_case(EscalateRequest(prompt="Stuck", choices=["refund", "skip"]))
    assert buttons(page_of(case)) == ["refund", "skip"]


def test_a_service_is_quoted() -> None:
    (words,) = page_of(cases.content_review()).all("section", class_="words")
    assert "In the asking service’s words" in words.text
    for said in ("Approve production deployment", "requires approval.", "acme-web", '"unit": 847'):
        assert said in words.text


def test_choices_come_with_all_that_is_said_about_them() -> None:
    page = page_of(cases.selection())
    kinds = [each.attrs["type"] for each in page.all("input") if each.attrs["name"] == "selected"]
    assert kinds == ["checkbox"] * 3
    assert {"TechFlow GmbH", "0.94", "Klarna"} <= set(page.texts())
    one = page_of(cases.agent_selection())
    assert [each.attrs["type"] for each in one.all("input")] == ["radio"] * 2
    assert "Like the sea" in one.texts()
    assert "Which colour should the roof be?" in one.texts()


@pytest.mark.parametrize(
    "items", [[{"title": "no id"}], [["text"]], [{"id": "a"}, {"id": "a"}], "none", [{"id": True}]]
)
def test_items_that_cannot_be_told_apart_leave_a_field_to_write_in(items: Any) -> None:
    page = page_of(cases.service_case("selection", {"items": items}))
    assert [each.attrs["id"] for each in page.all("textarea")] == ["selected", "note"]


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
    assert "is odd" in problems.text
    assert "is unknown" in problems.text
    invalid = [each.attrs["id"] for each in page.elements if each.attrs.get("aria-invalid") == "true"]
    assert invalid == ["f-name", "f-age"]
    assert [each.text for each in page.all("p", class_="fault")] == [
        "This is required.",
        "This must be a number.",
    ]
    assert page.fields()["f.age"] == ["<b>"]


@pytest.mark.parametrize(
    ("case", "key"),
    [
        (cases.content_review(), "feedback"),
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
    assert buttons(page_of(by_car, step=4)) == ["answer", "back", "draft"]
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
    assert [each.text for each in page.all("del")] == ["Removed: It is due on 1 March.", "Removed: 1250.5"]
    assert [each.text for each in page.all("ins")] == ["Added: It is due on 15 March.", "Added: 3"]
    assert buttons(page) == ["answer", "revise"]
    assert EMAIL_ARGS["to"] in page.texts(), "what is unchanged is there too"
    assert page.fields()["feedback"] == ["Later"]


def test_a_difference_of_very_many_lines_stands_whole() -> None:
    before, after = "\n".join(map(str, range(3000))), "\n".join(map(str, range(1, 3000)))
    page = page_of(cases.approval({"text": before}), values={"edits": {"text": after}}, step=2)
    assert before in page.texts()
    assert after in page.texts()


@pytest.mark.parametrize(
    ("action", "heading"),
    [
        ("approve", "Approved"),
        ("reject", "Rejected"),
        ("confirm", "Confirmed"),
        ("cancel", "Not confirmed"),
        ("select", "Chosen"),
        ("submit", "Answered"),
        ("retry", "It is tried again"),
        ("skip", "It is skipped"),
        ("abort", "The run is stopped"),
        ("edit", "Changes were asked for"),
        ("refund", "Answered: refund"),
    ],
)
def test_an_answered_case_says_so_and_offers_nothing(action: str, heading: str) -> None:
    case = cases.service_case(
        "approval", status="completed", result={"action": action, "data": {"feedback": "well <done>"}}
    )
    page = page_of(case)
    assert page.all("h1")[0].text == heading
    assert not page.all("form")
    assert "well <done>" in page.texts()


def test_who_answered_and_how_is_told() -> None:
    assert "by Ada" in page_of(CLOSED_CASES["rejected"]).all("main")[0].text
    edited = page_of(CLOSED_CASES["edited"])
    assert edited.all("h1")[0].text == "Approved with changes"
    assert [each.text for each in edited.all("ins")] == ["Added: books@acme.example"]


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
    [("skip", "skipped"), ("reject", "rejected"), ("abort", "run stops"), ("approve", "counts as approved")],
)
def test_what_happens_without_an_answer_is_said(default: str, said: str) -> None:
    case = cases.approval(default_action=default)
    assert said in html_of(case)
    late = page_of(case, now=ASKED + DAY)
    assert late.all("h1")[0].text == "This request has expired"
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
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    assert PAGE_HEADERS["Referrer-Policy"] == "no-referrer"
    assert PAGE_HEADERS["Cache-Control"] == "no-store"
    assert PAGE_HEADERS["X-Content-Type-Options"] == "nosniff"


def test_the_static_files_load_nothing_from_elsewhere() -> None:
    assert {path.name for path in STATIC.iterdir()} == {"icon.svg", "page.css", "page.js"}
    for name in ("page.css", "page.js"):
        text = (STATIC / name).read_text()
        assert "//" not in re.sub(r"^ *//.*$", "", text, flags=re.MULTILINE)
        assert "innerHTML" not in text
