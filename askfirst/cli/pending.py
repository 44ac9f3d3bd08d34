"""``askfirst pending``: the open requests and cases, as a table or as JSON, once or until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.find import AgentRequest, Item, pending_items, short, shortened
from askfirst.cli.output import cells, console_for, exact_json, on_database, risk_patterns, say, span
from askfirst.display import Risk
from askfirst.service.case import Case
from askfirst.service.notices import contents_of
from askfirst.service.pages.decision import risk_of
from askfirst.service.risk_patterns import RiskPatterns
from askfirst.visible_text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WATCH_SECONDS = 1.0
URGENT_SECONDS = 600.0
"""With less time left, a line is red."""
_LONGEST = 300
_HEAD = ("ID", "DUE", "RISK", "FROM", "WHAT")
_WIDEST_ASKER = 20
_VERBS = {
    "approval": "approve",
    "selection": "choose",
    "input": "answer",
    "confirmation": "confirm",
    "escalation": "decide",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One open item as a line of the table."""

    id: str
    digits: str
    created_at: float
    expires_at: float | None
    risk: Risk
    asker: str
    what: str

    @property
    def order(self) -> tuple[float, float]:
        """What is due first comes first; what has no deadline comes last, the oldest first."""
        return (math.inf if self.expires_at is None else self.expires_at, self.created_at)

    def is_urgent(self, now: float) -> bool:
        """Whether there is little time left."""
        return self.expires_at is not None and self.expires_at - now < URGENT_SECONDS

    def cells(self, short: str, now: float) -> tuple[str, ...]:
        """The cells of the line; the last one may be shortened."""
        left = "-"
        if self.expires_at is not None:
            left = span(self.expires_at - now) if self.expires_at > now else "late"
        return (short, left, self.risk, self.asker, self.what)


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of the table as it is printed, and whether it is urgent."""

    text: str
    is_urgent: bool = False


def list_pending(*, as_json: bool, watch: bool) -> None:
    """Print what waits, once or until Ctrl-C."""
    patterns = risk_patterns()
    if as_json:
        on_database(partial(_follow, True, patterns) if watch else _print_json)
        return
    console = console_for("out")
    if not watch:
        on_database(partial(_print_table, console, patterns))
    else:
        watching = partial(_watch, console, patterns)
        on_database(watching if console.is_terminal else partial(_follow, False, patterns))


async def _print_json(checkpointer: SqlCheckpointer) -> None:
    async for item in pending_items(checkpointer):
        click.echo(json.dumps(item.as_json()))


async def _print_table(console: Console, patterns: RiskPatterns, checkpointer: SqlCheckpointer) -> None:
    print_table(console, await open_lines(checkpointer, patterns))


async def open_lines(checkpointer: SqlCheckpointer, patterns: RiskPatterns) -> list[Line]:
    """All that is open, what is due first at the top."""
    lines = [line_of(item, patterns) async for item in pending_items(checkpointer)]
    return sorted(lines, key=lambda line: line.order)


def print_table(console: Console, lines: Sequence[Line]) -> None:
    """Print the table; urgent lines are red in a terminal."""
    if console.is_terminal:
        console.print(_coloured(table(lines, time.time(), console.width), console), soft_wrap=True)
        return
    for line in table(lines, time.time(), None):
        say(line.text)


def _coloured(lines: Sequence[TableLine], console: Console) -> Text:
    from rich.text import Text

    encoding = console.encoding
    parts = [
        Text(line.text.encode(encoding, "backslashreplace").decode(encoding), "red" if line.is_urgent else "")
        for line in lines
    ]
    return Text("\n", no_wrap=True).join(parts)


async def _follow(as_json: bool, patterns: RiskPatterns, checkpointer: SqlCheckpointer) -> None:
    """Print a line for each item that opens, and one for each that ends."""
    known: dict[str, str] = {}
    while True:
        seen: set[str] = set()
        async for item in pending_items(checkpointer):
            seen.add(item.id)
            if item.id not in known:
                line = line_of(item, patterns)
                known[item.id] = short(item)
                _tell(item.as_json(), "  ".join(line.cells(known[item.id], time.time())), as_json)
        for gone in known.keys() - seen:
            _tell({"id": gone, "is_open": False}, f"{known.pop(gone)}  is settled", as_json)
        await asyncio.sleep(WATCH_SECONDS)


def _tell(value: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(value))
    else:
        say(text)


async def _watch(console: Console, patterns: RiskPatterns, checkpointer: SqlCheckpointer) -> None:
    """The table on a screen of its own, drawn anew every second."""
    from rich.live import Live

    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
        while True:
            lines = await open_lines(checkpointer, patterns)
            live.update(_coloured(_on_screen(lines, console), console), refresh=True)
            await asyncio.sleep(WATCH_SECONDS)


def _on_screen(lines: Sequence[Line], console: Console) -> list[TableLine]:
    """As many lines as fit the screen, and how many there are in all."""
    room = max(console.height - 3, 1)
    count = f"{len(lines)} open" + (f", the first {room} shown" if len(lines) > room else "")
    shown = table(lines[:room], time.time(), console.width)
    return [TableLine(f"{count}; Ctrl-C ends this"), TableLine(""), *shown]


def line_of(item: Item, patterns: RiskPatterns) -> Line:
    """An item as a line: its risk, what to do about it, and the beginning of its text."""
    payload = item.request.payload if isinstance(item, AgentRequest) else None
    call = None if payload is None else payload.gated_call
    case, sentence = item.case, sentence_of(item)
    risk = risk_of(case, patterns)
    if payload is not None and payload.call is not None and call is None:  # a call in doubt
        contents = contents_of(case, "this service", patterns=patterns)
        sentence, risk = visible(contents.said), contents.risk
    if sentence is not None:
        what = sentence
    elif call is not None:
        what = f"{visible(call.tool_name)} {exact_json(call.args)}"
    else:
        what = visible(" ".join(item.prompt.split()))
    return Line(
        item.id,
        item.digits,
        item.created_at,
        item.expires_at,
        risk,
        cut(visible(item.asker), _WIDEST_ASKER),
        cut(f"{verb_of(case)}: {what}", _LONGEST),
    )


def verb_of(case: Case) -> str:
    """What a person does about a case, in a word: the same for agents' requests and for cases of services."""
    return _VERBS.get(case.type, "answer")


def sentence_of(item: Item) -> str | None:
    """The words of a tool's author for a call, in one line; None where they gave none."""
    payload = item.request.payload if isinstance(item, AgentRequest) else None
    said = None if payload is None or payload.gated_call is None else payload.words.get("sentence")
    return visible(" ".join(said.split())) if isinstance(said, str) else None


def table(lines: Sequence[Line], now: float, width: int | None) -> list[TableLine]:
    """The lines as a table, as wide as the terminal; not shortened without one."""
    if not lines:
        return [TableLine("Nothing waits for a person.")]
    ids = shortened((line.id, line.digits) for line in lines)
    rows = [_HEAD, *(line.cells(ids[line.id], now) for line in lines)]
    widths = [max(cells(row[place]) for row in rows) for place in range(len(_HEAD) - 1)]
    room = None if width is None else max(width - sum(widths) - 2 * len(widths) - 1, 8)
    urgent = [False, *(line.is_urgent(now) for line in lines)]
    return [TableLine(_joined(row, widths, room), red) for row, red in zip(rows, urgent, strict=True)]


def _joined(row: Sequence[str], widths: Sequence[int], room: int | None) -> str:
    *before, last = row
    padded = [text + " " * (width - cells(text)) for text, width in zip(before, widths, strict=True)]
    return "  ".join([*padded, last if room is None else cut(last, room)])


def cut(text: str, most: int) -> str:
    """A text shortened to so many terminal cells, with an ellipsis if it was longer."""
    if len(text) <= most and cells(text) <= most:
        return text
    kept = text[: max(most - 3, 0)]
    while cells(kept) > most - 3:
        kept = kept[:-1]
    return f"{kept}..."


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each, with the whole text.")
@click.option(
    "--watch", is_flag=True, help="Run until Ctrl-C, and show requests as they are opened and settled."
)
def pending(as_json: bool, watch: bool) -> None:
    """List open requests and cases, the next deadline first.

    A request is an agent's, a case another program's. ID is what askfirst show, answer, link and cancel
    take. It is random, and stands for the request as it is now: if it is asked again, it gets another ID.
    DUE is how long it can still be answered ("-": no limit; "late": its deadline has passed, but no process
    has recorded that yet); below ten minutes the line is red in a terminal. RISK is low, normal, high or
    critical. FROM is the agent, or the name of the API key. WHAT is what to do (approve, choose, answer,
    confirm or decide), and the beginning of the question.

    \b
    Each line of JSON, oldest first, has id, is_open, source (agent or service),
    kind, from, prompt, created_at, expires_at (seconds since 1970, or null),
    status, and of an agent's request also tool, digest, thread_id, question_id,
    round.
    With --watch there is a line {"id": ..., "is_open": false} when one is settled.
    """

    list_pending(as_json=as_json, watch=watch)
