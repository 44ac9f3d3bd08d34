"""Changed arguments and a decision for the call as it was: never one without the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import page_cases as cases
from kit.hostile_text import ANY_TEXT, ANY_VALUE, CORPUS
from kit.page_browser import Desk
from kit.page_cases import EMAIL_ARGS
from kit.page_forms import page_of, post, settled
from kit.patience import PATIENCE
from kit.running_service import serving

from askfirst.requests import EscalateRequest
from askfirst.service.case import Case

EDITED = {**EMAIL_ARGS, "amount": 99}


# What is posted, and what comes of it.


@pytest.mark.parametrize(
    ("case", "action", "place", "typed", "key", "values"),
    [
        (cases.approval(), "approve", "arg__3", "99", "edits", EDITED),
        (cases.escalation(), "retry", "arg__0", "41", "modified_params", {"amount": 41, "card": "visa-1"}),
        (
            cases.service_escalation(params={"limit": 10}),
            "retry",
            "arg__0",
            "11",
            "modified_params",
            {"limit": 11},
        ),
    ],
)
def test_a_decision_with_changed_fields_asks_which_is_meant(
    case: Case, action: str, place: str, typed: str, key: str, values: dict[str, Any]
) -> None:
    changed: dict[str, Any] = {place: typed, "action": action}
    first = post(case, **changed)
    assert (first.intent, first.faults, first.goto) == ("preview", {}, 2)
    assert first.data == {key: values, "pressed": action}
    preview = page_of(case, values=first.data, step=first.goto)
    assert "There are changes, and you pressed" in preview.all("p", class_="notice")[0].text
    assert len(preview.all("ins")) == 1
    assert [each.attrs["value"] for each in preview.all("button")] == ["answer", "original", "revise"]
    with_changes = post(case, preview, intent="answer")
    assert settled(with_changes, case) == ({"approve": "edit"}.get(action, action), {key: values})
    assert settled(post(case, preview, intent="original"), case) == (action, {})
    assert post(case, preview, intent="revise").data == {key: values}


def test_only_who_asked_for_the_call_as_it_was_is_offered_it() -> None:
    case = cases.approval()
    first = post(case, intent="preview", arg__3="99")
    assert (first.intent, first.action, first.data) == ("preview", "edit", {"edits": EDITED})
    preview = page_of(case, values=first.data, step=first.goto)
    assert [each.attrs["value"] for each in preview.all("button")] == ["answer", "revise"]
    assert post(case, preview, intent="original").faults == {"action": "Press one of the buttons."}


def test_what_cannot_be_read_is_not_dropped_for_an_approval() -> None:
    case = cases.approval()
    submission = post(case, action="approve", arg__3="lots")
    assert list(submission.faults) == ["edits", "edits.amount"]
    page = page_of(case, values=submission.data, faults=submission.faults, step=submission.step)
    assert "open" in page.all("details", id="edits")[0].attrs
    assert page.fields()["arg.3"] == ["lots"]


@pytest.mark.parametrize(
    ("case", "action"),
    [(cases.approval(), "reject"), (cases.escalation(), "skip"), (cases.escalation(), "abort")],
)
def test_a_call_that_does_not_run_needs_no_changes(case: Case, action: str) -> None:
    assert settled(post(case, action=action, arg__0="41"), case) == (action, {})


def test_a_choice_of_an_agents_own_drops_no_changes() -> None:
    payload = EscalateRequest(
        prompt="Now what?",
        choices=["retry", "again later"],
        details={"tool_name": "charge_card", "args": {"amount": 40}},
    )
    case = cases.agent_case(payload)
    assert settled(post(case, action="again later"), case) == ("again later", {})
    first = post(case, action="again later", arg__0="41")
    assert first.intent == "preview"
    preview = page_of(case, values=first.data, step=first.goto)
    assert settled(post(case, preview, intent="original"), case) == ("again later", {})


@given(st.dictionaries(ANY_TEXT, ANY_VALUE, min_size=1, max_size=4))
def test_untouched_fields_never_hold_an_approval_up(args: dict[str, Any]) -> None:
    case = cases.approval(args)
    assert settled(post(case, action="approve"), case) == ("approve", {})


def test_the_note_stays_with_the_changes() -> None:
    case = cases.approval()
    first = post(case, action="approve", arg__3="99", feedback="Cheaper")
    preview = page_of(case, values=first.data, step=first.goto)
    assert settled(post(case, preview, intent="original"), case) == ("approve", {"feedback": "Cheaper"})
    back = post(case, preview, intent="revise")
    assert page_of(case, values=back.data, step=back.goto).fields()["feedback"] == ["Cheaper"]


def test_more_arguments_than_a_form_may_post_can_still_be_approved() -> None:
    """Every decision posts the fields, and the service takes 4 MB and 10,000 of them."""
    many = page_of(cases.approval({f"a{place}": place for place in range(12_000)})).fields()
    assert len(many) < 2_000
    long = page_of(cases.approval({f"a{place}": "€" * 40_000 for place in range(40)})).fields()
    assert sum(len(text[0].encode()) * 3 for text in long.values()) < 2_000_000


def test_enter_in_the_code_of_a_form_with_changes_sends_nothing() -> None:
    case = cases.service_case("escalation", {"params": {"limit": 10}}, verify_email=("ada@acme.example",))
    entered = post(case, intent="preview", email_code="123456")
    assert (entered.send_code, entered.email_code) == (0, "123456")
    changed = post(case, intent="preview", arg__0="11", email_code="123456")
    assert (changed.send_code, changed.intent, changed.faults) == (None, "preview", {})
    wished = post(case, send_code="0", arg__0="11")
    assert (wished.send_code, wished.data) == (0, {"modified_params": {"limit": 11}})
    pressed = post(case, action="retry", arg__0="11")
    preview = page_of(case, values=pressed.data, step=pressed.goto)
    assert post(case, preview, send_code="0").data == pressed.data


# By HTTP.


@pytest.mark.anyio
async def test_a_retry_with_changed_fields_settles_nothing(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as service:
        case = await (await service.agent()).open("escalation", context={"params": {"limit": 10}})
        held = await case.form(action="retry", **{"arg.0": "11"})
        assert held.status_code == 200
        assert "There are changes, and you pressed" in held.text
        assert (await case.poll())["status"] == "pending"
        wrong = await case.form(action="retry", **{"arg.0": "many"})
        assert wrong.status_code == 422
        assert (await case.poll())["status"] == "pending"
        sent = await case.form(action="retry", intent="answer", modified_params='{"limit": 11}')
        assert sent.status_code == 303
        assert (await case.poll())["result"]["data"] == {"modified_params": {"limit": 11}}


# In a browser.

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)


@pytest.fixture(params=[True, False], ids=["script", "no script"])
def page(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    context = browser.new_context(java_script_enabled=request.param, viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    yield page
    context.close()


def press(page: Any, value: str) -> None:
    page.locator(f'button[value="{value}"]').click()


@pytest.mark.parametrize("closed", [False, True])
def test_approve_never_drops_an_edit(page: Any, desk: Desk, closed: bool) -> None:
    page.goto(desk.put("a", cases.approval()))
    page.get_by_text("Change it first").click()
    page.get_by_label("amount").fill("99")
    if closed:
        page.get_by_text("Change it first").click()
    press(page, "approve")
    assert page.locator("h1").inner_text() == "Check your changes"
    assert desk.result("a") is None
    page.get_by_role("button", name="Go on editing").click()
    assert page.get_by_label("amount").input_value() == "99"
    press(page, "approve")
    assert desk.result("a") is None, "the fields are as they were sent, and still not as they were asked"
    page.get_by_role("button", name="Approve with these changes").click()
    assert desk.result("a") == {"action": "edit", "data": {"edits": EDITED}}


def test_the_call_as_it_was_is_a_click_away(page: Any, desk: Desk) -> None:
    page.goto(desk.put("b", cases.approval()))
    page.get_by_text("Change it first").click()
    page.get_by_label("true", exact=True).check()
    press(page, "approve")
    page.get_by_role("button", name="Approve as it was asked").click()
    assert desk.result("b") == {"action": "approve", "data": {}}


def test_the_button_says_that_there_are_changes(page: Any, desk: Desk) -> None:
    page.goto(desk.put("c", cases.approval()))
    scripted = page.locator("time[title]").count() > 0
    approve = page.locator('button[value="approve"]')
    page.get_by_text("Change it first").click()
    page.get_by_label("amount").fill("99")
    assert approve.inner_text() == ("Check the changes, then approve" if scripted else "Approve")
    page.get_by_label("amount").fill("1250.5")
    assert approve.inner_text() == "Approve"


def test_enter_in_an_argument_approves_nothing(page: Any, desk: Desk) -> None:
    page.goto(desk.put("d", cases.approval()))
    page.get_by_text("Change it first").click()
    page.get_by_label("amount").press("Enter")
    assert "Nothing is changed yet." in re.sub(r"\s+", " ", page.get_by_role("alert").inner_text())
    assert desk.result("d") is None


def test_untouched_arguments_of_every_kind_are_approved_at_once(page: Any, desk: Desk) -> None:
    args: dict[str, Any] = {
        name.replace(" ", "_"): text for name, text in CORPUS.items() if name != "megabyte"
    }
    args |= {"number": 1e21, "nested": {"a": ["\u202e", None]}, "lead": "\n\nafter"}
    page.goto(desk.put("e", cases.approval(args)))
    press(page, "approve")
    assert desk.result("e") == {"action": "approve", "data": {}}
