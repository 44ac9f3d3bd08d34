"""``askfirst pending`` and ``askfirst show``: what waits for a person, as a table, as JSON, or one item whole."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.answer_options import how_to_answer
from askfirst.cli.deliveries import as_json as as_json_row
from askfirst.cli.deliveries import in_words
from askfirst.cli.find import Asked, Ended, Item, Opened, find, pending_items, short, shortened
from askfirst.cli.output import (
    cells,
    console_for,
    exact_json,
    moment,
    on_database,
    say,
    span,
)
from askfirst.protocol import FormField
from askfirst.requests import Question
from askfirst.store import deliveries
from askfirst.store.case_rows import DeliveryRow
from askfirst.visible_text import numbered, visible

if TYPE_CHECKING:
    from rich.console import Console


# ``askfirst pending``: a table or JSON, once or until Ctrl-C.


WATCH_SECONDS = 1.0
_LONGEST = 300
_HEAD = ("ID", "KIND", "AGE", "LEFT", "FROM", "WHAT")
_WIDEST_ASKER = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One open item as a line of the table."""

    id: str
    digits: str
    kind: str
    created_at: float
    expires_at: float | None
    asker: str
    what: str

    def cells(self, short: str, now: float) -> tuple[str, ...]:
        """The cells of the line; the last one may be shortened."""
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
    for text in table(lines, time.time(), width):
        say(text)


async def _follow(as_json: bool, checkpointer: SqlCheckpointer) -> None:
    """Print a line for each item that opens, and one for each that ends."""
    known: dict[str, str] = {}
    while True:
        seen: set[str] = set()
        async for item in pending_items(checkpointer):
            seen.add(item.id)
            if item.id not in known:
                line = line_of(item)
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
    """As many lines as fit the screen, and how many there are in all."""
    room = max(console.height - 3, 1)
    count = f"{len(lines)} open" + (f", the oldest {room} shown" if len(lines) > room else "")
    return [f"{count}; Ctrl-C ends this", "", *table(lines[:room], time.time(), console.width)]


def line_of(item: Item) -> Line:
    """An item as a line, with the beginning of its text."""
    call = item.request.payload.gated_call if isinstance(item, Asked) else None
    sentence = sentence_of(item)
    if sentence is not None:
        what = sentence
    elif call is not None:
        what = f"{visible(call.tool_name)} {exact_json(call.args)}"
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


def sentence_of(item: Item) -> str | None:
    """The words of a tool's author for a call, in one line; None where they gave none."""
    payload = item.request.payload if isinstance(item, Asked) else None
    said = None if payload is None or payload.gated_call is None else payload.words.get("sentence")
    return visible(" ".join(said.split())) if isinstance(said, str) else None


def table(lines: Sequence[Line], now: float, width: int | None) -> list[str]:
    """The lines as a table, as wide as the terminal; not shortened without one."""
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
    """A text shortened to so many terminal cells, with an ellipsis if it was longer."""
    if len(text) <= most and cells(text) <= most:
        return text
    kept = text[: max(most - 3, 0)]
    while cells(kept) > most - 3:
        kept = kept[:-1]
    return f"{kept}..."


# ``askfirst show``: one item, whole.


Labelled = tuple[str, str]
"""A label of at most seven letters, and the text beside it."""


def show_item(id: str, *, as_json: bool) -> None:
    """Print one item whole, open or not."""
    found, told = on_database(partial(_find, id))
    if as_json:
        more = {} if isinstance(found, Ended) else {"deliveries": [as_json_row(row) for row in told]}
        click.echo(json.dumps({**_whole(found), **more}))
        return
    console = console_for("out")
    from askfirst.delivery.terminal import Column

    column = Column(console)
    for label, text in _blocks(found):
        column.block(label, text)
    for row in told:
        column.block("told", f"{row.place}, {row.kind}: {in_words(row, time.time())}")


async def _find(id: str, checkpointer: SqlCheckpointer) -> tuple[Item | Ended, list[DeliveryRow]]:
    """What has an id, and the messages to people about it, where it is open."""
    found = await find(checkpointer, id)
    if isinstance(found, Ended):
        return found, []
    return found, await checkpointer.engine.read(partial(deliveries.of_case, found.case.case_id))


def _whole(found: Item | Ended) -> dict[str, Any]:
    if isinstance(found, Ended):
        return found.as_json()
    if isinstance(found, Asked):
        return {**found.as_json(), "request": found.request.payload.model_dump(mode="json")}
    names = ("message", "context", "default_action", "previous_case_id")
    return {**found.as_json(), "case": {name: getattr(found.case, name) for name in names}}


def _blocks(found: Item | Ended) -> Iterator[Labelled]:
    if not isinstance(found, Ended) and (sentence := sentence_of(found)) is not None:
        yield "asks", sentence
    yield "id", found.id
    yield "kind", found.kind
    if isinstance(found, Ended):
        yield from _ended(found)
        return
    now = time.time()
    yield "from", _from(found)
    yield "asked", f"{moment(found.created_at)}, {span(now - found.created_at)} ago"
    yield "until", _until(found.expires_at, now)
    if isinstance(found, Asked):
        yield from _asked(found)
    else:
        yield from _opened(found)
    yield "answer", f"askfirst answer {short(found)} {how_to_answer(found)}"
    yield "page", f"askfirst link {short(found)} prints a link to it"


def _ended(ended: Ended) -> Iterator[Labelled]:
    yield "prompt", ended.prompt
    yield "status", ended.status.replace("_", " ")
    if ended.ended_at is not None:
        yield "at", moment(ended.ended_at)
    for label, text in (("by", ended.by), ("via", ended.via), ("reason", ended.reason)):
        if text:
            yield label, text


def _from(item: Item) -> str:
    if isinstance(item, Opened):
        return f"a service, by the API key {item.asker}"
    row = item.row
    agent = "an agent" if item.agent_id is None else f"the agent {item.agent_id}"
    again = f", asked for the {row.round}. time" if row.round > 1 else ""
    return f"{agent}, thread {row.thread_id}, question {row.question_id}{again}"


def _until(expires_at: float | None, now: float) -> str:
    if expires_at is None:
        return "it is answered: it has no time-out"
    left = f"{span(expires_at - now)} left" if expires_at > now else "its time is up"
    return f"{moment(expires_at)}, {left}"


def _asked(item: Asked) -> Iterator[Labelled]:
    payload = item.request.payload
    if payload.gated_call is not None:
        yield "tool", payload.gated_call.tool_name
        yield from _values("arg", payload.gated_call.args)
        if payload.approval_digest is not None:
            yield "digest", payload.approval_digest
    elif payload.questions_asked:
        for question in payload.questions_asked:
            yield from _question(question)
    else:
        for sentence in payload.sentences:
            yield "prompt", sentence
    for choice in payload.choices_given or ():
        yield "choice", choice
    yield from _values("detail", payload.details or {})


def _question(question: Question) -> Iterator[Labelled]:
    how = "any number of choices" if question.multi_select else "one choice" if question.options else "text"
    yield "key", f"{question.key} ({how}{'' if question.required else ', may be left out'})"
    yield "prompt", question.prompt
    for option in question.options or ():
        about = f": {option.description}" if option.description else ""
        own = " (or a text of one's own)" if option.allow_input else ""
        yield "choice", f"{exact_json(option.value)} {option.label}{about}{own}"


def _opened(item: Opened) -> Iterator[Labelled]:
    case = item.case
    yield "prompt", case.prompt
    if case.message:
        yield "message", case.message
    yield from _values("context", {name: value for name, value in case.context.items() if name != "form"})
    if case.form is not None:
        for field in case.form.all_fields:
            yield "field", _field(field)
    yield "default", case.default_action
    if case.previous_case_id is not None:
        yield "follows", case.previous_case_id


def _field(field: FormField) -> str:
    needs = ", required" if field.required else ""
    choices = "".join(f"\n  {exact_json(option.value)} {option.label}" for option in field.options or ())
    condition = ""
    if field.conditional is not None:
        when = field.conditional
        condition = f"\n  only if {when.field} {when.operator} {exact_json(when.value)}"
    return f"{field.key} ({field.type}{needs}): {field.label}{condition}{choices}"


def _values(label: str, values: Mapping[str, Any]) -> Iterator[Labelled]:
    """Each value under its name: a list, an object or a text of several lines line by line, the rest in a line."""
    for name, value in values.items():
        if isinstance(value, str) and "\n" in value:
            yield label, f"{exact_json(name)[1:-1]} = {value.count(chr(10)) + 1} lines\n{numbered(value)}"
            continue
        indent = 2 if isinstance(value, dict | list) and value else None
        yield label, f"{exact_json(name)[1:-1]} = {exact_json(value, indent=indent)}"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each, whole.")
@click.option("--watch", is_flag=True, help="Go on until Ctrl-C, and show what comes and goes.")
def pending(as_json: bool, watch: bool) -> None:
    """List what waits for a person, oldest first.

    That is what agents ask, and the cases that other services have opened. ID is what askfirst show, answer, link
    and cancel take; it is random, stands for what is asked now, and asked again it gets another one.
    AGE is how long it has waited, LEFT how long it can still be answered ("-": for ever; "late": its time is
    up, but nobody has noted that yet), FROM the agent or the API key's name, WHAT the beginning of what is
    asked.

    \b
    Each line of JSON has id, is_open, source (agent or service), kind, from,
    prompt, created_at, expires_at (seconds since 1970, or null), status, and of
    an agent's request also tool, digest, thread_id, question_id, round.
    With --watch there is a line {"id": ..., "is_open": false} when one is gone.
    """

    list_pending(as_json=as_json, watch=watch)


@click.command()
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON.")
def show(id: str, as_json: bool) -> None:
    """Show what waits under ID, whole, and how to answer it.

    ID is what askfirst pending prints, or the whole id; an agent's request can also be looked at, but not
    answered, by THREAD/QUESTION. Values are JSON, in which whatever would hide or act in a terminal is an
    escape. What the agent or the service wrote stands beside its label, and nothing in it can pass for one.

    \b
    The JSON is that of askfirst pending, and "request", what the agent asks, or
    "case", with message, context, default_action, previous_case_id; "deliveries"
    are the messages to people, as askfirst deliveries has them. Of what has
    ended there are id, is_open (false), kind, prompt, status, ended_at, by, via
    and reason.
    """

    show_item(id, as_json=as_json)
