"""Friction: what the server requires before a decision of high risk counts: a second step, a reason, a fresh code."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from askfirst.digests import canonical_json
from askfirst.errors import EmailCodeRefused, InlineRefused, InvalidMessage, InvalidReview
from askfirst.limits import is_hold
from askfirst.service.case import Case
from askfirst.service.case_state import note_in
from askfirst.service.pages.decision import ACTING, LEAST_REASON, Decision, risk_of
from askfirst.smtp import is_mailable

logger = logging.getLogger("askfirst.service")
NOTES: Mapping[str, str] = {
    "approval": "feedback",
    "escalation": "reason",
    "confirmation": "note",
    "selection": "note",
}
"""The field of an answer's data with the person's note, by case type."""
_CARRIED_NOTE_LIMIT = 5_000
"""The longest note that a further step (the second step, or the one with a code) can post again, in characters."""
StepUpLack = Literal["mail", "address"]
"""Why no fresh code can be sent: the service has no mail server, or knows no address of the reader."""
_LACK_SENTENCES: Mapping[StepUpLack, str] = {
    "mail": "This is critical: it takes a fresh code by e-mail, and this service cannot send e-mail. "
    "You can only reject it here. Tell whoever runs the service.",
    "address": "This is critical: it takes a fresh code by e-mail, and this service does not know your address. "
    "You can only reject it here. Tell whoever runs the service.",
}
"""A sentence for each. The catalogue has the same as ``fault.stepup.mail`` and ``fault.stepup.address``."""
_LACK_CAUSES: Mapping[StepUpLack, str] = {
    "mail": "set ASKFIRST_SMTP_URL",
    "address": "its reader has no e-mail address from a login (identify), and the request names none (to)",
}
"""The cause or remedy of each, for the operator's log."""


def hold_of(case: Case, usual: float) -> float:
    """How many seconds a decision is held: as the rule that asks sets it, otherwise ``usual``."""
    details: Mapping[str, Any] = (None if case.payload is None else case.payload.details) or {}
    given = details.get("hold_seconds")
    return float(given) if is_hold(given) else usual


def is_acting(case: Case, action: str, data: Mapping[str, Any] | None) -> bool:
    """Whether this decision acts: after it the call runs or the answer is used.

    An edit with feedback alone does not.
    """
    if action == "edit":
        return "edits" in (data or {})
    if case.type == "escalation":  # an agent may have choices of its own
        return action not in ("skip", "abort")
    return action in ACTING.get(case.type, ("submit",))


def confirm_value(case: Case, action: str, data: Mapping[str, Any] | None) -> str:
    """The value that the field ``confirmed`` must have: a digest of the case, what it shows, and the answer."""
    said = {name: value for name, value in (data or {}).items() if name not in NOTES.values()}
    return _digest({"case": case.case_id, "digest": case.digest, "action": action, "data": said})


def changed_digest(case: Case, data: Mapping[str, Any] | None) -> str:
    """The digest of the arguments that an answer brings in place of those that were shown; empty without any.

    A code by e-mail counts for these arguments only: its mail says what they are.
    """
    edited = edited_args(case, data)
    return "" if edited is None else _digest(edited)


def edited_args(case: Case, data: Mapping[str, Any] | None) -> Any:
    """The arguments that an answer brings in place of those that were shown; None without any."""
    return (data or {}).get("modified_params" if case.type == "escalation" else "edits")


def _digest(value: Any) -> str:
    try:
        return hashlib.sha256(canonical_json(value)).hexdigest()
    except InvalidMessage:
        raise InvalidReview({"data": "has a value that JSON cannot hold"}) from None


def second_step_faults(
    decision: Decision, case: Case, data: Mapping[str, Any] | None, *, unread: bool, looked: bool
) -> dict[str, str]:
    """What is missing in a posted second step: sentences by field."""
    faults: dict[str, str] = {}
    friction = decision.friction
    if friction.reason and len((note_in(data or {}) or "").strip()) < LEAST_REASON:
        faults[note_field(case)] = f"Give a reason of at least {LEAST_REASON} characters."
    if friction.tick and not unread:
        faults["unread"] = "Open what is folded, or say that you decide without having read all of it."
    if friction.look and not looked:
        faults["looked"] = "Look at the lines that match a risk pattern, and say that you have."
    return faults


def carry_faults(case: Case, data: Mapping[str, Any]) -> dict[str, str]:
    """The fault of a note that is too long for a further step. Other long values are stored in the draft."""
    too_long = len(note_in(data) or "") > _CARRIED_NOTE_LIMIT
    return {note_field(case): f"must have at most {_CARRIED_NOTE_LIMIT} characters"} if too_long else {}


def note_field(case: Case) -> str:
    """The field of the note in a case's answer."""
    return NOTES.get(case.type, "note")


def check_json(decision: Decision, case: Case, action: str, data: Mapping[str, Any] | None) -> None:
    """Raise `InvalidReview` for an acting decision that was sent as JSON and lacks the required reason."""
    if is_acting(case, action, data) and (
        faults := second_step_faults(decision, case, data, unread=True, looked=True)
    ):
        raise InvalidReview({f"data.{name}": fault for name, fault in faults.items()})


def check_inline(decision: Decision, case: Case, action: str) -> None:
    """Raise `InlineRefused` for a messenger's button if it acts and the risk is high or critical."""
    if decision.friction.second_step and is_acting(
        case, action, {"edits": None} if action == "edit" else None
    ):
        why = "This is of high risk, so it is decided on the review page."
        raise InlineRefused(case.case_id, "action_not_inline", why)


def stepped_up(case: Case) -> Case:
    """The case with the address for a fresh code (step-up), if its risk is critical and its caller named no address.

    The address is that of the reader's login, else of the person to whom the request is addressed.
    """
    if risk_of(case) != "critical" or case.verify_email is not None or case.is_final:
        return case
    login = case.reader
    details: Mapping[str, Any] = (None if case.payload is None else case.payload.details) or {}
    known = [(login or {}).get("email"), details.get("to")]
    found = [it for it in known if isinstance(it, str) and "@" in it and is_mailable(it)]
    return replace(case, verify_email=tuple(found[:1]), is_stepped_up=True)


def step_up_lack(case: Case, *, can_mail: bool) -> StepUpLack | None:
    """Why this reader cannot approve a critical case at all; None if they can. For a case that `stepped_up` made.

    The page says so before anything is pressed, so that nobody writes a reason, or waits for a code, in vain.
    """
    if risk_of(case) != "critical" or case.is_final:
        return None
    if not can_mail:
        return "mail"
    return "address" if case.is_stepped_up and not case.verify_email else None


def step_up_faults(
    case: Case, action: str, data: Mapping[str, Any] | None, *, can_mail: bool
) -> dict[str, str]:
    """The fault of an acting decision for which no fresh code can be sent. It is also logged for the operator."""
    lack = step_up_lack(case, can_mail=can_mail)
    if lack is None or not is_acting(case, action, data):
        return {}
    logger.warning("case %s is critical, and no code can be sent: %s", case.case_id, _LACK_CAUSES[lack])
    return {"": _LACK_SENTENCES[lack]}


def without_step_up(case: Case, action: str, data: Mapping[str, Any] | None) -> Case:
    """The case without the step-up if the decision does not act: then no fresh code is needed.

    Raises `EmailCodeRefused` if a code is needed and no address is known (fail closed).
    """
    if not case.is_stepped_up:
        return case
    if is_acting(case, action, data):
        if not case.verify_email:  # fail closed
            raise EmailCodeRefused(case.case_id, "verification_required", _LACK_SENTENCES["address"])
        return case
    return replace(case, verify_email=None)
