"""The pages under a thumb, on a narrow screen, by keyboard and in another language's browser."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest
from kit import page_cases as cases
from kit.browser_actions import press_now
from kit.page_browser import Desk
from kit.page_cases import CLOSED_CASES, NOW, OPEN_CASES

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)

NARROW = {"width": 320, "height": 640}
DESKTOP = {"width": 1280, "height": 900}
THUMB = 44
WORD = "supercalifragilistic" * 20
LONG_CASES = {
    "long call": cases.approval({WORD: WORD, "deep": {"a": [WORD] * 20}}, tool_name=WORD[:200]),
    "long reason": cases.service_case("escalation", {"log": "line\n" * 60}, prompt=WORD),
    "long items": cases.selection(
        items=[
            {"id": "a", "title": WORD, "description": WORD, "about": "x\n" * 40},
            {"id": "b", "title": "B"},
        ]
    ),
}
ALL_CASES = {**OPEN_CASES, **CLOSED_CASES, **LONG_CASES}
TOO_SMALL = """least => {
  for (const each of document.querySelectorAll('details')) each.open = true;
  const controls = document.querySelectorAll('a, button, select, summary, textarea, input:not([type=hidden])');
  return [...controls].flatMap((each) => {
    const box = (each.closest('label.option') ?? each).getBoundingClientRect();
    const fits = box.width === 0 || (box.width >= least && box.height >= least);
    return fits ? [] : [`${each.tagName} ${each.textContent.trim()} ${box.width} x ${box.height}`];
  });
}"""


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport=NARROW, locale="de-DE", timezone_id="Europe/Berlin")
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Any]:
    """A page for tests that only look: each context is another process, which takes longer than a look."""
    context = browser.new_context(locale="de-DE", timezone_id="Europe/Berlin")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", ALL_CASES)
def test_all_that_can_be_pressed_is_large_enough_and_nothing_sticks_out(
    window: Any, desk: Desk, name: str
) -> None:
    window.set_viewport_size(NARROW)
    window.goto(desk.put("c", ALL_CASES[name]))
    assert window.evaluate(TOO_SMALL, THUMB) == []
    assert window.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    window.set_viewport_size(DESKTOP)
    assert window.evaluate(TOO_SMALL, THUMB) == []


def test_so_are_the_links_of_a_refused_answer_and_of_an_edit(page: Any, desk: Desk) -> None:
    page.goto(desk.put("f", cases.every_field()))
    press_now(page, "Send answer")
    assert page.get_by_role("alert").get_by_role("link").count() == 2
    assert page.title().startswith("Nothing was sent yet: ")
    assert page.evaluate(TOO_SMALL, THUMB) == []
    page.goto(desk.put("e", cases.approval()) + "&edit=1")
    page.get_by_label("amount", exact=True).fill("99")
    press_now(page, "Check the changes")
    assert page.get_by_role("button", name="Drop the changes").count() == 1
    assert page.evaluate(TOO_SMALL, THUMB) == []


def test_a_button_keeps_its_shape_when_the_keyboard_reaches_it(page: Any, desk: Desk) -> None:
    page.goto(desk.put("a", cases.approval()))
    button = page.locator(".decide").get_by_role("button", name="Reject")
    look = "node => { const it = getComputedStyle(node); return [it.borderRadius, it.outlineStyle]; }"
    shape, before = button.evaluate(look)
    page.locator("summary").last.focus()
    page.keyboard.press("Tab")
    assert before == "none"
    assert button.evaluate(look) == [shape, "solid"]


def test_a_long_text_scrolls_with_the_page_and_in_no_box_of_its_own(page: Any, desk: Desk) -> None:
    page.goto(desk.put("l", LONG_CASES["long reason"]))
    assert page.locator(".lines li").count() == 61
    boxes = "[...document.querySelectorAll('main *')].filter(it => it.scrollHeight > it.clientHeight + 1"
    boxes += " && ['auto', 'scroll'].includes(getComputedStyle(it).overflowY)).map(it => it.className)"
    assert page.evaluate(boxes) == []


def test_all_of_an_item_chooses_it_but_for_what_unfolds(page: Any, desk: Desk) -> None:
    page.goto(desk.put("s", cases.selection()))
    page.get_by_text("TechFlow GmbH").click(force=True)
    assert page.get_by_role("checkbox", name="Senior Frontend Engineer").is_checked()
    page.goto(desk.put("l", LONG_CASES["long items"]))
    page.locator(".item summary").first.click()
    assert page.locator(".item details").first.get_attribute("open") is not None
    assert page.get_by_role("checkbox", checked=True).count() == 0


def test_times_are_in_the_reader_s_zone_and_in_the_page_s_language(page: Any, desk: Desk) -> None:
    page.goto(desk.put("a", dataclasses.replace(cases.approval(), expires_at=NOW + 3 * cases.DAY)))
    page.locator(".details summary").click()
    assert page.locator("time").first.inner_text() == "25 February 2026 at 11:01 (Berlin)"


def test_each_field_is_in_a_group_only_if_that_has_a_name(page: Any, desk: Desk) -> None:
    page.goto(desk.put("f", cases.every_field()))
    groups = page.locator("form").get_by_role("group")
    named = page.locator("fieldset.field").count() + page.locator("details").count()
    assert page.locator("fieldset.field").count() == 3
    assert groups.count() == named


def test_what_is_said_about_an_item_is_said_with_its_box(page: Any, desk: Desk) -> None:
    page.goto(desk.put("s", cases.selection()))
    box = page.get_by_role("checkbox", name="Staff Frontend Developer")
    about = page.locator(f"#{box.get_attribute('aria-describedby')}")
    assert about.inner_text().split() == ["company", "Klarna"]
    assert page.get_by_role("checkbox", name=re.compile(r"^Staff Frontend Developer\b.*0\.91")).count() == 1


def test_a_description_is_told_below_its_title(page: Any, desk: Desk) -> None:
    page.goto(desk.put("s", cases.agent_selection()))
    assert page.get_by_role("radio", name="Blue Like the sea").count() == 1
    assert page.get_by_text("description").count() == 0
