"""Text from models, tools and strangers, made safe to look at."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from assent.scripts import (
    NEUTRAL,
    OTHER,
    all_letters,
    letters,
    script_name,
    script_of,
    spaced_letters,
)

NOTE = r"<(?:U\+[0-9A-F]{4,6}|[A-Z][a-z]{1,19} [^\s<>]{1,12})>"
"""What `visible` writes in a character's place, as a regular expression: ``<U+202E>``, ``<Cyrillic x>``."""
LONGEST_NOTE = 36
MOST_MARKS = 4
"""So many combining marks behind a letter are seen for what they are; written languages need no more."""
_LONGEST_RUN = 12
_EMOJI_STYLE = "\ufe0f"
_KEYCAP = "\u20e3"
_BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u2d7f\u3164\uffa0"
    "\U0001107f\U00013441\U00013442\U00016fe4\U0001d159"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)
"""What Unicode counts as printable although nothing, or an empty cell, is seen of it."""
_OVERLAY = 1
"""The combining class of the marks that strike a character through."""

# Greek letters that look like no Latin one, and the units of measurement that are written with them.
_UNIT = r"m|s|g|l|L|A|V|F|H|W|N|T|J|M|K|C|mol|rad|bar|Hz|Pa|Sv|Gy|Ci|sec"
_SYMBOL = "ΔΘΛΞΠΣΦΨΩδθλμξπσφψ\u2126"
_QUANTITY = (
    rf"\d*(?:μ(?:{_UNIT})|[kMGTmnμ]?[Ω\u2126](?:m|cm)?|[{_SYMBOL}][A-Za-z]|[A-Za-z][{_SYMBOL}])[\d²³]*"
)
_LOOKS_LATIN = {
    "Cyrillic": "асеорхуіјѕԁԛԝһӏАВЕКМНОРСТУХІЈЅԚԜ",
    "Greek": "ονιρυκχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
}
"""Letters that cannot be told from Latin ones in most fonts."""


class Piece(NamedTuple):
    """A part of a text. ``note`` says what it is, where it is not seen for that: ``U+202E``, ``Cyrillic x``."""

    text: str
    note: str | None = None

    @property
    def times(self) -> int:
        """How many characters in a row the note stands for, one by one; letters of a script have one together."""
        return len(self.text) if self.note is not None and self.note.startswith("U+") else 1


def visible(text: str) -> str:
    """The text with all that would act, hide or pass for something else written as what it is.

    A character is written as its code point, ``<U+202E>``: control characters (newlines too), those that change
    direction, those without width, those that no font knows, blanks that count as printable, marks that strike
    through, and combining marks beyond `MOST_MARKS`. A letter of another script than the rest of its word is
    written with that, ``p<Cyrillic ...>ypal.com``. Spaces of all kinds stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(part.text if part.note is None else f"<{part.note}>" * part.times for part in pieces(text))


def pieces(text: str) -> list[Piece]:
    """A text in parts: those that are seen for what they are, and those that are not, each with a note."""
    if text.isascii() and text.isprintable():
        return [Piece(text)] if text else []
    found = set(text)
    odd = {char for char in found if _is_odd(char)}
    spans = list(_hidden(text, odd)) if odd else []
    scripts = frozenset(filter(None, map(script_of, found)))
    if len(scripts) > 1:
        spans = sorted([*spans, *_foreign(text, scripts)])
    return _apart(text, spans)


def _apart(text: str, spans: list[tuple[int, int, str]]) -> list[Piece]:
    parts: list[Piece] = []
    end = 0
    for start, stop, note in spans:
        if start < end:  # a mark within letters that are pointed out already
            continue
        if start > end:
            parts.append(Piece(text[end:start]))
        parts.append(Piece(text[start:stop], note))
        end = stop
    if end < len(text):
        parts.append(Piece(text[end:]))
    return parts


def escaped(text: str) -> str:
    """A text for a string of JSON, every character of it as an escape."""
    return "".join(json.dumps(char)[1:-1] if char > "\uffff" else f"\\u{ord(char):04x}" for char in text)


@lru_cache(maxsize=4096)
def _is_odd(char: str) -> bool:
    """Whether a character needs a look: hidden wherever it stands, or only behind some others."""
    return hides(char) or unicodedata.category(char) in ("Mn", "Me")


@lru_cache(maxsize=4096)
def hides(char: str) -> bool:
    """Whether a character acts or hides wherever it stands; the mark for emoji is seen behind a symbol only."""
    return char in _BLANK or not (char.isprintable() or unicodedata.category(char) == "Zs")


@lru_cache(maxsize=4096)
def _strikes(char: str) -> bool:
    if unicodedata.category(char) == "Me":
        return char != _KEYCAP
    return unicodedata.combining(char) == _OVERLAY


def _hidden(text: str, odd: set[str]) -> Iterator[tuple[int, int, str]]:
    """The characters that hide, act or strike through, and the marks that are too many."""
    marks, start, stop = 0, 0, 0  # the last ones found, which may be repeated
    for place, char in enumerate(text):
        if char not in odd:
            marks = 0
            continue
        if hides(char):
            shows = char == _EMOJI_STYLE and _is_symbol(text[place - 1] if place else " ")
        else:
            marks += 1
            shows = marks <= MOST_MARKS and not (_strikes(char) and not _is_maths(text, place))
        if shows:
            continue
        if stop < place or text[start] != char:
            if stop:
                yield start, stop, f"U+{ord(text[start]):04X}"
            start = place
        stop = place + 1
    if stop:
        yield start, stop, f"U+{ord(text[start]):04X}"


def _is_symbol(char: str) -> bool:
    """Whether the mark for emoji, behind this, gives it its colourful form, and does no more than that."""
    return unicodedata.category(char) == "So" and char not in _BLANK


def _is_maths(text: str, place: int) -> bool:
    """Whether a stroke makes a sign of its own, such as ≠ of =."""
    return place > 0 and unicodedata.category(text[place - 1]) == "Sm"


def _foreign(text: str, scripts: frozenset[str]) -> Iterator[tuple[int, int, str]]:
    """Letters of another script than the rest of their word (UTS #39, highly restrictive).

    So too whole words that look Latin but are not, where a dot, a slash or the like joins them to Latin ones.
    """
    mixed = _transitions(scripts)
    if mixed.search(text):
        for word in _words().finditer(text):
            if mixed.search(word[0]) and not _quantities().fullmatch(word[0]):
                yield from _outsiders(word[0], word.start())
    if "Latin" in scripts and not scripts.isdisjoint(_LOOKS_LATIN):
        for match in _in_disguise().finditer(text):
            yield from _runs(text, match.start(), match.end(), script_of(match[0][0]) or OTHER)


def _outsiders(word: str, at: int) -> Iterator[tuple[int, int, str]]:
    """The letters of a word that are not of the script that most of it is in; of equals, Latin is at home."""
    of_each = [script_of(char) for char in word]
    counts = {script: of_each.count(script) for script in set(of_each) if script is not None}
    home = max(counts, key=lambda script: (counts[script], script == "Latin", script))
    start = 0
    for place in range(1, len(word) + 1):
        if place < len(word) and of_each[place] in (None, of_each[start]):
            continue
        script = of_each[start]
        if script not in (None, home):
            yield from _runs(word, start, place, script, at)
        start = place


def _runs(text: str, start: int, stop: int, script: str, at: int = 0) -> Iterator[tuple[int, int, str]]:
    """Letters of one script, a few at a time; digits and the like at their end are not meant."""
    while stop > start and script_of(text[stop - 1]) is None and text[stop - 1].isalnum():
        stop -= 1
    name = script_name(script, text[start])
    for first, last in pairwise([*range(start, stop, _LONGEST_RUN), stop]):
        part = text[first:last]
        if not any(map(_is_odd, part)):
            yield at + first, at + last, f"{name} {part}"
            continue
        place = at + first
        for each in _apart(part, [*_hidden(part, set(filter(_is_odd, part)))]):
            if each.note is None:  # the others have notes of their own
                yield place, place + len(each.text), f"{name} {each.text}"
            place += len(each.text)


@lru_cache(maxsize=256)
def _transitions(scripts: frozenset[str]) -> re.Pattern[str]:
    """Where a letter of one of these scripts is followed, in the same word, by one of another."""
    between = rf"[\d²³¹{letters(*NEUTRAL)}]*+"
    known = sorted(scripts - {OTHER})
    other = rf"[^\W\d_{all_letters()}]"
    ways: list[str] = []
    for script in known:
        rest = "".join(letters(each) for each in known if each != script)
        after = "|".join([*([f"[{rest}]"] if rest else []), *([other] if OTHER in scripts else [])])
        ways.append(f"[{letters(script)}]{between}(?:{after})")
    if OTHER in scripts and known:
        ways.append(f"{other}{between}[{letters(*known)}]")
    return re.compile("|".join(ways) or r"(?!)")


@cache
def _words() -> re.Pattern[str]:
    """Letters, marks and digits in a row, but those of scripts that are written without blanks."""
    return re.compile(rf"(?:[{spaced_letters()}\d²³¹]|[^\W_{all_letters()}])+")


@cache
def _quantities() -> re.Pattern[str]:
    return re.compile(_QUANTITY)


@cache
def _in_disguise() -> re.Pattern[str]:
    alike = f"[{''.join(_LOOKS_LATIN.values())}]{{2,}}"
    join = r"[.@/:_-]"
    return re.compile(rf"(?<!\w){alike}(?={join}[A-Za-z])|(?<=[A-Za-z]{join}){alike}(?!\w)")
