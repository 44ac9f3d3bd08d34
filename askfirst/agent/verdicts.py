"""Records and sentences about a call that did not run, or ran with other arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from askfirst.agent.arguments import parse_edit
from askfirst.agent.tools import Tool, json_object
from askfirst.errors import HitlCancelled, HitlTimedOut
from askfirst.messages import JsonObject, ToolCall, ToolResultMessage, call_digest
from askfirst.requests import ApproveAnswer, EscalateAnswer, StoredRequest

# What is recorded of a person's decision, and what the model is told of it.


APPROVED = frozenset({"human_approve", "human_edit"})
_OF_ONE_DECISION = ("digest", "reason", "answered_by", "via", "seconds")
_DECISIONS = {"approve": "human_approve", "deny": "human_deny", "edit": "human_edit"}


def args_digest(tool: Tool, args: BaseModel) -> str:
    """The digest of a call as a person sees it and as it runs: with defaults filled in."""
    return call_digest(tool.name, json_object(args))


def approve_trace(
    tool: Tool, args: BaseModel, answer: ApproveAnswer, digest: str | None = None
) -> JsonObject:
    """The record of an answer, bound to the digest of what may run: ``args`` as they were shown, or as edited.

    An edit that does not fit the tool is bound to nothing. ``digest`` is that of ``args``, where it is known.
    """
    edited = answer.edited_args if answer.decision == "edit" else None
    runs = args if edited is None else parse_edit(tool, args, edited)
    trace: JsonObject = {"decision": _DECISIONS[answer.decision]}
    if not isinstance(runs, str):
        trace["digest"] = digest if digest is not None and runs is args else args_digest(tool, runs)
    if edited is not None and not isinstance(runs, str):
        trace["edited_args"] = _as_shown(runs, edited)
    return trace | _given(answer.reason, answer.answered_by, answer.via)


def escalate_trace(tool: Tool, args: BaseModel, answer: EscalateAnswer) -> JsonObject:
    """The record of what a person chose for a call whose end nobody saw."""
    trace: JsonObject = {"decision": f"human_{answer.action}"}
    edited = answer.modified_params
    shown = None if edited is None else shown_edit(tool, args, edited)
    if shown is not None:
        trace["edited_args"] = shown
    return trace | _given(answer.reason, answer.answered_by, answer.via)


def shown_edit(tool: Tool, args: BaseModel | None, edited: Mapping[str, Any]) -> JsonObject | None:
    """Edited arguments as they are shown: what a person typed into a masked field is masked.

    None if they do not fit the tool: nobody can say then what in them is not to be shown.
    """
    read = parse_edit(tool, args, edited)
    return None if isinstance(read, str) else _as_shown(read, edited)


def _as_shown(read: BaseModel, edited: Mapping[str, Any]) -> JsonObject:
    """As much of the arguments as an edit gave."""
    return {name: value for name, value in json_object(read).items() if name in edited}


def _given(reason: str | None, answered_by: str | None, via: str | None) -> JsonObject:
    fields = {"reason": reason, "answered_by": answered_by, "via": via}
    return {name: value for name, value in fields.items() if value is not None}


def with_decision(before: JsonObject | None, latest: JsonObject) -> JsonObject:
    """The record with one more decision: who made the one before, and why, does not count for the latest.

    That a person had it run again stays on record, as ``retry``.
    """
    if before is None or "decision" not in latest:
        return {**(before or {}), **latest}
    kept = {name: value for name, value in before.items() if name not in _OF_ONE_DECISION}
    if before.get("decision") == "human_retry":
        kept["retry"] = {name: before[name] for name in _OF_ONE_DECISION if name in before}
    return kept | latest


def refusal_of(tool_name: str, signal: HitlTimedOut | HitlCancelled) -> tuple[str, JsonObject]:
    """What the model is told, and what is recorded, when nobody decided."""
    if isinstance(signal, HitlTimedOut):
        return f"{tool_name} was not run: {signal}.", {"decision": "timed_out", "seconds": signal.seconds}
    trace: JsonObject = {"decision": "cancelled"}
    trace |= _given(signal.reason, signal.answered_by, signal.via)
    return f"{tool_name} was not run: the request was cancelled ({signal.reason}).", trace


def said_of(signal: HitlTimedOut | HitlCancelled) -> str:
    """Why there is no answer to what was asked."""
    if isinstance(signal, HitlTimedOut):
        return f"a person was asked, and {signal}"
    return f"a person was asked, and the request was cancelled ({signal.reason})"


def edit_notice(args: BaseModel, trace: JsonObject | None) -> str | None:
    """What the model is told before the result of a call whose arguments a person changed."""
    if trace is None or "edited_args" not in trace:
        return None
    ran = json.dumps(json_object(args), ensure_ascii=False)
    return f"Note: a person changed the arguments before this ran. It ran with {ran}. Its result:"


def with_answer(trace: JsonObject | None, known: StoredRequest | None, decision: str) -> JsonObject | None:
    """The record of a call that is not run, with what a person had answered about it, if one had.

    ``decision`` is what was decided instead, for a record that there is none of yet.
    """
    if known is None or not isinstance(known.answer, ApproveAnswer):
        return trace
    said = {"answer": known.answer.decision, "answered_by": known.answered_by, "via": known.via}
    return {"decision": decision, **(trace or {}), **{k: v for k, v in said.items() if v is not None}}


def synthetic(call: ToolCall, why: str, trace: JsonObject | None) -> ToolResultMessage:
    """The result of a call that nothing was returned for."""
    details: JsonObject = {"synthetic": True}
    if trace is not None:
        details["hitl"] = trace
    return ToolResultMessage(call.id, call.name, why, is_error=True, details=details)


LARGE = 100_000
"""No result is shortened that has fewer characters."""


def too_large(result: ToolResultMessage, problem: str) -> ToolResultMessage:
    """In place of a result that no statement is large enough for."""
    said = f"{result.tool_name} ran, and what it returned is too large to be stored ({problem})."
    record = (result.details or {}).get("hitl")
    details: JsonObject | None = None if record is None else {"hitl": record}
    return ToolResultMessage(result.tool_call_id, result.tool_name, said, is_error=True, details=details)
