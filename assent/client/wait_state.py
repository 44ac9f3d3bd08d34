"""Where a wait stands, as a value that can be stored and taken up by another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, cast

from assent.client.offer import Offer
from assent.delivery.base import Sent
from assent.protocol import HitlObject, State

_VERSION = 1


@dataclass(frozen=True, slots=True)
class WaitState:
    """One case that is waited for, and all that is known of it.

    As JSON it holds the review link and the submit token: whoever stores it deletes it when the case ends.
    """

    offer: Offer
    earlier: tuple[str, ...] = ()
    """The case ids of the rounds before this one, the oldest first."""
    derived: bool = False
    """Whether the service began this round by itself, so that its own link is not known."""
    seen: State = "pending"
    last_event_id: str | None = None
    reminded: tuple[float, ...] = ()
    """The reminder times (seconds since 1970) that are done with."""
    sent: tuple[tuple[str, Sent], ...] = ()
    """The messages that asked, each with the label of its delivery (see `Telling`): to be updated at the end.

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
        """What is left when the case has ended: enough to ask again how it did, not enough to answer it."""
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
    """The offer of a stored wait; what it has lacked from the beginning has its usual value."""
    since = {
        name: data[name]
        for name in ("about", "more", "foreign_page", "has_expiry", "has_odd_form", "shown", "is_redirected")
        if name in data
    }
    return Offer(HitlObject.read(data["hitl"]), data["service"], data["message"], **since)
