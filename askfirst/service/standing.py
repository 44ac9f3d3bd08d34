"""Standing: how a case stands for whoever looks at it now, and what came of the decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from askfirst.messages import JsonObject
from askfirst.service.case import Case, Held
from askfirst.service.continuation import GoingOn

State = Literal[
    "open",
    "held",
    "sent",
    "running",
    "done",
    "failed",
    "rejected",
    "changes_asked",
    "answered",
    "expired",
    "cancelled",
]
OutcomeState = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call that a person let run; times are seconds since 1970 (UTC).

    ``waiting``: nobody has picked it up yet. ``text`` is the result, or the error of a call that failed; it is what
    a tool returned, so untrusted, and cut to 4,000 characters (``is_cut``).
    """

    state: OutcomeState
    since: float
    text: str | None = None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Previous:
    """The round before: its arguments, what the person said to it, and when."""

    case_id: str
    args: JsonObject | None
    action: str | None
    note: str | None
    by: str | None
    at: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of what the agent did before it asked: who (``person``, ``agent``, ``tool``), and what; untrusted."""

    who: str
    text: str
    at_call: str | None = None
    """The name of the tool that was called, or that returned this."""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How a case stands.

    ``held`` while a decision made on a page waits to go out; ``is_yours`` if it was made in the browser that looks.
    ``sent``, ``running``, ``done`` and ``failed`` follow an approval; ``answered`` is any other answer that counts.
    ``lost`` is the action that this browser had held when an answer from elsewhere came first.
    """

    state: State
    version: int
    is_yours: bool = False
    action: str | None = None
    by: str | None = None
    """The name of who decided, as far as it was verified; else what they claim (``is_claimed``)."""
    is_claimed: bool = False
    at: float | None = None
    held_until: float | None = None
    note: str | None = None
    lost: str | None = None
    outcome: Outcome | None = None
    goes_on: GoingOn | None = None
    has_next: bool = False
    """Whether a newer round is there, at ``/review/{id}/next``."""


def standing_of(
    case: Case,
    now: float,
    viewer: str | None = None,
    outcome: Outcome | None = None,
    goes_on: GoingOn | None = None,
) -> Standing:
    """How a case stands at ``now`` for the browser with the mark ``viewer``."""
    version, has_next = case.version, case.next_case_id is not None
    held = case.held
    if not case.is_final and held is not None:
        return Standing(
            "held",
            version,
            is_yours=viewer is not None and viewer == held.mark,
            action=held.action,
            by=held.named,
            at=held.at,
            held_until=held.until,
            note=note_in(held.data),
        )
    if not case.is_final:
        return Standing("expired" if now >= case.expires_at else "open", version)
    by, is_claimed = _who(case)
    result: dict[str, Any] = dict(case.result or {})
    data: dict[str, Any] = dict(result.get("data") or {})
    return Standing(
        _ended(case, result, data, outcome),
        version,
        is_yours=viewer is not None and viewer == case.answered_in,
        action=result.get("action"),
        by=by,
        is_claimed=is_claimed,
        at=case.ended_at,
        note=note_in(data) or case.reason,
        lost=case.lost.action if case.lost is not None and viewer == case.lost.mark else None,
        outcome=outcome,
        goes_on=goes_on,
        has_next=has_next,
    )


def note_in(data: Any) -> str | None:
    """What a person wrote with a decision."""
    for name in ("feedback", "reason", "note"):
        said = data.get(name)
        if isinstance(said, str) and said:
            return said
    return None


def _who(case: Case) -> tuple[str | None, bool]:
    known = case.responded_by or {}
    if known:
        return str(known.get("name") or known.get("email")), False
    said = case.claimed_by or {}
    name = said.get("name") or said.get("account")
    return (None if name is None else str(name)), name is not None


def _ended(case: Case, result: dict[str, Any], data: dict[str, Any], outcome: Outcome | None) -> State:
    if case.status == "expired":
        return "expired"
    if case.status == "cancelled":
        return "cancelled"
    action = result.get("action")
    if action in ("reject", "cancel", "skip", "abort"):
        return "rejected"
    if action == "edit" and "edits" not in data:
        return "changes_asked"
    if outcome is None:
        return "answered"
    states: dict[OutcomeState, State] = {
        "waiting": "sent",
        "running": "running",
        "done": "done",
        "failed": "failed",
    }
    return states[outcome.state]


__all__ = ["Held", "Outcome", "Previous", "Standing", "State", "Step", "note_in", "standing_of"]
