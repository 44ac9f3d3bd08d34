"""Text of others as a page shows it: inert, whole, with nothing hidden in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from assent.visible import shows

_SHORT_NAMES = {"\t": "⇥", "\r": "␍", " ": "␣"}
_EMOJI_STYLE = "\ufe0f"  # seen behind a symbol only
_PLAIN_SPACES = " \u3000"
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
    """The text escaped, and what would not be seen in it as a ``<mark>`` with its name: ``U+202E``.

    Newlines stay. A character that is repeated gets one mark with a count.
    """
    suspects = _suspects(text)
    if not suspects:
        return Html(escape(text))
    parts: list[str] = []
    end = 0
    for match in re.finditer(rf"([{re.escape(suspects)}])\1*", text):
        start, char = match.start(), match[1]
        if _is_seen(char, text[start - 1] if start else " "):
            continue
        if start > end:
            parts.append(escape(text[end:start]))
        parts.append(_mark(char, len(match[0])))
        end = match.end()
    parts.append(escape(text[end:]))
    return Html("".join(parts))


def passage(text: str) -> Passage:
    """A text in full, folded where it is long; spaces at its edges are marked, for nobody would see them."""
    lines = text.count("\n") + 1
    size = f"{len(text):,} characters" + (f" in {lines:,} lines" if lines > 1 else "")
    whole = _with_edges(text)
    if len(text) <= _LONG and lines <= _MANY_LINES:
        return Passage(whole, size)
    return Passage(whole, size, marked(_first(text, *_BEGINNING)), marked(_last(text, *_END)))


def has_hidden(text: str) -> bool:
    """Whether a text has something in it that would not be seen."""
    if text != text.strip(" "):
        return True
    suspects = _suspects(text)
    return suspects not in ("", _EMOJI_STYLE) or (suspects != "" and "<mark>" in marked(text))


def hidden_in(text: str) -> Html | None:
    """The text with its hidden characters marked; None if it has none."""
    return _with_edges(text) if has_hidden(text) else None


def _suspects(text: str) -> str:
    """The distinct characters of a text that would not be seen, in most places at least."""
    if text.isascii() and text.isprintable():
        return ""
    return "".join(char for char in set(text) if char != "\n" and not _is_seen(char, " "))


def _is_seen(char: str, last: str) -> bool:
    return shows(char, last) and (not char.isspace() or char in _PLAIN_SPACES)


def _mark(char: str, times: int) -> str:
    name = _SHORT_NAMES.get(char, f"U+{ord(char):04X}")
    if times <= 4:  # a few stand for themselves
        return f"<mark>{name}</mark>" * times
    return f"<mark>{name} &times; {times}</mark>"


def _with_edges(text: str) -> Html:
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(inner) - before
    return Html(_spaces(before) + marked(inner) + _spaces(after))


def _spaces(times: int) -> str:
    return _mark(" ", times) if times else ""


def _first(text: str, chars: int, lines: int) -> str:
    return "\n".join(text[:chars].split("\n")[:lines]).rstrip("\n")


def _last(text: str, chars: int, lines: int) -> str:
    return "\n".join(text[-chars:].split("\n")[-lines:]).lstrip("\n")
