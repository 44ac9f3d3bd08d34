"""The state of a wait as a value, and the rounds of a review."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, cast
from urllib.parse import urlsplit, urlunsplit

from askfirst.client.offer import Offer
from askfirst.delivery.base import Sent
from askfirst.errors import ReviewContradiction
from askfirst.protocol import HitlObject, State

_VERSION = 1


@dataclass(frozen=True, slots=True)
class WaitState:
    """The state of the wait for one case.

    As JSON it holds the review link and the submit token: delete it when the case ends (`without_link`).
    """

    offer: Offer
    earlier: tuple[str, ...] = ()
    """The case ids of the rounds before this one, the oldest first."""
    derived: bool = False
    """Whether the service began this round by itself, so that its link is unknown."""
    seen: State = "pending"
    last_event_id: str | None = None
    reminded: tuple[float, ...] = ()
    """The reminder times (seconds since 1970) that are past."""
    sent: tuple[tuple[str, Sent], ...] = ()
    """The messages that asked, each with the label of its delivery (see `CaseNotices`): to be updated at the end.

    A delivery that is not among them has not sent the link yet.
    """

    @property
    def case_id(self) -> str:
        """The case's id."""
        return self.offer.case_id

    @property
    def round(self) -> int:
        """Which round this is, from 1."""
        return len(self.earlier) + 1

    def but(self, **changes: Any) -> Self:
        """The same with some fields changed."""
        return replace(self, **changes)

    def without_link(self) -> WaitState:
        """The state of an ended case: enough to poll its outcome again, without link and token."""
        forgotten = {"submit_url": None, "submit_token": None, "review_url": self.offer.hitl.poll_url}
        hitl = self.offer.hitl.model_copy(update=forgotten)
        return self.but(offer=replace(self.offer, hitl=hitl), sent=())

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {
            "version": _VERSION,
            "hitl": self.offer.hitl.wire(),
            "service": self.offer.service,
            "message": self.offer.message,
            "about": self.offer.about,
            "more": self.offer.more,
            "foreign_page": self.offer.foreign_page,
            "has_expiry": self.offer.has_expiry,
            "has_odd_form": self.offer.has_odd_form,
            "shown": self.offer.shown,
            "is_redirected": self.offer.is_redirected,
            "earlier": list(self.earlier),
            "derived": self.derived,
            "seen": self.seen,
            "last_event_id": self.last_event_id,
            "reminded": list(self.reminded),
            "sent": [{"to": label, **asdict(each)} for label, each in self.sent],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WaitState:
        """Read what `to_json` wrote. Raises ``ValueError`` for a version that this one does not know."""
        if data.get("version") != _VERSION:
            raise ValueError(f"a stored wait of version {data.get('version')!r} cannot be read")
        return cls(
            offer=_offer(data),
            earlier=tuple(data["earlier"]),
            derived=data["derived"],
            seen=cast("State", data["seen"]),
            last_event_id=data["last_event_id"],
            reminded=tuple(data["reminded"]),
            sent=tuple(
                (each["to"], Sent(each["delivery"], each["case_id"], each["place"])) for each in data["sent"]
            ),
        )


def _offer(data: Mapping[str, Any]) -> Offer:
    """The offer of a stored wait; fields that an older version did not store have their defaults."""
    since = {
        name: data[name]
        for name in ("about", "more", "foreign_page", "has_expiry", "has_odd_form", "shown", "is_redirected")
        if name in data
    }
    return Offer(HitlObject.read(data["hitl"]), data["service"], data["message"], **since)


# Rounds.


MOST_ROUNDS = 100
"""The most rounds of one review."""
_REMEMBERED = 10_000


class Rounds:
    """The earlier rounds of cases that this client has seen; the oldest are forgotten."""

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
    """The wait for the next round that a service names; None if its poll address cannot be derived.

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
