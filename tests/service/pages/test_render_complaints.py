"""The complaints about the page before this one: each is mended on the page of today, and was not on that one."""

from __future__ import annotations

import re

import pytest
from kit.complaints import ALL as COMPLAINTS
from kit.complaints import WRITTEN, Mended
from kit.complaints_painted import PAINTED
from kit.paths import TESTS
from kit.standing_cases import standing_set
from kit.standing_pages import FORMER, Show, shown_before, shown_now, standing_scenes


@pytest.mark.parametrize("mended", WRITTEN, ids=str)
def test_a_complaint_is_mended_and_was_not_on_the_page_before(mended: Mended[Show]) -> None:
    assert mended.holds(shown_now)
    assert not mended.holds(shown_before)


def test_every_complaint_has_a_test_and_a_case_that_shows_it() -> None:
    tested = {each.complaint for each in (*WRITTEN, *PAINTED)}
    shown = {number for each in standing_set().values() for number in each.shows.split()}
    assert tested == set(COMPLAINTS)
    assert shown == set(COMPLAINTS)


def test_the_table_of_complaints_names_every_predicate() -> None:
    row = re.compile(r"^\| ([ABD]\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
    rows = row.findall((TESTS / "README.md").read_text("utf-8"))
    told = {number: re.findall(r"`(\w+)`", named) for number, named in rows}
    assert list(told) == list(COMPLAINTS)
    predicates = (*WRITTEN, *PAINTED)
    for number in COMPLAINTS:
        assert told[number] == [it.holds.__name__ for it in predicates if it.complaint == number]


def test_the_set_has_every_type_of_review_and_every_way_to_end() -> None:
    cases = [each.case for each in standing_set().values()]
    assert len(cases) >= 33
    types = {"approval", "selection", "confirmation", "input", "escalation"}
    assert {each.type for each in cases} == types
    for kind in types - {"input"}:
        assert {each.request is None for each in cases if each.type == kind} == {True, False}, kind
    assert {each.status for each in cases} == {"opened", "completed", "expired", "cancelled"}
    assert {path.stem for path in FORMER.glob("*.html")} <= set(standing_scenes())
