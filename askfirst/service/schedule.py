"""Schedule: who gets messages about a case, when they are reminded and warned, and who is asked next (escalation)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from askfirst.clock import to_milliseconds
from askfirst.delivery.base import NoticeKind
from askfirst.errors import InvalidDuration, ServiceError
from askfirst.protocol import parse_duration
from askfirst.service.case import Case
from askfirst.store.case_rows import DeliveryRow

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)\s*%")
_STEP = re.compile(r"(?P<place>\S+)\s+at\s+(?P<when>.+)")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time relative to a case: ``50 %`` of its time, ``2h`` after it was opened, or ``1h before`` its deadline."""

    unit: Literal["percent", "after", "before"]
    amount: float

    @classmethod
    def read(cls, text: str) -> Moment:
        """Parse a moment; raises `ServiceError`."""
        said = text.strip()
        if found := _PERCENT.fullmatch(said):
            if not 0 < float(found[1]) < 100:
                raise ServiceError(f"{text!r} is not a time: a percentage must be between 0 and 100")
            return cls("percent", float(found[1]))
        length, before, _ = said.partition(" before")
        try:
            seconds = float(parse_duration(length.strip()))
        except InvalidDuration:
            seconds = 0.0
        if not seconds or (before and said != f"{length} before"):
            raise ServiceError(f"{text!r} is not a time: write 50 %, 2h (after it was opened) or 1h before")
        return cls("before" if before else "after", seconds)

    def of(self, case: Case) -> float | None:
        """The time for a case, in seconds since 1970; None if it needs a deadline that the case does not have.

        None also if the time is not between the opening of the case and its deadline.
        """
        if self.unit == "after":
            at = case.created_at + self.amount
        elif case.never_expires:
            return None
        elif self.unit == "before":
            at = case.expires_at - self.amount
        else:
            at = case.created_at + (case.expires_at - case.created_at) * self.amount / 100
        return at if case.created_at < at < case.expires_at else None


@dataclass(frozen=True, slots=True)
class Step:
    """An escalation: who gets a message if nobody has decided by then, as in ``slack:#ops at 50 %``."""

    place: str
    when: Moment

    @classmethod
    def read(cls, text: str) -> Step:
        """Parse a step; raises `ServiceError`."""
        found = _STEP.fullmatch(text.strip())
        if found is None:
            raise ServiceError(
                f"{text!r} is not a step: write a delivery and a time, as in slack:#ops at 50 %"
            )
        return cls(found["place"], Moment.read(found["when"]))


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who gets a message about a case, and when.

    ``to`` are names of deliveries, optionally with a target (``slack:#ops``); None means all deliveries.
    """

    to: tuple[str, ...] | None = None
    remind: tuple[Moment, ...] = ()
    warn: float | None = None
    """How many seconds before the deadline everybody gets a warning."""
    then: Step | None = None

    def rows(self, case: Case, names: tuple[str, ...], now: int) -> list[DeliveryRow]:
        """The messages about a new case as rows of the outbox; ``names`` are the configured deliveries.

        Reminders and warnings whose time has passed are left out, because the first message is sent only now.
        """
        places = names if self.to is None else self.to
        made = [_row(case, place, "review", 0, now) for place in places]
        for number, at in enumerate(self._reminders(case)):
            if at > now:
                made += [_row(case, place, "reminder", number, at) for place in places]
        if (
            self.warn is not None
            and (at := _due_at(Moment("before", self.warn), case)) is not None
            and at > now
        ):
            made += [_row(case, place, "warning", 0, at) for place in places]
        if self.then is not None and (at := _due_at(self.then.when, case)) is not None:
            made.append(_row(case, self.then.place, "escalation", 0, max(at, now)))
        return made

    def _reminders(self, case: Case) -> list[int]:
        """The times of the schedule's reminders, and of those that the caller asked for when it opened the case."""
        ours = [at for when in self.remind if (at := _due_at(when, case)) is not None]
        return sorted({*ours, *map(to_milliseconds, case.reminder_at)})

    @property
    def places(self) -> Iterator[str]:
        """Every place that the schedule names."""
        yield from self.to or ()
        if self.then is not None:
            yield self.then.place

    def check(self, place_at: Callable[[str], object]) -> None:
        """Call ``place_at`` with each place that the schedule names. It raises for a place that does not exist."""
        for place in self.places:
            place_at(place)


def _due_at(when: Moment, case: Case) -> int | None:
    at = when.of(case)
    return None if at is None else to_milliseconds(at)


def _row(case: Case, place: str, kind: NoticeKind, number: int, due_at: int) -> DeliveryRow:
    about = "\0".join((case.case_id, place, kind, str(number)))
    return DeliveryRow(
        delivery_id=f"dlv_{hashlib.sha256(about.encode()).hexdigest()[:40]}",
        case_id=case.case_id,
        name=place.partition(":")[0],
        place=place,
        kind=kind,
        state="due",
        due_at=due_at,
        attempts=0,
        error=None,
        sent=None,
        since=due_at,
        sent_at=None,
        write_id=0,
    )
