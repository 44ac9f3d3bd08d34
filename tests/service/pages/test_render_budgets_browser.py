"""The budgets of the page, measured in Chromium and printed: weight, the first screen, axe, large text."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit import page_cases as cases
from kit.browser_actions import ready_now
from kit.page_browser import Desk, axe_source
from kit.page_scenes import Scene, scenes
from kit.page_states import bare_scenes, states
from kit.patience import PATIENCE
from kit.standing_cases import shell

from askfirst.service.assets import assets
from askfirst.service.pages import Reader, languages

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)

FIRST_VISIT = 14 * 1024
SCRIPTS = 8 * 1024
HTML = 200_000
ALL = scenes() | states()
SHOWN = ALL | bare_scenes()
OPEN = [name for name, scene in ALL.items() if scene.standing is None and not scene.case.is_final]
DECIDING = [name for name in OPEN if "view" not in ALL[name].sight and ALL[name].open is None]
DECIDED = [name for name, scene in ALL.items() if scene.standing is not None]
SMALL = {"width": 360, "height": 640}
# A press beside an open sheet closes the sheet and does nothing else, which axe does not know.
AXE = "axe.run(document.querySelector(':popover-open, dialog:modal') ?? document,"
AXE += " {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],"
AXE += " resultTypes: ['violations']}).then(it => it.violations.map(each => each.id + ': ' + each.nodes[0].html))"
RISEN = """Promise.all([...document.querySelectorAll(':popover-open, dialog[open]')]
  .flatMap(it => it.getAnimations({subtree: true})).map(it => it.finished))"""
"""Waits until an open sheet has risen."""
STANDING = "?standing"
"""The end of the address of a page that is about a decision: see `DECIDED`."""
BAR = """() => {
  const bar = document.querySelector('.decide').getBoundingClientRect();
  const head = document.querySelector('h1').getBoundingClientRect();
  const [left, right] = [...document.querySelectorAll('.decide .buttons > *')].map(it => it.getBoundingClientRect());
  return {bottom: bar.bottom, first: head.top + scrollY, gap: right ? right.left - left.right : 99,
    wide: document.documentElement.scrollWidth - innerWidth};
}"""


def tell(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Print a measurement, although the test passes."""
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def packed(text: str | bytes) -> int:
    return len(gzip.compress(text if isinstance(text, bytes) else text.encode(), 9))


def test_a_first_visit_fits_into_one_round_trip(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = {name: len(it.compressed) for name, it in assets().items() if name.endswith(".js")}
    style = len(assets()["page.css"].compressed)
    pages = {name: ALL[name].html() for name in ("approval", "selection", "confirmation", "doubt", "form")}
    weights = {
        name: style
        + packed(html)
        + sum(size for file, size in scripts.items() if f'src="/static/{assets()[file].name}"' in html)
        for name, html in pages.items()
    }
    tell(
        capsys,
        f"\nstyle {style} B, scripts {scripts}, {sum(scripts.values())} of {SCRIPTS} B, "
        f"first visits {weights}, of {FIRST_VISIT} B",
    )
    assert sum(scripts.values()) <= SCRIPTS
    assert min(weights.values()) > style + scripts["page.js"], "each page has a script"
    for name, weight in weights.items():
        assert weight <= FIRST_VISIT, name


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


@pytest.fixture(scope="module")
def windows(browser: Any) -> Iterator[Callable[..., Any]]:
    """A page in each kind of window. The scenes keep nothing in the browser, so the tests share them."""
    pages: dict[str, Any] = {}

    def window(*, axe: bool = False, **options: Any) -> Any:
        key = repr((axe, options))
        if key not in pages:
            context = browser.new_context(**options)
            # The scenes are all of one case.
            context.add_init_script("try { sessionStorage.clear() } catch {}")
            if axe:
                context.add_init_script(axe_source())
            pages[key] = context.new_page()
            pages[key].set_default_timeout(PATIENCE * 1000)
        return pages[key]

    yield window
    for page in pages.values():
        page.context.close()


@pytest.fixture
def stage(windows: Callable[..., Any], desk: Desk) -> Callable[..., Any]:
    """A page that shows a scene: in a size and a language."""

    def show(name: str, tag: str = "en", **window: Any) -> Any:
        page = windows(**{"viewport": SMALL, **window})
        html = SHOWN[name].html(Reader(languages()[tag]))
        if page.url.endswith(STANDING):
            page.goto(
                "about:blank"
            )  # a page whose decision goes out loads itself again, and would stop the next
        page.mouse.move(0, 0)  # nothing is under it that the last scene's click was on
        page.goto(desk.show(html) + (STANDING if name in DECIDED else ""))
        if SHOWN[name].open is not None:
            ready_now(page)
            page.locator(SHOWN[name].open).first.click()
        page.evaluate(RISEN)
        return page

    return show


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
def test_axe_finds_nothing_in_any_state(stage: Any, tag: str) -> None:
    """The scenes in both schemes and both languages; their further states each in one language and one scheme."""
    found: dict[str, Any] = {}
    many = scenes()
    for number, name in enumerate(SHOWN):
        first = "light" if (number % 2 == 0) == (tag == "en") else "dark"  # a scene is loaded in one of them
        schemes = (first, "dark" if first == "light" else "light") if name in many else (first,)
        if name not in many and (number // 2 % 2 == 0) == (tag == "en"):
            continue
        page = stage(name, tag, axe=True)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        high = page.evaluate("document.documentElement.scrollHeight")
        # As high as the page, so that nothing is half under the bar.
        page.set_viewport_size({**SMALL, "height": max(high, SMALL["height"])})
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            if violations := page.evaluate(AXE):
                found[f"{name}, {scheme}"] = violations
        page.set_viewport_size(SMALL)
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


# The rows and options that leave their values less than five letters' width, or reach out of their card.
SQUEEZED = """() => [...document.querySelectorAll('.facts > div, .option')].filter(it => {
  if (!it.checkVisibility()) return false;
  const value = it.querySelector('dd') ?? it.querySelector('span'), box = value.getBoundingClientRect();
  const frame = it.closest('.card, .panel, .sheet, main').getBoundingClientRect();
  return box.width < 5 * parseFloat(getComputedStyle(value).fontSize) || box.right > frame.right;
}).map(it => it.textContent)"""


@pytest.mark.parametrize(
    "name", ["approval", "approval-plain", "approval-reject", "doubt", "selection", "edit-check"]
)
def test_large_text_leaves_every_value_room(stage: Any, name: str) -> None:
    page = stage(name)
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert page.evaluate(SQUEEZED) == []


def test_large_text_stays_inside_the_pill(stage: Any) -> None:
    page = stage("approval-high")
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert page.evaluate("""() => {
      const pill = document.querySelector('.pill'), text = document.createRange();
      text.selectNodeContents(pill.querySelector('button'));
      const inner = text.getBoundingClientRect(), outer = pill.getBoundingClientRect();
      return inner.height > 40 && inner.top >= outer.top && inner.bottom <= outer.bottom;
    }""")


@pytest.mark.parametrize("name", ["late", "late-held"])
def test_what_follows_a_notice_keeps_its_distance(stage: Any, name: str) -> None:
    gap = """() => {
      const [first, second] = document.querySelectorAll('#outcome > *');
      return second.getBoundingClientRect().top - first.getBoundingClientRect().bottom;
    }"""
    assert stage(name).evaluate(gap) >= 8


def test_a_heading_in_chinese_does_not_break_within_a_word(stage: Any) -> None:
    lines = """() => {
      const walker = document.createTreeWalker(document.querySelector('h1'), NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const place = walker.currentNode.data.indexOf('订单'), word = document.createRange();
        if (place < 0) continue;
        word.setStart(walker.currentNode, place);
        word.setEnd(walker.currentNode, place + 2);
        return word.getClientRects().length;
      }
    }"""
    assert stage("failed", "zh-Hans").evaluate(lines) == 1


def test_a_number_of_four_digits_has_one_line(stage: Any) -> None:
    page = stage("approval-long-text")
    high = "getComputedStyle([...document.querySelectorAll('.lines > li')].at(-1), '::before').height"
    assert page.evaluate(high) == "20px"


def test_a_name_is_not_broken_at_its_hyphens(stage: Any) -> None:
    page = stage("approval-high")
    for place in ("h1 .keep", "dd .keep"):
        lines = page.evaluate(
            "place => { const it = document.querySelector(place);"
            " return it.getBoundingClientRect().height / parseFloat(getComputedStyle(it).lineHeight); }",
            place,
        )
        assert round(lines) == 1, place


def test_a_row_in_another_direction_keeps_label_and_value_together(
    windows: Callable[..., Any], desk: Desk
) -> None:
    scene = Scene(cases.service_case("approval", {"الاسم": "أحمد علي", "city": "Berlin"}, prompt="هل توافق؟"))
    page = windows(viewport=SMALL)
    page.goto(desk.show(scene.html()))
    sides = page.evaluate(
        "[...document.querySelectorAll('.facts > div')].slice(0, 2).map(it => getComputedStyle(it).direction)"
    )
    assert sides == ["rtl", "ltr"]
