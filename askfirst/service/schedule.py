"""Schedule: whom the service tells of a case, when it reminds and warns them, and who is next."""

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
    """A time in the life of a case: ``50 %`` of it, ``2h`` after it was opened, or ``1h before`` its deadline."""

    unit: Literal["percent", "after", "before"]
    amount: float

    @classmethod
    def read(cls, text: str) -> Moment:
        """From text; raises `ServiceError`."""
        said = text.strip()
        if found := _PERCENT.fullmatch(said):
            if not 0 < float(found[1]) < 100:
                raise ServiceError(f"{text!r} is no time: a percentage lies between 0 and 100")
            return cls("percent", float(found[1]))
        length, before, _ = said.partition(" before")
        try:
            seconds = float(parse_duration(length.strip()))
        except InvalidDuration:
            seconds = 0.0
        if not seconds or (before and said != f"{length} before"):
            raise ServiceError(f"{text!r} is no time: write 50 %, 2h (after it was opened) or 1h before")
        return cls("before" if before else "after", seconds)

    def of(self, case: Case) -> float | None:
        """When that is, in seconds since 1970; None if the case has no deadline to count from, or ends first."""
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
    """Who is told next if nobody has decided: ``slack:#ops at 50 %``."""

    place: str
    when: Moment

    @classmethod
    def read(cls, text: str) -> Step:
        """From text; raises `ServiceError`."""
        found = _STEP.fullmatch(text.strip())
        if found is None:
            raise ServiceError(f"{text!r} is no step: write a delivery and a time, as in slack:#ops at 50 %")
        return cls(found["place"], Moment.read(found["when"]))


@dataclass(frozen=True, slots=True)
class Schedule:
    """Whom to tell when. ``to`` are names of deliveries, with a target if need be; None means all of them."""

    to: tuple[str, ...] | None = None
    remind: tuple[Moment, ...] = ()
    warn: float | None = None
    """How many seconds before the deadline everybody is told once more."""
    then: Step | None = None

    def rows(self, case: Case, names: tuple[str, ...], now: int) -> list[DeliveryRow]:
        """The messages about a new case, as rows; ``names`` are the deliveries that there are.

        Reminders whose time has passed already are left out: the first message is just being sent.
        """
        places = names if self.to is None else self.to
        made = [_row(case, place, "review", 0, now) for place in places]
        for number, at in enumerate(self._reminders(case)):
            if at > now:
                made += [_row(case, place, "reminder", number, at) for place in places]
        if self.warn is not None and (at := _at(Moment("before", self.warn), case)) is not None and at > now:
            made += [_row(case, place, "warning", 0, at) for place in places]
        if self.then is not None and (at := _at(self.then.when, case)) is not None:
            made.append(_row(case, self.then.place, "escalation", 0, max(at, now)))
        return made

    def _reminders(self, case: Case) -> list[int]:
        """Those of the schedule, and those that the caller who opened the case asked for."""
        ours = [at for when in self.remind if (at := _at(when, case)) is not None]
        return sorted({*ours, *map(to_milliseconds, case.reminder_at)})

    @property
    def places(self) -> Iterator[str]:
        """Every place that is named."""
        yield from self.to or ()
        if self.then is not None:
            yield self.then.place

    def check(self, known: Callable[[str], object]) -> None:
        """Call ``known`` with each place that is named: it raises for one that there is not."""
        for place in self.places:
            known(place)


def _at(when: Moment, case: Case) -> int | None:
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
