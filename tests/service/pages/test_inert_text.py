"""Text that wants to be more than text: it stays inert, visible and whole, wherever it stands."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from kit import page_cases as cases
from kit.hostile_text import ANY_TEXT, ANY_VALUE, CORPUS, everywhere
from kit.page_cases import NOW, TOKEN
from kit.page_scenes import Scene
from kit.page_text import Page

from askfirst.formats import ENGLISH
from askfirst.service.case import Case
from askfirst.service.case_state import case_state_of
from askfirst.service.pages import Reader, languages, render_case
from askfirst.service.pages.decision import decision_of
from askfirst.service.pages.inert_text import language_in
from askfirst.service.pages.row import View
from askfirst.service.pages.rows import rows_of
from askfirst.service.pages.sight import Sight
from askfirst.service.pages.sources import SOURCES, source
from askfirst.service.risk_patterns import NO_PATTERNS

RAW = View(row=0)
hostile = pytest.mark.parametrize("text", CORPUS.values(), ids=list(CORPUS))


OF_OURS = {
    "mark",
    "abbr",
    "details",
    "summary",
    "div",
    "span",
    "p",
    "strong",
    "label",
    "dl",
    "dt",
    "dd",
    "bdi",
} | {
    "textarea",
    "fieldset",
    "legend",
    "input",
    "option",
    "select",
    "ol",
    "ul",
    "li",
    "h1",
}
"""Elements of which a page may have more or fewer, as values fold and fields take another form."""


IN_PARTS = {("h2", None, "part", None), ("progress", None, None, None)}
"""A long form is shown in parts: it may have fewer elements, and says which part this is."""


def is_our_own(href: str | None) -> bool:
    """Whether an address has the rest of a long value: a page of the same case, or the text as a file."""
    return href is not None and re.fullmatch(rf"/review/case_1(/text)?\?token={TOKEN}&.*", href) is not None


def skeleton(html: str) -> list[tuple[str, Any, Any, Any]]:
    """The elements that a style, a script or a click could act on, without the words.

    A card with long lines may be broad.
    """
    return [
        (
            each.tag,
            each.attrs.get("href"),
            (each.attrs.get("class") or "").removesuffix(" broad") or None,
            each.attrs.get("action"),
        )
        for each in Page(html).elements
        if each.tag not in OF_OURS
        and not is_our_own(each.attrs.get("href"))
        and not is_our_own(each.attrs.get("data-link"))
    ]


@hostile
def test_it_adds_no_element_and_is_whole(text: str) -> None:
    calm = {name: skeleton(render(case)) for name, case in everywhere("calm").items()}
    for name, case in everywhere(text).items():
        html = render(case)
        shown = skeleton(html)
        assert (Counter(shown) - Counter(calm[name])).keys() <= IN_PARTS, name
        assert name in ("form", "ask more") or shown == calm[name], name
        assert text in Page(html).texts() or any(text in each for each in read_on(case)), name


def read_on(case: Case) -> Iterator[str]:
    """Every text of a case as one reads it who follows the links to the rest of it."""
    standing = case_state_of(case, NOW)
    for of in ("", *SOURCES):
        values = source(of, case, standing, None, languages()["en"])
        for place in range(len(values) if of else decision_of(case).row_count):
            yield whole(case, View(row=place, of=of), values)


def whole(case: Case, view: View, values: Mapping[str, Any]) -> str:
    """One text, part by part."""
    read = ""
    while True:
        shown = rows_of(values, {}, NO_PATTERNS, ENGLISH, view) if view.of else decision_of(case, view=view)
        sight = dataclasses.replace(sight_for(case), decision=decision_of(case, view=view), view=view)
        html = render_case(case, token=TOKEN, base_path="", now=NOW, sight=sight)
        assert len(html.encode()) < 200_000
        page = Page(html)
        boxes = [
            *page.all("ol", class_="lines"),
            *page.all("div", class_="text"),
            *page.all("li", class_="text"),
        ]
        lines = boxes[0].text if boxes else ""
        gap = shown.unopened[0] if shown.unopened else None
        if gap is None:
            return read + lines
        cut = gap.first != shown.rows[0].lines.lines[-1].number if shown.rows[0].lines else False
        read, view = read + lines + ("\n" if cut else ""), dataclasses.replace(view, start=gap.start)


def sight_for(case: Case) -> Sight:
    decision, standing = decision_of(case), case_state_of(case, NOW)
    return Sight(decision, standing, "Askfirst", None, "", 0, "/review/case_1")


def render(case: Case) -> str:
    return render_case(case, token=TOKEN, base_path="", now=NOW)


@hostile
def test_what_cannot_be_seen_is_nowhere_raw_on_the_page(text: str) -> None:
    """In a field that a person may edit, a hidden character is written as JSON does, or named below it."""
    hidden = set(text) & set(
        "\u202e\u2066\u2069\u200f\u200b\u2060\ufeff\u00ad\u3164\U000e0041\x00\x1b\x7f\x85\u2028\u2029\r\t\u00a0\u2003"
    )
    for name, case in everywhere(text).items():
        page = Page(render(case))
        raw = render(case)
        for each in page.elements:
            if each.tag == "input" and each.attrs.get("type") in ("text", "radio", "checkbox"):
                raw = raw.replace(str(each.attrs.get("value")), "")
        for tag in ("option",):
            for each in page.all(tag):
                raw = raw.replace(str(each.attrs.get("value")), "")
        assert not hidden & set(raw), name


def test_it_stays_out_of_the_title_and_the_fixed_words() -> None:
    for name, case in everywhere("Already approved").items():
        if name == "result":  # what a person did, and who it was, the service itself vouches for
            continue
        page = Page(render(case))
        assert "Already approved" not in page.all("title")[0].text
        heads = [each.text for each in page.all("h2") if each.attrs.get("id") != "step"]
        assert not any("Already approved" in head for head in heads)
        # The title of a step stands after words of the page's own.
        assert all(
            each.text.startswith("Step 1 of 2: ") for each in page.all("h2") if each.attrs.get("id") == "step"
        )
        assert not any("Already approved" in each.text for each in page.all("p", class_="lead"))


def test_a_long_value_shows_its_beginning_its_end_and_its_size() -> None:
    page = Page(render(cases.approval({"cmd": CORPUS["blank lines"]})))
    begins, ends = [each.text for each in page.all("ol", class_="lines")]
    assert begins == "nothing to see" + "\n" * 99
    assert ends == "\n" * 49 + "rm -rf /"
    (cut,) = page.all("p", class_="cut")
    assert "Lines 101 to 151 are not shown here" in cut.text
    (bar,) = page.all("section", class_="decide")
    assert "51 lines not opened" in bar.text


def test_one_mark_stands_for_a_run_of_the_same() -> None:
    html = render(cases.approval({"a": "\u200b" * 500}, details={}))
    assert 'title="zero width space">U+200B</abbr> &times; 500' in html
    assert len(html) < 20_000
    assert "500 hidden" not in html


@given(value=ANY_VALUE, name=ANY_TEXT)
def test_any_argument_is_found_whole_in_the_text(value: Any, name: str) -> None:
    case = cases.approval({name: value}, details={})
    page = Page(render(case))
    (act,) = page.all("section", class_="act")
    shown = [
        each.text for tag in ("div", "ol") for each in page.all(tag, class_="text") if "act" in each.inside
    ]
    if value is None or value in ("", [], {}):
        assert ("not given" if value is None else "empty") in act.text
    elif isinstance(value, list | dict):
        raw = dataclasses.replace(sight_for(case), decision=decision_of(case, view=RAW), view=RAW)
        html = render_case(case, token=TOKEN, base_path="", now=NOW, sight=raw)
        assert json.dumps(value, indent=2, ensure_ascii=False) in Page(html).texts()
    else:
        plain = {True: "Yes", False: "No"}[value] if isinstance(value, bool) else json.dumps(value)
        assert (value if isinstance(value, str) else plain) in shown
    names = [each.text for each in page.all("span", class_="label") if "act" in each.inside]
    assert names == [name or "no name"]


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("Kettle arrived broken.", None),
        ("A-1042 4900 ✓", None),
        ("水壶壶盖破裂，客户已提供照片。", "zh"),
        ("ケトルの蓋が割れていた", "ja"),
        ("주전자 뚜껑이 깨졌다", "ko"),
        ("هل توافق؟", "ar"),
        ("Крышка <mark>U+200B</mark> разбита", "ru"),
        ("The word 壶 means kettle", None),
    ],
)
def test_a_text_in_another_script_names_its_language(text: str, tag: str | None) -> None:
    assert language_in(text) == tag


def test_only_where_the_page_speaks_another_one() -> None:
    case = cases.service_case("approval", {"note": "水壶壶盖破裂"}, prompt="هل توافق؟")
    english = Page(Scene(case).html())
    assert english.all("h1")[0].attrs["lang"] == "ar"
    assert [it.text for it in english.all("div", lang="zh")] == ["水壶壶盖破裂"]
    chinese = Page(Scene(case).html(Reader(languages()["zh-Hans"])))
    assert chinese.all("h1")[0].attrs["lang"] == "ar"
    assert not chinese.all("div", lang="zh")
