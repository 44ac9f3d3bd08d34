"""Records of decisions about calls, and every sentence that the model is told about a call."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from askfirst.agent.arguments import parse_edit
from askfirst.agent.tools import Tool, json_object
from askfirst.errors import HitlCancelled, HitlTimedOut
from askfirst.messages import JsonObject, ToolCall, ToolResultMessage, call_digest
from askfirst.requests import ApproveAnswer, EscalateAnswer, StoredRequest

# The record of a person's decision, which goes into the result's ``details["hitl"]``.


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
    """The record of a person's answer about a call in doubt."""
    trace: JsonObject = {"decision": f"human_{answer.action}"}
    edited = answer.modified_params
    shown = None if edited is None else shown_edit(tool, args, edited)
    if shown is not None:
        trace["edited_args"] = shown
    return trace | _given(answer.reason, answer.answered_by, answer.via)


def shown_edit(tool: Tool, args: BaseModel | None, edited: Mapping[str, Any]) -> JsonObject | None:
    """Edited arguments as they are shown: what a person typed into a masked field is masked.

    None if they do not fit the tool: then it is unknown which of them are secret.
    """
    read = parse_edit(tool, args, edited)
    return None if isinstance(read, str) else _as_shown(read, edited)


def _as_shown(read: BaseModel, edited: Mapping[str, Any]) -> JsonObject:
    """The arguments that an edit names, as shown."""
    return {name: value for name, value in json_object(read).items() if name in edited}


def _given(reason: str | None, answered_by: str | None, via: str | None) -> JsonObject:
    fields = {"reason": reason, "answered_by": answered_by, "via": via}
    return {name: value for name, value in fields.items() if value is not None}


def with_decision(before: JsonObject | None, latest: JsonObject) -> JsonObject:
    """The record with one more decision, which replaces who decided before, and why.

    An earlier ``human_retry`` is kept as ``retry``.
    """
    if not before or "decision" not in latest:
        return {**(before or {}), **latest}
    kept = {name: value for name, value in before.items() if name not in _OF_ONE_DECISION}
    if before.get("decision") == "human_retry":
        kept["retry"] = {name: before[name] for name in _OF_ONE_DECISION if name in before}
    return kept | latest


def refusal_of(tool_name: str, signal: HitlTimedOut | HitlCancelled) -> tuple[str, JsonObject]:
    """What the model is told, and the record, if a request timed out or was cancelled."""
    if isinstance(signal, HitlTimedOut):
        return f"{tool_name} was not run: {signal}.", {"decision": "timed_out", "seconds": signal.seconds}
    trace: JsonObject = {"decision": "cancelled"}
    trace |= _given(signal.reason, signal.answered_by, signal.via)
    return f"{tool_name} was not run: the request was cancelled ({signal.reason}).", trace


def said_of(signal: HitlTimedOut | HitlCancelled) -> str:
    """Why a request has no answer, in words."""
    if isinstance(signal, HitlTimedOut):
        return f"a person was asked, and {signal}"
    return f"a person was asked, and the request was cancelled ({signal.reason})"


def edit_notice(args: BaseModel, trace: JsonObject | None) -> str | None:
    """What the model is told before the result of a call whose arguments a person changed."""
    if trace is None or "edited_args" not in trace:
        return None
    return edited_notice(json_object(args))


def edited_notice(args: JsonObject) -> str:
    """What the model is told before the result of a call that ran with these arguments in place of its own."""
    ran = json.dumps(args, ensure_ascii=False)
    return f"Note: a person changed the arguments before this ran. It ran with {ran}. Its result:"


def with_answer(trace: JsonObject | None, known: StoredRequest | None, decision: str) -> JsonObject | None:
    """The record of a call that is not run, with the person's earlier answer about it, if there is one.

    ``decision`` is the record's decision if ``trace`` has none.
    """
    if known is None or not isinstance(known.answer, ApproveAnswer):
        return trace
    said = {"answer": known.answer.decision, "answered_by": known.answered_by, "via": known.via}
    return {"decision": decision, **(trace or {}), **{k: v for k, v in said.items() if v is not None}}


def synthetic(call: ToolCall, why: str, trace: JsonObject | None) -> ToolResultMessage:
    """A result for a call whose body returned nothing: it did not run, or was interrupted."""
    details: JsonObject = {"synthetic": True}
    if trace is not None:
        details["hitl"] = trace
    return ToolResultMessage(call.id, call.name, why, is_error=True, details=details)


# What the model is told about a call, each sentence in one place.


def unknown_tool(name: str, known: list[str]) -> str:
    """The model called a tool that does not exist."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"There is no tool called {name}.{hint} Available tools: {', '.join(known) or 'none'}."


def expected(tool: Tool) -> str:
    """The arguments that a tool takes, in a sentence."""
    properties = tool.schema.parameters.get("properties")
    required = tool.schema.parameters.get("required")
    names = [str(name) for name in properties] if isinstance(properties, Mapping) else []
    needed: list[Any] = required if isinstance(required, list) else []
    if not names:
        return "It takes no arguments: send {}."
    listed = ", ".join(name if name in needed else f"{name} (optional)" for name in names)
    return f"It takes a JSON object with: {listed}."


def not_an_object(tool: Tool) -> str:
    """Arguments that are no JSON object."""
    return f"The arguments of {tool.name} were not a JSON object. {expected(tool)}"


def invalid_args(tool: Tool, faults: str) -> str:
    """Arguments that the tool does not take."""
    return f"The arguments of {tool.name} are invalid, so it was not run. {faults} {expected(tool)}"


def denial(tool_name: str, reason: str | None) -> str:
    """A person denied the call."""
    return f"A person denied {tool_name}" + (f": {reason}" if reason else ".")


def not_allowed(tool_name: str, reason: str | None) -> str:
    """The policy or a guardrail denied the call."""
    return f"{tool_name} was not run: it is not allowed" + (f" ({reason})." if reason else ".")


def blocked(tool_name: str) -> str:
    """A middleware hook blocked the call without a reason."""
    return f"{tool_name} was not allowed to run."


def not_run(tool_name: str, why: str) -> str:
    """Something went wrong before the body could start."""
    return f"{tool_name} was not run: {why}."


CHANGED_UNSEEN = "after a person approved it, arguments were changed that people are not shown"
UNKNOWN_END = "It was started before and interrupted: whether it took effect then is unknown."


def misfit(tool_name: str, faults: str) -> str:
    """A person's edit does not fit the tool."""
    return f"{tool_name} was not run: the edited arguments do not fit. {faults}"


def not_rerun(tool_name: str, reason: str | None) -> str:
    """Its end was unknown, and a person chose to skip it."""
    return f"{tool_name} was not run again, as a person decided" + (f": {reason}" if reason else ".")


def misfit_rerun(tool_name: str, faults: str) -> str:
    """Its end was unknown, and the arguments for another try do not fit."""
    return f"{tool_name} was not run again: the new arguments do not fit. {faults}"


def gave_up(tool_name: str, signal: HitlTimedOut | HitlCancelled) -> str:
    """The body asked a person itself, and got no answer."""
    return f"{tool_name} stopped before its end, for {said_of(signal)}. What it had done by then stands."


def failed(tool_name: str, what: str | None) -> str:
    """The body raised, or the subagent failed."""
    return f"{tool_name} failed: {what}"


def withheld(tool_name: str, why: str) -> str:
    """The body ran, and an ``after_tool_call`` hook withholds its result."""
    return f"{tool_name} ran, but what came of it is withheld: {why}."


SUPERSEDED_CALL = "Not run: the conversation went on without it."
INTERRUPTED = "Interrupted while it ran: whether it took effect is unknown. Check before trying again."
INTERRUPTED_HARMLESS = "Interrupted while it ran. It has no effects, so it may be tried again."


def ended_before(why: str) -> str:
    """The run ended before the call's turn came."""
    return f"Not run: {why}."


LARGE = 100_000
"""Results with fewer characters than this are never replaced."""


def too_large(result: ToolResultMessage, problem: str) -> ToolResultMessage:
    """An error result in place of one that is too large for the database."""
    said = f"{result.tool_name} ran, and what it returned is too large to be stored ({problem})."
    record = (result.details or {}).get("hitl")
    details: JsonObject | None = None if record is None else {"hitl": record}
    return ToolResultMessage(result.tool_call_id, result.tool_name, said, is_error=True, details=details)
