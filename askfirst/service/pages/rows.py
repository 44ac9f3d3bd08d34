"""Rows: the values of a case as a page shows them, each formatted, with the raw one below where they differ.

All of it is bounded: a page stays below 200 KB however large a value is. What a page does not show is told as
`Unopened`, so that nobody approves it without knowing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from askfirst.formats import CODE, Style, formatted
from askfirst.service.pages.inert_text import Html, marked
from askfirst.service.risk_patterns import RiskPatterns

Kind = Literal[
    "value", "amount", "lines", "list", "table", "tree", "url", "secret", "absent", "empty", "unopened"
]

WHOLE_LINES = 200
WHOLE_CHARACTERS = 12_000
"""A text within both is shown whole."""
HEAD = (100, 6_000)
TAIL = (50, 3_000)
"""Of a longer one: so many lines, and so many characters, of its beginning and of its end."""
CHUNK = 1_000
"""So many lines are shown on a page of their own (``?row=2&from=100``)."""
ITEMS = 200
TABLE_ROWS = 50
TABLE_COLUMNS = 12
ROWS = 100
_PIECE = 500
"""A longer line is cut into pieces of so many characters, so that a browser can break it and we can fold it."""
_ROOM = 110_000
"""Characters of HTML that the values of one page may take."""
_CHUNK_ROOM = 150_000
_CELL = 200
_NAME = 200
_RAW = 2_000
_AMOUNTS = ("money", "amount")


@dataclass(frozen=True, slots=True)
class View:
    """Which part of a case is shown: everything, or a chunk of the row ``row`` beginning with piece ``start``.

    ``rows_from`` is the first of many rows; ``raw`` shows every value as JSON.
    """

    row: int | None = None
    start: int = 0
    rows_from: int = 0
    raw: bool = False


ALL = View()


@dataclass(frozen=True, slots=True)
class Unopened:
    """A part that the page does not show. ``row`` and ``start`` make the address of the page that does.

    ``first`` to ``last`` are line numbers, places in a list, or rows, as ``unit`` says.
    """

    name: Html | None
    row: int
    start: int
    first: int
    last: int
    unit: Literal["lines", "items", "rows"]


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of a text, or a further piece of a long one. ``risk`` is the name of the pattern that it matches."""

    number: int
    text: Html
    is_continued: bool = False
    risk: Html | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """A text as numbered lines; ``gap`` is what is left out before the line at ``gap_at``."""

    language: str | None
    """The language of a ``code`` format; None for plain text."""
    lines: tuple[CodeLine, ...]
    total: int
    characters: int
    gap_at: int | None = None
    gap: Unopened | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value within an object, by its path: ``owner.mail``."""

    path: Html
    text: Html
    depth: int


@dataclass(frozen=True, slots=True)
class Table:
    """A list of objects as a table."""

    columns: tuple[Html, ...]
    cells: tuple[tuple[Html, ...], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One value. ``label`` is its author's word for it; where there is none, the name stands alone.

    Which of the further fields is set follows from ``kind``: ``text`` for a value or an amount, ``lines``, ``items``
    of a list, ``table``, ``leaves`` of a tree, and ``host`` with ``text`` for an address.
    """

    place: int
    """Its place among the values, counted from 0; the same whatever order rows are shown in."""
    key: str
    name: Html
    label: Html | None
    kind: Kind
    text: Html | None = None
    raw: Html | None = None
    """The value as it is, where ``text`` is formatted and differs from it."""
    format: str = ""
    is_important: bool = False
    lines: Lines | None = None
    items: tuple[Html, ...] = ()
    item_count: int = 0
    table: Table | None = None
    leaves: tuple[Leaf, ...] = ()
    host: Html | None = None
    unopened: Unopened | None = None


@dataclass(slots=True)
class Shown:
    """All rows of a page, and what was counted on the way."""

    rows: tuple[Row, ...] = ()
    count: int = 0
    marked: int = 0
    lines: int = 0
    hidden: int = 0
    patterns: list[str] = field(default_factory=list[str])
    unopened: tuple[Unopened, ...] = ()


def rows_of(
    values: Mapping[str, Any], words: Mapping[str, Any], patterns: RiskPatterns, style: Style, view: View
) -> Shown:
    """The rows of a case's values, important ones first."""
    maker = _Maker(words, patterns, style, view)
    names = list(values)
    order = sorted(range(len(names)), key=lambda place: maker.rank(names[place]))
    total = Shown(count=len(names))
    rows: list[Row] = []
    first = min(max(view.rows_from, 0), max(len(names) - 1, 0))
    here = (
        order[first : first + ROWS] if view.row is None else [view.row] if 0 <= view.row < len(names) else []
    )
    for place in range(len(names)):  # patterns judge every value, shown or not
        maker.judge(place, values[names[place]])
    rows = [maker.row(place, names[place], values[names[place]]) for place in here]
    total.rows = tuple(rows)
    total.marked, total.lines, total.hidden = maker.marked, maker.line_count, maker.hidden
    total.patterns = list(dict.fromkeys(maker.names))
    unopened = [
        it for row in rows for it in (row.unopened, None if row.lines is None else row.lines.gap) if it
    ]
    if view.row is None and len(order) > first + ROWS:
        unopened.append(Unopened(None, 0, first + ROWS, first + ROWS + 1, len(order), "rows"))
    total.unopened = tuple(unopened)
    return total


class _Maker:
    """Makes rows within the room that a page has."""

    def __init__(self, words: Mapping[str, Any], patterns: RiskPatterns, style: Style, view: View) -> None:
        self._labels = _mapping(words.get("labels"))
        self._formats = _mapping(words.get("formats"))
        given = words.get("important")
        self._important = [str(it) for it in cast("list[Any]", given)] if isinstance(given, list) else []
        self._patterns, self._style, self._view = patterns, style, view
        self._room = _ROOM if view.row is None else _CHUNK_ROOM
        self._risky: dict[int, dict[int, str]] = {}
        self.marked = self.line_count = self.hidden = 0
        self.names: list[str] = []

    def rank(self, name: str) -> int:
        """Where a row comes: important ones in their order, then the others."""
        return self._important.index(name) if name in self._important else len(self._important)

    def judge(self, place: int, value: Any) -> None:
        """Count the lines of a value, and those that match a risk pattern."""
        for text in _texts(value):
            lines = text.split("\n")
            self.line_count += len(lines)
            found = self._patterns.marked(lines)
            self.marked += len(found)
            self.names += dict.fromkeys(found.values())
            if found and isinstance(value, str):
                self._risky[place] = found

    def row(self, place: int, name: str, value: Any) -> Row:
        """One row, or the word that it is not shown here, if the page has no room left."""
        form = str(self._formats.get(name, ""))
        label = self._labels.get(name)
        row = Row(
            place=place,
            key=name,
            name=self._html(name[:_NAME]),
            label=self._html(label[:_NAME]) if isinstance(label, str) and label != name else None,
            kind="value",
            format=form,
            is_important=name in self._important,
        )
        if self._room <= 0:
            return _with(
                row, kind="unopened", unopened=Unopened(row.name, place, 0, 1, _size(value), "lines")
            )
        if form == "secret":
            return _with(row, kind="secret")
        if self._view.raw or (self._view.row is not None and not isinstance(value, str)):
            return self._as_lines(row, place, json.dumps(value, indent=2, ensure_ascii=False), "json")
        return self._of_kind(row, place, value, form)

    def _of_kind(self, row: Row, place: int, value: Any, form: str) -> Row:
        if value is None:
            return _with(row, kind="absent")
        if value == "":
            return _with(row, kind="empty")
        kind = form.partition(":")[0]
        if isinstance(value, str):
            return self._of_text(row, place, value, form, kind)
        if isinstance(value, list):
            given = cast("list[Any]", value)
            if kind == "table" and given and all(isinstance(it, dict) for it in given):
                return self._as_table(row, given)
            if not any(isinstance(it, dict | list) for it in given):
                return self._as_list(row, given)
            return self._as_tree(row, given)
        if isinstance(value, dict):
            return self._as_tree(row, cast("dict[str, Any]", value)) if value else _with(row, kind="empty")
        return self._as_value(row, value, form, _plain(value, self._style))

    def _of_text(self, row: Row, place: int, value: str, form: str, kind: str) -> Row:
        language = form.partition(":")[2] or kind if kind in CODE else None
        if kind in CODE or "\n" in value or len(value) > _PIECE or place in self._risky:
            return self._as_lines(row, place, value, language)
        if kind == "url":
            return self._as_url(row, value)
        return self._as_value(row, value, form, value)

    def _as_value(self, row: Row, value: Any, form: str, plain: str) -> Row:
        text = formatted(value, form, self._style)
        shown = self._html(plain if text is None else text)
        raw = value if isinstance(value, str) else _json(value)
        is_bool = isinstance(value, bool)
        kind: Kind = "amount" if text is not None and form.partition(":")[0] in _AMOUNTS else "value"
        below = None if text is None or text == raw or is_bool else self._html(raw[:_RAW])
        return _with(row, kind=kind, text=shown, raw=below)

    def _as_url(self, row: Row, value: str) -> Row:
        try:
            host = urlsplit(value).hostname or ""
        except ValueError:
            host = ""
        return _with(row, kind="url", text=self._html(value), host=self._html(host) if host else None)

    # Lines.

    def _as_lines(self, row: Row, place: int, text: str, language: str | None) -> Row:
        source = text.split("\n")
        risky = self._risky.get(place, {}) if not self._view.raw else {}
        pieces = _pieces(source)
        last = len(pieces)
        if self._view.row is not None:
            start = min(max(self._view.start, 0), max(last - 1, 0))
            lines, end = self._lines(source, pieces[start : start + CHUNK], risky)
            gap = _gap(row, pieces, start + end, last)
            return _with(
                row,
                kind="lines",
                lines=_lines(language, lines, source, text, len(lines) if gap else None, gap),
            )
        if len(source) <= WHOLE_LINES and len(text) <= WHOLE_CHARACTERS:
            lines, end = self._lines(source, pieces, risky)
            gap = _gap(row, pieces, end, last)
            return _with(
                row,
                kind="lines",
                lines=_lines(language, lines, source, text, len(lines) if gap else None, gap),
            )
        head, end = self._lines(source, pieces[: _count(pieces, *HEAD)], risky)
        tail_at = max(end, last - _count(pieces[::-1][: TAIL[0]], *TAIL))
        tail, shown = self._lines(source, pieces[tail_at:], risky)
        gap = _gap(row, pieces, end, tail_at) if shown == last - tail_at else _gap(row, pieces, end, last)
        kept = [*head, *tail] if shown == last - tail_at else head
        return _with(row, kind="lines", lines=_lines(language, kept, source, text, len(head), gap))

    def _lines(
        self, source: Sequence[str], pieces: Sequence[tuple[int, int, int]], risky: Mapping[int, str]
    ) -> tuple[list[CodeLine], int]:
        """Lines as long as there is room, and how many pieces they are."""
        made: list[CodeLine] = []
        for number, start, stop in pieces:
            if self._room <= 0:
                break
            name = risky.get(number)
            html = self._html(source[number][start:stop])
            risk = None if name is None else self._html(name)
            made.append(CodeLine(number + 1, html, start > 0, risk))
            self._room -= 60  # the markup around a line
        return made, len(made)

    # Lists, tables, trees.

    def _as_list(self, row: Row, given: list[Any]) -> Row:
        if not given:
            return _with(row, kind="empty")
        items: list[Html] = []
        for it in given[:ITEMS]:
            if self._room <= 0:
                break
            items.append(self._html(_plain(it, self._style)[:_RAW]))
            self._room -= 40
        rest = _rest(row, len(items), len(given), "items")
        cut = next((it for it in given[: len(items)] if isinstance(it, str) and len(it) > _RAW), None)
        if rest is None and cut is not None:
            rest = Unopened(row.name, row.place, 0, 1, len(given), "items")
        return _with(row, kind="list", items=tuple(items), item_count=len(given), unopened=rest)

    def _as_table(self, row: Row, given: list[Any]) -> Row:
        columns = list(dict.fromkeys(name for it in given[:TABLE_ROWS] for name in it))
        cells: list[tuple[Html, ...]] = []
        for it in given[:TABLE_ROWS]:
            if self._room <= 0:
                break
            said = [self._cell(it.get(name)) for name in columns[:TABLE_COLUMNS]]
            cells.append(tuple(said))
        table = Table(tuple(self._html(name[:_NAME]) for name in columns[:TABLE_COLUMNS]), tuple(cells))
        rest = _rest(row, len(cells), len(given), "items")
        too_wide = len(columns) > TABLE_COLUMNS or any(
            len(_plain(value, self._style)) > _CELL for it in given[:TABLE_ROWS] for value in it.values()
        )
        if rest is None and too_wide:
            rest = Unopened(row.name, row.place, 0, 1, len(given), "items")
        return _with(row, kind="table", table=table, item_count=len(given), unopened=rest)

    def _cell(self, value: Any) -> Html:
        self._room -= 20
        return self._html(_plain(value, self._style)[:_CELL])

    def _as_tree(self, row: Row, given: Any) -> Row:
        leaves: list[Leaf] = []
        waiting: list[tuple[str, int, Any]] = [("", 0, given)]
        left = False
        while waiting:
            path, depth, value = waiting.pop()
            inner = _inside(value, path)
            if inner:
                waiting += [(name, depth + 1, it) for name, it in reversed(inner[: ITEMS + 1])]
                left = left or len(inner) > ITEMS + 1
                continue
            if len(leaves) >= ITEMS or self._room <= 0:
                left = True
                break
            text = _plain(value, self._style)
            left = left or len(text) > _RAW
            leaves.append(Leaf(self._html(path[:_NAME]), self._html(text[:_RAW]), depth))
            self._room -= 60
        rest = Unopened(row.name, row.place, 0, len(leaves) + 1, len(leaves) + 1, "items") if left else None
        return _with(row, kind="tree", leaves=tuple(leaves), unopened=rest)

    def _html(self, text: str) -> Html:
        html = marked(text)
        self._room -= len(html)
        self.hidden += html.count("<mark>") - html.count("<mark>⇥")
        return html


def _with(row: Row, **more: Any) -> Row:
    return replace(row, **more)


def _lines(
    language: str | None,
    lines: list[CodeLine],
    source: Sequence[str],
    text: str,
    gap_at: int | None,
    gap: Unopened | None,
) -> Lines:
    return Lines(language, tuple(lines), len(source), len(text), gap_at if gap else None, gap)


def _pieces(source: Sequence[str]) -> list[tuple[int, int, int]]:
    """Every line as a number, a begin and an end; a long one as several."""
    made: list[tuple[int, int, int]] = []
    for number, line in enumerate(source):
        if len(line) <= _PIECE:
            made.append((number, 0, len(line)))
        else:
            made += [(number, at, min(at + _PIECE, len(line))) for at in range(0, len(line), _PIECE)]
    return made


def _count(pieces: Sequence[tuple[int, int, int]], most: int, characters: int) -> int:
    """How many of the pieces are within both limits."""
    used = 0
    for count, (_, start, stop) in enumerate(pieces[:most]):
        used += stop - start + 1
        if used > characters:
            return max(count, 1)
    return min(most, len(pieces))


def _gap(row: Row, pieces: Sequence[tuple[int, int, int]], begin: int, end: int) -> Unopened | None:
    if begin >= end:
        return None
    return Unopened(row.name, row.place, begin, pieces[begin][0] + 1, pieces[end - 1][0] + 1, "lines")


def _rest(row: Row, shown: int, count: int, unit: Literal["items", "rows"]) -> Unopened | None:
    return None if shown >= count else Unopened(row.name, row.place, 0, shown + 1, count, unit)


def _inside(value: Any, path: str) -> list[tuple[str, Any]]:
    """What is in a value, by path; no more of it than is shown, and one to tell that there is more."""
    if isinstance(value, dict):
        given = islice(cast("dict[str, Any]", value).items(), ITEMS + 2)
        return [(f"{path}.{name}" if path else name, it) for name, it in given]
    if isinstance(value, list):
        return [(f"{path}[{at}]", it) for at, it in enumerate(cast("list[Any]", value)[: ITEMS + 2])]
    return []


def _plain(value: Any, style: Style) -> str:
    if value is None:
        return "–"  # noqa: RUF001  (a dash: not given)
    if isinstance(value, bool):
        return style.yes if value else style.no
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _size(value: Any) -> int:
    return value.count("\n") + 1 if isinstance(value, str) else 1


def _texts(value: Any) -> list[str]:
    """Every text in a value."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        it = waiting.pop()
        if isinstance(it, str):
            found.append(it)
        elif isinstance(it, dict):
            waiting += cast("dict[str, Any]", it).values()
        elif isinstance(it, list):
            waiting += cast("list[Any]", it)
    return found


def _mapping(given: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}
