"""Waiting for one case: polls, events and reminders until the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Protocol, cast

from pydantic_core import from_json

from askfirst.client.connections import Caller, Connections
from askfirst.client.event_stream import EventStream, ServerEvent
from askfirst.client.polling import Pace, Poller, PollFailed, PollPlan, read_facts
from askfirst.client.wait_state import WaitState
from askfirst.clock import Clock
from askfirst.errors import ReviewContradiction, ReviewUnreachable, ReviewUnreadable
from askfirst.protocol import EVENT_OF, CaseFacts, PollAnswer, State, is_final, may_follow, read_leniently

# Reminders: one at each time that the service named, by our clock or by its event.


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
    """The reminder times of a case, and which of them are past."""

    def __init__(self, times: Iterable[float], done: Iterable[float] = ()) -> None:
        self._times = sorted(times)
        self._done = set(done)
        self._unplanned: list[float] = []
        self._heard: set[str] = set()

    @property
    def done(self) -> tuple[float, ...]:
        """The times that are past."""
        return tuple(sorted(self._done))

    @property
    def next(self) -> float | None:
        """When the next one is due."""
        return next((time for time in self._times if time not in self._done), None)

    def skip(self, now: float) -> None:
        """Skip the times up to now: the person has just been asked."""
        self._done.update(time for time in self._times if time <= now)

    def due(self, now: float) -> bool:
        """Whether to remind now; several times that have passed make one reminder."""
        missed = [time for time in self._times if time <= now and time not in self._done]
        self._done.update(missed)
        return bool(missed)

    def told(self, at: float, event_id: str | None) -> bool:
        """Whether to remind because the service says so, at its own time ``at``, with an event of this id.

        Not if we have reminded at that time already, nor if the event is a repeated one.
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


GRACE = 600.0
"""How long a case is polled after its expiry while its service does not answer."""
UNREADABLE = 6
"""So many unreadable answers in a row end the wait."""
_STATE_OF: Mapping[str, State] = {event: state for state, event in EVENT_OF.items()}


class Contact:
    """When a service was last heard of, and whether one that is silent or unreadable is asked any longer."""

    def __init__(self, case_id: str, expires_at: float, now: float) -> None:
        self.expires_at = expires_at
        """When the case expires (seconds since 1970), as the service said last."""
        self._case_id = case_id
        self._heard_at = now
        self._unreadable = 0

    def heard(self, now: float) -> None:
        """The service has told something that can be used."""
        self._heard_at, self._unreadable = now, 0

    def failed(self, now: float, failed: PollFailed) -> None:
        """A poll failed; raises `ReviewUnreadable` or `ReviewUnreachable` if no other is worth trying."""
        self._unreadable += failed.is_unreadable
        if self._unreadable >= UNREADABLE:
            raise ReviewUnreadable(self._case_id, str(failed))
        if now > self.expires_at + GRACE and now - self._heard_at > GRACE:
            raise ReviewUnreachable(self._case_id, str(failed))


class Hearer(Protocol):
    """Gets the news of a case that is waited for. Its methods must return at once."""

    def news(self, answer: PollAnswer) -> None:
        """A person has opened the page, or is filling in the form."""
        ...

    def remind(self) -> None:
        """It is time to remind the person."""
        ...

    def changed(self, state: WaitState) -> None:
        """The state of the wait has changed, and should be stored."""
        ...


class Waiting:
    """One case while it is waited for.

    Polls are authoritative; they are rare while an event stream is alive. A complete event counts as an answer, so
    that a final event ends the wait at once. An incomplete event, and a callback, only cause a poll. Only the
    service ends a case, never our clock.
    """

    def __init__(
        self,
        state: WaitState,
        connections: Connections,
        hearer: Hearer,
        clock: Clock,
        *,
        pace: Pace,
        allowed: Callable[[str], bool],
        caller: Caller,
        at_once: bool = False,
    ) -> None:
        self._state = state
        self._connections = connections
        self._hearer = hearer
        self._clock = clock
        caller = caller.at(state.offer)
        hitl = state.offer.hitl
        now = clock.now()
        self._poller = Poller(connections, caller, allowed, clock)
        self._plan = PollPlan(pace, now)
        self._contact = Contact(state.case_id, hitl.expires_at.timestamp(), now)
        self._reminders = Reminders(times_of(hitl.reminder_at), state.reminded)
        if not at_once:
            self._reminders.skip(now)
            self._state = state.but(reminded=self._reminders.done)
        self._wake = asyncio.Event()
        self._stream: EventStream | None = None
        if hitl.events_url is not None:
            self._stream = EventStream(
                connections,
                hitl.events_url,
                self.hear,
                self._wake.set,
                clock,
                last_event_id=state.last_event_id,
                caller=caller,
            )
        self._hinted = at_once
        self._final: PollAnswer | None = None

    @property
    def state(self) -> WaitState:
        """Where the wait stands."""
        return self._state

    def hint(self) -> None:
        """Poll now: a callback or a press says that the case has changed."""
        self._hinted = True
        self._wake.set()

    def note(self, **changes: Any) -> None:
        """Change what is known of the wait."""
        self._state = self._state.but(**changes)
        self._hearer.changed(self._state)

    async def ended(self) -> PollAnswer:
        """Wait until the service says how the case ended, and give what it says.

        Raises `ReviewRefused`, `ReviewContradiction`, `ReviewUnreadable` and `ReviewUnreachable`.
        """
        async with self._streaming():
            while self._final is None:
                now = self._clock.now()
                at = self._plan.next(
                    now, streaming=self._is_streaming, reminder=self._reminders.next, hinted=self._hinted
                )
                if at > now:
                    await self._sleep_until(at)
                else:
                    await self._ask()
        return self._final

    @asynccontextmanager
    async def _streaming(self) -> AsyncGenerator[None]:
        if self._stream is None:
            yield
            return
        following = asyncio.create_task(self._stream.follow())
        try:
            yield
        finally:
            self._connections.end_stream(following)

    @property
    def _is_streaming(self) -> bool:
        return self._stream is not None and self._stream.is_alive

    async def _sleep_until(self, at: float) -> None:
        """Sleep until then, or until `_wake` is set."""
        sleeping = asyncio.ensure_future(self._clock.sleep(max(at - self._clock.now(), 0)))
        sleeping.add_done_callback(self._woken)
        try:
            await self._wake.wait()
        finally:
            sleeping.remove_done_callback(self._woken)
            sleeping.cancel()
            self._wake.clear()

    def _woken(self, _: object) -> None:
        self._wake.set()

    # Polls.

    async def _ask(self) -> None:
        """Poll once, unless an event ends the case meanwhile."""
        hinted, self._hinted = self._hinted, False
        streaming = self._is_streaming
        seen = self._state.seen
        polling = asyncio.ensure_future(self._poller.poll(self._state.offer, self._plan, hinted=hinted))
        polling.add_done_callback(self._woken)
        try:
            while not polling.done() and self._final is None:
                await self._wake.wait()
                self._wake.clear()
        finally:
            if not polling.done():
                polling.cancel()
                await asyncio.wait({polling})
        if self._final is not None:
            return
        try:
            polled = polling.result()
        except PollFailed as failed:
            self._failed(failed)
            return
        self._contact.heard(self._clock.now())
        if polled.answer is not None:
            self._take(polled.answer, asked_when=seen)
        self._plan.answered(self._clock.now(), polled.retry_after, streaming=streaming and not hinted)
        self._remind_if_due()

    def _failed(self, failed: PollFailed) -> None:
        now = self._clock.now()
        if failed.claimed is not None:
            self._claim(failed.claimed)
        self._contact.failed(now, failed)
        self._plan.failed(now, failed.demanded)

    def _remind_if_due(self) -> None:
        """Remind the person if a reminder is due; call it when the state of the case is known."""
        if self._final is None and self._reminders.due(self._clock.now()):
            self.note(reminded=self._reminders.done)
            if may_remind(self._state.seen):
                self._hearer.remind()

    # Events.

    def hear(self, event: ServerEvent) -> None:
        """Handle an event; one that is incomplete or contradictory only causes a poll."""
        if event.name != "review.reminder" and event.name not in _STATE_OF:
            return
        said = _object(event.data)
        if said is None or said.get("case_id", self._state.case_id) != self._state.case_id:
            self.hint()
            return
        self._state = self._state.but(last_event_id=event.id or self._state.last_event_id)
        if event.name == "review.reminder":
            self._hear_reminder(said, event.id)
            return
        status = _STATE_OF[event.name]
        if said.get("status") not in (None, status):
            self.hint()
            return
        try:
            answer = read_facts({**said, "status": status}, self._state.case_id)
        except PollFailed:
            if is_final(status):
                self._claim(status)
            self.hint()
            return
        if is_final(self._state.seen) and is_final(status) and status != self._state.seen:
            self.hint()
            return
        self._contact.heard(self._clock.now())
        self._take(answer, asked_when="pending")  # a stream may repeat old events; only polls can contradict
        self._wake.set()

    def _hear_reminder(self, said: Mapping[str, Any], event_id: str | None) -> None:
        at = read_leniently(CaseFacts, said).value.reminder_sent_at
        when = self._clock.now() if at is None else at.timestamp()
        if self._reminders.told(when, event_id):
            self.note(reminded=self._reminders.done)
            if may_remind(self._state.seen) and self._final is None:
                self._hearer.remind()

    # The state of the case.

    def _claim(self, status: State) -> None:
        """Note a final state from an answer that cannot be used; a later answer must not contradict it."""
        if may_follow(self._state.seen, status):
            self.note(seen=status)

    def _take(self, answer: PollAnswer, *, asked_when: State) -> None:
        """Accept an answer whose state may follow the last one; ``asked_when`` is the one when the poll began."""
        seen = self._state.seen
        if not may_follow(seen, answer.status):
            if is_final(asked_when):
                raise ReviewContradiction(
                    self._state.case_id, f"it was {seen}, and now the service says that it is {answer.status}"
                )
            return  # out of date
        if answer.expires_at is not None:
            self._contact.expires_at = answer.expires_at.timestamp()
        if answer.status != seen:
            self.note(seen=answer.status)
        if is_final(answer.status):
            self._final = answer
        else:
            self._hearer.news(answer)


def _object(data: str) -> Mapping[str, Any] | None:
    try:
        said: Any = from_json(data, allow_inf_nan=False)
    except ValueError:
        return None
    return cast("Mapping[str, Any]", said) if isinstance(said, Mapping) else None
