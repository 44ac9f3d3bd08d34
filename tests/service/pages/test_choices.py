"""Long lists: what is chosen on one part counts when it is sent from another, and nothing else can be chosen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit import page_cases as cases
from kit.page_cases import NOW, TOKEN
from kit.page_text import Page

from askfirst.requests import EscalateRequest
from askfirst.service.pages import read_submission, render_case
from askfirst.service.pages.choices import Choice, Reading, listing, packed, unopened_items, unpacked
from askfirst.service.pages.decision import decision_of

ITEMS = [{"id": f"i{place}", "title": f"Item number {place}"} for place in range(200)]
CASE = cases.service_case("selection", {"items": ITEMS})
TEXTS = st.builds(
    lambda text, times: text * times,
    st.text("ab<&\"'é水я\u202e\u200b\n ", max_size=20),
    st.integers(1, 90),
)


def turned(posted: dict[str, list[str]], press: dict[str, str]) -> tuple[Any, dict[str, list[str]]]:
    """What comes of a press, and the fields of the page that follows it."""
    read = read_submission(CASE, posted | {name: [text] for name, text in press.items()})
    html = render_case(CASE, token=TOKEN, base_path="", now=NOW, values=read.data, reading=read.reading)
    return read, Page(html).fields()


def test_choices_of_parts_one_and_five_and_of_a_search_are_sent_together() -> None:
    _, page = turned({"selected": ["3"]}, {"part": "5"})
    _, page = turned(page | {"selected": ["120"]}, {"search": "1", "find": "number 199"})
    read, _ = turned(page | {"selected": ["199"]}, {"action": "select"})
    assert (read.intent, read.data["selected"]) == ("answer", ["i3", "i120", "i199"])


def test_all_and_none_are_all_of_the_list() -> None:
    read, page = turned({}, {"pick": "all"})
    assert (read.intent, len(read.data["selected"])) == ("turn", 200)
    assert turned(page, {"pick": "none"})[0].data["selected"] == []


@pytest.mark.parametrize("kept", ["", "!", "é", "A" * 100_000, packed({200, 5_000})])
def test_a_forged_field_chooses_nothing_that_is_not_in_the_case(kept: str) -> None:
    read, _ = turned({"kept": [kept], "seen": [kept], "selected": ["200", "-1", "x"]}, {"action": "select"})
    assert read.data["selected"] == []


@pytest.mark.parametrize("part", ["0", "-3", "99", "99999999999", "x"])
def test_a_part_that_is_not_there_is_the_nearest_one(part: str) -> None:
    read, page = turned({"selected": ["7"]}, {"part": part})
    assert read.data["selected"] == ["i7"]
    assert page["at"][0] in ("1", "7")


def test_what_was_not_shown_is_named_in_the_bar() -> None:
    assert "170 items not opened" in render_case(CASE, token=TOKEN, base_path="", now=NOW)
    assert unpacked(packed({0, 8, 199}), 200) == {0, 8, 199}


def test_a_fact_that_the_page_has_no_room_for_is_told() -> None:
    """Sixty short facts each: none of them is long, and not all of them fit."""
    facts = {f"n{number}": "no" for number in range(59)}
    items = [{"id": f"{place}", "title": "t", **facts, "irreversible": "yes"} for place in range(30)]
    case = cases.service_case("selection", {"items": items})
    html = render_case(case, token=TOKEN, base_path="", now=NOW)
    assert "irreversible" not in html
    assert html.count("Not all of it is shown here.") == 30
    assert "Not all of it was opened" in html
    assert len(decision_of(case).unopened) == 30


@example([("", "\n", {})])
@example([("a\n", "b\n\n", {"c\n": "d\n"})])
@given(
    st.lists(
        st.tuples(
            TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS | st.integers() | st.lists(st.booleans()), max_size=40)
        ),
        max_size=4,
    )
)
def test_every_item_that_a_page_cuts_is_unopened(items: list[tuple[str, str, dict[str, Any]]]) -> None:
    choices = [Choice(str(place), *it) for place, it in enumerate(items)]
    shown = listing(choices, (), Reading()).items
    assert {it.place for it in shown if it.rest} <= {it.row for it in unopened_items(choices)}


@pytest.mark.parametrize(("count", "told"), [(20, 0), (21, 1), (25, 5)])
def test_choices_of_an_escalation_that_a_page_leaves_out_are_told(count: int, told: int) -> None:
    ways = [f"way number {place}" for place in range(count)]
    case = cases.agent_case(EscalateRequest(prompt="What now?", choices=ways))
    html = render_case(case, token=TOKEN, base_path="", now=NOW)
    assert len(Page(html).all("input", name="action")) == count - told
    assert (f"{told} more choice" in html) == bool(told)


# In the order of a number.

ACCOUNTS = [
    {"id": "a", "title": "ann@example.com", "last_login": "3 Jan", "invoices": 2},
    {"id": "b", "title": "bo@example.com", "last_login": "11 Jan", "invoices": 14},
    {"id": "c", "title": "carl@example.com", "last_login": "29 Dec"},
    {"id": "d", "title": "dee@example.com", "last_login": "2 Nov", "invoices": 0},
]


def confirming(items: list[Any], posted: dict[str, list[str]]) -> tuple[Any, Page]:
    case = cases.service_case("confirmation", {"items_to_confirm": items})
    read = read_submission(case, posted)
    html = render_case(case, token=TOKEN, base_path="", now=NOW, values=read.data, reading=read.reading)
    return read, Page(html)


def titles(page: Page) -> list[str]:
    return [it.text.partition("@")[0] for it in page.all("span", class_="title")]


def test_a_list_is_sorted_by_its_number_and_back_and_keeps_what_was_chosen() -> None:
    posted: dict[str, list[str]] = {"confirmed_items": ["0", "3"]}
    orders = [["bo", "ann", "dee", "carl"], ["dee", "ann", "bo", "carl"], ["ann", "bo", "carl", "dee"]]
    for order in orders:
        by = next(iter(confirming(ACCOUNTS, posted)[1].all("button", name="by"))).attrs["value"]
        read, page = confirming(ACCOUNTS, posted | {"by": [str(by)]})
        assert (read.intent, read.data["confirmed_items"]) == ("turn", ["a", "d"])
        assert titles(page) == order
        posted = {name: list(texts) for name, texts in page.fields().items()}
    read, _ = confirming(ACCOUNTS, posted | {"action": ["confirm"]})
    assert (read.intent, read.data["confirmed_items"]) == ("answer", ["a", "d"])


def test_a_long_list_is_sorted_as_a_whole() -> None:
    items = [{"id": f"i{place}", "title": f"{place}@", "seats": place} for place in range(100)]
    read, page = confirming(items, {"confirmed_items": ["7"], "by": ["down"], "at": ["1"]})
    assert titles(page) == [str(place) for place in range(99, 69, -1)]
    posted = {name: list(texts) for name, texts in page.fields().items()}
    read, page = confirming(items, posted | {"part": ["4"]})
    assert titles(page) == [str(place) for place in range(9, -1, -1)]
    assert read.data["confirmed_items"] == ["i7"]
    assert "60 items not opened" in page.all("section", id="decide")[0].text


@pytest.mark.parametrize(
    "items",
    [
        [{"id": "a", "n": 1}, {"id": "b"}],
        [{"id": "a", "n": 1}, {"id": "b", "n": "two"}],
        [{"id": "a", "n": True}, {"id": "b", "n": False}],
        [{"id": "a", "n": [1]}, {"id": "b", "n": {"n": 1}}],
        [{"id": "a", "n": 10**400}, {"id": "b", "n": 10**400}],
        [{"id": "a", "n": "1e400"}, {"id": "b", "n": "NaN"}],
        ["a", "b"],
    ],
)
@pytest.mark.parametrize("by", ["down", "up", "", "sideways", "\u0000"])
def test_a_list_without_a_number_has_nothing_to_sort_by(items: list[Any], by: str) -> None:
    _, page = confirming(items, {"by": [by], "order": [by]})
    assert not page.all("button", name="by")
    assert [it.text for it in page.all("span", class_="title")] == ["a", "b"]
