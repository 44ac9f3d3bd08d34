"""What the page of a case shows, read from the store: the decision, what follows it, earlier steps and rounds."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from pydantic_core import from_json

from askfirst.clock import seconds
from askfirst.display import MOST_STEPS, step_args
from askfirst.errors import CaseNotFound, InvalidMessage, StoreError
from askfirst.formats import ENGLISH, Style
from askfirst.messages import AssistantMessage, JsonObject, Message, ToolResultMessage, decode, text_of
from askfirst.service.case import Case, case_of
from askfirst.service.case_state import (
    GoingOn,
    GoingOnState,
    Outcome,
    Previous,
    Step,
    Trail,
    case_state_of,
    note_in,
)
from askfirst.service.cases import Cases
from askfirst.service.friction import confirm_value, hold_of, step_up_lack
from askfirst.service.pages.decision import ACTING, Decision, decision_of, values_of
from askfirst.service.pages.row import ALL, View
from askfirst.service.pages.sight import Second, Sight
from askfirst.service.transitions import AGENT
from askfirst.service.worker_threads import run_by_size
from askfirst.store import audit_chain, continuations, outcomes
from askfirst.store import cases as case_store
from askfirst.store.engine import Engine
from askfirst.store.rows import ContinuationRow, decode_text

if TYPE_CHECKING:
    from askfirst.service.context import Service  # loads FastAPI, which `askfirst show` does not need

MOST_CHARACTERS = 4_000
"""How much of a result, or of an error, is shown."""
_STEP_CHARACTERS = 400
_READ = 40
"""How many of a thread's last messages are read."""
_RUNS = ("approve", "retry")
_ERROR_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_SOME_ERROR = "an error"


async def decision_for(
    service: Service,
    case: Case,
    *,
    args: Mapping[str, Any] | None = None,
    style: Style = ENGLISH,
    view: View = ALL,
) -> Decision:
    """The `Decision` of a case, with the service's risk patterns and the name of the caller's API key."""
    name = await asker_name(service.cases.engine, case)
    begun_at = await begun_of(service.cases.engine, case)
    make = partial(
        decision_of,
        begun_at=begun_at,
        patterns=service.settings.risk_patterns,
        key_name=name,
        args=args,
        style=style,
        view=view,
    )
    return await run_by_size(case.size, make, case)


async def asker_name(engine: Engine, case: Case) -> str | None:
    """The name of the API key that opened a case. Of a request that does not name its agents, as those of earlier
    versions: the agent of its thread."""
    if case.key_id is not None:
        return await engine.read(partial(outcomes.key_name, case.key_id))
    if case.thread_id is None or (case.request is not None and case.request.agents):
        return None
    return await engine.read(partial(outcomes.agent_id, case.thread_id))


async def sight_of(
    service: Service,
    case: Case,
    *,
    style: Style = ENGLISH,
    view: View = ALL,
    second: Second | None = None,
    edits_from: int = 0,
) -> Sight:
    """Gather the `Sight` of a case for its reader, whose browser and login are in ``viewer`` and ``reader``."""
    engine = service.cases.engine
    decision = await decision_for(service, case, style=style, view=view)
    goes_on = await going_on(engine, case)
    outcome = await outcome_of(engine, case, goes_on)
    standing = case_state_of(case, seconds(service.cases.now()), case.viewer, outcome, goes_on)
    acting = next((it for it in ACTING.get(case.type, ()) if it in case.actions), None)
    login = case.reader or {}
    reader = login.get("name") or login.get("email")
    return Sight(
        decision=decision,
        standing=standing,
        organisation=service.settings.name,
        reader=None if reader is None else str(reader),
        nonce=secrets.token_urlsafe(16),
        hold_seconds=hold_of(case, service.settings.hold_seconds),
        path=f"{service.settings.base_path}/review/{quote(case.case_id, safe='')}",
        previous=await previous_of(service.cases, case),
        before=await steps_before(engine, case),
        trail=None if standing.state == "open" else await trail_of(engine, case),
        confirm_value=None if acting is None else confirm_value(case, acting, {}),
        second=second,
        view=view,
        quick_reasons=service.settings.quick_reasons,
        patterns=service.settings.risk_patterns,
        step_up_lack=step_up_lack(case, can_mail=service.email_codes is not None),
        edits_from=edits_from,
    )


# The continuation of a case: whether its thread was resumed.


async def going_on(engine: Engine, case: Case) -> GoingOn | None:
    """The continuation of an ended case; None if the case is open, or no resumer is registered for its thread."""
    if not case.is_final or case.thread_id is None:
        return None
    row = await engine.read(partial(continuations.of_case, case.case_id))
    return None if row is None else _going_on(row)


def _going_on(row: ContinuationRow) -> GoingOn:
    failed = row.state == "failed"
    return GoingOn(
        state=cast(GoingOnState, row.state),
        attempts=row.attempts,
        error=_type_of(decode_text(row.error)) if failed else None,
        next_at=seconds(row.due_at) if failed and row.due_at is not None else None,
        updated_at=seconds(row.updated_at),
    )


def _type_of(error: str | None) -> str:
    """The exception type that an error's text begins with."""
    name = (error or "").partition(":")[0]
    return name if _ERROR_TYPE.fullmatch(name) else _SOME_ERROR


# The outcome of a call.


async def outcome_of(engine: Engine, case: Case, goes_on: GoingOn | None) -> Outcome | None:
    """The outcome of a call that a person approved; None if the decision does not run a call."""
    payload = case.payload
    call = None if payload is None else payload.call
    if case.status != "completed" or call is None or case.thread_id is None or not _lets_run(case):
        return None
    since = case.ended_at or case.created_at
    found = await engine.read(partial(outcomes.effect, case.thread_id, call.tool_call_id))
    if found is None or found.attempt <= _attempt_in_doubt(case):
        failed = goes_on is not None and goes_on.state == "failed"
        running = goes_on is not None and goes_on.state == "running"
        if failed and goes_on is not None:
            return Outcome("failed", goes_on.updated_at, goes_on.error)
        return Outcome("running" if running else "waiting", since)
    if found.ended_at is None:
        return Outcome("running", seconds(found.started_at))
    return await _ended(engine, case.thread_id, call.tool_call_id, seconds(found.ended_at))


async def begun_of(engine: Engine, case: Case) -> float | None:
    """When a call in doubt was begun; None if the case is not about a call in doubt."""
    payload = case.payload
    if payload is None or payload.kind != "escalate" or payload.call is None or case.thread_id is None:
        return None
    found = await engine.read(partial(outcomes.effect, case.thread_id, payload.call.tool_call_id))
    return None if found is None else seconds(found.started_at)


def _attempt_in_doubt(case: Case) -> int:
    """The number of the attempt that is in doubt; 0 if the case is not about a call in doubt."""
    payload = case.payload
    attempt = (
        None if payload is None or payload.kind != "escalate" else (payload.details or {}).get("attempt")
    )
    return attempt if isinstance(attempt, int) else 0


def _lets_run(case: Case) -> bool:
    result: dict[str, Any] = dict(case.result or {})
    return result.get("action") in _RUNS or "edits" in (result.get("data") or {})


async def _ended(engine: Engine, thread_id: str, call_id: str, at: float) -> Outcome:
    for message in reversed(await _messages(engine, thread_id)):
        if isinstance(message, ToolResultMessage) and message.tool_call_id == call_id:
            text = _result_text(message)
            cut = len(text) > MOST_CHARACTERS
            return Outcome("failed" if message.is_error else "done", at, text[:MOST_CHARACTERS] or None, cut)
    return Outcome("done", at)


def _result_text(message: ToolResultMessage) -> str:
    """What the tool returned. A gate stores it in the message's details, other agents in its content."""
    kept: Any = (message.details or {}).get("gate")
    if not isinstance(kept, dict):
        return text_of(message.content)
    said = cast("dict[str, Any]", kept)
    if said.get("error") is not None:
        return str(said["error"])
    if said.get("digest") is not None:
        return ""
    value = said.get("value")
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


async def _messages(engine: Engine, thread_id: str) -> list[Message]:
    read: list[Message] = []
    for body in await engine.read(partial(outcomes.latest_messages, thread_id, _READ)):
        try:
            read.append(await run_by_size(len(body), decode, body))
        except InvalidMessage:  # written by a newer version: leave it out
            continue
    return read


# The agent's steps before the request.


async def steps_before(engine: Engine, case: Case) -> tuple[Step, ...]:
    """The last steps of the transcript before the case's call, or the steps that an adapter gave with the request."""
    payload = case.payload
    handed: Any = None if payload is None else payload.words.get("before")
    if isinstance(handed, list):
        given = [cast("dict[str, Any]", it) for it in cast("list[Any]", handed) if isinstance(it, dict)]
        return tuple(map(_handed, given[-MOST_STEPS:]))
    if payload is None or case.thread_id is None or case.is_final:
        return ()
    messages = await _messages(engine, case.thread_id)
    if payload.call is not None:
        return _steps(messages, payload.call.tool_call_id)
    return _steps(messages, _waiting_call(messages))


def _has_call(message: Message, call_id: str | None) -> bool:
    return isinstance(message, AssistantMessage) and any(it.id == call_id for it in message.tool_calls)


def _handed(step: Mapping[str, Any]) -> Step:
    tool = step.get("tool")
    name = tool if isinstance(tool, str) and tool else None
    text = _cut(str(step.get("text", "")))
    return Step(str(step.get("who", "agent")), text, name, is_error=step.get("failed") is True)


def _waiting_call(messages: Sequence[Message]) -> str | None:
    """The first call without a result, such as the one that asks; None if every call has one."""
    resolved = {it.tool_call_id for it in messages if isinstance(it, ToolResultMessage)}
    calls = [call.id for it in messages if isinstance(it, AssistantMessage) for call in it.tool_calls]
    return next((it for it in calls if it not in resolved), None)


def _steps(messages: Sequence[Message], call_id: str | None) -> tuple[Step, ...]:
    """The steps before the last call of an id, which may have been used before; before now, without one."""
    found: list[Step] = []
    asking = next((it for it in reversed(messages) if _has_call(it, call_id)), None)
    for message in messages:
        if isinstance(message, AssistantMessage):
            text, calls = text_of(message.content).strip(), message.tool_calls
            if text:
                found.append(Step("agent", _cut(text)))
            if message is asking:
                return tuple(found[-MOST_STEPS:])
            found += [Step("agent", _cut(step_args(it.args)), it.name) for it in calls]
        elif isinstance(message, ToolResultMessage):
            text = _cut(_result_text(message))
            found.append(Step("tool", text, message.tool_name, is_error=message.is_error))
        else:
            found.append(Step("person", _cut(text_of(message.content))))
    # Without a call to look for, all are before now. A call may not be among the messages that were read.
    return tuple(found[-MOST_STEPS:]) if call_id is None else ()


def _cut(text: str) -> str:
    return text if len(text) <= _STEP_CHARACTERS else f"{text[: _STEP_CHARACTERS - 1]}…"


# The audit trail.


_FINAL_ACTS = ("case.answered", "case.cancelled", "case.expired", "case.completed")


async def trail_of(engine: Engine, case: Case) -> Trail:
    """What the audit trail says of a case: how it was decided, in which row, and what was undone before."""
    rows = await engine.read(partial(audit_chain.of_subjects, [case.case_id]))
    undone = tuple(seconds(row.at) for row in rows if row.act == "case.undone")
    held_or_ended = [row for row in rows if row.act in (*_FINAL_ACTS, "case.held")]
    if not held_or_ended:
        return Trail(undone_at=undone)
    last = held_or_ended[-1]
    try:
        detail = cast("dict[str, Any]", from_json(last.detail))
    except ValueError:  # altered: `askfirst audit verify` reports it
        detail = {}
    known_by, via = detail.get("known_by"), detail.get("via")
    actor = decode_text(last.actor)
    is_askers = actor in (AGENT, case.key_id)
    return Trail(
        known_by if isinstance(known_by, str) else None,
        via if isinstance(via, str) else None,
        last.seq,
        last.hash,
        undone,
        None if is_askers else actor,
        is_askers,
    )


# Rounds.


async def previous_of(cases: Cases, case: Case) -> Previous | None:
    """The previous round of a case: its arguments, and the note that asked for this round. None if there is none."""
    if case.previous_case_id is None:
        return None
    try:
        before = await cases.get(case.previous_case_id)
    except (CaseNotFound, StoreError):  # purged, or cannot be read: leave it out
        return None
    call = None if before.payload is None else before.payload.shown_call
    args = values_of(before) if before.payload is None or call is not None else None
    result: dict[str, Any] = dict(before.result or {})
    known, said = before.responded_by or {}, before.claimed_by or {}
    by = known.get("name") or known.get("email") or said.get("name")
    return Previous(
        before.case_id,
        args,
        "changes"
        if case_state_of(before, seconds(cases.now())).state == "changes_asked"
        else result.get("action"),
        note_in(dict(result.get("data") or {})),
        None if by is None else str(by),
        before.ended_at,
        await _round_number(cases, before),
        is_yours=_is_of(case.reader, known),
    )


def _is_of(login: JsonObject | None, known: JsonObject) -> bool:
    email, own = known.get("email"), (login or {}).get("email")
    return bool(email and own) and str(email).lower() == str(own).lower()


async def _round_number(cases: Cases, case: Case, most: int = 50) -> int:
    """Which try a case is, counted from 1, as far back as its earlier rounds can be read."""
    number, previous = 1, case.previous_case_id
    while previous is not None and number < most:
        row = await cases.engine.read(partial(case_store.get, previous))
        if row is None:
            break
        number, previous = number + 1, from_json(row.body).get("previous_case_id")
    return number


async def newest_round(cases: Cases, case: Case, most: int = 50) -> Case:
    """The latest case of a chain of rounds; the case itself if none follows it."""
    for _ in range(most):
        if case.next_case_id is None:
            return case
        shown = await cases.engine.read(partial(case_store.shown, case.next_case_id))
        if shown is None:
            return case
        case = case_of(*shown)
    return case
