"""Text of agents and services on a page: escaped, whole, with hidden characters made visible."""

from __future__ import annotations

import re
from functools import cached_property
from html import escape

from askfirst.visible_text import pieces

_SHORT_NAMES = {"\t": "⇥", "\r": "␍", " ": "␣"}
_ODD_SPACES = re.compile(r"([^\S \u3000])\1*")
_LONG = 12_000
_MANY_LINES = 200
_BEGINNING = (4_000, 100)
_END = (2_000, 50)
_LABEL = (300, 4)


class Html(str):
    """Markup of our own making; a template puts it in as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


class Passage:
    """A text that others wrote, whole; one that is very long has a ``beginning`` and an ``end`` to be read first."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def whole(self) -> Html:
        """All of it; spaces at its edges, which nobody would see, are marked."""
        return with_edges(self.text)

    @property
    def characters(self) -> int:
        """How many it has."""
        return len(self.text)

    @cached_property
    def lines(self) -> int:
        """How many it has."""
        return self.text.count("\n") + 1

    @property
    def folds(self) -> bool:
        """Whether it is very long."""
        return self.characters > _LONG or self.lines > _MANY_LINES

    @property
    def is_long(self) -> bool:
        """Whether it is too long for a heading or a label."""
        return self.characters > _LABEL[0] or self.lines > _LABEL[1]

    @property
    def label(self) -> Html:
        """As much of it as a heading or a label holds."""
        return Html(f"{marked(_first(self.text, *_LABEL))} …") if self.is_long else self.whole

    @property
    def beginning(self) -> Html:
        """The first lines of a very long text."""
        return marked(_first(self.text, *_BEGINNING))

    @property
    def end(self) -> Html:
        """The last lines of a very long text."""
        return marked(_last(self.text, *_END))


def passage(text: str) -> Passage:
    """A text in full, folded where it is very long."""
    return Passage(text)


def marked(text: str) -> Html:
    """The text escaped, with hidden and deceptive characters as a ``<mark>`` with their name: ``U+202E``.

    A letter of another script than the rest of its word has that script with it: ``Cyrillic x``. Newlines stay.
    A character that is repeated gets one mark with a count.
    """
    return Html("\n".join(map(_marked_line, text.split("\n"))))


def has_hidden(text: str) -> bool:
    """Whether a text has hidden characters."""
    if text.isascii() and text.isprintable():
        return text != text.strip(" ")
    return text != text.strip(" ") or "<mark>" in marked(text)


def hidden_in(text: str) -> Html | None:
    """The text with its hidden characters marked; None if it has none."""
    return with_edges(text) if has_hidden(text) else None


def _marked_line(line: str) -> str:
    if line.isascii() and line.isprintable():
        return escape(line)
    return "".join(
        _with_spaces(part.text) if part.note is None else _note(part.text, part.note, part.times)
        for part in pieces(line)
    )


def _with_spaces(text: str) -> str:
    """A text with marks for unusual spaces, also those without width."""
    parts: list[str] = []
    end = 0
    for match in _ODD_SPACES.finditer(text):
        parts += [escape(text[end : match.start()]), _mark(match[1], len(match[0]))]
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def _note(text: str, note: str, times: int) -> str:
    return _mark(text[0], times) if note.startswith("U+") else f"<mark>{escape(note)}</mark>"


def _mark(char: str, times: int) -> str:
    name = _SHORT_NAMES.get(char, f"U+{ord(char):04X}")
    if times <= 4:  # a few stand for themselves
        return f"<mark>{name}</mark>" * times
    return f"<mark>{name} &times; {times}</mark>"


def with_edges(text: str) -> Html:
    """The text with its hidden characters marked, and the spaces at its edges, too."""
    inner = text.strip(" ")
    if inner is text:
        return marked(text)
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(inner) - before
    return Html(_spaces(before) + marked(inner) + _spaces(after))


def _spaces(times: int) -> str:
    return _mark(" ", times) if times else ""


def _first(text: str, chars: int, lines: int) -> str:
    return "\n".join(text[:chars].split("\n")[:lines]).rstrip("\n")


def _last(text: str, chars: int, lines: int) -> str:
    return "\n".join(text[-chars:].split("\n")[-lines:]).lstrip("\n")
