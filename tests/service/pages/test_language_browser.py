"""A language that takes 40 % more room, in Chromium: nothing sticks out, is cut off, or leaves the first screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kit.page_browser import Desk
from kit.page_scenes import scenes
from kit.page_states import bare_scenes, states
from kit.patience import PATIENCE

from askfirst.service.pages import Reader, languages
from askfirst.service.pages.language import Language

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)

MORE = 1.4
LETTERS = str.maketrans("aeiouyAEIOUY", "áéíóúýÁÉÍÓÚÝ")
SIZES = {"phone": (360, 640), "desktop": (1280, 900)}
FAULTS = """() => {
  const faults = [];
  if (document.documentElement.scrollWidth > innerWidth) faults.push('sticks out at the side');
  for (const it of document.querySelectorAll('button, a.button, .pill, summary, .chip, label, h1, h2, p')) {
    if (!it.checkVisibility() || it.closest('.aside, .brand')) continue;
    const look = getComputedStyle(it);
    const cuts = look.overflowX !== 'visible' || look.textOverflow === 'ellipsis';
    if (cuts && it.scrollWidth > it.clientWidth + 1) faults.push(`cut off: ${it.textContent.trim().slice(0, 60)}`);
    if (it.matches('button, a.button') && it.scrollHeight > it.clientHeight + 2)
      faults.push(`higher than its button: ${it.textContent.trim().slice(0, 60)}`);
  }
  const bar = document.querySelector('.decide');
  if (bar && bar.getBoundingClientRect().bottom > innerHeight + 0.5) faults.push('the bar is not whole');
  return faults;
}"""


def longer(said: str) -> str:
    """A sentence with 40 % more letters than it has, in other letters, and with its places as they are."""
    parts = re.split(r"(\{\w+\})", said)
    wanted = round(sum(len(it) for it in parts[::2]) * (MORE - 1))
    for place in range(0, len(parts), 2):
        made: list[str] = []
        for letter in parts[place].translate(LETTERS):
            doubled = letter.isalpha() and wanted > 0
            wanted -= doubled
            made.append(letter * (1 + doubled))
        parts[place] = "".join(made)
    return "".join(parts)


LONG = Language(
    "en",
    {
        key: longer(said) if isinstance(said, str) else {form: longer(it) for form, it in said.items()}
        for key, said in languages()["en"].sentences.items()
    },
)


def test_the_long_language_is_as_long_as_it_says() -> None:
    short, long = languages()["en"].plain("unknown"), LONG.plain("unknown")
    assert long != short
    assert len(long) >= 1.39 * len(short)
    assert "{n}" in str(LONG.sentences["confirm.n"])


@pytest.fixture(params=SIZES)
def page(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    width, height = SIZES[request.param]
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    yield page
    context.close()


def test_every_page_holds_with_sentences_that_are_longer(page: Any, desk: Desk) -> None:
    pages = {
        name: it.html(Reader(LONG))
        for name, it in (scenes() | states() | bare_scenes()).items()
        if not it.open
    }
    found: dict[str, list[str]] = {}
    for name, html in pages.items():
        page.goto(desk.show(html))
        if faults := page.evaluate(FAULTS):
            found[name] = faults
    assert found == {}
