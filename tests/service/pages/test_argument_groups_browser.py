"""Many arguments in a browser: the fold opens, its values can be edited, and the bar does not call it unopened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.browser_actions import ready_now
from kit.browsers import FLAGS, chromium_path
from kit.page_browser import Desk, served
from kit.page_cases import approval
from kit.page_scenes import scenes
from kit.patience import PATIENCE
from kit.standing_cases import rollout

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    with served(Desk()) as desk:
        yield desk


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield browser
        browser.close()


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_the_fold_of_usual_values_opens(chromium: Any, desk: Desk, script: bool) -> None:
    context = chromium.new_context(viewport={"width": 360, "height": 780}, java_script_enabled=script)
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(desk.show(scenes()["approval-many"].html()))
    usual, differing = page.get_by_text("limit_01", exact=True), page.get_by_text("limit_07", exact=True)
    assert differing.is_visible()
    assert not usual.is_visible()
    assert "First answer counts" in page.locator(".who").inner_text()
    page.get_by_text("54 more, as usual").click()
    usual.wait_for(state="visible")
    assert page.locator(".act .facts > div:visible").count() == 60
    context.close()


def test_the_pencil_of_a_folded_value_opens_the_fold(chromium: Any, desk: Desk) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(desk.put("many", rollout()))
    fold = page.locator(".act details")
    assert fold.get_attribute("open") is None
    # As the script does with the other values of an edit that was begun: nobody clicks on these.
    page.locator('[data-pencil="0"]').dispatch_event("click")
    page.locator('[data-arg="0"] input:not([hidden])').first.wait_for(state="visible")
    assert fold.get_attribute("open") is not None
    context.close()


def test_a_search_finds_an_argument_in_the_fold_and_nothing_is_sent_with_it(
    chromium: Any, desk: Desk
) -> None:
    context = chromium.new_context(viewport={"width": 360, "height": 780})
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(desk.put("many", rollout()))
    rows = page.locator(".act .facts > div:visible")
    search = page.get_by_role("searchbox")
    search.fill("LIMIT_2")
    page.get_by_text("limit_29", exact=True).wait_for(state="visible")
    assert rows.count() == 10
    assert "limit_20" in rows.first.inner_text()
    search.press("Enter")
    search.fill("")
    page.get_by_text("flag_01", exact=True).wait_for(state="visible")
    assert rows.count() == 60
    assert page.url == desk.put("many", rollout())
    assert search.get_attribute("name") is None
    context.close()


@pytest.mark.parametrize(("many", "found"), [(24, 0), (25, 1)])
def test_a_search_comes_with_25_arguments(chromium: Any, desk: Desk, many: int, found: int) -> None:
    context = chromium.new_context(viewport={"width": 360, "height": 780})
    page = context.new_page()
    page.goto(desk.put("some", approval({f"a{number}": number for number in range(many)})))
    ready_now(page)
    assert page.get_by_role("searchbox").count() == found
    context.close()
