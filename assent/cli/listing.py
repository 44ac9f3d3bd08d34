"""What waits for a person, as a table or as JSON, once or until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from assent.checkpointer.sql import SqlCheckpointer
from assent.cli.database import on_database
from assent.cli.exact import exact_json, now_milliseconds, span
from assent.cli.items import Asked, Item, pending_items
from assent.cli.lookup import short, shortened
from assent.cli.output import cells, console_for, say
from assent.requests import ApproveRequest
from assent.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

WATCH_SECONDS = 1.0
_LONGEST = 300
_HEAD = ("ID", "KIND", "AGE", "LEFT", "FROM", "WHAT")
_WIDEST_ASKER = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that waits, in short."""

    id: str
    digits: str
    kind: str
    created_at: int
    expires_at: int | None
    asker: str
    what: str

    def cells(self, short: str, now: int) -> tuple[str, ...]:
        """Its cells in the table; the last one may be cut."""
        left = "-"
        if self.expires_at is not None:
            left = span(self.expires_at - now) if self.expires_at > now else "late"
        return (short, self.kind, span(now - self.created_at), left, self.asker, self.what)


def list_pending(*, as_json: bool, watch: bool) -> None:
    """Print what waits, once or until Ctrl-C."""
    if as_json:
        on_database(partial(_follow, True) if watch else _print_json)
        return
    console = console_for("out")
    if not watch:
        on_database(partial(_print_table, console))
    else:
        on_database(partial(_watch, console) if console.is_terminal else partial(_follow, False))


async def _print_json(checkpointer: SqlCheckpointer) -> None:
    async for item in pending_items(checkpointer):
        click.echo(json.dumps(item.as_json()))


async def _print_table(console: Console, checkpointer: SqlCheckpointer) -> None:
    lines = [line_of(item) async for item in pending_items(checkpointer)]
    width = console.width if console.is_terminal else None
    for text in table(lines, now_milliseconds(), width):
        say(text)


async def _follow(as_json: bool, checkpointer: SqlCheckpointer) -> None:
    """A line for each that comes, and one for each that goes."""
    known: dict[str, str] = {}
    while True:
        seen: set[str] = set()
        async for item in pending_items(checkpointer):
            seen.add(item.id)
            if item.id not in known:
                line = line_of(item)
                known[item.id] = short(item)
                _tell(item.as_json(), "  ".join(line.cells(known[item.id], now_milliseconds())), as_json)
        for gone in known.keys() - seen:
            _tell({"id": gone, "is_open": False}, f"{known.pop(gone)}  is settled", as_json)
        await asyncio.sleep(WATCH_SECONDS)


def _tell(value: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(value))
    else:
        say(text)


async def _watch(console: Console, checkpointer: SqlCheckpointer) -> None:
    """The table on a screen of its own, drawn anew every second."""
    from rich.live import Live
    from rich.text import Text

    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
        while True:
            lines = [line_of(item) async for item in pending_items(checkpointer)]
            live.update(Text("\n".join(_on_screen(lines, console)), no_wrap=True), refresh=True)
            await asyncio.sleep(WATCH_SECONDS)


def _on_screen(lines: Sequence[Line], console: Console) -> list[str]:
    """As many lines as there is room for, and how many there are."""
    room = max(console.height - 3, 1)
    count = f"{len(lines)} open" + (f", the oldest {room} shown" if len(lines) > room else "")
    return [f"{count}; Ctrl-C ends this", "", *table(lines[:room], now_milliseconds(), console.width)]


def line_of(item: Item) -> Line:
    """An item in short: of what it says, the beginning."""
    if isinstance(item, Asked) and isinstance(item.request.payload, ApproveRequest):
        payload = item.request.payload
        what = f"{visible(payload.tool_name)} {exact_json(payload.args)}"
    else:
        what = visible(" ".join(item.prompt.split()))
    asker = visible(item.asker)
    return Line(
        item.id,
        item.digits,
        visible(item.kind),
        item.created_at,
        item.expires_at,
        cut(asker, _WIDEST_ASKER),
        cut(what, _LONGEST),
    )


def table(lines: Sequence[Line], now: int, width: int | None) -> list[str]:
    """The lines below each other, as wide as a terminal, or as they are where there is none."""
    if not lines:
        return ["Nothing waits for a person."]
    ids = shortened((line.id, line.digits) for line in lines)
    rows = [_HEAD, *(line.cells(ids[line.id], now) for line in lines)]
    widths = [max(cells(row[place]) for row in rows) for place in range(len(_HEAD) - 1)]
    room = None if width is None else max(width - sum(widths) - 2 * len(widths) - 1, 8)
    return [_joined(row, widths, room) for row in rows]


def _joined(row: Sequence[str], widths: Sequence[int], room: int | None) -> str:
    *before, last = row
    padded = [text + " " * (width - cells(text)) for text, width in zip(before, widths, strict=True)]
    return "  ".join([*padded, last if room is None else cut(last, room)])


def cut(text: str, most: int) -> str:
    """A text of at most so many cells; where it was longer, dots say so."""
    if len(text) <= most and cells(text) <= most:
        return text
    kept = text[: max(most - 3, 0)]
    while cells(kept) > most - 3:
        kept = kept[:-1]
    return f"{kept}..."
