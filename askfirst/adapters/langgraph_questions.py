"""What an interrupt of a LangGraph graph asks people, and the resume value for their answers. No I/O.

Four kinds of values are known: LangChain's ``HITLRequest`` (one interrupt for all calls of a message) and
``ToolApprovalRequest`` (one for each call), Agent Inbox's ``HumanInterrupt``, and any other value, which is asked as
a question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from askfirst.adapters.schema_form import Form, as_text, schema_form
from askfirst.gate.outcomes import Approved, Refused
from askfirst.messages import JsonObject


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a person decides on: approve, edit or deny."""

    tool: str
    args: JsonObject
    schema: JsonObject | None = None


Part = Call | Form
PartAnswer = Approved | Refused | Any
"""The decision on a call, or the value that a form was answered with; `Refused` if nobody answered."""


@dataclass(frozen=True, slots=True)
class InterruptRequests:
    """An interrupt as requests: its parts, and a function from the answers to all parts to the resume value."""

    parts: tuple[Part, ...]
    resume: Callable[[Sequence[PartAnswer]], Any]
    can_deny: bool = True
    """Whether the interrupt has a resume value for a denial; a plain question has none."""


def requests_in(value: Any, schema: Mapping[str, Any] | None = None) -> InterruptRequests:
    """What an interrupt with this value asks people; ``schema`` is the JSON Schema of its answer."""
    kind: dict[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if isinstance(kind.get("action_requests"), list):
        return _batched(kind["action_requests"], kind.get("review_configs") or [])
    if kind.get("type") == "tool_approval":
        return _one_call(kind, schema or {})
    several: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [kind]
    if several and all(isinstance(it, dict) and "action_request" in it for it in several):
        return _inbox(several)
    return InterruptRequests((schema_form(as_text(value), schema),), lambda said: said[0], can_deny=False)


# LangChain's HumanInTheLoopMiddleware.


def _batched(
    requests: Sequence[Mapping[str, Any]], configs: Sequence[Mapping[str, Any]]
) -> InterruptRequests:
    allowed = {it["action_name"]: it["allowed_decisions"] for it in configs}
    names = [it["name"] for it in requests]
    parts = [
        _part(it["name"], it["args"], it.get("description"), allowed.get(it["name"], ["approve", "reject"]))
        for it in requests
    ]
    return InterruptRequests(
        tuple(parts),
        lambda said: {"decisions": [_decision(*it) for it in zip(names, said, strict=True)]},
    )


def _one_call(value: Mapping[str, Any], schema: Mapping[str, Any]) -> InterruptRequests:
    kinds = _decisions_in(schema)
    part = _part(value["name"], value["args"], value.get("description"), kinds, _args_in(schema))
    return InterruptRequests((part,), lambda said: _decision(value["name"], said[0]))


def _decisions_in(schema: Mapping[str, Any]) -> list[str]:
    """The decisions that a ``response_schema`` allows."""
    defs: Mapping[str, Any] = schema.get("$defs", {})
    kinds = [it.get("properties", {}).get("type", {}).get("const") for it in (schema, *defs.values())]
    return [it for it in kinds if isinstance(it, str)] or ["approve", "edit", "reject"]


def _args_in(schema: Mapping[str, Any]) -> JsonObject | None:
    """The JSON Schema of the tool's arguments in a ``response_schema``, for edits; None if there is none."""
    defs: Mapping[str, Any] = schema.get("$defs", {})
    args: Mapping[str, Any] | None = defs.get("EditedAction", {}).get("properties", {}).get("args")
    name = str(args.get("$ref", "")).rpartition("/")[2] if args else ""
    found = defs.get(name, args)
    return None if found is None else {**found, "$defs": dict(defs)}


def _decision(name: str, said: PartAnswer) -> JsonObject:
    match said:
        case Approved(args, _, True):
            return {"type": "edit", "edited_action": {"name": name, "args": args}}
        case Approved():
            return {"type": "approve"}
        case Refused(reason):
            return {"type": "reject", "message": reason}
        case _:
            return {"type": "respond", "message": said}


# Agent Inbox.


def _inbox(values: Sequence[Mapping[str, Any]]) -> InterruptRequests:
    parts: list[Part] = []
    for it in values:
        config: Mapping[str, Any] = it.get("config") or {}
        names = {"accept": "approve", "edit": "edit", "respond": "respond"}
        allowed = [ours for theirs, ours in names.items() if config.get(f"allow_{theirs}")]
        wanted = it["action_request"]
        parts.append(_part(wanted["action"], wanted["args"], it.get("description"), allowed))
    return InterruptRequests(
        tuple(parts),
        lambda said: [_human_response(*it) for it in zip(values, said, strict=True)],
    )


def _human_response(value: Mapping[str, Any], said: PartAnswer) -> JsonObject:
    config: Mapping[str, Any] = value.get("config") or {}
    action = value["action_request"]["action"]
    match said:
        case Approved(args, _, is_edited) if is_edited or not config.get("allow_accept"):
            return {"type": "edit", "args": {"action": action, "args": args}}
        case Approved():
            return {"type": "accept", "args": None}
        case Refused(reason) if config.get("allow_respond") and not config.get("allow_ignore"):
            return {"type": "response", "args": reason}
        case Refused():
            return {"type": "ignore", "args": None}
        case _:
            return {"type": "response", "args": said}


def _part(
    name: str, args: JsonObject, words: str | None, allowed: Sequence[str], schema: JsonObject | None = None
) -> Part:
    """A call to decide on; or a question, if the call cannot be approved and a person answers in the tool's place."""
    if "approve" in allowed or "edit" in allowed:
        return Call(name, args, schema if "edit" in allowed else {"const": args})
    return schema_form(words or f"{name}: {as_text(args)}", None)
