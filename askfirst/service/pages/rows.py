"""Rows: the values of a case as a page shows them. Each is formatted; if that changes it, the raw value is below.

The size is bounded: a page stays below 200 KB however large a value is. A part that the page does not show is
listed as `Unopened`, so that nobody approves it unaware.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

from askfirst.formats import CODE, Style, formatted, instant_of
from askfirst.service.pages.argument_groups import MANY, Group, Grouped, grouped
from askfirst.service.pages.inert_text import Html, clipped, has_hidden, marked, with_edges
from askfirst.service.pages.row import (
    ALL,
    CodeLine,
    Kind,
    Leaf,
    Lines,
    Row,
    Table,
    Unopened,
    View,
    address_of,
)
from askfirst.service.risk_patterns import RiskPatterns

WHOLE_LINES = 200
WHOLE_CHARACTERS = 12_000
"""A text within both limits is shown whole."""
HEAD = (100, 6_000)
TAIL = (50, 3_000)
"""Of a longer text the page shows the beginning and the end, each up to a number of lines and of characters."""
CHUNK = 1_000
"""How many lines the page for one long text shows at a time (``?row=2&from=100``)."""
ITEMS = 200
TABLE_ROWS = 50
TABLE_COLUMNS = 12
ROWS = 100
_PIECE = 500
"""A longer line is split into pieces of this many characters, of which the page may leave some out."""
_ROOM = 52_000
"""Bytes of HTML that the values may take on a page on which a person decides; see `page_size.Room` for the rest."""
_CHUNK_ROOM = 140_000
"""The same on a page that shows nothing but values."""
_ROW, _LINE, _LEAF, _CELL_MARKUP = 400, 60, 80, 60
"""The markup around a row, a line, a value within an object, and a cell of a table, in bytes."""
_CELL = 200
_RISKY = 5
"""How many of the lines that match a risk pattern are shown once more, in the second step."""
_NAME = 600
_RAW = 2_000
_AMOUNTS = ("money", "amount")
_GROUPS: tuple[Group, ...] = ("first", "differs", "usual")


@dataclass(slots=True)
class Shown:
    """All rows of a page, and counts over all values of the case."""

    rows: tuple[Row, ...] = ()
    count: int = 0
    marked: int = 0
    lines: int = 0
    hidden: int = 0
    foreign: int = 0
    """How often letters of another script than that of their word were marked."""
    patterns: list[str] = field(default_factory=list[str])
    risky: tuple[CodeLine, ...] = ()
    """The first lines that match a risk pattern, cut."""
    unopened: tuple[Unopened, ...] = ()
    grouped: Grouped | None = None

    @property
    def rest_of_rows(self) -> tuple[Unopened, ...]:
        """The rows that the page does not have."""
        return tuple(it for it in self.unopened if it.unit == "rows")


def rows_of(
    values: Mapping[str, Any],
    words: Mapping[str, Any],
    patterns: RiskPatterns,
    style: Style,
    view: View,
    room: int | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Shown:
    """The rows of a case's values, important ones first. ``room`` is how many bytes of HTML they may take.

    With the tool's ``defaults``, many values are grouped: after the important ones come those that differ.
    """
    maker = _Maker(words, patterns, style, view, room)
    names = list(values)
    for place in range(len(names)):  # patterns judge every value, shown or not
        maker.judge(place, names[place], values[names[place]])
    total = Shown(count=len(names))
    if defaults and len(names) >= MANY:
        total.grouped = maker.group(values, defaults)
    order = sorted(range(len(names)), key=lambda place: maker.rank(names[place]))
    rows: list[Row] = []
    first = min(max(view.rows_from, 0), max(len(names) - 1, 0))
    here = (
        order[first : first + ROWS] if view.row is None else [view.row] if 0 <= view.row < len(names) else []
    )
    for place in here:
        if not maker.has_room:
            break
        rows.append(maker.row(place, names[place], values[names[place]]))
    total.rows = tuple(rows)
    risks = maker.risks
    total.marked, total.lines = risks.marked, risks.line_count
    total.hidden, total.foreign = maker.hidden, maker.foreign
    total.patterns = list(risks.names)
    total.risky = tuple(risks.first)
    unopened = [
        it for row in rows for it in (row.unopened, None if row.lines is None else row.lines.gap) if it
    ]
    end = first + len(rows)
    if view.row is None and len(order) > end:
        unopened.append(Unopened(None, 0, end, end + 1, len(order), "rows", view.of))
    total.unopened = tuple(unopened)
    return total


def marked_lines(values: Mapping[str, Any], patterns: RiskPatterns) -> int:
    """How many lines of some values match a risk pattern."""
    return sum(len(found) for value in values.values() for _, found in _matches(value, patterns))


def _matches(value: Any, patterns: RiskPatterns) -> list[tuple[list[str], dict[int, str]]]:
    """The texts of a value in which lines match, each as its lines, and the names of the patterns by line.

    Where no text matches, lists are read as commands: ``["rm", "-rf", "/"]`` runs what ``rm -rf /`` does.
    """
    for texts in (_texts, _commands):
        each = [text.split("\n") for text in texts(value)]
        if matching := [(lines, found) for lines in each if (found := patterns.marked(lines))]:
            return matching
    return []


class _Risks:
    """The lines of a case's values that match a risk pattern: counted over all values, shown or not."""

    def __init__(self, patterns: RiskPatterns) -> None:
        self._patterns = patterns
        self._by_place: dict[int, dict[int, str]] = {}
        self.places: set[int] = set()
        """The places of the values with such a line."""
        self.marked = self.line_count = 0
        """Such lines, and all lines of the texts that have one."""
        self.names: dict[str, None] = {}
        self.first: list[CodeLine] = []

    def judge(self, place: int, value: Any, *, is_secret: bool) -> None:
        """Count the lines of a value. The first that match are kept, to be shown again, unless it is secret."""
        for lines, found in _matches(value, self._patterns):
            self.line_count += len(lines)
            self.marked += len(found)
            self.names |= dict.fromkeys(found.values())
            self.places.add(place)
            if not is_secret:
                for at, why in islice(found.items(), _RISKY - len(self.first)):
                    self.first.append(CodeLine(at + 1, clipped(lines[at], _CELL), risk=clipped(why, _CELL)))
            if isinstance(value, str):
                self._by_place[place] = found

    def lines_of(self, place: int) -> Mapping[int, str]:
        """The names of the patterns that match lines of a text, by the line's index; empty if there are none."""
        return self._by_place.get(place, {})

    def name_in(self, place: int, value: Any) -> str | None:
        """The name of the pattern that matches a line of a value within the value at a place."""
        if place not in self.places or not isinstance(value, str):
            return None
        found = self._patterns.marked(value.split("\n"))
        return next(iter(found.values()), None)


class _Maker:
    """Makes rows within the size limit of a page, and counts the hidden and the foreign characters in them."""

    def __init__(
        self,
        words: Mapping[str, Any],
        patterns: RiskPatterns,
        style: Style,
        view: View,
        room: int | None = None,
    ) -> None:
        self.risks = _Risks(patterns)
        self._labels = _mapping(words.get("labels"))
        self._formats = _mapping(words.get("formats"))
        given = words.get("important")
        important = [str(it) for it in cast("list[Any]", given)] if isinstance(given, list) else []
        self._important = {name: place for place, name in reversed(list(enumerate(important)))}
        self._style, self._view = style, view
        self._room = room or (_ROOM if replace(view, of="") == ALL else _CHUNK_ROOM)
        self._grouped: Grouped | None = None
        self.hidden = self.foreign = 0

    def group(self, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Grouped:
        """Group the values by whether they are the defaults. Call `judge` for every value before."""
        risky = {name for place, name in enumerate(values) if place in self.risks.places}

        def is_striking(name: str) -> bool:
            return name in risky or any(map(has_hidden, [name, *_texts(values[name])]))

        secret = {name for name in values if self._formats.get(name) == "secret"}
        self._grouped = grouped(
            values, defaults, secret=secret, important=self._important, is_striking=is_striking
        )
        return self._grouped

    def rank(self, name: str) -> tuple[int, int]:
        """The sort key of a row: its group, then its place among the important arguments."""
        group = "first" if self._grouped is None else self._grouped.groups[name]
        return _GROUPS.index(group), self._important.get(name, len(self._important))

    @property
    def has_room(self) -> bool:
        """Whether another row fits on the page."""
        return self._room > 0

    def judge(self, place: int, name: str, value: Any) -> None:
        """Let the risk patterns judge a value."""
        self.risks.judge(place, value, is_secret=self._formats.get(name) == "secret")

    def _risk(self, row: Row, value: Any) -> Html | None:
        """The name of the risk pattern that matches a line of a value within a row, to highlight it; else None."""
        name = self.risks.name_in(row.place, value)
        return None if name is None else self._html(name)

    def row(self, place: int, name: str, value: Any) -> Row:
        """Make one row. Call this only while `has_room`."""
        self._room -= _ROW
        form = str(self._formats.get(name, ""))
        label = self._labels.get(name)
        row = Row(
            place=place,
            key=name,
            name=self._name(name),
            label=self._name(label) if isinstance(label, str) and label != name else None,
            kind="value",
            format=form,
            is_important=name in self._important,
        )
        if self._grouped is not None:
            row = _with(row, group=self._grouped.groups[name], differs=name in self._grouped.differing)
        if form == "secret":
            return _with(row, kind="secret")
        if self._view.row is not None and not isinstance(value, str):
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
        return self._as_value(row, value, form, plain_text(value, self._style))

    def _of_text(self, row: Row, place: int, value: str, form: str, kind: str) -> Row:
        language = form.partition(":")[2] or kind if kind in CODE else None
        if kind in CODE or "\n" in value or len(value) > _PIECE or self.risks.lines_of(place):
            return self._as_lines(row, place, value, language)
        if kind == "url":
            return self._as_url(row, value)
        return self._as_value(row, value, form, value)

    def _as_value(self, row: Row, value: Any, form: str, plain: str) -> Row:
        text = formatted(value, form, self._style)
        shown = self._html(plain if text is None else text, edges=True)
        raw = value if isinstance(value, str) else _json(value)
        is_bool = isinstance(value, bool)
        kind: Kind = "amount" if text is not None and form.partition(":")[0] in _AMOUNTS else "value"
        below = None if text is None or text == raw or is_bool else self._html(raw[:_RAW])
        return _with(row, kind=kind, text=shown, raw=below, at=instant_of(value, form))

    def _as_url(self, row: Row, value: str) -> Row:
        return _with(row, kind="url", text=self._html(value), url=address_of(value))

    # Lines.

    def _as_lines(self, row: Row, place: int, text: str, language: str | None) -> Row:
        source = text.split("\n")
        risky = self.risks.lines_of(place)
        pieces = _pieces(source)
        last = len(pieces)
        if self._view.row is not None:
            start = min(max(self._view.start, 0), max(last - 1, 0))
            lines, end = self._lines(source, pieces[start : start + CHUNK], risky)
            gap = self._gap(row, pieces, start + end, last)
            return _with(
                row,
                kind="lines",
                lines=_lines(language, lines, source, text, len(lines) if gap else None, gap),
            )
        if len(source) <= WHOLE_LINES and len(text) <= WHOLE_CHARACTERS:
            lines, end = self._lines(source, pieces, risky)
            gap = self._gap(row, pieces, end, last)
            return _with(
                row,
                kind="lines",
                lines=_lines(language, lines, source, text, len(lines) if gap else None, gap),
            )
        head, end = self._lines(source, pieces[: _count(pieces, *HEAD)], risky)
        tail_at = max(end, last - _count(pieces[::-1][: TAIL[0]], *TAIL))
        tail, shown = self._lines(source, pieces[tail_at:], risky)
        gap = (
            self._gap(row, pieces, end, tail_at)
            if shown == last - tail_at
            else self._gap(row, pieces, end, last)
        )
        kept = [*head, *tail] if shown == last - tail_at else head
        return _with(row, kind="lines", lines=_lines(language, kept, source, text, len(head), gap))

    def _lines(
        self, source: Sequence[str], pieces: Sequence[tuple[int, int, int]], risky: Mapping[int, str]
    ) -> tuple[list[CodeLine], int]:
        """As many lines as the page has room for, and how many pieces were used."""
        made: list[CodeLine] = []
        for number, start, stop in pieces:
            if self._room <= 0:
                break
            name = risky.get(number)
            html = self._html(source[number][start:stop])
            risk = None if name is None else self._html(name)
            made.append(CodeLine(number + 1, html, start > 0, risk))
            self._room -= _LINE
        return made, len(made)

    # Lists, tables, trees.

    def _as_list(self, row: Row, given: list[Any]) -> Row:
        if not given:
            return _with(row, kind="empty")
        items: list[Html] = []
        risks: list[Html | None] = []
        for it in given[:ITEMS]:
            if self._room <= 0:
                break
            risks.append(self._risk(row, it))
            items.append(self._html(plain_text(it, self._style)[:_RAW], edges=True))
            self._room -= _LINE
        rest = self._rest(row, len(items), len(given))
        cut = next((it for it in given[: len(items)] if isinstance(it, str) and len(it) > _RAW), None)
        if rest is None and cut is not None:
            rest = self._unopened(row, 1, len(given))
        return _with(
            row, kind="list", items=tuple(items), risks=tuple(risks), item_count=len(given), unopened=rest
        )

    def _as_table(self, row: Row, given: list[Any]) -> Row:
        columns = list(dict.fromkeys(name for it in given[:TABLE_ROWS] for name in it))
        cells: list[tuple[Html, ...]] = []
        risks: list[tuple[Html | None, ...]] = []
        for it in given[:TABLE_ROWS]:
            if self._room <= 0:
                break
            said = [self._cell(name, it.get(name)) for name in columns[:TABLE_COLUMNS]]
            cells.append(tuple(said))
            risks.append(tuple(self._risk(row, it.get(name)) for name in columns[:TABLE_COLUMNS]))
        table = Table(tuple(self._name(name) for name in columns[:TABLE_COLUMNS]), tuple(cells), tuple(risks))
        rest = self._rest(row, len(cells), len(given))
        too_wide = len(columns) > TABLE_COLUMNS or any(
            len(plain_text(value, self._style)) > _CELL for it in given[:TABLE_ROWS] for value in it.values()
        )
        if rest is None and too_wide:
            rest = self._unopened(row, 1, len(given))
        return _with(row, kind="table", table=table, item_count=len(given), unopened=rest)

    def _cell(self, column: str, value: Any) -> Html:
        self._room -= _CELL_MARKUP + len(column[:_NAME].encode()) * 2  # each cell has its column's name
        return self._html(plain_text(value, self._style)[:_CELL])

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
            text = plain_text(value, self._style)
            left = left or len(text) > _RAW
            shown = self._html(text[:_RAW], edges=True)
            leaves.append(Leaf(self._name(path), shown, depth, self._risk(row, value)))
            self._room -= _LEAF
        rest = self._unopened(row, len(leaves) + 1, len(leaves) + 1) if left else None
        return _with(row, kind="tree", leaves=tuple(leaves), unopened=rest)

    def _name(self, text: str) -> Html:
        return self._html(text if len(text) <= _NAME else f"{text[:_NAME]} …")

    def _unopened(self, row: Row, first: int, last: int) -> Unopened:
        return Unopened(row.name, row.place, 0, first, last, "items", self._view.of)

    def _rest(self, row: Row, shown: int, count: int) -> Unopened | None:
        return None if shown >= count else self._unopened(row, shown + 1, count)

    def _gap(self, row: Row, pieces: Sequence[tuple[int, int, int]], begin: int, end: int) -> Unopened | None:
        if begin >= end:
            return None
        first, last = pieces[begin][0] + 1, pieces[end - 1][0] + 1
        return Unopened(row.name, row.place, begin, first, last, "lines", self._view.of)

    def _html(self, text: str, *, edges: bool = False) -> Html:
        html = with_edges(text) if edges else marked(text)
        self._room -= len(html.encode())
        marks, unseen = html.count("<mark>"), html.count("<mark><abbr") + html.count("<mark>U+")
        self.hidden += unseen
        self.foreign += marks - unseen - html.count("<mark>⇥")
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
    """Every line as (line index, start, end); a long line gives several pieces."""
    made: list[tuple[int, int, int]] = []
    for number, line in enumerate(source):
        if len(line) <= _PIECE:
            made.append((number, 0, len(line)))
        else:
            made += [(number, at, min(at + _PIECE, len(line))) for at in range(0, len(line), _PIECE)]
    return made


def _count(pieces: Sequence[tuple[int, int, int]], most: int, characters: int) -> int:
    """How many of the pieces fit within both limits; at least one."""
    used = 0
    for count, (_, start, stop) in enumerate(pieces[:most]):
        used += stop - start + 1
        if used > characters:
            return max(count, 1)
    return min(most, len(pieces))


def _inside(value: Any, path: str) -> list[tuple[str, Any]]:
    """The values inside an object or a list, with their paths. One more than the limit tells that there are more."""
    if isinstance(value, dict):
        given = islice(cast("dict[str, Any]", value).items(), ITEMS + 2)
        return [(_path(f"{path}.", name) if path else _path("", name), it) for name, it in given]
    if isinstance(value, list):
        return [(_path(path, f"[{at}]"), it) for at, it in enumerate(cast("list[Any]", value)[: ITEMS + 2])]
    return []


def _path(path: str, name: str) -> str:
    """A path with one more name. More of it than a page shows is left out: it is written for every value within."""
    return path if len(path) > _NAME + 1 else path + name[: _NAME + 1]


def text_of(value: Any) -> str:
    """A string as it is; any other value as JSON, with non-ASCII characters unescaped."""
    if isinstance(value, str):
        return value
    if type(value) is int:  # as json writes it, and much faster
        return repr(value)
    # Only containers are indented: with an indent, json uses its encoder in Python, which is much slower.
    return json.dumps(value, indent=2 if isinstance(value, list | dict) else None, ensure_ascii=False)


def plain_text(value: Any, style: Style) -> str:
    """A value without a format: yes or no as a word, null as a dash, anything but a text as JSON."""
    if value is None:
        return "–"  # noqa: RUF001  (a dash: not given)
    if isinstance(value, bool):
        return style.yes if value else style.no
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _texts(value: Any) -> list[str]:
    """Every string inside a value, however deep, names included."""
    return [it for it in _each(value) if isinstance(it, str)]


def _commands(value: Any) -> list[str]:
    """Every list of strings inside a value, as one line."""
    lists = [cast("list[Any]", it) for it in _each(value) if isinstance(it, list)]
    return [" ".join(it) for it in lists if len(it) > 1 and all(isinstance(word, str) for word in it)]


def _each(value: Any) -> Iterator[Any]:
    """Every value inside a value, and every name, however deep."""
    waiting = [value]
    while waiting:
        it = waiting.pop()
        yield it
        if isinstance(it, dict):
            inside = cast("dict[str, Any]", it)
            waiting += [*inside.values(), *inside]
        elif isinstance(it, list):
            waiting += cast("list[Any]", it)


def _mapping(given: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}
