"""What came of an approved call, what its agent did before it asked, and the round before: read from the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from askfirst.clock import seconds
from askfirst.display import MOST_STEPS
from askfirst.errors import CaseNotFound, InvalidMessage, StoreError
from askfirst.messages import AssistantMessage, Message, ToolResultMessage, decode, text_of
from askfirst.service.case import Case, case_of
from askfirst.service.cases import Cases
from askfirst.service.continuation import GoingOn
from askfirst.service.standing import Outcome, Previous, Step, note_in
from askfirst.store import cases as case_store
from askfirst.store import outcomes
from askfirst.store.engine import Engine

MOST_CHARACTERS = 4_000
"""Of a result, or of an error."""
_STEP_CHARACTERS = 400
_READ = 40
"""So many of a thread's last messages are looked at."""
_RUNS = ("approve", "retry")


async def outcome_of(engine: Engine, case: Case, goes_on: GoingOn | None) -> Outcome | None:
    """What came of a call that a person let run; None where no call was to run."""
    payload = case.payload
    call = None if payload is None else payload.call
    if case.status != "completed" or call is None or case.thread_id is None or not _lets_run(case):
        return None
    since = case.ended_at or case.created_at
    found = await engine.read(partial(outcomes.effect, case.thread_id, call.tool_call_id))
    if found is None or found.attempt <= _doubted(case):
        failed = goes_on is not None and goes_on.state == "failed"
        running = goes_on is not None and goes_on.state == "running"
        if failed and goes_on is not None:
            return Outcome("failed", goes_on.updated_at, goes_on.error)
        return Outcome("running" if running else "waiting", since)
    if found.ended_at is None:
        return Outcome("running", seconds(found.started_at))
    return await _ended(engine, case.thread_id, call.tool_call_id, seconds(found.ended_at))


async def begun_of(engine: Engine, case: Case) -> float | None:
    """When the call that a case is in doubt about was begun; None for any other case."""
    payload = case.payload
    if payload is None or payload.kind != "escalate" or payload.call is None or case.thread_id is None:
        return None
    found = await engine.read(partial(outcomes.effect, case.thread_id, payload.call.tool_call_id))
    return None if found is None else seconds(found.started_at)


def _doubted(case: Case) -> int:
    """The attempt that a case in doubt is about; 0 for a call that had not begun when it was asked about."""
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
    """What the tool returned; a gate keeps it in the message's details."""
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
            read.append(decode(body))
        except InvalidMessage:  # of a newer version: the page does without
            continue
    return read


# What the agent did before.


async def steps_before(engine: Engine, case: Case) -> tuple[Step, ...]:
    """The last steps of the transcript before the case's call, or those that an adapter has handed with it."""
    payload = case.payload
    handed: Any = None if payload is None else payload.words.get("before")
    if isinstance(handed, list):
        given = [cast("dict[str, Any]", it) for it in cast("list[Any]", handed) if isinstance(it, dict)]
        return tuple(
            Step(str(it.get("who", "agent")), _cut(str(it.get("text", "")))) for it in given[-MOST_STEPS:]
        )
    call = None if payload is None else payload.call
    if call is None or case.thread_id is None:
        return ()
    return _steps(await _messages(engine, case.thread_id), call.tool_call_id)


def _steps(messages: Sequence[Message], call_id: str) -> tuple[Step, ...]:
    found: list[Step] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            if any(it.id == call_id for it in message.tool_calls):
                return tuple(found[-MOST_STEPS:])
            if text := text_of(message.content).strip():
                found.append(Step("agent", _cut(text)))
            found += [Step("agent", _cut(_written(it.args)), it.name) for it in message.tool_calls]
        elif isinstance(message, ToolResultMessage):
            text = _cut(_result_text(message))
            found.append(Step("tool", text, message.tool_name, is_error=message.is_error))
        else:
            found.append(Step("person", _cut(text_of(message.content))))
    return ()  # the call is further back than was looked


def _written(args: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {_short(value)}" for name, value in list(args.items())[:10])


def _short(value: Any) -> str:
    text = value[:100] if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:100]


def _cut(text: str) -> str:
    return text if len(text) <= _STEP_CHARACTERS else f"{text[: _STEP_CHARACTERS - 1]}…"


# Rounds.


async def previous_of(cases: Cases, case: Case) -> Previous | None:
    """The round before a case: its arguments, and the note that asked for this one. None if there is none."""
    if case.previous_case_id is None:
        return None
    try:
        before = await cases.get(case.previous_case_id)
    except (CaseNotFound, StoreError):  # purged, or unreadable: the page does without
        return None
    shown = None if before.payload is None else before.payload.shown_call
    result: dict[str, Any] = dict(before.result or {})
    known, said = before.responded_by or {}, before.claimed_by or {}
    by = known.get("name") or known.get("email") or said.get("name")
    return Previous(
        before.case_id,
        None if shown is None else shown[1],
        result.get("action"),
        note_in(dict(result.get("data") or {})),
        None if by is None else str(by),
        before.ended_at,
    )


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
