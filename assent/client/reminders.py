"""When to remind a person: at each time that the service named, once, whoever notices it first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from assent.protocol import State

_NEAR = 60.0
"""The service tells of a reminder when its time has come, give or take so many seconds."""
_WAITING: tuple[State, ...] = ("pending", "opened")


def may_remind(seen: State) -> bool:
    """Whether a person may be reminded: not while somebody is at work on it, and never after the end."""
    return seen in _WAITING


def times_of(reminder_at: datetime | list[datetime] | None) -> list[float]:
    """The times that a hitl object names, each once, in order."""
    named = reminder_at if isinstance(reminder_at, list) else [] if reminder_at is None else [reminder_at]
    return sorted({each.timestamp() for each in named})


class Reminders:
    """The reminder times of a case, and which of them are done with."""

    def __init__(self, times: Iterable[float], done: Iterable[float] = ()) -> None:
        self._times = sorted(times)
        self._done = set(done)
        self._unplanned: list[float] = []
        self._heard: set[str] = set()

    @property
    def done(self) -> tuple[float, ...]:
        """The times that are done with."""
        return tuple(sorted(self._done))

    @property
    def next(self) -> float | None:
        """When the next one is due."""
        return next((time for time in self._times if time not in self._done), None)

    def skip(self, now: float) -> None:
        """Be done with everything up to now: the person has just been asked."""
        self._done.update(time for time in self._times if time <= now)

    def due(self, now: float) -> bool:
        """Whether to remind now; those that have come due meanwhile make one reminder together."""
        missed = [time for time in self._times if time <= now and time not in self._done]
        self._done.update(missed)
        return bool(missed)

    def told(self, at: float, event_id: str | None) -> bool:
        """Whether to remind because the service says so, at its own time ``at``, with an event of this id.

        Not if we have reminded at that time by ourselves, nor if the service repeats itself.
        """
        if event_id is not None and event_id in self._heard:
            return False
        if event_id is not None:
            self._heard.add(event_id)
        if self.due(at + _NEAR):
            return True
        if any(abs(time - at) <= _NEAR for time in self._unplanned) or any(
            time <= at + _NEAR for time in self._times
        ):
            return False
        self._unplanned.append(at)
        return True
