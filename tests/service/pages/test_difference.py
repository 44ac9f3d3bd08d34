"""The difference of two texts: lines that became one another stand together, and nothing is lost or made up."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import page_cases as cases
from kit.page_cases import NOW
from kit.page_scenes import Scene
from kit.page_text import Page

from askfirst.formats import CHINESE, ENGLISH, Style
from askfirst.service.case_state import Previous
from askfirst.service.pages import difference as module
from askfirst.service.pages.difference import DiffLine, Effort, difference
from askfirst.service.pages.language import languages
from askfirst.service.pages.page_size import Room
from askfirst.service.pages.reader import Reader
from askfirst.service.pages.subject import Compared, changes

LINES = st.lists(
    st.sampled_from(["Dear Ada,", "your kettle takes 3 to 5 days", "Bye", "a b c d", "a b c e", ""])
)


def signs(before: str, after: str) -> list[tuple[str, str]]:
    return [(it.sign, str(it.html)) for it in difference(before, after) or ()]


def test_a_line_stands_beside_the_one_that_it_became_whatever_comes_between() -> None:
    before = "An old first line that goes.\nYour kettle takes 3 to 5 working days.\nBye"
    after = "Hello!\nWe are sorry.\nYour kettle takes 5 to 7 working days.\nBye"
    assert signs(before, after) == [
        ("-", "An old first line that goes."),
        ("+", "Hello!"),
        ("+", "We are sorry."),
        ("~", "Your kettle takes <del>3</del><ins>5</ins> to <del>5</del><ins>7</ins> working days."),
        (" ", "Bye"),
    ]


def test_lines_that_have_nothing_in_common_are_not_paired_word_by_word() -> None:
    assert signs("rm /tmp/a\nx", "echo done\nx") == [("-", "rm /tmp/a"), ("+", "echo done"), (" ", "x")]


def test_chinese_is_compared_by_its_characters() -> None:
    assert signs("水壶需要三到五个工作日。", "水壶需要五到七个工作日。") == [
        ("~", "水壶需要<del>三</del><ins>五</ins>到<del>五</del><ins>七</ins>个工作日。")
    ]


def sides(line: DiffLine) -> tuple[str | None, str | None]:
    """What a line was, and what it is."""
    text = str(line.html)
    was = re.sub(r"<ins>.*?</ins>|</?del>", "", text)
    now = re.sub(r"<del>.*?</del>|</?ins>", "", text)
    return (None if line.sign == "+" else was, None if line.sign == "-" else now)


@given(LINES, LINES)
def test_both_texts_can_be_read_back_from_their_difference(old: list[str], new: list[str]) -> None:
    found = difference("\n".join(old), "\n".join(new))
    assert found is not None
    read = [sides(line) for line in found if not line.skipped]
    kept = sum(line.skipped for line in found)
    before, after = (
        ([it for it in side if it is not None] for side in zip(*read, strict=True)) if read else ([], [])
    )
    assert len(before) + kept == max(len(old), 1)
    assert len(after) + kept == max(len(new), 1)
    if not kept:
        assert "\n".join(before) == "\n".join(old)
        assert "\n".join(after) == "\n".join(new)


# What it may cost: others write the texts, and as often as they like.


WORST = "x " * 450, "z " * 450
"""Texts of which every other part is equal: the most steps that texts of this length can take."""


def test_what_takes_too_many_steps_is_not_compared_and_leaves_some_for_the_next() -> None:
    effort = Effort()
    for _ in range(100):
        assert difference(*WORST, effort) is None
    assert effort.left >= 0
    effort = Effort()
    assert difference(*WORST, effort) is None
    assert difference("49.00 EUR", "40.00 EUR", effort) is not None


def test_no_text_takes_more_steps_than_the_page_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where the steps are made: a step is one pair of equal parts that is looked at."""
    looked_at = [0]
    real = module.SequenceMatcher.find_longest_match

    def counting(self: module.SequenceMatcher[str], alo: int, ahi: int, blo: int, bhi: int) -> object:
        b2j: dict[str, list[int]] = self.b2j  # type: ignore[attr-defined]
        looked_at[0] += sum(len(b2j.get(it, ())) for it in self.a[alo:ahi])
        return real(self, alo, ahi, blo, bhi)

    monkeypatch.setattr(module.SequenceMatcher, "find_longest_match", counting)
    was, now = ({f"a{n}": text for n in range(100)} for text in WORST)
    before = Previous("case_0", was, "edit", None, None, None)
    html = Scene(cases.approval(now), sight={"previous": before}).html()
    assert 0 < looked_at[0] <= module._STEPS
    assert "What is new since try 1" in html
    assert len(html.encode()) < 200_000


def test_what_was_not_compared_stands_one_below_the_other() -> None:
    was, now = ({"text": text} for text in WORST)
    before = Previous("case_0", was, "edit", None, None, NOW)
    page = Page(Scene(cases.approval(now), sight={"previous": before}).html())
    (card,) = page.all("section", class_="round")
    assert "Removed:" in card.text
    assert "Added:" in card.text
    assert "x x x" in card.text
    assert "z z z" in card.text


def compared(before: Any, after: Any, form: str = "", style: Style = ENGLISH) -> str:
    """What a page writes of a value that was changed."""
    of = Compared({"it": before}, {"it": after}, {"it": form})
    (change,) = changes(of, Room(), style=style)
    return "\n".join(f"{line.sign} {line.html}" for line in change.lines)


def test_values_are_compared_as_people_read_them() -> None:
    assert compared(False, True) == "~ <del>No</del><ins>Yes</ins>"
    assert compared(False, True, style=CHINESE) == "~ <del>否</del><ins>是</ins>"
    assert compared(True, False, "bool:on,off") == "~ <del>on</del><ins>off</ins>"
    assert compared(None, "A-1").endswith("<ins>A-1</ins>")
    assert compared(["ada@x.example", "bo@x.example"], ["ada@x.example"]) == "  ada@x.example\n- bo@x.example"
    assert compared([], ["ada@x.example"]) == "+ ada@x.example"
    assert compared([1, 2], [1]) == "  1\n- 2"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["a", "b"], ["a\nb"]),
        (["1"], [1]),
        ([1, "2"], [1, 2]),
        (["a", ""], ["a"]),
        (["a"], "a"),
        ([], [""]),
        ([], None),
        (True, "Yes"),
        (None, "–"),
    ],
)
def test_values_whose_texts_are_equal_are_compared_as_json(before: Any, after: Any) -> None:
    found = compared(before, after)
    assert found
    assert any(sign in found for sign in ("<del>", "<ins>", "- ", "+ "))
    assert any(mark in unescape(found) for mark in '["')


def test_a_round_writes_values_as_its_readers_language_does() -> None:
    case, before = cases.approval({"on": True}), Previous("case_0", {"on": False}, "edit", None, None, NOW)
    page = Page(Scene(case, sight={"previous": before}).html(Reader(languages()["zh-Hans"])))
    assert "否是" in page.all("section", class_="round")[0].text
