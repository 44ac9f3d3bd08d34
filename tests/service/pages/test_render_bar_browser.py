"""The bar with the decision covers no field that has the focus: small or wide screens, large text, no script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.browsers import FLAGS, chromium_path
from kit.page_browser import Desk, served
from kit.page_scenes import scenes
from kit.patience import PATIENCE

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")

PAGES = ("form", "edit", "doubt", "wizard", "question", "confirmation", "code")
SIZES = {"360 x 640": (360, 640), "landscape": (640, 360), "desktop": (1280, 900)}
COVERED = """() => {
  const bar = document.querySelector('.decide'), top = document.querySelector('header');
  const over = it => ['sticky', 'fixed'].includes(getComputedStyle(it).position) ? it.getBoundingClientRect() : null;
  return [...document.querySelectorAll('form :is(input, textarea, select, summary, a)')].flatMap(it => {
    if (!it.checkVisibility() || bar.contains(it) || it.type === 'hidden') return [];
    it.focus();
    if (document.activeElement !== it) return [];
    const box = it.getBoundingClientRect(), below = over(bar), above = over(top);
    const from = above ? above.bottom : 0, to = below ? below.top : innerHeight;
    const seen = Math.min(box.bottom, to) - Math.max(box.top, from);
    return seen < Math.min(box.height, 20) - 1 ? [`${it.id || it.name || it.textContent}: ${seen} px`] : [];
  });
}"""
"""The fields of which less than a line is seen when they get the focus, and how much of them is."""


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    with served(Desk()) as desk:
        yield desk


@pytest.fixture(scope="module", params=["text as it is", "text twice as large"])
def chromium(request: pytest.FixtureRequest, desk: Desk) -> Iterator[Any]:
    """A browser in whose settings the text is as large as a reader wants it."""
    from playwright.sync_api import sync_playwright

    size = 32 if request.param == "text twice as large" else 16
    with sync_playwright() as player:
        args = [*FLAGS, f"--blink-settings=defaultFontSize={size}"]
        browser = player.chromium.launch(executable_path=chromium_path(), args=args)
        yield browser
        browser.close()


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
@pytest.mark.parametrize("size", SIZES)
def test_the_bar_covers_no_field_that_has_the_focus(
    chromium: Any, desk: Desk, size: str, script: bool
) -> None:
    width, height = SIZES[size]
    context = chromium.new_context(viewport={"width": width, "height": height}, java_script_enabled=script)
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    shown = scenes()
    covered: dict[str, Any] = {}
    for name in PAGES:
        page.goto(desk.show(shown[name].html()))
        if found := page.evaluate(COVERED):
            covered[name] = found
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    context.close()
    assert covered == {}
