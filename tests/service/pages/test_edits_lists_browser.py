"""A list in the editor: a field for each line with Add and Remove, sent as the lines that it is without script."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import pytest
from kit import page_cases as cases
from kit.browser_actions import click_now, press_now
from kit.page_browser import Desk
from kit.page_cases import NOW, TOKEN

from askfirst.service.pages import render_case

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_a_line_is_added_removed_and_put_back(browser: Any, desk: Desk, script: bool) -> None:
    case = cases.approval({"to": ["ann", "bob"], "n": 1})
    html = render_case(case, token=TOKEN, base_path="", now=NOW, stage="edit")
    context = browser.new_context(viewport={"width": 360, "height": 640}, java_script_enabled=script)
    page = context.new_page()
    sent: list[str] = []

    def kept(route: Any) -> None:
        sent.append(route.request.post_data)
        route.fulfill(body="kept", content_type="text/plain")

    def shown(route: Any) -> None:
        route.fulfill(body=html, content_type="text/html")

    def cut_off(route: Any) -> None:
        route.abort()

    page.route("**/scene", shown)
    page.route("**/live?*", cut_off)
    page.route("**/respond?*", kept)
    page.goto(f"{desk.url}/scene")
    if script:
        press_now(page, "Remove 1")
        click_now(page.get_by_role("button", name="Put back").first)
        assert page.locator("[data-list] input").count() == 2, "put back as it was"
        press_now(page, "Remove 1")
        press_now(page, "Add")
        page.keyboard.type("cleo")
        assert page.locator("[data-list] input").count() == 2
    else:
        page.locator("textarea").first.fill("bob\ncleo")
    press_now(page, "Check the changes")
    page.get_by_text("kept").wait_for()
    context.close()
    assert parse_qs(sent[0])["arg.0"] == ["bob\r\ncleo"]
