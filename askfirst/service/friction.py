"""What the server demands before a decision of high risk counts: a second step, a reason, a fresh code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from askfirst.digests import canonical_json
from askfirst.errors import EmailCodeRefused, InlineRefused, InvalidReview
from askfirst.service.case import Case
from askfirst.service.pages.decision import ACTING, LEAST_REASON, Decision, risk_of
from askfirst.service.standing import note_in
from askfirst.smtp import is_mailable

NOTES: Mapping[str, str] = {
    "approval": "feedback",
    "escalation": "reason",
    "confirmation": "note",
    "selection": "note",
}
"""Where an answer of a type has what the person wrote."""
_CANNOT_STEP_UP = (
    "This needs a fresh code by e-mail, and the service knows no address of yours, or can send no e-mail. "
    "You can still reject it; tell whoever runs the service."
)


def is_acting(case: Case, action: str, data: Mapping[str, Any] | None) -> bool:
    """Whether something happens after this decision. Asking for changes, with feedback alone, lets nothing run."""
    if action == "edit":
        return "edits" in (data or {})
    return action in ACTING.get(case.type, ("submit",))


def confirm_value(case: Case, action: str, data: Mapping[str, Any] | None) -> str:
    """What ``confirmed`` has to be for this decision: a digest of the case, what it shows, and the answer."""
    said = {name: value for name, value in (data or {}).items() if name not in NOTES.values()}
    shown = canonical_json({"case": case.case_id, "digest": case.digest, "action": action, "data": said})
    return hashlib.sha256(shown).hexdigest()


def faults_of(
    decision: Decision, case: Case, data: Mapping[str, Any] | None, *, unread: bool
) -> dict[str, str]:
    """What is missing in the second step, by field."""
    faults: dict[str, str] = {}
    friction = decision.friction
    if friction.reason and len((note_in(data or {}) or "").strip()) < LEAST_REASON:
        faults[note_field(case)] = f"Give a reason of at least {LEAST_REASON} characters."
    if friction.tick and not unread:
        faults["unread"] = "Open what is folded, or say that you decide without having read all of it."
    return faults


def note_field(case: Case) -> str:
    """The field of the note in a case's answer."""
    return NOTES.get(case.type, "note")


def check_json(decision: Decision, case: Case, action: str, data: Mapping[str, Any] | None) -> None:
    """Raise `InvalidReview` for a critical decision, sent as JSON, that has no reason."""
    if is_acting(case, action, data) and (faults := faults_of(decision, case, data, unread=True)):
        raise InvalidReview({f"data.{name}": fault for name, fault in faults.items()})


def check_inline(decision: Decision, case: Case, action: str) -> None:
    """Raise `InlineRefused` for a messenger's button that would let something of high risk happen."""
    if decision.friction.second_step and is_acting(
        case, action, {"edits": None} if action == "edit" else None
    ):
        why = "This is of high risk, so it is decided on the review page."
        raise InlineRefused(case.case_id, "action_not_inline", why)


def stepped_up(case: Case) -> Case:
    """The case with the address that a fresh code goes to, where its risk asks for one and no caller named any."""
    if risk_of(case) != "critical" or case.verify_email is not None or case.is_final:
        return case
    login = case.reader
    details: Mapping[str, Any] = (None if case.payload is None else case.payload.details) or {}
    known = [(login or {}).get("email"), details.get("to")]
    found = [it for it in known if isinstance(it, str) and "@" in it and is_mailable(it)]
    return replace(case, verify_email=tuple(found[:1]), is_stepped_up=True)


def without_step_up(case: Case, action: str, data: Mapping[str, Any] | None) -> Case:
    """The case as this decision needs it: one after which nothing happens needs no fresh code."""
    if not case.is_stepped_up:
        return case
    if is_acting(case, action, data):
        if not case.verify_email:  # fail closed
            raise EmailCodeRefused(case.case_id, "verification_required", _CANNOT_STEP_UP)
        return case
    return replace(case, verify_email=None)
