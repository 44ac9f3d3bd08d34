"""Untrusted text of agents and services on a page: escaped, complete, with hidden characters made visible."""

from __future__ import annotations

import re
import unicodedata
from functools import cached_property
from html import escape

from askfirst.visible_text import pieces

_SHORT_NAMES = {"\t": "⇥", "\r": "␍", " ": "␣"}
_CONTROLS = {"\0": "null", "\b": "backspace", "\r": "carriage return", "\x1b": "escape", "\x7f": "delete"}
"""Names of control characters. Unicode gives them none."""
_ODD_SPACES = re.compile(r"([^\S \u3000])\1*")
_LONG = 12_000
_MANY_LINES = 200
_LABEL = (300, 4)


class Html(str):
    """Markup that this package made. A template inserts it without escaping."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


class Passage:
    """An untrusted text. ``of`` and ``row`` address the page of all of it (`row.View`); None if there is none."""

    def __init__(self, text: str, of: str | None = None, row: int = 0) -> None:
        self.text, self.of, self.row = text, of, row

    @cached_property
    def whole(self) -> Html:
        """The whole text. Spaces at its beginning and end are marked, because nobody would see them."""
        return with_edges(self.text)

    @property
    def characters(self) -> int:
        """The number of characters."""
        return len(self.text)

    @cached_property
    def lines(self) -> int:
        """The number of lines."""
        return self.text.count("\n") + 1

    @property
    def folds(self) -> bool:
        """Whether the text is so long that the page folds it."""
        return self.characters > _LONG or self.lines > _MANY_LINES

    @property
    def is_long(self) -> bool:
        """Whether the text is too long for a heading or a label."""
        return self.characters > _LABEL[0] or self.lines > _LABEL[1]

    @property
    def label(self) -> Html:
        """As much of the text as fits into a heading or a label."""
        return Html(f"{marked(_first(self.text, *_LABEL))} …") if self.is_long else self.whole


def passage(text: str, of: str | None = None, row: int = 0) -> Passage:
    """An untrusted text. A very long one is shown in parts: see `page_size.Room`."""
    return Passage(text, of, row)


def marked(text: str) -> Html:
    """The text escaped, with each hidden or deceptive character replaced by a ``<mark>`` with its number: ``U+202E``.

    Its name, "right-to-left override", is the title of an ``<abbr>``; a screen reader says the name.
    If a letter belongs to another script than the rest of its word, the mark names the script: ``Cyrillic x``.
    Newlines stay. A hidden character that is repeated more than four times gets one mark with a count.
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
    """The escaped text, with marks for unusual spaces, such as a no-break space."""
    parts: list[str] = []
    end = 0
    for match in _ODD_SPACES.finditer(text):
        parts += [escape(text[end : match.start()]), _mark(match[1], len(match[0]))]
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def _note(text: str, note: str, times: int) -> str:
    return _mark(text[0], times) if note.startswith("U+") else f"<mark>{escape(note)}</mark>"


def _mark(char: str, times: int) -> str:
    name = _named(char)
    if times <= 4:  # a few stand for themselves
        return f"<mark>{name}</mark>" * times
    return f"<mark>{name} &times; {times}</mark>"


def _named(char: str) -> str:
    """A character's sign or code point, with its name, which a screen reader reads because of the role.

    A tab is common, so it has its sign only.
    """
    sign = _SHORT_NAMES.get(char, f"U+{ord(char):04X}")
    name = "" if char == "\t" else _CONTROLS.get(char) or unicodedata.name(char, "").lower()
    return f'<abbr role="img" title="{name}">{sign}</abbr>' if name else sign


def with_edges(text: str) -> Html:
    """The text with its hidden characters marked, including spaces at its beginning and end."""
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


def cut(text: str, most: int, lines: int = 1_000) -> tuple[Html, int]:
    """The beginning of a text as up to ``most`` bytes of HTML, and its number of characters."""
    taken = _first(text[: most + 1], most, lines)
    html = marked(taken)
    while (size := len(html.encode())) > most and taken:
        taken = taken[: max(len(taken) * most // size - 1, 0)]
        html = marked(taken)
    return html, len(taken)


def last_of(text: str, most: int, lines: int) -> tuple[Html, int]:
    """The end of a text as up to ``most`` bytes of HTML, and its number of characters."""
    taken = "\n".join(text[-most:].split("\n")[-lines:])
    html = marked(taken)
    while (size := len(html.encode())) > most and taken:
        taken = taken[len(taken) - max(len(taken) * most // size - 1, 0) :]
        html = marked(taken)
    return html, len(taken)


def clipped(text: str, most: int = 400) -> Html:
    """A text as up to ``most`` bytes of HTML; a longer one is cut and ends in three dots."""
    if len(text) <= most and len((html := marked(text)).encode()) <= most:
        return html
    return Html(f"{cut(text, most)[0]} …")


# The language of a text, by its script: screen readers choose the voice by it, and browsers the letters.


_TAG = re.compile("<[^>]*>")
_LETTER = re.compile(r"[^\W\d_]")
_KANA = re.compile("[\u3040-\u30ff]")
_TONGUES = {
    "ko": re.compile("[\u1100-\u11ff\uac00-\ud7a3]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
    "ar": re.compile("[\u0600-\u06ff\u0750-\u077f]"),
    "he": re.compile("[\u0590-\u05ff]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
    "hi": re.compile("[\u0900-\u097f]"),
    "ru": re.compile("[\u0400-\u04ff]"),
    "el": re.compile("[\u0370-\u03ff]"),
}
_LOOKED_AT = 2_000


def language_in(html: str) -> str | None:
    """The language that most writes in the script of this text, such as ``zh``; None for Latin letters.

    At least half of the letters are in that script. A text with kana is Japanese, however many Han characters it has.
    """
    text = html[:_LOOKED_AT]
    if text.isascii():
        return None
    text = _TAG.sub("", text)
    letters = len(_LETTER.findall(text))
    kana = len(_KANA.findall(text))
    for tag, script in _TONGUES.items():
        found = len(script.findall(text)) + (kana if tag == "zh" else 0)
        if found * 2 >= letters > 0:
            return "ja" if tag == "zh" and kana else tag
    return None
