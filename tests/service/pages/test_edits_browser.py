"""Editing in Chromium: in place with script, on a page of its own without, and nothing typed is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit import page_cases as cases
from kit.browser_actions import click_now, focused_now, press_now
from kit.page_browser import Desk
from kit.page_scenes import REFUND_ARGS, refund
from kit.patience import PATIENCE

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)

WINDOWS: dict[str, dict[str, Any]] = {
    "phone": {"viewport": {"width": 360, "height": 740}},
    "phone, no script": {"viewport": {"width": 360, "height": 740}, "java_script_enabled": False},
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "desktop, no script": {"viewport": {"width": 1280, "height": 900}, "java_script_enabled": False},
}


@pytest.fixture(params=WINDOWS)
def page(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    context = browser.new_context(**WINDOWS[request.param])
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    yield page
    context.close()


@pytest.fixture
def scripted(request: pytest.FixtureRequest) -> bool:
    return "no script" not in request.node.callspec.params["page"]


def field(page: Any, name: str) -> Any:
    return page.locator(f"[name='{name}']")


def test_a_pencil_leads_to_the_field_of_its_value(page: Any, desk: Desk, scripted: bool) -> None:
    page.goto(desk.put("pencil", refund()))
    pencil = page.get_by_role("link", name="Change Amount", exact=True)
    box = pencil.bounding_box()
    assert min(box["width"], box["height"]) >= 44
    click_now(pencil)
    amount = field(page, "arg.0")
    amount.wait_for()
    if scripted:
        focused_now(amount)
    else:
        assert page.evaluate("location.hash") == "#arg.0"
    assert field(page, "arg.2").count() == (0 if scripted else 1), "in place, or on a page with all fields"
    assert page.get_by_role("button", name="Pay 49.00 EUR", exact=True).count() == 0
    amount.fill("40")
    press_now(page, "Check and pay 40.00 EUR" if scripted else "Check the changes")
    page.get_by_text("With your changes").wait_for()
    press_now(page, "Pay 40.00 EUR")
    page.get_by_role("heading", level=1).filter(has_text="pproved with changes").wait_for()
    assert desk.result("pencil") == {"action": "edit", "data": {"edits": {**REFUND_ARGS, "cents": 4000}}}


def test_put_back_gives_the_row_and_the_button_back(page: Any, desk: Desk, scripted: bool) -> None:
    page.goto(desk.put("put", refund()))
    click_now(page.get_by_role("link", name="Change Reason"))
    reason = field(page, "arg.2")
    reason.fill("Kettle arrived with a broken lid; customer sent a photo.")
    row = page.locator("[data-arg='2']")
    if not scripted:
        press_now(page, "Check the changes")
        press_now(page, "Go on editing")
    assert row.get_by_text("changed", exact=True).is_visible()
    assert row.locator("del").inner_text().endswith("cracked")
    assert row.locator("ins").inner_text().endswith("broken")
    click_now(row.get_by_role("button", name="Put back"))
    if scripted:
        page.get_by_role("button", name="Pay 49.00 EUR", exact=True).wait_for()
        focused_now(page.get_by_role("link", name="Change Reason"))
    else:
        assert reason.input_value() == REFUND_ARGS["reason"]
        assert not row.get_by_text("changed", exact=True).is_visible()


def test_edit_back_edit_keeps_place_and_values(page: Any, desk: Desk, scripted: bool) -> None:
    args = {f"a{place}": f"value {place}" for place in range(30)}
    page.goto(f"{desk.put('back', cases.approval(args))}&edit=1")
    field(page, "arg.25").fill("another")
    press_now(page, "Check the changes")
    press_now(page, "Go on editing")
    focused_now(field(page, "arg.25"))
    assert field(page, "arg.25").input_value() == "another"
    top = field(page, "arg.25").bounding_box()["y"]
    assert 0 < top < page.viewport_size["height"]
    press_now(page, "Check the changes")
    page.get_by_text("With your changes").wait_for()
    page.goto(f"{desk.url}/review/back?token={'rev_' + 't' * 43}&edit=1")
    assert field(page, "arg.25").input_value() == "another", "kept for who comes back"
    assert page.get_by_text("These are your changes from before.").is_visible()
    press_now(page, "Drop the changes")
    page.get_by_role("button", name="Approve", exact=True).wait_for()
    page.get_by_text("You have begun to change this.").wait_for(state="detached")


def test_the_browsers_own_way_back_from_the_check_loses_nothing(
    page: Any, desk: Desk, scripted: bool
) -> None:
    page.goto(desk.put("own", refund()))
    click_now(page.get_by_role("link", name="Change Amount"))
    field(page, "arg.0").fill("40")
    press_now(page, "Check and pay 40.00 EUR" if scripted else "Check the changes")
    page.get_by_text("With your changes").wait_for()
    page.go_back()
    page.wait_for_load_state()
    assert field(page, "arg.0").input_value() in ("40", "40.00")
    assert desk.result("own") is None


def test_lists_of_objects_have_fields_add_and_remove(page: Any, desk: Desk) -> None:
    files = {"files": [{"name": "a.pdf", "pages": 2}, {"name": "b.pdf", "pages": 1}]}
    page.goto(f"{desk.put('files', cases.approval(files))}&edit=1")
    assert page.locator("textarea").count() == 1, "the reason to reject; no JSON"
    press_now(page, "Add")
    field(page, "arg.0.2.0").fill("c.pdf")
    press_now(page, "Remove 1")
    page.locator("[name='arg.0.2.0']").wait_for(state="detached")
    assert field(page, "arg.0.1.0").input_value() == "c.pdf"
    press_now(page, "Edit as JSON")
    page.locator("textarea[name='arg.0']").wait_for()
    press_now(page, "Edit as fields")
    page.locator("input[name='arg.0.1.0']").wait_for()
    press_now(page, "Check the changes")
    press_now(page, "Approve with these changes")
    page.get_by_role("heading", level=1).filter(has_text="pproved with changes").wait_for()
    expected = {"files": [{"name": "b.pdf", "pages": 1}, {"name": "c.pdf", "pages": 0}]}
    assert desk.result("files") == {"action": "edit", "data": {"edits": expected}}


def test_a_wrong_value_has_the_focus(page: Any, desk: Desk) -> None:
    page.goto(f"{desk.put('wrong', cases.approval())}&edit=1")
    field(page, "arg.3").fill("lots")
    press_now(page, "Check the changes")
    focused_now(field(page, "arg.3"))
    assert page.locator("[id='arg.3-fault']").inner_text() == "Enter a number."
