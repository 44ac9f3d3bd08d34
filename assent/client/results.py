"""The service's last word on a case as the outcome that a caller gets, once it fits what was asked."""

from __future__ import annotations

from typing import Any, cast, get_args

from assent.client.offer import Offer
from assent.client.outcome import OutcomeStatus, ReviewOutcome
from assent.client.wait_state import WaitState
from assent.errors import InvalidOutcome, ReviewContradiction
from assent.protocol import ACTIONS, DefaultAction, PollAnswer, sensitive_keys, visible_fields
from assent.protocol.values import is_empty

_DEFAULTS: tuple[str, ...] = get_args(DefaultAction)


def outcome_of(state: WaitState, answer: PollAnswer, *, is_verified: bool = False) -> ReviewOutcome:
    """The outcome of a case that has ended.

    Raises `InvalidOutcome` if the action was not on offer or what the form requires is missing, and
    `ReviewContradiction` for a case that expired with another default than its service declared.
    """
    status = cast("OutcomeStatus", answer.status)
    default = default_of(state.offer, answer) if status == "expired" else None
    data: dict[str, Any] = {}
    action = default or "cancelled"
    if status == "completed" and answer.result is not None:
        action, data = answer.result.action, answer.result.data or {}
        _check_action(state.offer, action)
        if not state.offer.has_odd_form:
            _check_form(state.offer, action, data)
    return ReviewOutcome(
        status,
        action,
        state.case_id,
        data,
        rounds=state.round,
        responded_by=answer.responded_by,
        submission_context=answer.submission_context,
        default_action=default,
        reason=answer.reason,
        next_case_id=answer.next_case_id,
        is_verified=is_verified,
        more=answer.aside,
        offer_more=state.offer.more,
        sensitive=_sensitive(state.offer, data),
    )


def _sensitive(offer: Offer, data: dict[str, Any]) -> frozenset[str]:
    """The keys whose values are not to be shown: all of them, if the form that says so could not be read."""
    if offer.has_odd_form:
        return frozenset(data)
    return frozenset() if offer.hitl.form is None else sensitive_keys(offer.hitl.form)


def default_of(offer: Offer, answer: PollAnswer) -> str:
    """What is done now that nobody has answered: what the service declared, else ``skip``."""
    declared = offer.hitl.default_action
    said = answer.default_action if answer.default_action in _DEFAULTS else None
    if declared is not None and said is not None and said != declared:
        raise ReviewContradiction(
            offer.case_id, f"its default was {declared}, and now that it expired the service says {said}"
        )
    return said or declared or "skip"


def _check_action(offer: Offer, action: str) -> None:
    """What nobody could choose was not chosen. Escalations, and types of a service's own, may offer more."""
    offered = ACTIONS.get(offer.hitl.type)
    if offered is not None and offer.hitl.type != "escalation" and action not in offered:
        fault = f"is none of {', '.join(offered)}, which is all that a case of this type offers"
        raise InvalidOutcome(offer.case_id, {"result.action": fault})


def _check_form(offer: Offer, action: str, data: dict[str, Any]) -> None:
    form = offer.hitl.form
    if form is None or action != "submit":
        return
    faults = {
        f"result.data.{field.key}": "is required"
        for field in visible_fields(form, data)
        if field.required and is_empty(data.get(field.key))
    }
    if faults:
        raise InvalidOutcome(offer.case_id, faults)
