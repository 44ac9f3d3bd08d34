"""Places: the deliveries of a service, each with a name and a list of the people who may decide there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock
from askfirst.delivery.base import AddressedDelivery, Deliver, Delivery, Press, StoredDelivery
from askfirst.delivery.registry import given_deliveries
from askfirst.errors import DeliveryError, ServiceError
from askfirst.messages import JsonObject
from askfirst.service.person import Respondent

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
_PERSON = re.compile(r"([^<>]*?)\s*<([^<>\s]+@[^<>\s]+)>")
MOST_CHARACTERS = 255


@dataclass(frozen=True, slots=True)
class Decider:
    """A person who may decide in a messenger, with the name that the operator gave."""

    name: str
    email: str | None = None

    @classmethod
    def read(cls, text: str) -> Decider:
        """Parse ``Ada Lovelace`` or ``Ada Lovelace <ada@example.com>``; raises `ServiceError`."""
        found = _PERSON.fullmatch(text.strip())
        name, email = (found[1].strip() or found[2], found[2]) if found else (text.strip(), None)
        if not name or not text.isprintable() or len(text) > MOST_CHARACTERS or "<" in name or ">" in name:
            raise ServiceError(
                f"{text!r} names nobody: write a name, or a name and an address, as in Ada <ada@example.com>"
            )
        return cls(name, email)


@dataclass(frozen=True, slots=True)
class Place:
    """One delivery of a service. ``deciders`` are the people who may press its buttons, by their account.

    An account is ``telegram:1001`` or ``slack:T024BE7LD:U2147483697``: the id that the platform vouches for, never a
    display name. ``slack:ada@example.com`` is the person whose e-mail address the platform has confirmed
    (`Press.email`). Without deciders, messages have a link and no buttons.
    """

    name: str
    delivery: Delivery
    deciders: Mapping[str, Decider] = field(default_factory=dict[str, Decider])
    facts: bool = True
    """Whether messages here tell facts besides the sentence; without them nothing can be approved here."""

    def __post_init__(self) -> None:
        """Raise `ServiceError` for an invalid name: it must be different from an address."""
        if _NAME.fullmatch(self.name.partition(":")[0]) is None:
            raise ServiceError(
                f"{self.name!r} cannot name a delivery: use small letters, digits, - and _, as in mail or ops-chat"
            )

    @property
    def has_buttons(self) -> bool:
        """Whether messages have buttons: the delivery can show them, and there is a list of who may press them."""
        return self.delivery.shows_buttons and bool(self.deciders)

    def stored_in(self, store: CheckpointKeeper, clock: Clock) -> Place:
        """The same place, with its delivery bound to an open store if it keeps something there."""
        if isinstance(self.delivery, StoredDelivery):
            return replace(self, delivery=cast(Delivery, self.delivery.stored_in(store, clock)))
        return self

    def respondent(self, press: Press) -> Respondent:
        """The person who pressed a button: one on the list, or an unknown person (``known_by`` is None).

        `check_authorized` checks later whether they may decide, as it does for every answer.
        """
        known = self.deciders.get(press.account)
        if known is None and press.email is not None:
            known = self.deciders.get(f"{press.platform}:{press.email}")
        submitted: JsonObject = {"platform": press.platform, "platform_user_id": press.platform_user_id}
        if press.display_name:
            submitted["display_name"] = press.display_name[:MOST_CHARACTERS]
        context: JsonObject = {
            "mode": "inline_submit",
            "submitted_via": press.submitted_via,
            "submitted_by": submitted,
        }
        if known is None:
            claims: JsonObject = {"account": press.account}
            return Respondent(
                via=press.submitted_via, context=context, claimed_by=claims, surface="messenger"
            )
        login: JsonObject = {"name": known.name}
        if known.email is not None:
            login["email"] = known.email
        return Respondent(
            by=known.email or known.name,
            via=press.submitted_via,
            responded_by=login,
            context=context,
            known_by=press.platform,
            surface="messenger",
            account=press.account,
        )


class Places:
    """The places of a service, by name. ``NAME:TARGET`` is the place NAME with another channel, chat or address."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._named: dict[str, Place] = {}
        for place in places:
            if place.name in self._named:
                raise ServiceError(f"two deliveries have the name {place.name!r}; each needs its own")
            self._named[place.name] = place
        self._targets: dict[str, Place] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the places, without targets."""
        return tuple(self._named)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._named.values())

    def at(self, address: str) -> Place:
        """The place with an address such as ``mail`` or ``slack:#ops``. Raises `DeliveryError` if there is none."""
        name, colon, target = address.partition(":")
        known = self._named.get(name)
        if known is None:
            told = ", ".join(self._named) or "none"
            raise DeliveryError(name, f"there is no delivery of this name; there are: {told}", permanent=True)
        if not colon:
            return known
        if address not in self._targets:
            if not isinstance(known.delivery, AddressedDelivery):
                raise DeliveryError(
                    name, f"cannot be sent to {target!r}: its address is fixed", permanent=True
                )
            self._targets[address] = replace(known, name=address, delivery=known.delivery.to(target))
        return self._targets[address]


def given_places(deliver: Place | Deliver | Sequence[Place | Deliver]) -> list[Place]:
    """The places given as ``deliver=``: each is a place, a delivery, the name of a delivery, or a function."""
    given: Sequence[Any] = cast("Sequence[Any]", deliver) if isinstance(deliver, list | tuple) else [deliver]
    places: list[Place] = []
    for each in given:
        if isinstance(each, Place):
            places.append(each)
        else:
            places += [Place(made.name, made) for made in given_deliveries(each)]
    return places
