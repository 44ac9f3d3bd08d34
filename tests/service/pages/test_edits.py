"""Changed arguments and a decision for the call as it was: never one without the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import page_cases as cases
from kit.browser_actions import press_now, ready_now
from kit.hostile_text import ANY_TEXT, ANY_VALUE, CORPUS
from kit.page_browser import Desk
from kit.page_cases import EMAIL_ARGS
from kit.page_forms import edit_page_of, page_of, post, settled
from kit.page_text import Page
from kit.patience import PATIENCE
from kit.running_service import serving

from askfirst.display import Display
from askfirst.requests import ApproveRequest, EscalateRequest
from askfirst.service.case import Case

EDITED = {**EMAIL_ARGS, "amount": 99}


def sent(page: Page) -> list[str | None]:
    """What the buttons send."""
    return [each.attrs["value"] for each in page.all("button") if "value" in each.attrs]


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
    """A form of our own never posts both; whoever does is asked."""
    changed: dict[str, Any] = {place: typed, "action": action}
    first = post(case, edit_page_of(case), **changed)
    assert (first.intent, first.faults, first.goto) == ("preview", {}, 2)
    assert first.data == {key: values, "pressed": action}
    preview = page_of(case, values=first.data, step=first.goto)
    assert "There are changes, and you pressed" in preview.all("p", class_="notice")[0].text
    assert len(preview.all("ins")) == 1
    assert sent(preview) == ["drop", "revise", "original", "answer"]
    with_changes = post(case, preview, intent="answer")
    assert settled(with_changes, case) == ({"approve": "edit"}.get(action, action), {key: values})
    assert settled(post(case, preview, intent="original"), case) == (action, {})
    assert post(case, preview, intent="revise").data == {key: values}


def test_only_who_asked_for_the_call_as_it_was_is_offered_it() -> None:
    case = cases.approval()
    first = post(case, edit_page_of(case), intent="preview", arg__3="99")
    assert (first.intent, first.action, first.data) == ("preview", "edit", {"edits": EDITED})
    preview = page_of(case, values=first.data, step=first.goto)
    assert sent(preview) == ["drop", "revise", "answer"]
    assert post(case, preview, intent="original").faults == {"action": "Press one of the buttons."}


def test_what_cannot_be_read_is_not_dropped_for_an_approval() -> None:
    case = cases.approval()
    submission = post(case, edit_page_of(case), action="approve", arg__3="lots")
    assert list(submission.faults) == ["edits", "edits.amount"]
    page = page_of(case, values=submission.data, faults=submission.faults, step=submission.step)
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
    assert settled(post(case, edit_page_of(case), action="approve"), case) == ("approve", {})


def test_the_note_stays_with_the_changes() -> None:
    case = cases.approval()
    first = post(case, edit_page_of(case), action="edit", intent="preview", arg__3="99", feedback="Cheaper")
    preview = page_of(case, values=first.data, step=first.goto)
    assert settled(post(case, preview, intent="answer"), case)[1]["feedback"] == "Cheaper"
    back = post(case, preview, intent="revise")
    assert page_of(case, values=back.data, step=back.goto).fields()["feedback"] == ["Cheaper"]


def test_more_arguments_than_a_form_may_post_can_still_be_approved() -> None:
    """Every decision posts the fields, and the service takes 4 MB and 10,000 of them."""
    many = edit_page_of(cases.approval({f"a{place}": place for place in range(12_000)})).fields()
    assert len(many) < 2_000
    long = edit_page_of(cases.approval({f"a{place}": "€" * 40_000 for place in range(40)})).fields()
    assert sum(len(text[0].encode()) * 3 for text in long.values()) < 2_000_000


MONEY = Display(formats={"cents": "money:EUR", "yen": "money:JPY", "day": "date", "code": "code:sh"})


def money_case(**args: Any) -> Case:
    given: dict[str, Any] = {
        "cents": 4900,
        "yen": 500,
        "day": "2026-11-17",
        "tags": ["a", "b"],
        "counts": [1, 2],
        **args,
    }
    payload = ApproveRequest(tool_name="pay", tool_call_id="c", args=given, display=MONEY.shown(given))
    return cases.agent_case(payload)


def test_values_are_edited_as_people_write_them() -> None:
    case = money_case()
    page = edit_page_of(case)
    fields = page.fields()
    assert fields["arg.0"] == ["49.00"]
    assert fields["arg.1"] == ["500"]
    assert fields["arg.3"] == ["a\r\nb"], "a list is lines, and no JSON"
    assert page.all("input", id="arg.2")[0].attrs["type"] == "date"
    typed: dict[str, Any] = {
        "arg__0": "1,240.50",
        "arg__1": "501",
        "arg__3": "a\r\n\r\nc d",
        "arg__4": "2\r\n3.5",
    }
    said = post(case, page, intent="preview", **typed)
    expected = {"cents": 124050, "yen": 501, "day": "2026-11-17", "tags": ["a", "c d"], "counts": [2, 3.5]}
    assert (said.faults, said.data["edits"]) == ({}, expected)
    check = page_of(case, values=said.data, step=2)
    assert "49.001,240.50 EUR" in check.all("div", class_="diff")[0].text
    for place, odd in (("arg__0", "1.234"), ("arg__0", "ten"), ("arg__1", "1.5"), ("arg__4", "2\r\nx")):
        assert post(case, page, intent="preview", **{place: odd}).faults, odd


# Objects and lists are trees of fields.

FILES = {
    "owner": {"mail": "ada@example.com", "tags": ["a", "b"], "limit": {"n": 3, "on": True}},
    "files": [{"name": "a.pdf", "pages": 2}, {"name": "b.pdf", "pages": 1}],
    "notes": ["one\ntwo", "three"],
}


def texts(page: Page) -> dict[str, str]:
    return {name: said[0] for name, said in page.fields().items() if name.startswith("arg.")}


def test_objects_and_lists_are_fields_and_never_json() -> None:
    case = cases.approval(FILES)
    page = edit_page_of(case)
    typed = texts(page)
    assert typed["arg.0.0"] == "ada@example.com"
    assert typed["arg.0.1"] == "a\r\nb"
    assert typed["arg.0.2.0"] == "3"
    assert typed["arg.0.2.1"] == "true"
    assert typed["arg.1.1.0"] == "b.pdf"
    assert typed["arg.2.0"] == "one\r\ntwo"
    assert not page.all("textarea", class_="code")
    changed: dict[str, Any] = {"arg__0__2__0": "4", "arg__1__0__0": "c.pdf", "arg__0__1": "a\r\nc"}
    said = post(case, page, intent="preview", **changed)
    expected = {
        **FILES,
        "owner": {"mail": "ada@example.com", "tags": ["a", "c"], "limit": {"n": 4, "on": True}},
        "files": [{"name": "c.pdf", "pages": 2}, {"name": "b.pdf", "pages": 1}],
    }
    assert (said.faults, said.data["edits"]) == ({}, expected)
    again = page_of(case, values=post(case, page_of(case, values=said.data, step=2), intent="revise").data)
    assert texts(again)["arg.1.0.0"] == "c.pdf"
    assert settled(post(case, page_of(case, values=said.data, step=2), intent="answer"), case)[1] == {
        "edits": expected
    }


def test_a_field_within_an_object_keeps_its_fault_and_what_was_typed() -> None:
    case = cases.approval(FILES)
    said = post(case, edit_page_of(case), intent="preview", arg__1__0__1="many")
    assert said.faults == {"edits.files.0.pages": "must be a number"}
    page = page_of(case, values=said.data, faults=said.faults)
    assert texts(page)["arg.1.0.1"] == "many"
    field = page.all("input", id="arg.1.0.1")[0]
    assert field.attrs["aria-invalid"] == "true"
    assert "autofocus" in field.attrs
    assert not post(case, page, intent="preview", arg__1__0__1="3").faults


def test_items_are_added_and_removed_without_script() -> None:
    case = cases.approval(FILES)
    added = post(case, edit_page_of(case), intent="add.1", arg__1__0__0="c.pdf")
    assert (added.intent, added.faults) == ("revise", {})
    assert added.data["edits"]["files"][2] == {"name": "", "pages": 0}
    page = page_of(case, values=added.data)
    fewer = post(case, page, intent="remove.1.1", arg__1__2__0="d.pdf")
    expected = [{"name": "c.pdf", "pages": 2}, {"name": "d.pdf", "pages": 0}]
    assert fewer.data["edits"]["files"] == expected
    put = post(case, page_of(case, values=fewer.data), intent="putback.1")
    assert put.data["edits"] == FILES
    for odd in (
        "add.9",
        "remove.1.7",
        "remove.0.0",
        "add.1.0",
        "json.x",
        "putback.12",
        "add.1.1.1.1.1.1.1.1.1.1",
    ):
        assert post(case, edit_page_of(case), intent=odd).data.get("edits", FILES) == FILES, odd


def test_a_field_has_its_authors_hint_beside_how_it_is_filled_in() -> None:
    hints = {"cents": "In cents, <b>at most</b> what was paid.", "to": "Whom to tell.", "urgent": "Today?"}
    payload = ApproveRequest(
        tool_name="pay",
        tool_call_id="c1",
        args={"cents": 1, "to": ["a"], "urgent": False, "note": "x", "fee": 100},
        display={"hints": hints | {"fee": "In cents."}, "formats": {"fee": "money:EUR"}},
    )
    page = edit_page_of(cases.agent_case(payload))
    said = {
        str(it.attrs["id"]): it.text
        for it in page.all("p")
        if it.attrs.get("class") == "hint" and it.attrs.get("id")
    }
    assert said["arg.0-hint"] == hints["cents"]
    assert said["arg.1-hint"].startswith("Whom to tell.")
    assert said["arg.1-hint"].endswith("One on each line")
    assert said["arg.2-hint"] == "Today?"
    assert not {"arg.3-hint", "arg.4-hint"} & set(said)  # the field of the fee takes euros
    described = [it for it in page.all("input") if it.attrs.get("aria-describedby") == "arg.0-hint"]
    assert [it.attrs["name"] for it in described] == ["arg.0"]


def test_json_only_for_who_asks_for_it() -> None:
    case = cases.approval(FILES)
    asked = post(case, edit_page_of(case), intent="json.0", arg__0__0="bo@example.com")
    page = page_of(case, values=asked.data)
    assert '"mail": "bo@example.com"' in texts(page)["arg.0"]
    wrong = post(case, page, intent="preview", arg__0="{")
    assert wrong.faults == {"edits.owner": "is not JSON"}
    assert texts(page_of(case, values=wrong.data, faults=wrong.faults))["arg.0"] == "{"
    back = post(case, page, intent="fields.0", arg__0='{"mail": "cy@example.com", "new": [1]}')
    typed = texts(page_of(case, values=back.data))
    assert (typed["arg.0.0"], typed["arg.0.1"]) == ("cy@example.com", "1")


def test_a_tree_that_was_made_up_is_not_read() -> None:
    case = cases.approval(FILES)
    for odd in ("1", "[[[[[[[[1]]]]]]]]", "{", '"x"', "[" + ",".join("1" for _ in range(500)) + "]"):
        assert post(case, edit_page_of(case), intent="preview", arg__1__base=odd).faults, odd


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plan": {"$ref": "#/$defs/Plan"},
        "cc": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "seats": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "day": {"type": "string", "format": "date"},
        "to": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object", "properties": {"size": {"enum": ["s", "m"], "type": "string"}}},
    },
    "$defs": {"Plan": {"enum": ["basic", "pro"], "type": "string"}},
}


def test_a_schema_says_what_field_a_value_has() -> None:
    args: dict[str, Any] = {
        "plan": "pro",
        "cc": None,
        "seats": None,
        "day": "2026-11-17",
        "to": [],
        "where": {"size": "s"},
    }
    payload = ApproveRequest(tool_name="book", tool_call_id="c", args=args, args_schema=SCHEMA)
    case = cases.agent_case(payload)
    page = edit_page_of(case)
    assert [each.text for each in page.all("option")] == ["basic", "pro", "s", "m"]
    assert [it.attrs["type"] for it in page.all("input", id="arg.3")] == ["date"]
    typed: dict[str, Any] = {
        "arg__0": "0",
        "arg__1": "ann",
        "arg__2": "2",
        "arg__4": "x\r\ny",
        "arg__5__0": "1",
    }
    said = post(case, page, intent="preview", **typed)
    expected = {"plan": "basic", "cc": "ann", "seats": 2, "day": "2026-11-17", "to": ["x", "y"]}
    assert (said.faults, said.data["edits"]) == ({}, {**expected, "where": {"size": "m"}})
    back = post(case, page_of(case, values=said.data), intent="preview", arg__1="", arg__2="", arg__0="9")
    assert back.faults == {"edits.plan": "must be one of the options"}
    assert (back.data["edits"]["cc"], back.data["edits"]["seats"]) == (None, None)


def test_a_hidden_value_is_on_no_page_of_an_edit() -> None:
    shown = Display(formats={"pin": "secret"})
    args: dict[str, Any] = {"pin": "hunter2", "n": 1}
    payload = ApproveRequest(tool_name="pay", tool_call_id="c", args=args, display=shown.shown(args))
    case = cases.agent_case(payload)
    page = edit_page_of(case)
    assert "hunter2" not in page.html
    assert (page.all("input", id="arg.0")[0].attrs["type"], texts(page)["arg.0"]) == ("password", "")
    other = post(case, page, intent="preview", arg__1="2")
    check = page_of(case, values=other.data, step=2)
    assert "hunter2" not in check.html
    assert settled(post(case, check, intent="answer"), case)[1] == {"edits": {"pin": "hunter2", "n": 2}}
    new = post(case, page, intent="preview", arg__0="swordfish")
    assert "swordfish" not in page_of(case, values=new.data, step=2).all("section", class_="act")[0].text
    assert new.begun is not None
    assert "swordfish" not in str(new.begun)


# What was begun is kept.


def test_an_edit_that_was_begun_is_found_again() -> None:
    case = cases.approval(FILES | {"n": 1})
    first = post(case, edit_page_of(case), intent="draft", arg__3="lots", arg__1__0__0="c.pdf")
    kept = dataclasses.replace(case, draft=first.begun)
    page = edit_page_of(kept)
    assert (texts(page)["arg.3"], texts(page)["arg.1.0.0"]) == ("lots", "c.pdf")
    assert "These are your changes from before." in page.all("main")[0].text
    assert "You have begun to change this." in page_of(kept).all("main")[0].text
    assert settled(post(kept, action="approve"), kept) == ("approve", {}), "the call as it was asked"
    changed = dataclasses.replace(cases.approval({"n": 2}), draft=first.begun)
    assert texts(edit_page_of(changed)) == {"arg.0": "2"}, "the call is another one"
    dropped = post(kept, page, intent="drop")
    assert dropped.begun is not None
    assert not dropped.begun["typed"]


@given(st.integers(-(10**12), 10**12))
def test_an_amount_that_nobody_touched_stays_to_the_cent(cents: int) -> None:
    case = money_case(cents=cents)
    assert settled(post(case, edit_page_of(case), action="approve"), case) == ("approve", {})


# By HTTP.


@pytest.mark.anyio
async def test_a_retry_with_changed_fields_settles_nothing(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as service:
        case = await (await service.agent()).open("escalation", context={"params": {"limit": 10}})
        held = await case.form(action="retry", **{"arg.0": "11"})
        assert held.status_code == 200
        assert "There are changes, and you pressed" in held.text
        assert (await case.poll())["status"] == "in_progress", "the edit is kept"
        wrong = await case.form(action="retry", **{"arg.0": "many"})
        assert wrong.status_code == 422
        assert (await case.poll())["status"] == "in_progress", "the edit is kept"
        sent = await case.form(action="retry", intent="answer", modified_params='{"limit": 11}')
        assert sent.status_code == 303
        assert (await case.poll())["result"]["data"] == {"modified_params": {"limit": 11}}


@pytest.mark.anyio
async def test_what_somebody_began_to_change_is_nobody_elses(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as service:
        case = await (await service.agent()).open("escalation", context={"params": {"limit": 10}})
        saved = await case.form(intent="draft", **{"arg.0": "11"})
        assert saved.status_code == 303
        assert saved.cookies["askfirst_browser"]
        url = f"{case.hitl['review_url']}&edit=1"
        assert 'value="11"' in (await service.http.get(url)).text
        service.http.cookies.clear()
        assert 'value="11"' not in (await service.http.get(url)).text


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


def edit(page: Any, url: str) -> None:
    page.goto(f"{url}&edit=1")


def test_an_edit_is_never_dropped(page: Any, desk: Desk) -> None:
    edit(page, desk.put("a", cases.approval()))
    assert page.locator('button[value="approve"]').count() == 0, (
        "the call as it was cannot be approved by mistake"
    )
    page.get_by_label("amount", exact=True).fill("99")
    press_now(page, "Check the changes")
    assert desk.result("a") is None
    press_now(page, "Go on editing")
    assert page.get_by_label("amount", exact=True).input_value() == "99"
    press_now(page, "Check the changes")
    assert desk.result("a") is None
    press_now(page, "Approve with these changes")
    assert desk.result("a") == {"action": "edit", "data": {"edits": EDITED}}


def test_the_call_as_it_was_is_a_click_away(page: Any, desk: Desk) -> None:
    edit(page, desk.put("b", cases.approval()))
    page.get_by_label("Yes", exact=True).check()
    press_now(page, "Check the changes")
    press_now(page, "Drop the changes")
    press_now(page, "Approve")
    assert desk.result("b") == {"action": "approve", "data": {}}


def test_what_is_changed_is_said_at_its_row_and_put_back(page: Any, desk: Desk) -> None:
    edit(page, desk.put("c", cases.approval()))
    ready_now(page)
    scripted = page.evaluate("'ready' in document.documentElement.dataset")
    amount = page.get_by_label("amount", exact=True)
    amount.fill("99")
    row = page.locator("[data-arg]").filter(has=amount)
    assert row.get_by_text("changed").is_visible() == scripted
    if scripted:
        assert row.locator("del").inner_text() == "1250.5"
        assert row.locator("ins").inner_text() == "99"
        row.get_by_role("button", name="Put back").click()
        assert amount.input_value() == "1250.5"
        assert not row.get_by_text("changed").is_visible()


def test_enter_in_an_argument_sends_nothing(page: Any, desk: Desk) -> None:
    edit(page, desk.put("d", cases.approval()))
    page.get_by_label("amount", exact=True).press("Enter")
    assert page.get_by_role("alert").count() == 0
    assert desk.result("d") is None


def test_untouched_arguments_of_every_kind_are_approved_at_once(page: Any, desk: Desk) -> None:
    args: dict[str, Any] = {
        name.replace(" ", "_"): text for name, text in CORPUS.items() if name != "megabyte"
    }
    args |= {"number": 1e21, "nested": {"a": ["\u202e", None]}, "lead": "\n\nafter"}
    page.goto(desk.put("e", cases.approval(args)))
    press_now(page, "Approve")
    assert desk.result("e") == {"action": "approve", "data": {}}
