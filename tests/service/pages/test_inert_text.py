"""Text that wants to be more than text: it stays inert, visible and whole, wherever it stands."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from kit import page_cases as cases
from kit.hostile_text import ANY_TEXT, ANY_VALUE, CORPUS, everywhere
from kit.page_cases import NOW, TOKEN
from kit.page_text import Page

from askfirst.service.case import Case
from askfirst.service.pages import render_case
from askfirst.service.pages.decision import decision_of
from askfirst.service.pages.rows import View
from askfirst.service.pages.sight import Sight
from askfirst.service.standing import standing_of

RAW = View(raw=True)
hostile = pytest.mark.parametrize("text", CORPUS.values(), ids=list(CORPUS))


OF_OURS = {"mark", "details", "summary", "div", "span", "p", "strong", "label", "dl", "dt", "dd", "bdi"} | {
    "textarea",
    "input",
    "option",
    "select",
    "ol",
    "ul",
    "li",
    "h1",
}
"""Elements of which a page may have more or fewer, as values fold and fields take another form."""


def is_our_own(href: str | None) -> bool:
    """Whether a link leads to another page of the same case, which shows the rest of a long value."""
    return href is not None and href.startswith(f"/review/case_1?token={TOKEN}&")


def skeleton(html: str) -> list[tuple[str, Any, Any, Any]]:
    """The elements that a style, a script or a click could act on, without the words."""
    return [
        (each.tag, each.attrs.get("href"), each.attrs.get("class"), each.attrs.get("action"))
        for each in Page(html).elements
        if each.tag not in OF_OURS and not is_our_own(each.attrs.get("href"))
    ]


@hostile
def test_it_adds_no_element_and_is_whole(text: str) -> None:
    calm = {name: skeleton(render(case)) for name, case in everywhere("calm").items()}
    for name, case in everywhere(text).items():
        html = render(case)
        assert skeleton(html) == calm[name], name
        assert text in Page(html).texts() or text in read_on(case), name


def read_on(case: Case) -> list[str]:
    """Every value of a case as one reads it who follows the links to the rest of it."""
    return [whole(case, place) for place in range(decision_of(case).row_count)]


def whole(case: Case, place: int) -> str:
    """One value, part by part."""
    read, start = "", 0
    while True:
        decision = decision_of(case, view=View(row=place, start=start))
        sight = dataclasses.replace(sight_for(case), decision=decision, view=View(row=place, start=start))
        html = render_case(case, token=TOKEN, base_path="", now=NOW, sight=sight)
        assert len(html) < 200_000
        page = Page(html)
        boxes = [
            *page.all("ol", class_="lines"),
            *page.all("div", class_="text"),
            *page.all("li", class_="text"),
        ]
        lines = boxes[0].text if boxes else ""
        gap = decision.unopened[0] if decision.unopened else None
        if gap is None:
            return read + lines
        cut = gap.first != decision.rows[0].lines.lines[-1].number if decision.rows[0].lines else False
        read, start = read + lines + ("\n" if cut else ""), gap.start


def sight_for(case: Case) -> Sight:
    decision, standing = decision_of(case), standing_of(case, NOW)
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
        assert not any("Already approved" in each.text for each in page.all("h2"))
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
    assert "U+200B &times; 500" in html
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
        assert ("not given" if value is None else "empty text") in act.text
    elif isinstance(value, list | dict):
        raw = dataclasses.replace(sight_for(case), decision=decision_of(case, view=RAW), view=RAW)
        html = render_case(case, token=TOKEN, base_path="", now=NOW, sight=raw)
        assert json.dumps(value, indent=2, ensure_ascii=False) in Page(html).texts()
    else:
        plain = {True: "Yes", False: "No"}[value] if isinstance(value, bool) else json.dumps(value)
        assert (value if isinstance(value, str) else plain) in shown
    names = [each.text for each in page.all("span", class_="label") if "act" in each.inside]
    assert names == [name or "no name"]
