"""CaseState: the state of a case for one reader, including the outcome of the decision and its continuation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from askfirst.messages import JsonObject
from askfirst.service.answers import given_reason
from askfirst.service.case import Case, iso

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
GoingOnState = Literal["due", "running", "failed", "done"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call that a person approved; times are seconds since 1970 (UTC).

    ``waiting``: no agent or worker has taken it up yet. ``text`` is the tool's result, or the error of a call that
    failed. It is untrusted, and cut to 4,000 characters (``is_cut``).
    """

    state: OutcomeState
    since: float
    text: str | None = None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class GoingOn:
    """The state of a continuation: a thread that has to be resumed because a case was answered.

    Times are seconds since 1970 (UTC). ``error`` is only the type of the last error. Its text may hold secrets;
    operators see it with ``askfirst continuations``.
    """

    state: GoingOnState
    attempts: int
    error: str | None
    next_at: float | None
    """The time of the next attempt after a failure; None if there is none."""
    updated_at: float

    def wire(self) -> JsonObject:
        """The JSON object of the API."""
        return {
            "state": self.state,
            "attempts": self.attempts,
            "error": self.error,
            "next_at": None if self.next_at is None else iso(self.next_at),
            "updated_at": iso(self.updated_at),
        }


@dataclass(frozen=True, slots=True)
class Previous:
    """The previous round of a case: its arguments, or a service's facts, and the person's decision and note.

    ``number`` says which try it was, counted from 1. ``action`` is ``changes`` where another try was asked for.
    """

    case_id: str
    args: JsonObject | None
    action: str | None
    note: str | None
    by: str | None
    at: float | None
    number: int = 1
    is_yours: bool = False
    """Whether the person with the reader's login decided the previous round."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the transcript before the request: who (``person``, ``agent``, ``tool``), and what. Untrusted."""

    who: str
    text: str
    at_call: str | None = None
    """The name of the tool, if the step is a call or a result."""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Trail:
    """What the audit trail says of a case, for its page: how it was decided, and the row of that.

    ``known_by`` is how the person was verified (``login``, ``email_code``, a messenger's name). ``seq`` and ``hash``
    are None for a moment, until the row is linked into the chain. ``undone_at`` are the times at which somebody took
    a decision back before it went out, in seconds since 1970 (UTC).
    """

    known_by: str | None = None
    via: str | None = None
    seq: int | None = None
    hash: str | None = None
    undone_at: tuple[float, ...] = ()
    actor: str | None = None
    """The actor in the audit row of the decision or cancellation; None without one, or if it was the asker."""
    is_askers: bool = False
    """Whether the asker itself (the caller or the agent) cancelled the case."""


@dataclass(frozen=True, slots=True)
class CaseState:
    """The state of a case for one reader.

    ``held``: a decision made on a page can still be undone. ``sent``, ``running``, ``done`` and ``failed`` follow an
    approval; ``answered`` is an answer after which no call runs. ``is_yours``: the decision was made in the reader's
    browser; while it is held, also with the reader's login in another one. ``lost`` is the action of a held decision
    of this browser, if an answer from elsewhere came first.
    """

    state: State
    version: int
    is_yours: bool = False
    action: str | None = None
    by: str | None = None
    """The name of the person who decided: verified, or claimed (``is_claimed``); None if neither is known."""
    is_claimed: bool = False
    at: float | None = None
    held_until: float | None = None
    note: str | None = None
    lost: str | None = None
    outcome: Outcome | None = None
    goes_on: GoingOn | None = None
    has_next: bool = False
    """Whether a newer round of the case exists, at ``/review/{id}/next``."""


def case_state_of(
    case: Case,
    now: float,
    viewer: str | None = None,
    outcome: Outcome | None = None,
    goes_on: GoingOn | None = None,
) -> CaseState:
    """The state of a case at ``now`` for the browser with the mark ``viewer``."""
    version, has_next = case.version, case.next_case_id is not None
    held = case.held
    if not case.is_final and held is not None:
        return CaseState(
            "held",
            version,
            is_yours=held.was_made_by(viewer, case.reader),
            action=held.action,
            by=held.named,
            at=held.at,
            held_until=held.until,
            note=note_in(held.data),
        )
    if not case.is_final:
        return CaseState("expired" if now >= case.expires_at else "open", version)
    by, is_claimed = _who(case)
    result: dict[str, Any] = dict(case.result or {})
    data: dict[str, Any] = dict(result.get("data") or {})
    return CaseState(
        _ended(case, result, data, outcome),
        version,
        is_yours=viewer is not None and viewer == case.answered_in,
        action=result.get("action"),
        by=by,
        is_claimed=is_claimed,
        at=case.ended_at,
        note=note_in(data) or given_reason(case),
        lost=case.lost.action if case.lost is not None and viewer == case.lost.mark else None,
        outcome=outcome,
        goes_on=goes_on,
        has_next=has_next,
    )


def note_in(data: Any) -> str | None:
    """The note that a person wrote with a decision; None if there is none."""
    for name in ("feedback", "reason", "note"):
        said = data.get(name)
        if isinstance(said, str) and said:
            return said
    return None


def _who(case: Case) -> tuple[str | None, bool]:
    known = case.responded_by or case.declined_by or {}
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
