"""Deciding, from the command line, what waits for a person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import click

from assent.account import os_account
from assent.checkpointer.sql import SqlCheckpointer
from assent.cli.answers import Said, case_answer, request_answer
from assent.cli.database import on_database
from assent.cli.exact import now_milliseconds
from assent.cli.items import Asked, Opened
from assent.cli.lookup import NotOpen, find_open, short
from assent.errors import (
    CaseClosed,
    CaseExpired,
    HitlNoPendingRequest,
    HitlStaleAnswer,
    InlineRefused,
    InvalidReview,
    ServiceError,
)
from assent.ids import fresh_write_id
from assent.messages import JsonObject
from assent.service import transitions
from assent.service.cases import Cases
from assent.service.person import Respondent
from assent.service.verification import Verifier
from assent.store.case_store import CaseStore
from assent.store.finish import finish
from assent.store.requests import landed, settle
from assent.store.rows import Settled
from assent.visible import visible

VIA = "cli"
_TOO_LATE = (HitlStaleAnswer, HitlNoPendingRequest, CaseClosed, CaseExpired)


def answer_item(id: str, said: Said, by: str | None) -> str:
    """Answer what waits; says so in a sentence. Raises `NotOpen`, and click's errors for what does not fit."""
    return _deciding(partial(_answer, id, said, by))


def cancel_item(id: str, reason: str, by: str | None) -> str:
    """End what waits without an answer; says so in a sentence. Raises `NotOpen`."""
    return _deciding(partial(_cancel, id, reason, by))


async def _answer(id: str, said: Said, by: str | None, checkpointer: SqlCheckpointer) -> str:
    item = await find_open(checkpointer, id)
    if isinstance(item, Asked):
        answer = request_answer(item, said)
        settled = _settled(item, "answered", by)._replace(answer=answer, digest=item.request.digest)
        await _settle(checkpointer, item, settled)
    else:
        await _answer_case(checkpointer, item, said, by)
    return f"Answered {short(item)}."


async def _cancel(id: str, reason: str, by: str | None, checkpointer: SqlCheckpointer) -> str:
    item = await find_open(checkpointer, id)
    if isinstance(item, Asked):
        await _settle(checkpointer, item, _settled(item, "cancelled", by)._replace(reason=reason))
    else:
        await Cases(checkpointer).cancel(item.case, reason, os_account(), claims=by)
    return f"Cancelled {short(item)}."


def _settled(item: Asked, status: str, by: str | None) -> Settled:
    row, now = item.row, now_milliseconds()
    # This round and no other: what was asked again since has been seen by nobody.
    settled = Settled(row.thread_id, row.question_id, status, now, fresh_write_id(), round=row.round)
    return settled._replace(by=by or os_account(), via=VIA)


async def _settle(checkpointer: SqlCheckpointer, item: Asked, settled: Settled) -> None:
    """Settle a request, and end the case that the service may have made of it."""
    row = await finish(checkpointer.engine.write(partial(settle, settled), partial(landed, settled)))
    cases = CaseStore(checkpointer.engine)
    case = await cases.of_request(row.thread_id, row.question_id, row.round)
    if case is not None:
        await finish(cases.change(case.case_id, transitions.followed(settled.now, os_account()), settled.now))
    if row.status != settled.status:  # its deadline had passed: it is timed out now, and this is late
        raise HitlStaleAnswer(row.question_id, row.status)


async def _answer_case(checkpointer: SqlCheckpointer, item: Opened, said: Said, by: str | None) -> None:
    """Answer a service's case as its page does: the same checks, the same proofs."""
    cases, case = Cases(checkpointer), item.case
    action, data = case_answer(item, said)
    await cases.check(case, action, data)
    if case.verify_email is not None:
        raise ServiceError("this case needs a code that is sent by e-mail: answer it on its page")
    try:
        await Verifier({}, cases.store.spend).check(case, "browser_submit", action, [])
    except InlineRefused as error:
        raise ServiceError("this case needs a proof that a person decided: answer it on its page") from error
    user = os_account()
    # Whom the operating system knows is told to the caller; a name that was typed is a claim, for the record only.
    known: JsonObject | None = {"name": user} if by is None else None
    claimed: JsonObject | None = None if by is None else {"name": by}
    known_by = None if known is None else "login"
    who = Respondent(by or user, VIA, known, known_by=known_by, claimed_by=claimed, surface="terminal")
    await cases.answer(case, action, data, who)


def _deciding(work: Callable[[SqlCheckpointer], Awaitable[str]]) -> str:
    """Do it, and say in a sentence why it could not be done."""
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
