"""Hostile text by what is painted where: inert, visible and whole, in every place that the page has for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.hostile_scenes import hostile_scenes
from kit.hostile_text import CORPUS
from kit.page_browser import Desk
from kit.page_scenes import Scene
from kit.page_text import Page
from kit.patience import PATIENCE

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)

WIDTH = 360
TEXTS = {name: text for name, text in CORPUS.items() if name != "megabyte"}
"""A megabyte is shown in parts: `test_render_browser.py` and `test_budgets_browser.py` look at those."""
STRANGERS = (
    "img, iframe, object, embed, style, base, script:not([src^='/static/']), main :is([onerror], [style])"
)
ELSEWHERE = ".aside, thead, option, select, textarea, [popover], dialog, [hidden]"
"""Not painted now, or not as text: what is read out, a table's head on a phone, fields, what opens over the page."""
FAULTS = """([strangers, elsewhere]) => {
  const faults = [...document.querySelectorAll(strangers)].map(it => `a stranger: ${it.outerHTML.slice(0, 80)}`);
  for (const it of document.querySelectorAll('a[href]')) {
    const ours = it.getAttribute('href').startsWith('/review/') || it.getAttribute('href').startsWith('#');
    if (!ours && it.href !== 'https://evil.example/x') faults.push(`a link: ${it.outerHTML.slice(0, 80)}`);
  }
  const range = document.createRange();
  const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, holder = node.parentElement;
    if (!node.data.trim() || /^\\p{M}+$/u.test(node.data) || holder.closest(elsewhere)) continue;
    const rects = [...node.data.matchAll(/\\S+(?:\\s\\S+)*/g)].flatMap(it => {  // spaces may hang out of a line
      range.setStart(node, it.index);
      range.setEnd(node, it.index + it[0].length);
      return [...range.getClientRects()].filter(it => it.width && it.height);
    });
    const seen = holder.checkVisibility({visibilityProperty: true, opacityProperty: true});
    if (!rects.length || !seen) { faults.push(`not painted: ${node.data.slice(0, 60)}`); continue; }
    for (let box = holder; box !== document.body; box = box.parentElement) {
      const edge = box.getBoundingClientRect(), look = getComputedStyle(box);
      const isBox = look.overflow !== 'visible' || box.matches('section, .card, .quote, details, main');
      if (!isBox) continue;
      const out = rects.find(it => it.left < edge.left - 1 || it.right > edge.right + 1
        || it.top < edge.top - 3 || it.bottom > edge.bottom + 3);
      if (out) { faults.push(`outside of ${box.tagName}.${box.className}: ${node.data.slice(0, 60)}`); break; }
    }
  }
  for (const it of document.querySelectorAll('#state, main h1, main h2, .decide button, .decide a, .who p')) {
    const box = it.getBoundingClientRect();
    if (!box.width || !it.checkVisibility() || it.closest('[popover], dialog, .aside')) continue;
    const top = document.elementFromPoint(box.left + box.width / 2, box.top + Math.min(box.height / 2, 12));
    if (!it.contains(top) && !top?.contains(it)) faults.push(`covered: ${it.textContent.slice(0, 60)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push('sticks out at the side');
  return faults;
}"""
"""Whatever is wrong with what is painted. The window is as high as the page, so that all of it can be looked at."""


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": WIDTH, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    yield page
    context.close()


def show(window: Any, desk: Desk, scene: Scene) -> None:
    """Show a page with all that unfolds unfolded, in a window as high as it is."""
    window.set_viewport_size({"width": WIDTH, "height": 800})
    window.goto(desk.show(scene.html()))
    window.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    height = window.evaluate("document.documentElement.scrollHeight")
    window.set_viewport_size({"width": WIDTH, "height": height})


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_is_painted_inert_visible_and_in_its_box(window: Any, desk: Desk, name: str) -> None:
    said: list[str] = []

    def hear(dialog: Any) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    window.on("dialog", hear)
    found: dict[str, list[str]] = {}
    for place, scene in hostile_scenes(TEXTS[name]).items():
        show(window, desk, scene)
        if faults := window.evaluate(FAULTS, [STRANGERS, ELSEWHERE]):
            found[place] = faults
    window.remove_listener("dialog", hear)
    assert found == {}
    assert said == []


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_is_whole_where_it_is_a_value_a_reason_a_step_or_a_result(name: str) -> None:
    text = TEXTS[name]
    pages = {place: Page(scene.html()) for place, scene in hostile_scenes(text).items()}
    for place in ("call", "check", "done", "service"):
        assert text in [
            each.rstrip("\n") if not text.endswith("\n") else each for each in pages[place].texts()
        ], place
    steps = [each.text for each in pages["call"].all("div", class_="text") if "steps" in each.inside]
    shown = [
        each for each in steps if each == text or (each.endswith("…") and text.startswith(each[:-1].rstrip()))
    ]
    assert len(shown) == 3, "a step of the transcript is whole, or says that it goes on"
    assert all(each == text for each in shown) or name in ("many spaces", "zalgo"), "long once it is marked"
