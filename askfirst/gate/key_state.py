"""The state of a key, read from the rows of its thread: pure functions without I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, cast

from askfirst.checkpointer.base import StoredEffect, StoredThread
from askfirst.gate.action import Action
from askfirst.gate.outcomes import Approved, Refused, Stored
from askfirst.messages import AssistantMessage, JsonObject, ToolCall, ToolResultMessage
from askfirst.requests import ApproveAnswer, EscalateAnswer, StoredRequest, approves
from askfirst.store.rows import GATE_RUN

CALL = "call"
"""The id of the one call of a key: its request has this id, and its effect."""
RUN = GATE_RUN
PREFIX = "gate:"
"""The prefix of the thread ids under which keys are stored."""
_LONGEST = 200

_UNREADABLE = Stored(error="what is stored of its end cannot be read")

KeyState = Literal["open", "running", "in doubt", "done"]


def thread_of(key: str) -> str:
    """The thread id under which a key's rows are stored, for keys of any length and with any characters."""
    plain = key.isascii() and key.isprintable() and not key.endswith(" ")
    if plain and len(key) <= _LONGEST:
        return f"{PREFIX}{key}"
    return f"{PREFIX}sha256:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"


def key_of(thread_id: str) -> str:
    """The key of a thread id; for a key that is too long, its digest."""
    return thread_id.removeprefix(PREFIX)


def idempotency_key(key: str) -> str:
    """The idempotency key of a key: the same at every attempt, different for every other key, short enough for an
    HTTP header."""
    return hashlib.sha256(f"askfirst-gate\0{thread_of(key)}".encode()).hexdigest()[:40]


def key_state(stored: StoredThread | None) -> KeyState:
    """The state of a key: open (not begun), running, in doubt, or done."""
    if stored is None:
        return "open"
    if result_in(stored) is not None:
        return "done"
    if CALL not in stored.effects:
        return "open"
    return "running" if stored.is_leased else "in doubt"


def result_in(stored: StoredThread) -> Stored | None:
    """How the body ended, if it has."""
    for message in reversed(stored.messages):
        if isinstance(message, ToolResultMessage) and message.tool_call_id == CALL:
            details: Any = (message.details or {}).get("gate")
            return Stored(**cast("dict[str, Any]", details)) if isinstance(details, dict) else _UNREADABLE
    return None


def call_message(action: Action) -> AssistantMessage:
    """The call as the first message of a key's thread."""
    return AssistantMessage([ToolCall(CALL, action.tool, action.args)], stop_reason="tool_use")


def result_message(tool: str, ended: Stored) -> ToolResultMessage:
    """How a body ended, as the last message of a key's thread."""
    kept = {name: value for name in Stored.__slots__ if (value := getattr(ended, name)) is not None}
    kept = kept or {"value": None}
    text = "failed" if ended.error is not None else "ran"
    return ToolResultMessage(
        CALL, tool, text, is_error=ended.error is not None, details=cast(JsonObject, {"gate": kept})
    )


def has_call(messages: Sequence[Any]) -> bool:
    """Whether the call is on record."""
    return any(isinstance(message, AssistantMessage) for message in messages)


def decided(known: StoredRequest | None, action: Action) -> Approved | Refused | None:
    """The decision about exactly this action; None while there is none, or if the request was about another
    action."""
    if known is None or known.status == "pending" or not approves(known.request, action.digest, action.seal):
        return None
    return decision_in(known, action.args)


def decision_in(known: StoredRequest, args: JsonObject) -> Approved | Refused | None:
    """How a request was settled, as a decision about a call with these arguments."""
    answer = known.answer
    match known.status:
        case "answered" if isinstance(answer, ApproveAnswer):
            if answer.decision == "deny":
                return Refused(answer.reason or "a person denied it", known.answered_by)
            if answer.edited_args is None:
                return Approved(args, known.answered_by)
            return Approved(answer.edited_args, known.answered_by, is_edited=True)
        case "timed_out":
            return Refused("nobody answered in time")
        case "cancelled":
            return Refused(
                f"the request was cancelled ({known.reason or 'no reason given'})", known.answered_by
            )
        case "aborted":
            return Refused(f"the request was aborted ({known.reason or 'no reason given'})")
        case _:
            return None


def doubt_of(stored: StoredThread) -> tuple[StoredEffect, StoredRequest | None]:
    """An effect in doubt, and what a person was asked about this attempt of it, if one was."""
    effect = stored.effects[CALL]
    return effect, stored.requests.get(doubt_id(effect.attempt))


def doubt_id(attempt: int) -> str:
    """The id of the request that asks what to do about an attempt whose end is unknown."""
    return f"{CALL}:escalate:{attempt}"


def doubt_answer(known: StoredRequest | None) -> EscalateAnswer | Refused | None:
    """A person's answer to run an effect in doubt again, or why it does not run; None while nobody has answered."""
    if known is None or known.status == "pending":
        return None
    if isinstance(known.answer, EscalateAnswer):
        if known.answer.action == "retry":
            return known.answer
        why, said = (
            "the call may have run before, and a person chose not to run it again",
            known.answer.reason,
        )
        return Refused(f"{why}: {said}" if said else why, known.answered_by)
    return Refused(
        "the call may have run before, and nobody decided whether to run it again", known.answered_by
    )
