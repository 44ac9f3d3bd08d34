"""What an edit changes, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from assent.messages import canonical_json
from assent.service.pages.passage import Html, Passage, marked, passage
from assent.service.pages.shown import Shown, shown, text_of

_MOST_LINES = 400
"""Beyond that, comparing takes too long; before and after then stand whole, one below the other."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that stays, goes or comes."""

    sign: Literal[" ", "-", "+"]
    text: Html


@dataclass(frozen=True, slots=True)
class Change:
    """One value of a call: what it is after the edit, and how it differs from before."""

    after: Shown
    changed: bool
    lines: tuple[Line, ...] = ()
    before: Passage | None = None
    """The value as it was, where it is too long for lines."""


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Every value after an edit, in order, then those that are gone."""
    names = [*after, *(name for name in before if name not in after)]
    return [_change(name, before, after) for name in names]


def differ(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two objects are not the same JSON; 1 and true are not."""
    return canonical_json(before) != canonical_json(after)


def _change(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Change:
    value = shown(name, after.get(name))
    if name in before and name in after and not differ({"": before[name]}, {"": after[name]}):
        return Change(value, changed=False)
    old = _lines(before, name)
    new = _lines(after, name)
    if len(old) + len(new) > _MOST_LINES:
        return Change(value, changed=True, before=passage("\n".join(old)))
    return Change(value, changed=True, lines=tuple(_compared(old, new)))


def _lines(values: Mapping[str, Any], name: str) -> list[str]:
    return text_of(values[name]).split("\n") if name in values else []


def _compared(old: list[str], new: list[str]) -> Iterator[Line]:
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (Line(" ", marked(line)) for line in old[i1:i2])
        else:
            yield from (Line("-", marked(line)) for line in old[i1:i2])
            yield from (Line("+", marked(line)) for line in new[j1:j2])
