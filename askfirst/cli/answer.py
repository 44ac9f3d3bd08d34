"""``askfirst answer`` and ``askfirst cancel``: deciding from the command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import IO, Any, cast

import click
from pydantic_core import from_json

from askfirst.account import os_account
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.cli.answer_options import Said, case_answer, request_answer
from askfirst.cli.find import AgentRequest, NotOpen, ServiceCase, find_open, short
from askfirst.cli.output import on_database, say
from askfirst.clock import SystemClock, milliseconds
from askfirst.concurrency import finish
from askfirst.errors import (
    CaseClosed,
    CaseExpired,
    HitlNoPendingRequest,
    HitlStaleAnswer,
    InlineRefused,
    InvalidReview,
    ServiceError,
)
from askfirst.ids import fresh_write_id
from askfirst.messages import JsonObject
from askfirst.service import transitions
from askfirst.service.cases import Cases
from askfirst.service.person import MOST_CHARACTERS, Respondent
from askfirst.service.verification import Verifier
from askfirst.store import cases as case_store
from askfirst.store.requests import landed, settle
from askfirst.store.rows import Settled
from askfirst.visible_text import visible

VIA = "cli"
_TOO_LATE = (HitlStaleAnswer, HitlNoPendingRequest, CaseClosed, CaseExpired)


def answer_item(id: str, said: Said, by: str | None) -> str:
    """Answer an open item; returns a sentence that says so. Raises `NotOpen`, and click's errors for options that do
    not fit."""
    return _deciding(partial(_answer, id, said, by))


def cancel_item(id: str, reason: str, by: str | None) -> str:
    """Cancel an open item; returns a sentence that says so. Raises `NotOpen`."""
    return _deciding(partial(_cancel, id, reason, by))


async def _answer(id: str, said: Said, by: str | None, checkpointer: SqlCheckpointer) -> str:
    item = await find_open(checkpointer, id)
    if isinstance(item, AgentRequest):
        answer = request_answer(item, said)
        settled = _settled(item, "answered", by)._replace(answer=answer, digest=item.request.digest)
        await _settle(checkpointer, item, settled)
    else:
        await _answer_case(checkpointer, item, said, by)
    return f"Answered {short(item)}."


async def _cancel(id: str, reason: str, by: str | None, checkpointer: SqlCheckpointer) -> str:
    item = await find_open(checkpointer, id)
    if isinstance(item, AgentRequest):
        await _settle(checkpointer, item, _settled(item, "cancelled", by)._replace(reason=reason))
    else:
        await Cases(checkpointer).cancel(item.case, reason, os_account(), claims=by)
    return f"Cancelled {short(item)}."


def _settled(item: AgentRequest, status: str, by: str | None) -> Settled:
    row, now = item.row, milliseconds(SystemClock())
    # The answer counts for this round only: nobody here has seen a later one.
    settled = Settled(row.thread_id, row.question_id, status, now, fresh_write_id(), round=row.round)
    return settled._replace(by=by or os_account(), via=VIA)


async def _settle(checkpointer: SqlCheckpointer, item: AgentRequest, settled: Settled) -> None:
    """Settle a request, and end the case that the service may have made of it."""
    row = await finish(checkpointer.engine.write(partial(settle, settled), partial(landed, settled)))
    engine, write_id = checkpointer.engine, fresh_write_id()
    case = await engine.read(partial(case_store.of_request, row.thread_id, row.question_id, row.round))
    if case is not None:
        followed = transitions.settled_elsewhere(settled.now, os_account())
        change = partial(case_store.change, case.case_id, followed, settled.now, write_id)
        await finish(engine.write(change, partial(case_store.changed, case.case_id, write_id)))
    if (
        row.status != settled.status
    ):  # its deadline had passed: the request is timed out now, and this answer is too late
        raise HitlStaleAnswer(row.question_id, row.status)


async def _answer_case(checkpointer: SqlCheckpointer, item: ServiceCase, said: Said, by: str | None) -> None:
    """Answer a service's case as its page does: the same checks, the same proofs."""
    cases, case = Cases(checkpointer), item.case
    action, data = case_answer(item, said)
    await cases.check(case, action, data)
    if case.verify_email is not None:
        raise ServiceError("this case needs a code that is sent by e-mail: answer it on its page")
    try:
        await Verifier({}, cases.engine).check(case, "browser_submit", action, [])
    except InlineRefused as error:
        raise ServiceError("this case needs a proof that a person decided: answer it on its page") from error
    user = os_account()
    # The caller is told the operating system's account; a typed name is a claim, for the record only.
    known: JsonObject | None = {"name": user} if by is None else None
    claimed: JsonObject | None = None if by is None else {"name": by}
    known_by = None if known is None else "login"
    who = Respondent(by or user, VIA, known, known_by=known_by, claimed_by=claimed, surface="terminal")
    await cases.answer(case, action, data, who)


def _deciding(work: Callable[[SqlCheckpointer], Awaitable[str]]) -> str:
    """Run the work on the database; errors become a sentence."""
    try:
        return on_database(work, acts=True)
    except _TOO_LATE as error:
        raise NotOpen(f"{error}.") from error
    except InvalidReview as error:
        faults = {
            path.removeprefix("data.").removeprefix("edits."): fault for path, fault in error.faults.items()
        }
        told = "; ".join(f"{path} {fault}" for path, fault in faults.items())
        raise click.ClickException(
            visible(f"this answer does not fit, nothing was changed: {told}.")
        ) from error


def _named(_context: click.Context, _option: click.Parameter, sets: tuple[str, ...]) -> list[tuple[str, str]]:
    """Split ``NAME=VALUE``."""
    pairs: list[tuple[str, str]] = []
    for each in sets:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{each!r} is not of the form NAME=VALUE")
        pairs.append((name, value))
    return pairs


def _read(_context: click.Context, _option: click.Parameter, file: IO[bytes] | None) -> dict[str, Any] | None:
    """The JSON object in a file."""
    if file is None:
        return None
    try:
        value = from_json(file.read(), allow_inf_nan=False)
    except ValueError as error:
        raise click.ClickException(f"the file of --edit is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise click.ClickException("the file of --edit has to hold a JSON object.")
    return cast("dict[str, Any]", value)


def _person(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name is not None and not (0 < len(name) <= MOST_CHARACTERS and name.isprintable()):
        raise click.BadParameter(f"a name has 1 to {MOST_CHARACTERS} printable characters")
    return name


by_option = click.option(
    "--by",
    metavar="NAME",
    callback=_person,
    help="The name to record as who decided. Default: the account that runs the command.",
)


@click.command()
@click.argument("id")
@click.option("--approve", is_flag=True, help="Approve the call as it is shown; or confirm.")
@click.option(
    "--deny",
    is_flag=False,
    flag_value="",
    metavar="[REASON]",
    help="Deny, with a reason if you like; the agent is told the reason.",
)
@click.option(
    "--edit",
    type=click.File("rb"),
    callback=_read,
    metavar="FILE",
    help="A file with a JSON object (- is standard input): all arguments after the edit; or all answers.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    callback=_named,
    metavar="NAME=VALUE",
    help="One argument to change; the others stay as they are. Or the answer to one question or field. "
    "Repeat it for more, and for several choices of one question.",
)
@click.option(
    "--choose",
    "chosen",
    multiple=True,
    metavar="VALUE",
    help="A choice. Repeat it where several may be chosen.",
)
@by_option
def answer(
    id: str,
    approve: bool,
    deny: str | None,
    edit: dict[str, Any] | None,
    sets: list[tuple[str, str]],
    chosen: tuple[str, ...],
    by: str | None,
) -> None:
    """Answer the open request or case ID.

    askfirst show ID says which answers it takes.

    \b
    confirm, confirmation  --approve or --deny
    approve, approval      --approve, --deny, --edit or --set
    ask, input             --set for each question or field, or --edit
    selection              --choose for each choice
    escalate, escalation   --choose retry, skip or abort; with retry perhaps
                           --set or --edit

    ID is an id that askfirst pending or askfirst show has printed, never a name that the agent chose. The
    answer counts only for what this ID stands for: if the agent has asked again with other arguments, the
    answer is refused. The value of --set is read as text if the shown value is a text, else as JSON. Edits
    are checked. If one is invalid, each fault is named, nothing is changed, and you can answer again. A
    case whose answer needs a code by e-mail or a proof is answered on its page.

    Exits with 1 if the answer is invalid, with 2 if these options do not fit this kind of request, with 4
    if it is no longer open.
    """
    from askfirst.cli.answer_options import Said

    say(answer_item(id, Said(approve, deny, edit, sets, chosen), by))


@click.command()
@click.argument("id")
@click.option(
    "--reason", default="cancelled", show_default=True, help="Why; the agent or service that asked is told."
)
@by_option
def cancel(id: str, reason: str, by: str | None) -> None:
    """Cancel the open request or case ID.

    It is settled without an answer. Exits with 4 if it is no longer open.
    """

    say(cancel_item(id, reason, by))
