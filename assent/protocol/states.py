"""The states of a case, and what may follow what."""

from collections.abc import Mapping
from typing import Literal

from assent.errors import InvalidTransition

State = Literal["pending", "opened", "in_progress", "completed", "expired", "cancelled"]
EventName = Literal[
    "review.opened",
    "review.in_progress",
    "review.reminder",
    "review.completed",
    "review.expired",
    "review.cancelled",
]

FINAL_STATES: frozenset[State] = frozenset({"completed", "expired", "cancelled"})
"""Nothing leaves these."""

_ENDS: dict[EventName, State] = {
    "review.completed": "completed",
    "review.expired": "expired",
    "review.cancelled": "cancelled",
}
_NEXT: Mapping[State, Mapping[EventName, State]] = {
    "pending": {
        "review.opened": "opened",
        "review.in_progress": "in_progress",
        "review.reminder": "pending",
        **_ENDS,
    },
    "opened": {"review.in_progress": "in_progress", "review.reminder": "opened", **_ENDS},
    "in_progress": {"review.in_progress": "in_progress", **_ENDS},
    "completed": {},
    "expired": {},
    "cancelled": {},
}


def is_final(state: State) -> bool:
    """Whether a case in this state will never change again."""
    return state in FINAL_STATES


def next_state(state: State, event: EventName) -> State:
    """The state of a case after an event.

    A case goes forward and may skip what lies between. Progress may be told again and again, and a reminder
    changes nothing. Raises `InvalidTransition` for an event that cannot happen in this state.
    """
    following = _NEXT.get(state, {}).get(event)
    if following is None:
        raise InvalidTransition(state, event)
    return following


def may_follow(earlier: State, later: State) -> bool:
    """Whether someone who saw a case in one state may find it in another afterwards, or in the same."""
    return earlier == later or later in _NEXT[earlier].values()
