"""The budgets of the page, measured in Chromium and printed: weight, the first screen, axe, large text."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit import page_cases as cases
from kit.browser_actions import ready_now
from kit.hostile_text import CORPUS, everywhere
from kit.page_browser import Desk, axe_source
from kit.page_cases import NOW, TOKEN
from kit.page_scenes import Scene, scenes, shell

from askfirst.service.assets import assets
from askfirst.service.pages import Reader, languages, render_case

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)

FIRST_VISIT = 14 * 1024
SCRIPTS = 8 * 1024
HTML = 200_000
ALL = scenes()
OPEN = [name for name, scene in ALL.items() if scene.standing is None and not scene.case.is_final]
DECIDING = [name for name in OPEN if name != "approval-part" and ALL[name].open is None]
SMALL = {"width": 360, "height": 640}
AXE = "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],"
AXE += " resultTypes: ['violations']}).then(it => it.violations.map(each => each.id + ': ' + each.nodes[0].html))"
BAR = """() => {
  const bar = document.querySelector('.decide').getBoundingClientRect();
  const head = document.querySelector('h1').getBoundingClientRect();
  const [left, right] = [...document.querySelectorAll('.decide .buttons > *')].map(it => it.getBoundingClientRect());
  return {bottom: bar.bottom, first: head.top, gap: right ? right.left - left.right : 99,
    wide: document.documentElement.scrollWidth - innerWidth};
}"""


def answering(html: str) -> Callable[[Any], None]:
    """What answers a request with a page."""
    return lambda route: route.fulfill(body=html, content_type="text/html")


def tell(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Print a measurement, although the test passes."""
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def packed(text: str | bytes) -> int:
    return len(gzip.compress(text if isinstance(text, bytes) else text.encode(), 9))


def test_a_first_visit_fits_into_one_round_trip(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = {name: len(assets()[name].compressed) for name in ("page.js", "fields.js")}
    style = len(assets()["page.css"].compressed)
    weights = {
        name: packed(ALL[name].html()) for name in ("approval", "selection", "confirmation", "doubt", "form")
    }
    tell(
        capsys,
        f"\nstyle {style} B, scripts {scripts}, pages {weights}, first visit at most "
        f"{style + sum(scripts.values()) + max(weights.values())} of {FIRST_VISIT} B",
    )
    assert sum(scripts.values()) <= SCRIPTS
    for name, weight in weights.items():
        assert style + sum(scripts.values()) + weight <= FIRST_VISIT, name


def test_no_page_grows_with_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    big: dict[str, Scene] = {
        "1 MB argument": Scene(cases.approval({"text": "x" * 1_000_000})),
        "1 MB of lines": Scene(cases.approval({"text": "line\n" * 200_000})),
        "12,000 arguments": Scene(cases.approval({f"a{place}": place for place in range(12_000)})),
        "500 long facts": Scene(cases.service_case("approval", {f"f{n}": "word " * 700 for n in range(500)})),
        "a long script": Scene(shell("rm -rf /\n" * 100_000)),
        "hidden characters": Scene(cases.approval({"text": "\u200b\u200c" * 5_000})),
    }
    sizes = {name: len(scene.html().encode()) for name, scene in big.items()}
    tell(capsys, f"\nHTML of {sizes}")
    assert all(size <= HTML for size in sizes.values()), sizes


@pytest.fixture
def stage(browser: Any, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A page that shows a scene: in a size, a scheme and a language."""
    contexts: list[Any] = []

    def show(name: str, tag: str = "en", **window: Any) -> Any:
        context = browser.new_context(**{"viewport": SMALL, **window})
        contexts.append(context)
        page = context.new_page()
        html = ALL[name].html(Reader(languages()[tag]), token=TOKEN)
        page.route("**/scene", lambda route: route.fulfill(body=html, content_type="text/html"))
        page.route("**/live?*", lambda route: route.abort())
        page.goto(f"{desk.url}/scene")
        if ALL[name].open is not None:
            ready_now(page)
            page.locator(ALL[name].open).first.click()
        return page

    yield show
    for context in contexts:
        context.close()


def test_the_bar_is_whole_on_the_first_screen_of_every_type(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = {name: stage(name).evaluate(BAR) for name in DECIDING}
    tell(capsys, f"\nfirst fact at {sorted({round(it['first']) for it in measured.values()})} px")
    for name, it in measured.items():
        assert it["bottom"] <= SMALL["height"] + 0.5, name
        assert it["first"] <= 120, name
        assert it["gap"] >= 12, name
        assert it["wide"] <= 0, name


@pytest.mark.parametrize("tag", ["en", "zh-Hans"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_any_state(stage: Any, tag: str, scheme: str) -> None:
    axe = axe_source()
    found: dict[str, Any] = {}
    for name in ALL:
        page = stage(name, tag, color_scheme=scheme)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        page.evaluate(axe)
        if violations := page.evaluate(AXE):
            found[name] = violations
        page.context.close()
    assert found == {}


COVERED = """() => {
  const bar = document.querySelector('.decide');
  const kinds = 'form input:not([type=hidden]), form textarea, form select';
  const fields = [...document.querySelectorAll(kinds)];
  return fields.filter(it => it.checkVisibility() && !bar.contains(it)).flatMap(it => {
    it.focus();
    it.scrollIntoView({block: 'nearest'});
    const box = it.getBoundingClientRect(), over = bar.getBoundingClientRect();
    const hidden = getComputedStyle(bar).position === 'sticky' && box.top > over.top - 8 && box.top < over.bottom;
    return hidden ? [it.id || it.name] : [];
  });
}"""


@pytest.mark.parametrize("window", ["small", "landscape", "large text"])
def test_the_bar_covers_no_field_that_has_the_focus(stage: Any, window: str) -> None:
    size = {"viewport": {"width": 640, "height": 360} if window == "landscape" else SMALL}
    for name in ("form", "edit", "doubt", "wizard", "question"):
        page = stage(name, **size)
        if window == "large text":
            page.evaluate(
                "document.documentElement.style.fontSize = '200%'; dispatchEvent(new Event('resize'))"
            )
        assert page.evaluate(COVERED) == [], name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


def test_a_row_in_another_direction_keeps_label_and_value_together(
    stage: Any, browser: Any, desk: Desk
) -> None:
    scene = Scene(cases.service_case("approval", {"الاسم": "أحمد علي", "city": "Berlin"}, prompt="هل توافق؟"))
    page = browser.new_context(viewport=SMALL).new_page()
    page.route("**/scene", lambda route: route.fulfill(body=scene.html(), content_type="text/html"))
    page.goto(f"{desk.url}/scene")
    sides = page.evaluate(
        "[...document.querySelectorAll('.facts > div')].slice(0, 2).map(it => getComputedStyle(it).direction)"
    )
    page.context.close()
    assert sides == ["rtl", "ltr"]


def test_the_hostile_corpus_is_painted_inside_its_boxes(browser: Any, desk: Desk) -> None:
    """By what is painted where: nothing of a hostile text lies over the bar with the decision, or the state."""
    look = """() => {
      const over = [];
      for (const it of document.querySelectorAll('.decide button, #state')) {
        const box = it.getBoundingClientRect();
        if (!box.width) continue;
        const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        if (!it.contains(top)) over.push(it.textContent);
      }
      return over;
    }"""
    page = browser.new_context(viewport=SMALL).new_page()
    for text in CORPUS.values():
        for name, case in everywhere(text).items():
            if case.is_final or len(text) > 10_000:
                continue
            html = render_case(case, token=TOKEN, base_path="", now=NOW)
            page.route("**/scene", answering(html))
            page.goto(f"{desk.url}/scene")
            assert page.evaluate(look) == [], name
            page.unroute("**/scene")
    page.context.close()
