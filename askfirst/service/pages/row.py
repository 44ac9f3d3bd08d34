"""Row and View: one value of a case as a page shows it, and the part of a case that a page shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from askfirst.display import is_link
from askfirst.service.pages.argument_groups import Group
from askfirst.service.pages.inert_text import Html, marked

Kind = Literal["value", "amount", "lines", "list", "table", "tree", "url", "secret", "absent", "empty"]
_URL = re.compile(
    r"([a-z][a-z0-9+.-]*://(?:[^/?#\\]*@)?)(\[[^\]]*\]|[^/?#\\:@]+)(.*)", re.IGNORECASE | re.DOTALL
)
_DOUBTFUL = re.compile(r"[^/]*//[^/?#]*[\\\s\uff0f\uff1f\uff03\uff20\uff1a]")
"""What some programs end a host at, or leave out of it, others not: a backslash, a blank, a full-width sign."""


@dataclass(frozen=True, slots=True)
class View:
    """Which part of a case is shown: everything, or a chunk of the row ``row`` that begins at piece ``start``.

    ``rows_from`` is the first of many rows. ``of`` is the source of the rows (`sources.SOURCES`), empty for the
    case's own values. ``out`` shows where a link leads before the person follows it: ``link-0`` is the case's first
    link, ``row-2`` the address in row 2.
    """

    row: int | None = None
    start: int = 0
    rows_from: int = 0
    of: str = ""
    out: str = ""


ALL = View()


@dataclass(frozen=True, slots=True)
class Unopened:
    """A part of the case that the page does not show; ``row`` and ``start`` address the page that shows it.

    ``first`` to ``last`` are line numbers, positions in a list, or row numbers, as ``unit`` says.
    """

    name: Html | None
    row: int
    start: int
    first: int
    last: int
    unit: Literal["lines", "items", "rows"]
    of: str = ""
    """The source of the row; see `View`."""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of a text, or a further piece of a long line.

    ``risk`` is the name of the risk pattern that matches it.
    """

    number: int
    text: Html
    is_continued: bool = False
    risk: Html | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """A text as numbered lines. ``gap`` is the part that is left out before the line at index ``gap_at``."""

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
    risk: Html | None = None
    """The name of the risk pattern that matches a line of it."""


@dataclass(frozen=True, slots=True)
class Table:
    """A list of objects as a table."""

    columns: tuple[Html, ...]
    cells: tuple[tuple[Html, ...], ...]
    risks: tuple[tuple[Html | None, ...], ...] = ()
    """For each cell the name of the risk pattern that matches a line of it."""


@dataclass(frozen=True, slots=True)
class Address:
    """A web address in three parts, so that the host stands out. ``href`` is set if a page may link to it (https)."""

    before: Html
    host: Html
    after: Html
    href: str | None

    @property
    def whole(self) -> Html:
        """The whole address, with the host in bold."""
        return Html(f"{self.before}<strong>{self.host}</strong>{self.after}")


def address_of(text: str) -> Address | None:
    """The parts of an address; None if it has no host, or if programs disagree about which host it has."""
    found = _URL.fullmatch(text)
    if found is None or _DOUBTFUL.match(text):
        return None
    return Address(*(marked(part) for part in found.groups()), href=text if is_link(text) else None)


@dataclass(frozen=True, slots=True)
class Row:
    """One value of the case. ``label`` is the tool author's label for it; without a label the name is shown alone.

    ``kind`` says which of the further fields are set: ``text`` for a value or an amount, ``lines``, ``items`` of a
    list, ``table``, ``leaves`` of a tree, and ``url`` with ``text`` for an address.
    """

    place: int
    """The index of the value among the arguments, from 0. It does not depend on the order in which rows are shown."""
    key: str
    name: Html
    label: Html | None
    kind: Kind
    text: Html | None = None
    at: float | None = None
    """The value in seconds since 1970, if it is a time with a UTC offset."""
    raw: Html | None = None
    """The raw value, if formatting changed it."""
    format: str = ""
    is_important: bool = False
    group: Group = "first"
    """Where the page shows it, if it groups the arguments; see `argument_groups`."""
    differs: bool = False
    """Whether the value differs from the tool's default."""
    lines: Lines | None = None
    items: tuple[Html, ...] = ()
    risks: tuple[Html | None, ...] = ()
    """For each item the name of the risk pattern that matches a line of it."""
    item_count: int = 0
    table: Table | None = None
    leaves: tuple[Leaf, ...] = ()
    url: Address | None = None
    unopened: Unopened | None = None
