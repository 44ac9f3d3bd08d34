"""What is recorded of a person's decision, and what the model is told of it."""

from __future__ import annotations

import json

from pydantic import BaseModel, ValidationError

from assent.agent.tools import Tool, json_object
from assent.errors import HitlCancelled, HitlTimedOut
from assent.messages import JsonObject, call_digest
from assent.requests import ApproveAnswer

APPROVED = frozenset({"human_approve", "human_edit"})
_DECISIONS = {"approve": "human_approve", "deny": "human_deny", "edit": "human_edit"}


def args_digest(tool: Tool, args: BaseModel) -> str:
    """The digest of a call as a person sees it and as it runs: with defaults filled in."""
    return call_digest(tool.name, json_object(args))


def approve_trace(tool: Tool, args: JsonObject, answer: ApproveAnswer) -> JsonObject:
    """The record of an answer, bound to the digest of what may run: ``args`` as shown, or as edited."""
    edited = answer.edited_args if answer.decision == "edit" else None
    digest = call_digest(tool.name, args) if edited is None else _edited_digest(tool, edited)
    trace: JsonObject = {"decision": _DECISIONS[answer.decision], "digest": digest}
    for name, value in (
        ("reason", answer.reason),
        ("answered_by", answer.answered_by),
        ("via", answer.via),
        ("edited_args", edited),
    ):
        if value is not None:
            trace[name] = value
    return trace


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


def edit_notice(trace: JsonObject | None) -> str | None:
    """What the model is told before a result whose arguments a person changed."""
    if trace is None or trace.get("decision") != "human_edit":
        return None
    ran = json.dumps(trace.get("edited_args"), ensure_ascii=False)
    return f"Note: a person changed the arguments before this ran. It ran with {ran}. Its result:"
