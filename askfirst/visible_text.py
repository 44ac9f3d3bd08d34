"""Untrusted text made safe to show: characters that are hidden, act or imitate others are written as their names."""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

# Which script a letter belongs to, for finding look-alikes: a table from the Unicode Character Database.


_TABLE = """
Latin 41-5A 61-7A AA BA C0-D6 D8-F6 F8-2B8 2E0-2E4 1D00-1D25 1D2C-1D5C 1D62-1D65 1D6B-1D77 1D79-1DBE
  1E00-1EFF 2071 207F 2090-209C 212A-212B 2132 214E 2183-2184 2C60-2C7F A722-A787 A78B-A7FF AB30-AB5A
  AB5C-AB64 AB66-AB69 FB00-FB06 FF21-FF3A FF41-FF5A 10780-107BA 1DF00-1DF2A
Cyrillic 400-481 483-484 487-52F 1C80-1C8A 1D2B 1D78 2DE0-2DFF A640-A672 A674-A67D A67F-A69F FE2E-FE2F
  1E030-1E08F
Greek 370-373 376-37D 37F 386 388-3E1 3F0-3F5 3F7-3FF 1D26-1D2A 1D5D-1D61 1D66-1D6A 1DBF 1F00-1FBC 1FBE
  1FC2-1FCC 1FD0-1FDB 1FE0-1FEC 1FF2-1FFC 2126 AB65 1D242-1D244
Coptic 3E2-3EF 2C80-2CE4 2CEB-2CF3
Armenian 531-559 560-588 FB13-FB17
Georgian 10A0-10FA 10FC-10FF 1C90-1CBF 2D00-2D2D
Cherokee 13A0-13FD AB70-ABBF
Lisu A4D0-A4FD 11FB0
Hebrew 591-5BD 5BF 5C1-5C2 5C4-5C5 5C7-5F2 FB1D-FB28 FB2A-FB4F
Arabic 610-61A 620-63F 641-64A 656-65F 66E-66F 671-6D3 6D5-6DC 6DF-6E8 6EA-6EF 6FA-6FC 6FF 750-77F 870-887
  889-88F 897-8E1 8E3-8FF FB50-FBB1 FBD3-FD3D FD50-FD8F FD92-FDC7 FDF0-FDFB FE70-FEFC 10EC2-10EC7
  10EFA-10EFF 1EE00-1EEBB
Syriac 710-74F 860-86A
Thaana 780-7B1
Devanagari 900-950 955-963 971-97F A8E0-A8F7 A8FB A8FD-A8FF
Bengali 980-9E3 9F0-9F1 9FC 9FE
Gurmukhi A01-A5E A70-A75
Gujarati A81-AE3 AF9-AFF
Oriya B01-B63 B71
Tamil B82-BD7
Telugu C00-C63
Kannada C80-C83 C85-CE3 CF1-CF3
Malayalam D00-D4E D54-D57 D5F-D63 D7A-D7F
Sinhala D81-DDF DF2-DF3
Ethiopic 1200-135F 1380-138F 2D80-2DDE AB01-AB2E 1E7E0-1E7FE
Mongolian 180B-180D 180F 1820-18AA
Canadian_Aboriginal 1401-166C 166F-167F 18B0-18F5 11AB0-11ABF
Javanese A980-A9C0
Common B5 2B9-2C1 2C6-2D1 2EC 2EE 374 640 1CE1 1CE9-1CEC 1CEE-1CF3 1CF5-1CF7 1CFA 2102 2107 210A-2113 2115
  2119-211D 2124 2128 212C-212D 212F-2131 2133-2139 213C-213F 2145-2149 2E2F 3006 3031-3035 303C 30FC
  A717-A71F A788 A9CF FF70 FF9E-FF9F 1D165-1D166 1D16D-1D172 1D400-1D6C0 1D6C2-1D6DA 1D6DC-1D6FA
  1D6FC-1D714 1D716-1D734 1D736-1D74E 1D750-1D76E 1D770-1D788 1D78A-1D7A8 1D7AA-1D7C2 1D7C4-1D7CB
Inherited 300-36F 485-486 64B-655 670 951-954 1AB0-1AEB 1CD0-1CD2 1CD4-1CE0 1CE2-1CE8 1CED 1CF4 1CF8-1CF9
  1DC0-1DFF 20D0-20F0 302A-302D 3099-309A FE00-FE0F FE20-FE2D 101FD 102E0 1133B 1CF00-1CF46 1D167-1D169
  1D17B-1D182 1D185-1D18B 1D1AA-1D1AD E0100-E01EF
Unspaced E01-E3A E40-E4E E81-ECE EDC-F00 F18-F19 F35 F37 F39 F3E-F84 F86-FBC FC6 1000-103F 1050-108F
  109A-109D 1100-11FF 1780-17D3 17D7 17DC-17DD 1950-19C9 1A20-1A7F 1AA7 3005 302E-302F 303B 3041-3096
  309D-309F 30A1-30FA 30FD-318E 31A0-31BF 31F0-31FF 3400-4DBF 4E00-A48C A960-A97C A9E0-A9EF A9FA-A9FE
  AA60-AA76 AA7A-AA7F AC00-D7FB F900-FAD9 FF66-FF6F FF71-FF9D FFA0-FFDC 16FE3 16FF0-16FF3 1AFF0-1B167
  20000-33479
"""
"""Letters and marks by script, from ``Scripts.txt`` of Unicode 17.0 (ICU 78.2, ``\\p{Script=...}``).

Ranges include code points that are not assigned. ``Common`` and ``Inherited`` may stand next to every script.
``Unspaced`` are scripts in which words of other scripts stand without blanks: Han, Hiragana, Katakana, Bopomofo,
Hangul, Yi, Thai, Lao, Khmer, Myanmar, Tibetan and those of the Tai languages. Scripts that are not here are
``Other``.
"""

OTHER = "Other"
NEUTRAL = ("Common", "Inherited")
UNSPACED = "Unspaced"


@cache
def _ranges() -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    name = ""
    for word in _TABLE.split():
        first, _, last = word.partition("-")
        if word[1:2].islower():
            name = word
            found[name] = []
        else:
            found[name].append((int(first, 16), int(last or first, 16)))
    return found


@cache
def _sorted_ranges() -> tuple[list[int], list[tuple[int, str]]]:
    rows = sorted((first, last, name) for name, ranges in _ranges().items() for first, last in ranges)
    return [first for first, _, _ in rows], [(last, name) for _, last, name in rows]


@lru_cache(maxsize=4096)
def script_of(char: str) -> str | None:
    """The script of a letter or mark; None for other characters, and for those that several scripts share."""
    point = ord(char)
    starts, rows = _sorted_ranges()
    place = bisect_right(starts, point) - 1
    if place >= 0 and point <= rows[place][0]:
        name = rows[place][1]
        return None if name in NEUTRAL or name == UNSPACED else name
    return OTHER if unicodedata.category(char)[0] == "L" else None


def letters(*scripts: str) -> str:
    """The letters and marks of some scripts, for a character class of a regular expression."""
    return "".join(f"{chr(first)}-{chr(last)}" for script in scripts for first, last in _ranges()[script])


@cache
def all_letters() -> str:
    """The letters of every script in the table, as a character class; any other letter belongs to `OTHER`."""
    return letters(*_ranges())


@cache
def spaced_letters() -> str:
    """The letters of scripts that separate words by blanks, as a character class: all but `UNSPACED`."""
    return letters(*(name for name in _ranges() if name != UNSPACED))


def script_name(script: str, char: str) -> str:
    """The name of a letter's script, such as ``Cyrillic``; for `OTHER`, the first word of the letter's Unicode
    name."""
    if script != OTHER:
        return script.partition("_")[0]
    return unicodedata.name(char, OTHER).partition(" ")[0].capitalize()


NOTE = r"<(?:U\+[0-9A-F]{4,6}|[A-Z][a-z]{1,19} [^\s<>]{1,12})>"
"""What `visible` writes in a character's place, as a regular expression: ``<U+202E>``, ``<Cyrillic x>``."""
LONGEST_NOTE = 36
MOST_MARKS = 4
"""The most combining marks behind a letter; written languages need no more, and further marks are pointed out."""
_LONGEST_RUN = 12
_EMOJI_STYLE = "\ufe0f"
_KEYCAP = "\u20e3"
_BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u2d7f\u3164\uffa0"
    "\U0001107f\U00013441\U00013442\U00016fe4\U0001d159"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)
"""Characters that Unicode counts as printable although they look blank."""
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
    """A part of a text. ``note`` names a character that looks like nothing or like another one: ``U+202E``,
    ``Cyrillic x``."""

    text: str
    note: str | None = None

    @property
    def times(self) -> int:
        """How many equal characters in a row the note stands for; letters of one script share one note."""
        return len(self.text) if self.note is not None and self.note.startswith("U+") else 1


def visible(text: str) -> str:
    """The text with every character that acts, hides or imitates another one written as its name.

    A character is written as its code point, ``<U+202E>``: control characters (newlines too), those that change
    direction, those without width, unassigned and private ones, blanks that count as printable, marks that strike
    through, and combining marks beyond `MOST_MARKS`. A letter of another script than the rest of its word is written
    with the script's name, ``p<Cyrillic ...>ypal.com``. Spaces of all kinds stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(part.text if part.note is None else f"<{part.note}>" * part.times for part in pieces(text))


def numbered(text: str) -> str:
    """A text as numbered lines, each made `visible`; a tab becomes four spaces."""
    lines = text.split("\n")
    width = max(len(str(len(lines))), 3)
    return "\n".join(
        f"{number:>{width}}  {visible(line.replace(chr(9), '    '))}".rstrip()
        for number, line in enumerate(lines, 1)
    )


def pieces(text: str) -> list[Piece]:
    """A text in pieces: plain text, and text that would mislead a reader, with a note that names it."""
    if text.isascii() and text.isprintable():
        return [Piece(text)] if text else []
    found = set(text)
    odd = {char for char in found if _is_odd(char)}
    spans = list(_hidden(text, odd)) if odd else []
    scripts = frozenset(filter(None, map(script_of, found)))
    if len(scripts) > 1:
        spans = sorted([*spans, *_foreign(text, scripts)])
    return _split_at(text, spans)


def _split_at(text: str, spans: list[tuple[int, int, str]]) -> list[Piece]:
    """A text in pieces: ``spans`` are the beginnings, ends and notes of those that have a note."""
    parts: list[Piece] = []
    end = 0
    for start, stop, note in spans:
        if start < end:  # a mark among letters that have a note already
            continue
        if start > end:
            parts.append(Piece(text[end:start]))
        parts.append(Piece(text[start:stop], note))
        end = stop
    if end < len(text):
        parts.append(Piece(text[end:]))
    return parts


def escaped(text: str) -> str:
    """A text with every character written as a JSON escape."""
    return "".join(json.dumps(char)[1:-1] if char > "\uffff" else f"\\u{ord(char):04x}" for char in text)


@lru_cache(maxsize=4096)
def _is_odd(char: str) -> bool:
    """Whether a character may mislead, anywhere or only after certain other characters."""
    return hides(char) or unicodedata.category(char) in ("Mn", "Me")


@lru_cache(maxsize=4096)
def hides(char: str) -> bool:
    """Whether a character is invisible or acts on the text around it. The emoji variation selector counts, although
    it has a visible effect after a symbol."""
    return char in _BLANK or not (char.isprintable() or unicodedata.category(char) == "Zs")


@lru_cache(maxsize=4096)
def _strikes(char: str) -> bool:
    if unicodedata.category(char) == "Me":
        return char != _KEYCAP
    return unicodedata.combining(char) == _OVERLAY


def _hidden(text: str, odd: set[str]) -> Iterator[tuple[int, int, str]]:
    """The spans of characters that hide, act or strike through, and of combining marks beyond the limit."""
    marks, start, stop = 0, 0, 0  # start and stop are the last run of equal characters found
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
    """Whether the emoji variation selector behind this character only selects its coloured form."""
    return unicodedata.category(char) == "So" and char not in _BLANK


def _is_maths(text: str, place: int) -> bool:
    """Whether a mark follows a mathematical sign, with which it makes a sign of its own, such as ≠ from =."""
    return place > 0 and unicodedata.category(text[place - 1]) == "Sm"


def _foreign(text: str, scripts: frozenset[str]) -> Iterator[tuple[int, int, str]]:
    """The spans of letters of another script than the rest of their word (UTS #39, highly restrictive).

    Also of whole words whose letters look Latin but are not, if a dot, a slash or the like joins them to Latin words.
    """
    mixed = _transitions(scripts)
    if mixed.search(text):
        for word in _words().finditer(text):
            if mixed.search(word[0]) and not _quantities().fullmatch(word[0]):
                yield from _outsiders(word[0], word.start())
    if "Latin" in scripts and not scripts.isdisjoint(_LOOKS_LATIN):
        for match in _latin_lookalikes().finditer(text):
            yield from _runs(text, match.start(), match.end(), script_of(match[0][0]) or OTHER)


def _outsiders(word: str, at: int) -> Iterator[tuple[int, int, str]]:
    """The letters of a word that are not in the word's most frequent script; in a tie Latin counts as the word's
    script."""
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
    """Runs of letters of one script, without the digits and other characters at their ends."""
    while stop > start and script_of(text[stop - 1]) is None and text[stop - 1].isalnum():
        stop -= 1
    name = script_name(script, text[start])
    for first, last in pairwise([*range(start, stop, _LONGEST_RUN), stop]):
        part = text[first:last]
        if not any(map(_is_odd, part)):
            yield at + first, at + last, f"{name} {part}"
            continue
        place = at + first
        for each in _split_at(part, [*_hidden(part, set(filter(_is_odd, part)))]):
            if each.note is None:  # `_hidden` gives the others notes of their own
                yield place, place + len(each.text), f"{name} {each.text}"
            place += len(each.text)


@lru_cache(maxsize=256)
def _transitions(scripts: frozenset[str]) -> re.Pattern[str]:
    """A pattern for a letter of one of these scripts that is followed, in the same word, by a letter of another."""
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
    """A pattern for words: letters, marks and digits in a row, except in scripts that are written without blanks."""
    return re.compile(rf"(?:[{spaced_letters()}\d²³¹]|[^\W_{all_letters()}])+")


@cache
def _quantities() -> re.Pattern[str]:
    return re.compile(_QUANTITY)


@cache
def _latin_lookalikes() -> re.Pattern[str]:
    """A pattern for words whose letters all look Latin and are not, next to a Latin letter and a joining sign."""
    alike = f"[{''.join(_LOOKS_LATIN.values())}]{{2,}}"
    join = r"[.@/:_-]"
    return re.compile(rf"(?<!\w){alike}(?={join}[A-Za-z])|(?<=[A-Za-z]{join}){alike}(?!\w)")


def error_text(error: BaseException) -> str:
    """An exception as text: its type and its message; the type alone if its ``str`` fails."""
    name = type(error).__name__
    try:
        said = str(error)
    except Exception:
        return name
    return f"{name}: {said}".encode("utf-8", "replace").decode() if said else name
