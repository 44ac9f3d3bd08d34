"""Telling: whom a service tells, when, and in whose name, before its store is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import Clock, SystemClock
from askfirst.service.button_listener import ButtonListener
from askfirst.service.cases import Cases
from askfirst.service.places import Places
from askfirst.service.schedule import Schedule
from askfirst.service.teller import Sender, Teller


@dataclass(frozen=True, slots=True)
class Telling:
    """The places, the schedule and the sender. Raises `DeliveryError` if the schedule names an unknown place."""

    places: Places
    schedule: Schedule
    sender: Sender

    def __post_init__(self) -> None:
        self.schedule.check(self.places.at)

    def on(
        self,
        cases: Cases,
        store: SqlCheckpointer,
        clock: Clock | None,
        on_outcome: Callable[[str, str], None] | None = None,
    ) -> tuple[Teller | None, list[ButtonListener]]:
        """What sends the messages of an open store, and what listens to their buttons; nothing without places."""
        if not self.places.names:
            return None, []
        opened = Places([place.stored_in(store, clock or SystemClock()) for place in self.places])
        listeners = [ButtonListener(cases, place) for place in opened if place.has_buttons]
        return Teller(cases, opened, self.schedule, self.sender, on_outcome), listeners
