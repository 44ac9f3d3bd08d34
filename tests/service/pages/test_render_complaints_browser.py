"""The complaints about what is painted where, in Chromium: mended on the page of today, and not on the one before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from kit.complaints import Mended
from kit.complaints_painted import PAINTED, Look
from kit.page_browser import Desk
from kit.page_cases import NOW
from kit.patience import PATIENCE
from kit.standing_cases import standing_set
from kit.standing_pages import FORMER, standing_scenes

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)

PHONE = {"width": 360, "height": 780}
DESKTOP = {"width": 1280, "height": 900}
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".html": "text/html"}


def frozen(route: Any) -> None:
    """Answer with a file of the page before."""
    path = FORMER / route.request.url.split("?")[0].rsplit("/", 1)[1]
    route.fulfill(body=path.read_bytes(), content_type=KINDS[path.suffix])


@cache
def html_of_today(name: str) -> str:
    return standing_scenes()[name].html()


@pytest.fixture(scope="module")
def looks(browser: Any, desk: Desk) -> Iterator[dict[str, Look]]:
    """A window for each of the two pages, whose clocks begin when the cases were looked at."""
    context = browser.new_context(viewport=PHONE)
    windows: dict[str, Any] = {}
    for which in ("today", "before"):
        page = windows[which] = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.clock.install(time=NOW)
    windows["before"].route("**/*", frozen)

    def looking(which: str) -> Look:
        def look(name: str, *, large: bool = False, size: dict[str, int] | None = None) -> Any:
            page = windows[which]
            page.set_viewport_size(size or PHONE)
            page.goto(
                f"{desk.url}/before/{name}.html" if which == "before" else desk.show(html_of_today(name))
            )
            if large:
                page.evaluate(
                    "document.documentElement.style.fontSize = '200%'; dispatchEvent(new Event('resize'))"
                )
            return page

        return look

    yield {which: looking(which) for which in windows}
    context.close()


@pytest.mark.parametrize("mended", PAINTED, ids=str)
def test_a_complaint_is_mended_and_was_not_on_the_page_before(
    looks: dict[str, Look], mended: Mended[Look]
) -> None:
    assert mended.holds(looks["today"])
    assert not mended.holds(looks["before"])


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_main_button_is_whole_on_the_first_screen(
    looks: dict[str, Look], size: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The table "Measured": of 31 open pages, 4 on a phone and 10 on a desktop had it there."""
    names = [name for name, it in standing_set().items() if not it.case.is_final]
    kept = [name for name in names if (FORMER / f"{name}.html").exists()]
    whole = {
        which: [name for name in shown if main_button_is_whole(looks[which], name, size)]
        for which, shown in (("today", names), ("before", kept))
    }
    with capsys.disabled():
        before = f"before {len(whole['before'])} of {len(kept)}"
        sys.stdout.write(f"\nmain button whole: today {len(whole['today'])} of {len(names)}, {before}\n")
    assert whole["today"] == names
    assert len(whole["before"]) < 0.6 * len(kept)


def main_button_is_whole(look: Callable[..., Any], name: str, size: dict[str, int]) -> bool:
    page = look(name, size=size)
    main = page.locator(
        ".decide .go:visible, .decide button.yes:visible, .decide button[name=action]:visible"
    )
    found = main.first.bounding_box()
    assert found is not None
    return found["y"] + found["height"] <= size["height"]
