"""Text of agents and services, made fit for a place with limits: nothing hidden, nothing cut in silence."""

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
"""The combining class of the signs that join a letter with the next, as in Hindi."""
_LONGEST_STEP_BACK = 64
"""A text without any place to cut it, such as one letter below a thousand accents, is cut all the same."""


def shown(text: str) -> str:
    """Text of several lines with nothing in it that acts or hides.

    Line ends stay, a tab becomes four blanks, and every other character that would move the cursor, change the
    direction, not be seen or pass for another one is written as what it is: ``<U+001B>``, ``<Cyrillic x>``.
    """
    return "\n".join(visible(line.replace("\t", "    ")) for line in _LINE_ENDS.split(text))


def cut(text: str, limit: int, *, measure: Callable[[str], int] = len) -> str:
    """The text, or as much of it as fits together with a note of how many characters are on the page only.

    ``measure`` counts as the platform does; a longer text must not count less. No letter is parted from its
    accents, no emoji or note (``<U+202E>``) is taken apart. Where not even the note fits, an ellipsis
    stands for the rest.
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
    """The last place at or before ``end`` where the text can be parted."""
    for start in range(max(0, end - LONGEST_NOTE), end):
        if (note := _NOTE.match(text, start)) and note.end() > end:
            end = start
            break
    for place in range(end, max(0, end - _LONGEST_STEP_BACK), -1):
        if not _joined(text, place):
            return place
    return 0 if end <= _LONGEST_STEP_BACK else end


def _joined(text: str, place: int) -> bool:
    """Whether the characters on both sides of a place are seen as one."""
    before, after = text[place - 1], text[place]
    point = ord(after)
    if unicodedata.category(after) in ("Mn", "Me", "Mc") or _JOINER in (before, after):
        return True
    if point in _SKIN_TONES or point in _HANGUL_MIDDLE_AND_LAST or unicodedata.combining(before) == _VIRAMA:
        return True
    if point in _FLAG_LETTERS:  # a flag is two letters, so it matters how many come before
        run = 0
        while run < place and ord(text[place - 1 - run]) in _FLAG_LETTERS:
            run += 1
        return run % 2 == 1
    return False
