"""One text, several spellings: Unicode's normal forms, by which a rule must not be got around.

``é`` is one character or two, and programs disagree on whether these are the same. So where a text fits a rule in
another normal form than its own, a test cannot tell: what forbids or asks then counts, what allows does not.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

LONGEST = 1_000_000
"""How many characters a text may have, unless it is ASCII, for its spellings to be known."""
_MARKS = 30
"""How many marks may follow one another (as in Unicode's Stream-Safe Text Format): putting n of them in order
takes n² steps."""

FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")


class Untellable(ValueError):
    """A text whose spellings are not looked at, because that would take too long."""

    def __init__(self) -> None:
        super().__init__("has a text that is too long, or has too many marks in a row, to be compared")


def normal(text: str, form: Literal["NFC", "NFD", "NFKC", "NFKD"] = "NFKC") -> str:
    """The text in a normal form; raises `Untellable`."""
    if text.isascii():
        return text
    if len(text) > LONGEST or _has_many_marks(text):
        raise Untellable
    return unicodedata.normalize(form, text)


def _has_many_marks(text: str) -> bool:
    run = 0
    for char in text:
        run = run + 1 if unicodedata.combining(char) else 0
        if run > _MARKS:
            return True
    return False


def normal_json(value: Any) -> Any:
    """A JSON value with all its texts, keys included, in one normal form; raises `Untellable`."""
    if isinstance(value, str):
        return normal(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value)
        return {normal_json(key): normal_json(item) for key, item in fields.items()}
    if isinstance(value, list | tuple):
        return [normal_json(item) for item in cast("Sequence[Any]", value)]
    return value


def spellings(text: str) -> list[str]:
    """The text in each normal form that is not the text itself; raises `Untellable`."""
    if text.isascii():
        return []
    forms = dict.fromkeys(normal(text, form) for form in FORMS)
    return [each for each in forms if each != text]
