"""Cases as the protocol tells of them: the hitl object, the poll answer, events and callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json

from assent.protocol import SPEC_VERSION, TokenScope
from assent.service.case import Case

_ENDED = {"completed": "completed_at", "expired": "expired_at", "cancelled": "cancelled_at"}


def iso(at: int) -> str:
    """Milliseconds since 1970 as the protocol writes times."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def review_url(base_url: str, case_id: str, token: str | None) -> str:
    """The link to the page of a case; without a token, an address that opens nothing."""
    address = f"{base_url}/review/{case_id}"
    return address if token is None else f"{address}?token={token}"


def hitl_object(case: Case, base_url: str, tokens: Mapping[TokenScope, str]) -> dict[str, Any]:
    """A case for the agent that waits for it; ``tokens`` by scope, as they were issued."""
    api = f"{base_url}/v1/reviews/{case.case_id}"
    said: dict[str, Any] = {
        "spec_version": SPEC_VERSION,
        "case_id": case.case_id,
        "review_url": review_url(base_url, case.case_id, tokens.get("review")),
        "poll_url": f"{api}/status",
        "type": case.type,
        "prompt": case.prompt,
        "timeout": case.timeout,
        "default_action": case.default_action,
        "created_at": iso(case.created_at),
        "expires_at": iso(case.expires_at),
        "callback_url": case.callback_url,
        "events_url": f"{api}/events",
    }
    if case.context:
        said["context"] = case.context
    if case.reminder_at:
        said["reminder_at"] = [iso(at) for at in case.reminder_at]
    if case.previous_case_id is not None:
        said["previous_case_id"] = case.previous_case_id
    if "submit" in tokens:
        said["submit_url"] = f"{api}/respond"
        said["submit_token"] = tokens["submit"]
        if case.inline_actions is not None:
            said["inline_actions"] = list(case.inline_actions)
    if case.verification_policy is not None:
        said["verification_policy"] = case.verification_policy
    return said


def poll_answer(case: Case) -> dict[str, Any]:
    """What `poll_url` answers."""
    said: dict[str, Any] = {
        "status": case.status,
        "case_id": case.case_id,
        "created_at": iso(case.created_at),
    }
    if case.opened_at is not None:
        said["opened_at"] = iso(case.opened_at)
    if case.ended_at is not None:
        said[_ENDED[case.status]] = iso(case.ended_at)
    elif not case.never_expires:
        said["expires_at"] = iso(case.expires_at)
    if case.status == "expired":
        said["default_action"] = case.default_action
    if case.reminder_sent_at is not None:
        said["reminder_sent_at"] = iso(case.reminder_sent_at)
    for name in ("result", "responded_by", "submission_context", "next_case_id", "reason", "progress"):
        value = getattr(case, name)
        if value is not None and not (name == "progress" and case.is_final):
            said[name] = value
    return said


def event_data(case: Case, more: Mapping[str, Any] | None = None) -> str:
    """The data of an event about a case as it stands, and what this event alone tells."""
    return to_json({**poll_answer(case), **(more or {})}).decode()


def reminder_facts(case: Case, at: int) -> dict[str, Any]:
    """What a reminder tells besides: the time that it was meant for, and what the person is reminded of."""
    return {"reminder_at": iso(at), "message": case.message or case.prompt}


def callback_body(case: Case, event: str, at: int) -> str:
    """What is posted to the agent's callback address when a case has ended."""
    said = {"event": event, "timestamp": iso(at), **poll_answer(case)}
    return to_json(said).decode()
