"""Named values of a case, and the changes from an earlier version of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from askfirst.formats import CODE, ENGLISH, Style, formatted
from askfirst.messages import canonical_json
from askfirst.service.pages.difference import DiffLine, difference
from askfirst.service.pages.inert_text import Html, Passage, clipped, passage
from askfirst.service.pages.page_size import Room, size_of
from askfirst.service.pages.row import Row, Unopened
from askfirst.service.pages.rows import plain_text, text_of

# A JSON value on a page: its name, its kind, and its text.


@dataclass(frozen=True, slots=True)
class Shown:
    """One named value. ``text`` is None for an empty string."""

    name: Passage
    kind: str
    text: Passage | None

    @property
    def is_code(self) -> bool:
        """Whether the value is shown as JSON."""
        return self.kind != "text"


def shown(name: str, value: Any) -> Shown:
    """A value under its name. A string is shown as it is, any other value as JSON."""
    if value == "":
        return Shown(_named(name), "text", None)
    return Shown(_named(name), kind_of(value), passage(text_of(value)))


def kind_of(value: Any) -> str:
    """The kind of a JSON value in a few words."""
    if value is None:
        return "nothing"
    kinds = ((bool, "yes or no"), (int | float, "number"), (str, "text"), (list, "list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def _named(name: str) -> Passage:
    return passage(name)


@dataclass(frozen=True, slots=True)
class Words:
    """Untrusted words: sentences and facts by name, written by ``author``.

    ``agent`` is the model, ``side`` the model or the program around it, ``service`` the calling service.
    """

    author: Literal["agent", "side", "service"]
    prompt: Passage | None = None
    message: Passage | None = None
    rows: tuple[Row, ...] = ()
    rest: tuple[Unopened, ...] = ()
    """Facts that the page has no room for."""
    questions: Row | None = None
    """The labels of the fields or choices, if the page no longer has the fields themselves."""

    def __bool__(self) -> bool:
        return bool(self.prompt or self.message or self.rows or self.questions)


# The changes that an edit or a new round makes.


_ABSENT = object()
"""A version that does not have the value."""
LONGEST_NAME = 1_000
"""The limit for a value's name, in bytes of HTML."""
_MOST_COMPARED = 40_000
_BOTH = 1_200
"""The bytes of two long texts, one below the other, each cut and with a link to the whole."""
_CHANGE, _LINE = 300, 50
"""The markup around a change, and around a line of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One value, and how it differs from before. ``row`` is the page's row for the value, with its label."""

    key: str
    changed: bool
    lines: tuple[DiffLine, ...] = ()
    before: Passage | None = None
    after: Passage | None = None
    """Both values whole, set if they are too long to be compared."""
    row: Row | None = None
    is_prose: bool = True
    is_secret: bool = False
    """Whether the value is secret, so that no page shows either version."""
    is_left_out: bool = False
    """Whether the page has no room to show how it differs."""

    @property
    def name(self) -> Html:
        """The value's name."""
        return clipped(self.key, LONGEST_NAME)


@dataclass(frozen=True, slots=True)
class Compared:
    """Two versions of a call's values, with their formats by name.

    ``of_before`` and ``of_after`` are the sources that show each version whole; None if there is none.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    forms: Mapping[str, str] = field(default_factory=dict[str, str])
    of_before: str | None = ""
    of_after: str | None = None

    @property
    def names(self) -> list[str]:
        """Every value after the edit, in order; then the values that were removed."""
        return [*self.after, *(name for name in self.before if name not in self.after)]


def changes(
    it: Compared, room: Room, rows: Mapping[str, Row] | None = None, style: Style = ENGLISH
) -> list[Change]:
    """How every value differs, as far as the page has room to show it."""
    return [_change(it, name, room, (rows or {}).get(name), style) for name in it.names]


def differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two objects differ as JSON. Unlike in Python, 1 and true differ."""
    return canonical_json(before) != canonical_json(after)


def _change(it: Compared, name: str, room: Room, row: Row | None, style: Style) -> Change:
    before, after, form = it.before, it.after, it.forms.get(name, "")
    if name in before and name in after and not differ({"": before[name]}, {"": after[name]}):
        return Change(name, changed=False, row=row)
    if room.left <= 0:
        room.has_cut = True
        return Change(name, changed=True, row=row, is_left_out=True)
    room.left -= _CHANGE + 2 * min(size_of(name), LONGEST_NAME)
    if form == "secret":
        return Change(name, True, row=row, is_secret=True)
    was, now = _texts_of([of.get(name, _ABSENT) for of in (before, after)], form, style)
    if was == now:  # such as the number 1 and the text "1": only JSON shows the difference
        was, now = (json.dumps(of[name]) if name in of else None for of in (before, after))
    is_long = len(was or "") + len(now or "") > _MOST_COMPARED
    lines = None if is_long else difference(was, now, room.effort)
    size = 0 if lines is None else sum(len(line.html.encode()) + _LINE for line in lines)
    if lines is None or size > max(room.left, _CHANGE):
        old = passage(was or "", it.of_before, list(before).index(name) if name in before else 0)
        new = passage(now or "", it.of_after, list(after).index(name) if name in after else 0)
        room.left -= _BOTH
        return Change(name, True, before=old, after=new, row=row)
    room.left -= size
    return Change(name, True, lines, row=row, is_prose=form.partition(":")[0] not in CODE)


def is_number(value: Any) -> bool:
    """Whether a value is a number of JSON, and no larger than the double-precision numbers of RFC 8785."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (
        abs(value) <= sys.float_info.max
    )  # false for NaN; math.isfinite raises for whole numbers that are larger


def _texts_of(versions: Sequence[Any], form: str, style: Style) -> list[str | None]:
    """The texts of two versions of a value for a comparison; None for an absent one, and for an empty list.

    They are formatted, or else as a row shows them: a list of plain values has a line for each, and yes or no is a
    word. Only a list that cannot be read back from its lines is compared as JSON.
    """
    given = [it for it in versions if it is not _ABSENT]
    if all(isinstance(it, list) for it in given) and _are_lines(given):
        said = ["\n".join(map(text_of, it)) if it else None for it in given]
    else:
        said = [_said(it, form, style) for it in given]
    texts = iter(said)
    return [None if it is _ABSENT else next(texts) for it in versions]


def _said(value: Any, form: str, style: Style) -> str:
    text = formatted(value, form, style)
    if text is None:
        return plain_text(value, style) if value is None or isinstance(value, bool) else text_of(value)
    return text


def _are_lines(lists: Sequence[list[Any]]) -> bool:
    """Whether lists can be told apart by their lines: all items are numbers, or texts of one line, not blank."""
    items = [item for it in lists for item in it]
    return all(map(is_number, items)) or all(
        isinstance(item, str) and item.strip() and "\n" not in item for item in items
    )
