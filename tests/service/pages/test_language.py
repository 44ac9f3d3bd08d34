"""The catalogues: whole in each language, and the only source of words besides the case itself."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from kit.page_scenes import Scene
from kit.page_states import all_scenes
from kit.standing_cases import call
from kit.standing_pages import standing_scenes
from pydantic import BaseModel

from askfirst.display import Display
from askfirst.formats import ENGLISH
from askfirst.service.assets import STATIC
from askfirst.service.pages import (
    Reader,
    languages,
    render_foreign,
    render_outlived,
    render_unavailable,
    render_unknown,
    render_withheld,
)
from askfirst.service.pages.language import Language
from askfirst.service.shipped_patterns import SHIPPED

# The words that are nobody's: every text is the case's, or a sentence of the catalogue.

WORD = re.compile(r"[^\W\d_]+")
SEEN = ("aria-label", "placeholder", "title", "alt", "data-why", "data-name")
"""Attributes that a browser shows or reads out."""
PAGES = {
    **{name: it for name, it in all_scenes().items() if isinstance(it, Scene)},
    **{f"standing {name}": it for name, it in standing_scenes().items() if name != "megabyte"},
}
"""All scenes but a text that is one word of a megabyte, of which the page shows parts."""


class Texts(HTMLParser):
    """Every text of a page, and every attribute that is shown or read out."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.found.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [text for name, text in attrs if name in SEEN and text]


def forms(said: Any) -> list[str]:
    return [said] if isinstance(said, str) else list(said.values())


def bracketed(said: str) -> str:
    """A sentence with all but its places in brackets."""
    parts = re.split(r"(\{\w+\})", said)
    return "".join(part if part.startswith("{") or not part else f"⟦{part}⟧" for part in parts)


PSEUDO = Language(
    "en",
    {
        key: bracketed(said) if isinstance(said, str) else {form: bracketed(it) for form, it in said.items()}
        for key, said in languages()["en"].sentences.items()
    },
)
"""A pseudo-locale. What is outside of its brackets comes from elsewhere."""


def texts_in(value: Any) -> Iterator[str]:
    """Every text in what a page is given."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if dataclasses.is_dataclass(value):
        value = [getattr(value, each.name) for each in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set):
        for each in value:
            yield from texts_in(each)
    elif isinstance(value, str):
        yield value


def words_of(scene: Scene) -> set[str]:
    """The words of a case: its texts, two letters for who asks, and how the reader's language writes values."""
    given = [
        *texts_in((scene.case, scene.standing, scene.given, scene.sight)),
        "Shop GmbH",
        "Ada Ngo",
        "billing",
    ]
    said = [word for text in given for word in WORD.findall(text)]
    said += [address[0] for address in scene.case.verify_email or ()]  # a***@example.com
    faces = [word[:2] for word in said] + [one[0] + two[0] for one, two in pairwise(said)]
    style = [
        "Yes",
        "No",
        "null",
        "hidden",  # stands for a secret in JSON, whatever the language
        *ENGLISH.months,
        *ENGLISH.day_units,
        *(it.name for it in languages().values()),
    ]
    digest = re.findall(r"[a-f]+", f"{(scene.case.digest or '')[:4]} {(scene.case.digest or '')[4:8]}")
    return {word.lower() for word in (*said, *faces, *style, *digest, "U")}  # JSON escapes begin with it


@pytest.mark.parametrize("name", PAGES)
def test_every_word_is_the_case_s_or_the_catalogue_s(name: str) -> None:
    scene = PAGES[name]
    html = re.sub(
        r"(?s)<svg.*?</svg>|<abbr[^>]*>", "", scene.html(Reader(PSEUDO))
    )  # Unicode names characters
    said = re.sub(r"U\+[0-9A-F]{4}", "", "\n".join(Texts(html).found))  # so is a hidden character called
    assert "⟦" in said
    left = {word.lower() for word in WORD.findall(re.sub(r"⟦[^⟦⟧]*⟧", " ", said))}
    assert left - words_of(scene) == set()


def test_a_tab_is_escaped_once() -> None:
    html = Scene(call("brew", {}, Display(sentence="Tea & <b>cake</b>"), "desk")).html(
        Reader(languages()["en"])
    )
    assert "<title>Tea &amp; &lt;b&gt;cake&lt;/b&gt; · " in html


@pytest.mark.parametrize(
    "render", [render_unknown, render_outlived, render_withheld, render_foreign, render_unavailable]
)
def test_a_page_without_a_case_has_the_catalogue_s_words_alone(render: Callable[..., str]) -> None:
    said = "\n".join(Texts(render(reader=Reader(PSEUDO, organisation=""))).found)
    assert WORD.findall(re.sub(r"⟦[^⟦⟧]*⟧", " ", said)) == []


def test_the_style_sheet_and_the_scripts_have_no_words_of_their_own() -> None:
    drawn = re.findall(r'content: "([^"]*)"', (STATIC / "page.css").read_text())
    assert [each for each in drawn if WORD.search(each)] == []
    for script in STATIC.glob("*.js"):
        shown = re.findall(r"(?:textContent|innerText|ariaLabel|placeholder) = ([^;]+);", script.read_text())
        assert [each for each in shown if re.match(r"""["'`]\w""", each)] == [], script.name


def test_every_shipped_risk_pattern_has_a_sentence() -> None:
    names = re.findall(r'^name = "(.+)"$', SHIPPED, re.MULTILINE)
    assert names
    assert [name for name in names if not languages()["en"].has(f"pattern.{name}")] == []


def test_every_catalogue_has_every_sentence_with_the_same_places() -> None:
    english = languages()["en"].sentences
    for tag, language in languages().items():
        assert set(language.sentences) == set(english), tag
        for key, said in english.items():
            places = {frozenset(re.findall(r"\{\w+\}", form)) for form in forms(said)}
            others = {frozenset(re.findall(r"\{\w+\}", form)) for form in forms(language.sentences[key])}
            if key not in ("time.at", "time.date"):  # a month's name, or its number
                assert others <= places, (tag, key)
