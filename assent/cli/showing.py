"""One thing that waits for a person, whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click

from assent.checkpointer.sql import SqlCheckpointer
from assent.cli.answers import how_to_answer
from assent.cli.database import on_database
from assent.cli.exact import exact_json, moment, now_milliseconds, span
from assent.cli.items import Asked, Item, Opened
from assent.cli.lookup import Ended, find, short
from assent.cli.output import console_for
from assent.protocol import FormField
from assent.requests import ApproveRequest, AskRequest, ConfirmRequest, EscalateRequest, Question

Labelled = tuple[str, str]
"""A label, of at most seven letters, and what stands beside it."""


def show_item(id: str, *, as_json: bool) -> None:
    """Print one thing whole, open or not."""
    found = on_database(partial(_find, id))
    if as_json:
        click.echo(json.dumps(_whole(found)))
        return
    console = console_for("out")
    from assent.delivery.column import Column

    column = Column(console)
    for label, text in _blocks(found):
        column.block(label, text)


async def _find(id: str, checkpointer: SqlCheckpointer) -> Item | Ended:
    return await find(checkpointer, id)


def _whole(found: Item | Ended) -> dict[str, Any]:
    if isinstance(found, Ended):
        return found.as_json()
    if isinstance(found, Asked):
        return {**found.as_json(), "request": found.request.payload.model_dump(mode="json")}
    names = ("message", "context", "default_action", "previous_case_id")
    return {**found.as_json(), "case": {name: getattr(found.case, name) for name in names}}


def _blocks(found: Item | Ended) -> Iterator[Labelled]:
    yield "id", found.id
    yield "kind", found.kind
    if isinstance(found, Ended):
        yield from _ended(found)
        return
    now = now_milliseconds()
    yield "from", _from(found)
    yield "asked", f"{moment(found.created_at)}, {span(now - found.created_at)} ago"
    yield "until", _until(found.expires_at, now)
    if isinstance(found, Asked):
        yield from _asked(found)
    else:
        yield from _opened(found)
    yield "answer", f"assent answer {short(found)} {how_to_answer(found)}"
    yield "page", f"assent link {short(found)} prints a link to it"


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


def _until(expires_at: int | None, now: int) -> str:
    if expires_at is None:
        return "it is answered: it has no time-out"
    left = f"{span(expires_at - now)} left" if expires_at > now else "its time is up"
    return f"{moment(expires_at)}, {left}"


def _asked(item: Asked) -> Iterator[Labelled]:
    payload = item.request.payload
    if isinstance(payload, ApproveRequest):
        yield "tool", payload.tool_name
        yield from _values("arg", payload.args)
        if payload.digest is not None:
            yield "digest", payload.digest
    elif isinstance(payload, AskRequest):
        for question in payload.questions:
            yield from _question(question)
    else:
        yield "prompt", payload.prompt
    if isinstance(payload, EscalateRequest):
        for choice in payload.choices:
            yield "choice", choice
    if isinstance(payload, ApproveRequest | ConfirmRequest | EscalateRequest):
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
    """Each value under its name: a list or an object line by line, everything else in a line."""
    for name, value in values.items():
        indent = 2 if isinstance(value, dict | list) and value else None
        yield label, f"{exact_json(name)[1:-1]} = {exact_json(value, indent=indent)}"
