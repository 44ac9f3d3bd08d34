"""Untrusted text for a platform with limits: hidden characters are made visible, and a cut is noted."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from askfirst.visible_text import LONGEST_NOTE, NOTE, visible

_LINE_ENDS = re.compile(r"\r\n|\n")
_NOTE = re.compile(NOTE)
_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_HANGUL_MIDDLE_AND_LAST = range(0x1160, 0x1200)
_VIRAMA = 9
"""The combining class of signs that join a letter with the next one, as in Hindi."""
_LONGEST_STEP_BACK = 64
"""How far to search for a good place to cut. A letter with a thousand accents has none and is cut anyway."""


def shown(text: str) -> str:
    """A text of several lines, without control characters and with hidden characters made visible.

    Newlines stay and a tab becomes four spaces. Every other character that moves the cursor, changes the direction,
    is invisible or looks like another one is replaced by its name: ``<U+001B>``, ``<Cyrillic x>``.
    """
    return "\n".join(visible(line.replace("\t", "    ")) for line in _LINE_ENDS.split(text))


def cut(text: str, limit: int, *, measure: Callable[[str], int] = len) -> str:
    """The text; if it is too long, its beginning and a note of how many more characters are on the page.

    ``measure`` gives the length as the platform counts it, and must grow with the text. The cut does not separate a
    letter from its accents, and does not split an emoji or a name such as ``<U+202E>``. If not even the note fits,
    the result is an ellipsis.
    """
    if measure(text) <= limit:
        return text
    low, high = 0, len(text) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if measure(_with_note(text, middle)) <= limit:
            low = middle
        else:
            high = middle - 1
    end = _boundary(text, low)
    while measure(noted := _with_note(text, end)) > limit:
        if not end:
            return "…" if measure("…") <= limit else ""
        end = _boundary(text, end - 1)
    return noted


def _with_note(text: str, end: int) -> str:
    left = len(text) - end
    return f"{text[:end].rstrip()}… ({left:,} more character{'s' if left > 1 else ''} on the page)"


def _boundary(text: str, end: int) -> int:
    """The last position at or before ``end`` where the text can be cut."""
    for start in range(max(0, end - LONGEST_NOTE), end):
        if (note := _NOTE.match(text, start)) and note.end() > end:
            end = start
            break
    for place in range(end, max(0, end - _LONGEST_STEP_BACK), -1):
        if not _joined(text, place):
            return place
    return 0 if end <= _LONGEST_STEP_BACK else end


def _joined(text: str, place: int) -> bool:
    """Whether the characters on both sides of a position are displayed as one."""
    before, after = text[place - 1], text[place]
    point = ord(after)
    if unicodedata.category(after) in ("Mn", "Me", "Mc") or _JOINER in (before, after):
        return True
    if point in _SKIN_TONES or point in _HANGUL_MIDDLE_AND_LAST or unicodedata.combining(before) == _VIRAMA:
        return True
    if point in _FLAG_LETTERS:  # a flag is a pair of letters, so their number before the position matters
        run = 0
        while run < place and ord(text[place - 1 - run]) in _FLAG_LETTERS:
            run += 1
        return run % 2 == 1
    return False
