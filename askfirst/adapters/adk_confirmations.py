"""The confirmations that the gate has asked Google ADK for, read from a session's events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

CONFIRMATION = "adk_request_confirmation"
"""The function call by which ADK asks for a confirmation."""
OURS = "askfirst"
"""The field of a confirmation's payload that marks it as a confirmation of the gate."""


class Confirmation(NamedTuple):
    """A confirmation that the gate has asked for, about one call."""

    call_id: str
    id: str
    tool: str
    args: dict[str, Any]
    """The arguments as a person sees them: with the tool's defaults."""


def open_confirmations(events: Sequence[Any]) -> list[Confirmation]:
    """The gate's confirmations that ADK still accepts answers to: no result of the call has followed an answer."""
    found: dict[str, Confirmation] = {}
    answered: set[str] = set()
    for event in events:
        for call in event.get_function_calls():
            if call.name == CONFIRMATION and (read := _read(call)) is not None:
                found[read.call_id] = read
        for response in event.get_function_responses():
            if event.author == "user":
                answered.add(response.id)
            elif response.id in found and found[response.id].id in answered:
                del found[response.id]
    return list(found.values())


def _read(asked: Any) -> Confirmation | None:
    args: dict[str, Any] = asked.args or {}
    ours: Any = args.get("toolConfirmation", {}).get("payload")
    call: dict[str, Any] = args.get("originalFunctionCall", {})
    if not isinstance(ours, dict) or OURS not in ours:
        return None
    return Confirmation(call["id"], asked.id, call["name"], ours[OURS]["args"])
