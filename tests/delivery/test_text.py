"""Text with limits: cut visibly, never in the middle of what is seen as one."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from askfirst.delivery.text import cut, shown

NOTE = re.compile(r"… \(([\d,]+) more characters? on the page\)\Z")


def units(text: str) -> int:
    """As Telegram counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def parted(text: str, limit: int) -> tuple[str, int]:
    """What is left of a text that was cut, and how many characters are said to be missing."""
    noted = cut(text, limit)
    note = NOTE.search(noted)
    assert note is not None, noted
    return noted[: note.start()], int(note[1].replace(",", ""))


@pytest.mark.parametrize("measure", [len, units, lambda text: len(text.encode("utf-8", "surrogatepass"))])
@given(text=st.text(max_size=400), limit=st.integers(0, 200))
@example(text="a" * 1042, limit=80)  # where one character less needs two more digits
@example(text="e" + "\u0301" * 300, limit=100)
def test_what_was_cut_fits_and_says_what_is_missing(measure: object, text: str, limit: int) -> None:
    noted = cut(text, limit, measure=measure)  # type: ignore[arg-type]
    assert measure(noted) <= limit  # type: ignore[operator]
    if measure(text) <= limit:  # type: ignore[operator]
        assert noted == text
    elif (note := NOTE.search(noted)) is not None:
        left, missing = noted[: note.start()], int(note[1].replace(",", ""))
        assert text.startswith(left)
        assert not text[len(left) : len(text) - missing].strip()
    else:
        assert noted in ("…", "")


def test_as_much_as_fits_is_kept() -> None:
    left, missing = parted("a" * 1000, 100)
    assert (len(left), missing) == (65, 935)
    assert len(cut("a" * 1000, 100)) == 100


@pytest.mark.parametrize(
    "one",
    ["e\u0301\u0323", "👩\u200d👩\u200d👧", "👍🏽", "🇩🇪", "<U+202E>", "\u1112\u1161\u11ab", "क्षि"],
    ids=["accents", "family", "skin", "flag", "code point", "hangul", "indic"],
)
def test_what_is_seen_as_one_is_not_parted(one: str) -> None:
    text = one * 60
    for limit in range(40, 40 + 2 * len(one)):
        left, _ = parted(text, limit)
        assert left == one * (len(left) // len(one))


def test_a_letter_with_endless_accents_is_cut_all_the_same() -> None:
    assert len(cut("e" + "\u0301" * 10_000, 200)) == 200


def test_shown_keeps_lines_and_takes_the_rest_at_its_word() -> None:
    assert shown("one\r\ntwo\n\tthree") == "one\ntwo\n    three"
    assert (
        shown("\x1b[2Jgone\r\u202ecba\u200b\x9b31m")
        == "<U+001B>[2Jgone<U+000D><U+202E>cba<U+200B><U+009B>31m"
    )
    assert shown("a\u2028b\x0bc\ud800") == "a<U+2028>b<U+000B>c<U+D800>"
