"""Text from models, tools and strangers, made safe to look at."""

from __future__ import annotations

import unicodedata

_EMOJI_STYLE = "\ufe0f"
_BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)
"""What Unicode counts as printable although nothing, or an empty cell, is seen of it."""


def visible(text: str) -> str:
    """The text with every character that would act or hide written as its code point, ``<U+202E>``.

    That is control characters (newlines too), those that change direction, those without width, and those
    that no font knows. Spaces of all kinds stay.
    """
    if text.isascii() and text.isprintable():
        return text
    before = [" ", *text]
    return "".join(
        char if shows(char, last) else f"<U+{ord(char):04X}>"
        for last, char in zip(before, text, strict=False)
    )


def shows(char: str, last: str) -> bool:
    """Whether a character, behind ``last``, is seen for what it is; spaces of all kinds are."""
    if char == _EMOJI_STYLE:  # the colourful form of the symbol before it, and no more than that
        return unicodedata.category(last) == "So" and last not in _BLANK
    return char not in _BLANK and (char.isprintable() or unicodedata.category(char) == "Zs")
