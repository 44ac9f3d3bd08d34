"""Which script a letter belongs to, for telling look-alikes apart: a table of the Unicode Character Database."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from functools import cache, lru_cache

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

Ranges go on over code points that are not assigned. ``Common`` and ``Inherited`` go with every script.
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
def _in_order() -> tuple[list[int], list[tuple[int, str]]]:
    rows = sorted((first, last, name) for name, ranges in _ranges().items() for first, last in ranges)
    return [first for first, _, _ in rows], [(last, name) for _, last, name in rows]


@lru_cache(maxsize=4096)
def script_of(char: str) -> str | None:
    """The script of a letter or mark; None for everything else, and for what no script has to itself."""
    point = ord(char)
    starts, rows = _in_order()
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
    """Those of every script in the table, the same way; a letter that is not among them is of an `OTHER`."""
    return letters(*_ranges())


@cache
def spaced_letters() -> str:
    """Those that words are made of: all but the letters of `UNSPACED` scripts."""
    return letters(*(name for name in _ranges() if name != UNSPACED))


def script_name(script: str, char: str) -> str:
    """What to call a letter's script: ``Cyrillic``; of an `OTHER`, the first word of the letter's own name."""
    if script != OTHER:
        return script.partition("_")[0]
    return unicodedata.name(char, OTHER).partition(" ")[0].capitalize()
