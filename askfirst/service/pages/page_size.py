"""Room: the bytes of HTML that untrusted texts may take on one page, so that no page grows with its case.

A page has at most 200 KB. Rows have a limit of their own (`rows.rows_of`). Every other untrusted text goes through a
`Room`, which cuts a text more the less room is left, and says how much it left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from askfirst.service.pages.difference import Effort
from askfirst.service.pages.inert_text import Html, Passage, clipped, cut, last_of

OPEN = 42_000
"""The room of a page on which a person decides, in bytes of HTML, as all of these."""
ENDED = 28_000
EDIT = 110_000
"""The room of the page that has the fields to edit, and no other values."""
EDITED = 40_000
"""The limit for changed values in the hidden field that posts them."""
TYPED = 20_000
"""The limit for a text that a person typed and that fills its field again."""
_BEGINNING = (4_000, 100)
_END = (2_000, 50)
_ENOUGH = 20_000
_LEAST = 240
_MARKUP, _LINK = 80, 360
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fitted:
    """As much of a text as a page has room for; ``left_out`` is how many characters are not shown."""

    beginning: Html
    end: Html | None = None
    left_out: int = 0


class Room:
    """The room of one page. Texts use it up in the order in which the page is made."""

    def __init__(self, most: int = OPEN) -> None:
        self.left = most
        self.has_cut = False
        """Whether a text was not shown whole."""
        self.effort = Effort()
        """For comparing texts."""

    def fit(self, it: Passage, *, whole: bool = False) -> Fitted:
        """The whole text if the page does not fold it and it fits, otherwise its beginning and its end.

        With ``whole``, a text that the page would fold is shown whole, too, if it fits.
        """
        if (whole or not it.folds) and len(it.text) <= self.left:
            size = len(it.whole.encode())
            if size <= self.left:
                self.left -= size + _MARKUP
                return Fitted(it.whole)
        self.has_cut = True
        most, lines = _BEGINNING
        beginning, shown = cut(it.text, max(min(most, self.left // 3), _LEAST), lines)
        end, ended = (None, 0) if self.left < _ENOUGH else last_of(it.text[shown:], *_END)
        self.left -= len(beginning.encode()) + len((end or "").encode()) + _LINK
        return Fitted(beginning, end, len(it.text) - shown - ended)

    def label(self, it: Passage) -> Html:
        """The beginning of a text, as a label. The caller shows the whole text below if the label is cut."""
        html = it.label if self.left > _ENOUGH else clipped(it.text, _LEAST)
        self.left -= len(html.encode())
        return html

    def typed(self, text: str) -> str:
        """The text that a person typed, cut to what fits, to fill its field again."""
        most = min(max(self.left, _LEAST), TYPED)
        if len(text) > most or size_of(text) > most:
            self.has_cut = True
            text = text[: len(cut_typed(text, most))]
        self.left -= size_of(text)
        return text

    def some(self, items: Iterable[_T], each: int = 0) -> Iterator[_T]:
        """The items, as long as there is room. ``each`` is how many bytes an item takes besides its texts."""
        for item in items:
            if self.left <= 0:
                self.has_cut = True
                return
            self.left -= each
            yield item


def size_of(text: str) -> int:
    """How many bytes a text takes in a field, or in an attribute."""
    return len(escape(text).encode())


def cut_typed(text: str, most: int) -> str:
    """The beginning of a text that takes at most so many bytes in a field."""
    taken = text[:most]
    while (size := size_of(taken)) > most:
        taken = taken[: len(taken) * most // size - 1]
    return taken
