"""Text of agents and services on a page: escaped, whole, with hidden characters made visible."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from askfirst.visible_text import pieces

_SHORT_NAMES = {"\t": "⇥", "\r": "␍", " ": "␣"}
_ODD_SPACES = re.compile(r"([^\S \u3000])\1*")
_LONG = 1200
_MANY_LINES = 16
_BEGINNING = (400, 6)
_END = (240, 4)


class Html(str):
    """Markup of our own making; a template puts it in as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


@dataclass(frozen=True, slots=True)
class Passage:
    """A text; where it is long, also its ``beginning`` and its ``end``, to be read before it is unfolded."""

    whole: Html
    size: str
    beginning: Html | None = None
    end: Html | None = None

    @property
    def folds(self) -> bool:
        """Whether it is long."""
        return self.beginning is not None


def marked(text: str) -> Html:
    """The text escaped, with hidden and deceptive characters as a ``<mark>`` with their name: ``U+202E``.

    A letter of another script than the rest of its word has that script with it: ``Cyrillic x``. Newlines stay.
    A character that is repeated gets one mark with a count.
    """
    return Html("\n".join(map(_marked_line, text.split("\n"))))


def passage(text: str) -> Passage:
    """A text in full, folded where it is long; spaces at its edges, which nobody would see, are marked."""
    lines = text.count("\n") + 1
    size = f"{len(text):,} characters" + (f" in {lines:,} lines" if lines > 1 else "")
    whole = _with_edges(text)
    if len(text) <= _LONG and lines <= _MANY_LINES:
        return Passage(whole, size)
    return Passage(whole, size, marked(_first(text, *_BEGINNING)), marked(_last(text, *_END)))


def has_hidden(text: str) -> bool:
    """Whether a text has hidden characters."""
    if text.isascii() and text.isprintable():
        return text != text.strip(" ")
    return text != text.strip(" ") or "<mark>" in marked(text)


def hidden_in(text: str) -> Html | None:
    """The text with its hidden characters marked; None if it has none."""
    return _with_edges(text) if has_hidden(text) else None


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


def _with_edges(text: str) -> Html:
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
