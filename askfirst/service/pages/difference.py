"""The difference between two texts: word by word in lines that changed little, otherwise line by line.

Comparing texts that repeat the same words takes time that grows with the cube of their length, and the texts are
untrusted. So every page has a budget of steps (`Effort`). Texts that exceed it are shown one below the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from itertools import accumulate
from typing import Literal

from askfirst.service.pages.inert_text import Html, marked

_TOKEN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|\d+(?:[.,:]\d+)*|\w+|\s+|[^\w\s]")
_MOST_TOKENS = 2_000
_MOST_LINES = 400
_MOST_CHANGED = 0.4
"""The share of a line that may differ. If more differs, the old and the new line are shown whole."""
_MOST_PAIRS = 2_500
_LEAST_ALIKE = 0.5
"""The least share of common words at which an old and a new line count as one changed line."""
_LONG_RUN = 6
_CONTEXT = 2
_STEPS = 2_000_000
"""The steps of comparing that one page may take, about 0.2 seconds."""


class _TooMuch(Exception):
    """Comparing two texts takes more steps than are left."""


class Effort:
    """The steps that the comparisons of one page may still take. Each comparison may take half of what is left."""

    def __init__(self, steps: int = _STEPS) -> None:
        self.left = steps
        self._least = 0

    def begin(self) -> None:
        """Begin to compare two texts."""
        self._least = self.left - self.left // 2

    def spend(self, steps: int) -> None:
        """Take steps from the budget before they are made; raises `_TooMuch`."""
        self.left = max(self.left - steps, self._least)
        if self.left == self._least:
            raise _TooMuch


class _Matcher(SequenceMatcher[str]):
    """A matcher that takes a step from the budget for each pair of equal parts that it visits."""

    def __init__(self, old: Sequence[str], new: Sequence[str], effort: Effort) -> None:
        super().__init__(None, old, new, autojunk=False)
        self._effort = effort
        times = Counter(new)
        self._until = list(accumulate((1 + times[it] for it in old), initial=0))

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        end = len(self._until) - 1 if ahi is None else ahi
        self._effort.spend(self._until[end] - self._until[alo])
        return super().find_longest_match(alo, ahi, blo, bhi)


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of the difference: unchanged, removed (``-``), added (``+``), or with changed words in it (``~``).

    With ``skipped`` it stands for that many unchanged lines, which are left out.
    """

    sign: Literal[" ", "-", "+", "~"]
    html: Html
    skipped: int = 0


def difference(
    before: str | None, after: str | None, effort: Effort | None = None
) -> tuple[DiffLine, ...] | None:
    """The difference of two texts; None if that takes too many steps. An absent text is None."""
    old = [] if before is None else before.split("\n")
    new = [] if after is None else after.split("\n")
    if len(old) + len(new) > _MOST_LINES:
        return None
    effort = effort or Effort()
    effort.begin()
    try:
        if len(old) == len(new) == 1 and (words := _words(old[0], new[0], 1.0, effort)) is not None:
            return (DiffLine("~", words),)
        return tuple(_compared(old, new, effort))
    except _TooMuch:
        return None


def _compared(old: Sequence[str], new: Sequence[str], effort: Effort) -> Iterator[DiffLine]:
    for tag, i1, i2, j1, j2 in _Matcher(old, new, effort).get_opcodes():
        if tag == "equal":
            yield from _same(old[i1:i2], is_first=i1 == 0, is_last=i2 == len(old))
            continue
        yield from _replaced(old[i1:i2], new[j1:j2], effort)


def _replaced(old: Sequence[str], new: Sequence[str], effort: Effort) -> Iterator[DiffLine]:
    """Replaced lines: two similar ones become one line with the changed words marked; others are shown whole."""
    removed = added = 0
    for at, to in _pairs(old, new, effort):
        yield from (DiffLine("-", marked(line)) for line in old[removed:at])
        yield from (DiffLine("+", marked(line)) for line in new[added:to])
        words = _words(old[at], new[to], _MOST_CHANGED, effort)
        if words is None:
            yield DiffLine("-", marked(old[at]))
            yield DiffLine("+", marked(new[to]))
        else:
            yield DiffLine("~", words)
        removed, added = at + 1, to + 1
    yield from (DiffLine("-", marked(line)) for line in old[removed:])
    yield from (DiffLine("+", marked(line)) for line in new[added:])


def _pairs(old: Sequence[str], new: Sequence[str], effort: Effort) -> list[tuple[int, int]]:
    """The index pairs of old and new lines that count as one changed line: in order, as similar in total as possible.

    Very many lines are paired by their position instead, because the search takes their product in steps.
    """
    if len(old) * len(new) > _MOST_PAIRS:
        return [(place, place) for place in range(min(len(old), len(new)))]
    words, others = [_counted(line) for line in old], [_counted(line) for line in new]
    effort.spend(len(words) * sum(map(len, others)) + len(others) * sum(map(len, words)))
    alike = [[_alike(was, now) for now in others] for was in words]
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in reversed(range(len(old))):
        for j in reversed(range(len(new))):
            paired = alike[i][j] + best[i + 1][j + 1] if alike[i][j] else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            found.append((i, j))
            i, j = i + 1, j + 1
    return found


def _counted(line: str) -> Counter[str]:
    """How many characters of a line are in each of its words."""
    counted = Counter[str]()
    for word in _TOKEN.findall(line):
        counted[word] += len(word)
    return counted


def _alike(was: Counter[str], now: Counter[str]) -> float:
    """The share of common words in two lines; 0 if it is less than `_LEAST_ALIKE`."""
    of = was.total() + now.total()
    share = 2 * (was & now).total() / of if of else 0.0
    return share if share >= _LEAST_ALIKE else 0.0


def _same(lines: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[DiffLine]:
    """Unchanged lines; of a long run only the lines next to a change."""
    if len(lines) <= _LONG_RUN:
        yield from (DiffLine(" ", marked(line)) for line in lines)
        return
    head = 0 if is_first else _CONTEXT
    tail = 0 if is_last else _CONTEXT
    yield from (DiffLine(" ", marked(line)) for line in lines[:head])
    yield DiffLine(" ", Html(""), len(lines) - head - tail)
    yield from (DiffLine(" ", marked(line)) for line in lines[len(lines) - tail :])


def _words(before: str, after: str, most: float, effort: Effort) -> Html | None:
    """One line with its removed and added words marked; None if more than the share ``most`` of it differs."""
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    if len(old) + len(new) > _MOST_TOKENS:
        return None
    parts: list[str] = []
    changed = 0
    for tag, i1, i2, j1, j2 in _Matcher(old, new, effort).get_opcodes():
        was, now = "".join(old[i1:i2]), "".join(new[j1:j2])
        if tag == "equal":
            parts.append(marked(was))
            continue
        changed += len(was) + len(now)
        parts.append(f"<del>{marked(was)}</del>" if was else "")
        parts.append(f"<ins>{marked(now)}</ins>" if now else "")
    if changed > most * max(len(before) + len(after), 1):
        return None
    return Html("".join(parts))
