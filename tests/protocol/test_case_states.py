"""The states of a case, against the rules written down once more."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from askfirst.errors import InvalidTransition
from askfirst.protocol import EVENT_OF, FINAL_STATES, EventName, State, is_final, may_follow, next_state

STATES: tuple[State, ...] = get_args(State)
EVENTS: tuple[EventName, ...] = get_args(EventName)
ORDER = {"pending": 0, "opened": 1, "in_progress": 2, "completed": 3, "expired": 3, "cancelled": 3}

TABLE = """
               opened in_progress reminder completed expired cancelled
pending        opened in_progress pending  completed expired cancelled
opened         -      in_progress opened   completed expired cancelled
in_progress    -      in_progress -        completed expired cancelled
completed      -      -           -        -         -       -
expired        -      -           -        -         -       -
cancelled      -      -           -        -         -       -
"""


def cells() -> list[tuple[str, str, str]]:
    head, *rows = (line.split() for line in TABLE.strip().splitlines())
    return [
        (row[0], f"review.{event}", cell) for row in rows for event, cell in zip(head, row[1:], strict=True)
    ]


@pytest.mark.parametrize(("state", "event", "expected"), cells())
def test_each_cell_of_the_table(state: State, event: EventName, expected: str) -> None:
    if expected != "-":
        assert next_state(state, event) == expected
        return
    with pytest.raises(InvalidTransition) as refused:
        next_state(state, event)
    assert (refused.value.state, refused.value.event) == (state, event)
    assert str(refused.value) == f"{event} cannot happen to a case that is {state}"


def test_the_table_is_whole() -> None:
    assert {(state, event) for state, event, _ in cells()} == {(s, e) for s in STATES for e in EVENTS}


@pytest.mark.parametrize(("state", "event"), [("done", "review.opened"), ("pending", "review.done")])
def test_unknown_names_are_refused(state: State, event: EventName) -> None:
    with pytest.raises(InvalidTransition):
        next_state(state, event)


def test_each_state_but_the_first_has_its_event() -> None:
    assert [next_state("pending", EVENT_OF[state]) for state in STATES[1:]] == list(STATES[1:])


def test_what_may_be_seen_after_what() -> None:
    for earlier in STATES:
        for later in STATES:
            assert may_follow(earlier, later) == (earlier == later or ORDER[earlier] < ORDER[later])


class Case(RuleBasedStateMachine):
    """Any events in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[State] = ["pending"]

    @rule(event=st.sampled_from(EVENTS))
    def happens(self, event: EventName) -> None:
        try:
            self.seen.append(next_state(self.seen[-1], event))
        except InvalidTransition:
            self.seen.append(self.seen[-1])

    @invariant()
    def it_goes_forward_and_ends_once(self) -> None:
        ranks = [ORDER[state] for state in self.seen]
        assert ranks == sorted(ranks)
        assert len({state for state in self.seen if is_final(state)}) <= 1

    @invariant()
    def an_end_can_be_reached_from_wherever_it_is_not(self) -> None:
        here = self.seen[-1]
        assert (
            is_final(here)
            == (here in FINAL_STATES)
            == (not may_follow(here, "completed") or here == "completed")
        )

    @invariant()
    def every_earlier_sight_agrees(self) -> None:
        assert all(may_follow(earlier, self.seen[-1]) for earlier in self.seen)


TestCase = Case.TestCase
TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
