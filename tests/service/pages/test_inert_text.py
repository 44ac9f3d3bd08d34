"""Text that wants to be more than text: it stays inert, visible and whole, wherever it stands."""

from __future__ import annotations

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

hostile = pytest.mark.parametrize("text", CORPUS.values(), ids=list(CORPUS))


OF_OURS = {"mark", "details", "summary", "div", "span", "p", "strong", "label", "dl", "dt", "dd", "bdi"} | {
    "textarea",
    "input",
    "option",
    "select",
}
"""Elements of which a page may have more or fewer, as values fold and fields take another form."""


def skeleton(html: str) -> list[tuple[str, Any, Any, Any]]:
    """The elements that a style, a script or a click could act on, without the words."""
    return [
        (each.tag, each.attrs.get("href"), each.attrs.get("class"), each.attrs.get("action"))
        for each in Page(html).elements
        if each.tag not in OF_OURS
    ]


@hostile
def test_it_adds_no_element_and_is_whole(text: str) -> None:
    calm = {name: skeleton(render(case)) for name, case in everywhere("calm").items()}
    for name, case in everywhere(text).items():
        html = render(case)
        assert skeleton(html) == calm[name], name
        assert text in Page(html).texts(), name


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
    begins, _, ends = [each.text for each in page.all("div", class_="text") if "folded" in each.inside]
    assert begins == "It begins: nothing to see"
    assert ends == "It ends: rm -rf /"
    assert page.all("summary")[0].text == "Show all 222 characters in 201 lines"


def test_one_mark_stands_for_a_run_of_the_same() -> None:
    html = render(cases.approval({"a": "\u200b" * 100_000}, details={}))
    assert "U+200B &times; 100000" in html
    assert len(html) < 20_000


@given(value=ANY_VALUE, name=ANY_TEXT)
def test_any_argument_is_found_whole_in_the_text(value: Any, name: str) -> None:
    page = Page(render(cases.approval({name: value}, details={})))
    (act,) = page.all("section", class_="act")
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    shown = [each.text for each in page.all("div", class_="text") if "act" in each.inside]
    assert text in shown if text else "empty text" in act.text
    assert [each.text for each in page.all("bdi") if "dt" in each.inside] == [name or "no name"]
