"""Results that stand in for what a tool would have returned, or has."""

from __future__ import annotations

from assent.messages import JsonObject, ToolCall, ToolResultMessage
from assent.requests import ApproveAnswer, StoredRequest


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
