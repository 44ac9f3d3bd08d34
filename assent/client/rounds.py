"""From one round of a review to the next."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from assent.client.offer import Offer
from assent.client.wait_state import WaitState
from assent.errors import ReviewContradiction

MOST_ROUNDS = 100
"""A chain that is longer than this leads nowhere."""
_REMEMBERED = 10_000


class Rounds:
    """Which cases came before which, as far as this client has seen; the oldest are forgotten."""

    def __init__(self) -> None:
        self._chains: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def begin(self, offer: Offer) -> WaitState:
        """The wait for a case that a service has just asked about, in the round that it says it is."""
        previous = offer.hitl.previous_case_id
        if previous is None:
            return WaitState(offer)
        chain = (*self._chains.get(previous, ()), previous)
        return WaitState(offer, () if offer.case_id in chain else chain)

    def ended(self, state: WaitState) -> None:
        """Remember a case for the rounds that may follow it."""
        self._chains[state.case_id] = state.earlier
        self._chains.move_to_end(state.case_id)
        if len(self._chains) > _REMEMBERED:
            self._chains.popitem(last=False)


def following(state: WaitState, next_case_id: str) -> WaitState | None:
    """The wait for the case that a service says comes next; None if where to ask about it cannot be known.

    The protocol names the next case and nothing else of it. So its addresses are those of this case with the
    other id in them, and the person's link stays the one they have; a service that shows its next round
    elsewhere has to tell them. Its form, its reminders and its buttons are not known. Raises
    `ReviewContradiction` for rounds that go in circles.
    """
    chain = (*state.earlier, state.case_id)
    if next_case_id in chain:
        raise ReviewContradiction(state.case_id, "its rounds go in circles")
    if len(chain) >= MOST_ROUNDS:
        raise ReviewContradiction(state.case_id, f"it has more than {MOST_ROUNDS} rounds")
    hitl = state.offer.hitl
    poll_url = _renamed(hitl.poll_url, state.case_id, next_case_id)
    if poll_url is None:
        return None
    events_url = None if hitl.events_url is None else _renamed(hitl.events_url, state.case_id, next_case_id)
    known = {
        "case_id": next_case_id,
        "poll_url": poll_url,
        "events_url": events_url,
        "previous_case_id": state.case_id,
        "context": None,
        "reminder_at": None,
        "submit_url": None,
        "submit_token": None,
        "inline_actions": None,
        "verification_policy": None,
    }
    return WaitState(
        replace(
            state.offer,
            hitl=hitl.model_copy(update=known),
            message=None,
            about=None,
            more={},
            has_odd_form=False,
            shown=None,
        ),
        chain,
        derived=True,
    )


def _renamed(url: str, old: str, new: str) -> str | None:
    """The address with another case's id in its path; None unless the old one stands there exactly once."""
    parts = urlsplit(url)
    path = parts.path.split("/")
    if path.count(old) != 1:
        return None
    renamed = "/".join(new if step == old else step for step in path)
    return urlunsplit(parts._replace(path=renamed))
