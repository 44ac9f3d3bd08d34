"""What differs between two values: words within a line where little does, else line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from askfirst.service.pages.inert_text import Html, marked

_TOKEN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|\d+(?:[.,:]\d+)*|\w+|\s+|[^\w\s]")
_MOST_TOKENS = 2_000
_MOST_LINES = 400
_MOST_CHANGED = 0.4
"""Of a line; where more of it differs, both lines are shown whole."""
_LONG_RUN = 6
_CONTEXT = 2


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line that stays, goes, comes, or has changed words in it (``~``); or so many lines that are left out."""

    sign: Literal[" ", "-", "+", "~"]
    html: Html
    skipped: int = 0


def difference(before: str | None, after: str | None) -> tuple[DiffLine, ...] | None:
    """The difference of two texts, each None where there is none; None if they are too long to be compared."""
    old = [] if before is None else before.split("\n")
    new = [] if after is None else after.split("\n")
    if len(old) + len(new) > _MOST_LINES:
        return None
    if len(old) == len(new) == 1 and (words := _words(old[0], new[0], 1.0)) is not None:
        return (DiffLine("~", words),)
    return tuple(_compared(old, new))


def _compared(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from _same(old[i1:i2], is_first=i1 == 0, is_last=i2 == len(old))
            continue
        paired = min(i2 - i1, j2 - j1)
        for was, now in zip(old[i1 : i1 + paired], new[j1 : j1 + paired], strict=True):
            words = _words(was, now, _MOST_CHANGED)
            if words is None:
                yield DiffLine("-", marked(was))
                yield DiffLine("+", marked(now))
            else:
                yield DiffLine("~", words)
        yield from (DiffLine("-", marked(line)) for line in old[i1 + paired : i2])
        yield from (DiffLine("+", marked(line)) for line in new[j1 + paired : j2])


def _same(lines: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[DiffLine]:
    """Lines that stay; of a long run only those beside a change."""
    if len(lines) <= _LONG_RUN:
        yield from (DiffLine(" ", marked(line)) for line in lines)
        return
    head = 0 if is_first else _CONTEXT
    tail = 0 if is_last else _CONTEXT
    yield from (DiffLine(" ", marked(line)) for line in lines[:head])
    yield DiffLine(" ", Html(""), len(lines) - head - tail)
    yield from (DiffLine(" ", marked(line)) for line in lines[len(lines) - tail :])


def _words(before: str, after: str, most: float) -> Html | None:
    """One line with what goes and what comes in it; None if more than ``most`` of it differs."""
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    if len(old) + len(new) > _MOST_TOKENS:
        return None
    parts: list[str] = []
    changed = 0
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
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
