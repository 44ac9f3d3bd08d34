"""What is recorded of a person's decision, and what the model is told of it."""

from __future__ import annotations

import json

from pydantic import BaseModel, ValidationError

from assent.agent.tools import Tool, json_object
from assent.errors import HitlCancelled, HitlTimedOut
from assent.messages import JsonObject, call_digest
from assent.requests import ApproveAnswer, EscalateAnswer

APPROVED = frozenset({"human_approve", "human_edit"})
_OF_ONE_DECISION = ("digest", "reason", "answered_by", "via", "seconds")
_DECISIONS = {"approve": "human_approve", "deny": "human_deny", "edit": "human_edit"}


def args_digest(tool: Tool, args: BaseModel) -> str:
    """The digest of a call as a person sees it and as it runs: with defaults filled in."""
    return call_digest(tool.name, json_object(args))


def approve_trace(tool: Tool, digest: str, answer: ApproveAnswer) -> JsonObject:
    """The record of an answer, bound to the digest of what may run: as it was shown, or as edited."""
    edited = answer.edited_args if answer.decision == "edit" else None
    bound = digest if edited is None else _edited_digest(tool, edited)
    trace: JsonObject = {"decision": _DECISIONS[answer.decision], "digest": bound}
    return trace | _given(answer.reason, answer.answered_by, answer.via, edited)


def escalate_trace(answer: EscalateAnswer) -> JsonObject:
    """The record of what a person chose for a call whose end nobody saw."""
    trace: JsonObject = {"decision": f"human_{answer.action}"}
    return trace | _given(answer.reason, answer.answered_by, answer.via, answer.modified_params)


def _given(
    reason: str | None, answered_by: str | None, via: str | None, edited: JsonObject | None
) -> JsonObject:
    fields = {"reason": reason, "answered_by": answered_by, "via": via, "edited_args": edited}
    return {name: value for name, value in fields.items() if value is not None}


def with_decision(before: JsonObject | None, latest: JsonObject) -> JsonObject:
    """The record with one more decision: who made the one before, and why, does not count for the latest."""
    dropped = _OF_ONE_DECISION if "decision" in latest else ()
    return {name: value for name, value in (before or {}).items() if name not in dropped} | latest


def _edited_digest(tool: Tool, edited: JsonObject) -> str:
    try:
        return args_digest(tool, tool.parameters.model_validate(edited))
    except ValidationError:  # the gate refuses it and says why
        return call_digest(tool.name, edited)


def refusal_of(tool_name: str, signal: HitlTimedOut | HitlCancelled) -> tuple[str, JsonObject]:
    """What the model is told, and what is recorded, when nobody decided."""
    if isinstance(signal, HitlTimedOut):
        return f"{tool_name} was not run: {signal}.", {"decision": "timed_out", "seconds": signal.seconds}
    return f"{tool_name} was not run: the request was cancelled ({signal.reason}).", {
        "decision": "cancelled",
        "reason": signal.reason,
    }


def edit_notice(args: BaseModel, trace: JsonObject | None) -> str | None:
    """What the model is told before the result of a call whose arguments a person changed."""
    if trace is None or "edited_args" not in trace:
        return None
    ran = json.dumps(json_object(args), ensure_ascii=False)
    return f"Note: a person changed the arguments before this ran. It ran with {ran}. Its result:"
