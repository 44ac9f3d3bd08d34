"""``askfirst show``: one request or case as a whole; one that has ended with its decision and outcome."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import click

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.answer_options import how_to_answer
from askfirst.cli.deliveries import as_json as as_json_row
from askfirst.cli.deliveries import in_words
from askfirst.cli.find import AgentRequest, Ended, Item, ServiceCase, find, short
from askfirst.cli.output import console_for, exact_json, moment, on_database, risk_patterns, span
from askfirst.cli.pending import verb_of
from askfirst.formats import formatted
from askfirst.protocol import FormField
from askfirst.requests import Question
from askfirst.service.case import Case
from askfirst.service.case_state import Outcome
from askfirst.service.notices import contents_of, ended_of
from askfirst.service.page_data import going_on, outcome_of
from askfirst.service.pages.decision import other_details, words_for
from askfirst.store import deliveries
from askfirst.store.case_rows import DeliveryRow
from askfirst.visible_text import numbered

Labelled = tuple[str, str]
"""A label of at most seven letters, and the text beside it."""
_OUTCOMES = {
    "waiting": "it has not run yet: no agent or worker has taken it up",
    "running": "it is running",
    "done": "it ran",
    "failed": "it failed",
}
_HIDDEN = "hidden"


def show_item(id: str, *, as_json: bool, raw: bool) -> None:
    """Print one item whole, open or not."""
    found, told, came_of = on_database(partial(find_whole, id))
    if as_json:
        more = {} if isinstance(found, Ended) else {"deliveries": [as_json_row(row) for row in told]}
        click.echo(json.dumps({**_whole(found, came_of), **more}))
        return
    print_item(found, told, came_of, raw=raw)


def print_item(
    found: Item | Ended, told: Sequence[DeliveryRow], came_of: Outcome | None, *, raw: bool = False
) -> None:
    """Print what `find_whole` has found, in labelled lines."""
    from askfirst.delivery.terminal import Column

    column = Column(console_for("out"))
    blocks = _ended(found, came_of) if isinstance(found, Ended) else _open(found, raw=raw)
    for label, text in blocks:
        column.block(label, text)
    for row in told:
        column.block("told", f"{row.place}, {row.kind}: {in_words(row, time.time())}")


async def find_whole(
    id: str, checkpointer: SqlCheckpointer
) -> tuple[Item | Ended, list[DeliveryRow], Outcome | None]:
    """What has an id; if it is open, the messages to people about it; if it has ended, its outcome."""
    found = await find(checkpointer, id)
    engine = checkpointer.engine
    if isinstance(found, Ended):
        return found, [], await outcome_of(engine, found.case, await going_on(engine, found.case))
    return found, await engine.read(partial(deliveries.of_case, found.case.case_id)), None


def _whole(found: Item | Ended, came_of: Outcome | None) -> dict[str, Any]:
    if isinstance(found, Ended):
        action = (found.case.result or {}).get("action")
        return {**found.as_json(), "action": action, "outcome": None if came_of is None else came_of.state}
    if isinstance(found, AgentRequest):
        return {**found.as_json(), "request": found.request.payload.model_dump(mode="json")}
    names = ("message", "context", "default_action", "previous_case_id")
    return {**found.as_json(), "case": {name: getattr(found.case, name) for name in names}}


def _open(found: Item, *, raw: bool) -> Iterator[Labelled]:
    now = time.time()
    contents = contents_of(found.case, "this service", patterns=risk_patterns())
    yield verb_of(found.case), contents.said
    yield "id", found.id
    yield "from", _from(found)
    yield "asked", f"{moment(found.created_at)}, {span(now - found.created_at)} ago"
    yield "until", _until(found.expires_at, now)
    yield "risk", contents.risk
    for each in contents.consequences:
        yield "effect", each
    if contents.reason is not None:
        yield "why", contents.reason
    if isinstance(found, AgentRequest):
        yield from _asked(found, raw=raw)
    else:
        yield from _opened(found, raw=raw)
    yield "answer", f"askfirst answer {short(found)} {how_to_answer(found)}"
    yield "page", f"askfirst link {short(found)} prints a link to it"


def _ended(ended: Ended, came_of: Outcome | None) -> Iterator[Labelled]:
    yield "asked", contents_of(ended.case, "this service").said
    yield "id", ended.id
    yield "status", ended.status.replace("_", " ")
    yield "ended", ended_of(ended.case).text
    if ended.ended_at is not None:
        yield "at", moment(ended.ended_at)
    for label, text in (("by", ended.by), ("via", ended.via), ("reason", ended.reason)):
        if text:
            yield label, text
    if came_of is not None:
        said = _OUTCOMES.get(came_of.state, came_of.state)
        more = f":\n{came_of.text}" if came_of.text else ""
        yield "outcome", f"{said}, {moment(came_of.since)}{more}{' …' if came_of.is_cut else ''}"


def _from(item: Item) -> str:
    if isinstance(item, ServiceCase):
        return f"a service, by the API key {item.asker}"
    row = item.row
    name = next(reversed(item.request.agents), None) or item.agent_id
    agent = "an agent" if name is None else f"the agent {name}"
    again = f", asked for the {row.round}. time" if row.round > 1 else ""
    return f"{agent}, thread {row.thread_id}, question {row.question_id}{again}"


def _until(expires_at: float | None, now: float) -> str:
    if expires_at is None:
        return "it is answered: it has no time-out"
    left = f"{span(expires_at - now)} left" if expires_at > now else "its time is up"
    return f"{moment(expires_at)}, {left}"


def _asked(item: AgentRequest, *, raw: bool) -> Iterator[Labelled]:
    payload = item.request.payload
    if payload.shown_call is not None:
        tool_name, args = payload.shown_call
        yield "tool", tool_name
        yield from _values("arg", args, item.case, raw=raw)
        if payload.approval_digest is not None:
            yield "digest", payload.approval_digest
    elif payload.questions_asked:
        for question in payload.questions_asked:
            yield from _question(question)
    for choice in payload.choices_given or ():
        yield "choice", choice
    yield from _values("detail", other_details(payload), raw=raw)


def _question(question: Question) -> Iterator[Labelled]:
    how = "any number of choices" if question.multi_select else "one choice" if question.options else "text"
    yield "key", f"{question.key} ({how}{'' if question.required else ', may be left out'})"
    yield "prompt", question.prompt
    for option in question.options or ():
        about = f": {option.description}" if option.description else ""
        own = " (or a text of one's own)" if option.allow_input else ""
        yield "choice", f"{exact_json(option.value)} {option.label}{about}{own}"


def _opened(item: ServiceCase, *, raw: bool) -> Iterator[Labelled]:
    case = item.case
    if case.message:
        yield "message", case.message
    facts = {name: value for name, value in case.context.items() if name != "form"}
    yield from _values("context", facts, case, raw=raw)
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


def _values(
    label: str, values: Mapping[str, Any], case: Case | None = None, *, raw: bool
) -> Iterator[Labelled]:
    """Each value under its name, with its label and format; a text of several lines as numbered lines.

    ``raw`` prints exact JSON in place of texts and formats. A secret is not printed.
    """
    words: Mapping[str, Any] = {} if case is None else words_for(case)
    labels, formats = (_texts(words.get(name)) for name in ("labels", "formats"))
    for name, value in values.items():
        word = labels.get(name, name)
        named = exact_json(name)[1:-1] if word == name else f"{word} ({exact_json(name)[1:-1]})"
        yield label, f"{named} = {_value(value, formats.get(name, ''), raw=raw)}"


def _value(value: Any, form: str, *, raw: bool) -> str:
    if form == "secret":
        return _HIDDEN
    exact = exact_json(value, indent=2 if isinstance(value, dict | list) and value else None)
    if raw:
        return exact
    if isinstance(value, str):
        if "\n" in value:
            return f"{value.count(chr(10)) + 1} lines\n{numbered(value)}"
        said = formatted(value, form)
        return value if said is None else f"{said} ({value})" if said != value else value
    said = formatted(value, form)
    return exact if said is None or said == exact else f"{said} ({exact})"


def _texts(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        return {}
    return {name: text for name, text in cast("dict[str, Any]", given).items() if isinstance(text, str)}


@click.command()
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON.")
@click.option("--raw", is_flag=True, help="Print values as exact JSON, without labels' formats.")
def show(id: str, as_json: bool, raw: bool) -> None:
    """Show the whole request or case ID, and how to answer it.

    ID is an id that askfirst pending prints, or the whole id of a case. An agent's request can also be
    shown, but not answered, by THREAD/QUESTION. What has ended is shown with the decision and its outcome. A
    text of several lines is printed as numbered lines; control characters and invisible characters are printed
    as <U+200B>. With --raw, values are JSON in which they are escaped. Texts of the agent or the service stand
    beside a label, and cannot imitate one.

    \b
    The JSON is that of askfirst pending, and "request", what the agent asks, or
    "case", with message, context, default_action, previous_case_id; "deliveries"
    are the messages to people, as in askfirst deliveries. A request or case that
    has ended has id, is_open (false), kind, prompt, status, ended_at, by, via,
    reason, action (the decision) and outcome (waiting, running, done, failed).
    """

    show_item(id, as_json=as_json, raw=raw)
