"""The wait for one case: what its service says by events and polls, until it says how the case ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

from pydantic_core import from_json

from assent.client.caller import Caller
from assent.client.connections import Connections
from assent.client.event_parser import ServerEvent
from assent.client.events import EventStream
from assent.client.pace import Allowance, Pace
from assent.client.polling import Polled, PollFailed, poll, read_facts
from assent.client.reminders import Reminders, may_remind, times_of
from assent.client.wait_state import WaitState
from assent.clock import Clock
from assent.errors import ReviewContradiction, ReviewUnreachable, ReviewUnreadable
from assent.protocol import EVENT_OF, CaseFacts, PollAnswer, State, is_final, may_follow, read_leniently

GRACE = 600.0
"""How long past its time a case is still asked for while its service is silent."""
STUCK = 300.0
"""How long a poll may take by our clock, should the HTTP client not know when to give up."""
UNREADABLE = 6
"""So many answers in a row that cannot be read end the wait: the next one will be no better."""
_HINT_GAP = 1.0
_TRUSTED_TAGS = 5
"""After so many 304 in a row the next poll does without its tag: a tag may lie."""
_STATE_OF: Mapping[str, State] = {event: state for state, event in EVENT_OF.items()}


class Hearer(Protocol):
    """Who hears how a case goes on, while it does. Nothing here may take time."""

    def news(self, answer: PollAnswer) -> None:
        """The page was opened, or somebody is at work on it."""
        ...

    def remind(self) -> None:
        """It is time to remind the person."""
        ...

    def changed(self, state: WaitState) -> None:
        """Where the wait stands has changed; worth storing."""
        ...


class Waiting:
    """One case while it is waited for.

    Polls are the truth and go on underneath, seldom while a stream tells us anyway. What a stream says counts
    if it is whole: then a final event ends the wait at once. Anything else, and a callback, only makes us ask.
    Only the service ends a case: our clock never does.
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
        self._pace = pace
        self._allowed = allowed
        self._caller = caller.at(state.offer)
        hitl = state.offer.hitl
        now = clock.now()
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
                caller=self._caller,
            )
        self._hinted = at_once
        self._poll_at = now + pace.interval
        self._quiet_until = now
        self._allowance = Allowance()
        self._etag: str | None = None
        self._unchanged = 0
        self._failures = 0
        self._unreadable = 0
        self._was_alive = False
        self._expires_at = hitl.expires_at.timestamp()
        self._contact = now
        self._final: PollAnswer | None = None

    @property
    def state(self) -> WaitState:
        """Where the wait stands."""
        return self._state

    def hint(self) -> None:
        """Something has happened to the case, says somebody: ask the service now."""
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
                at = self._next_poll(now)
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
            self._connections.let_go(following)

    # When to ask.

    def _next_poll(self, now: float) -> float:
        """When to ask next: by plan, for a reminder, or because of a hint; never too often."""
        alive = self._stream is not None and self._stream.is_alive
        if self._was_alive and not alive:  # it has died since: go back to the usual pace
            self._poll_at = min(self._poll_at, now + self._pace.interval)
        self._was_alive = alive
        at = self._poll_at
        if not self._failures and self._reminders.next is not None:
            at = min(at, self._reminders.next)
        if self._hinted:
            last = self._allowance.last
            at = now if last is None else min(at, last + min(_HINT_GAP, self._pace.interval))
        at = max(at, self._quiet_until)
        return at if at > now else self._allowance.next(now)

    async def _sleep_until(self, at: float) -> None:
        """Sleep until then, or until there is something new."""
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

    # What a poll says.

    async def _ask(self) -> None:
        """Poll once, unless an event ends the case meanwhile."""
        with_tag = not self._hinted and self._unchanged < _TRUSTED_TAGS
        hinted, self._hinted = self._hinted, False
        streaming = self._stream is not None and self._stream.is_alive
        seen = self._state.seen
        polling = asyncio.ensure_future(self._poll(self._etag if with_tag else None))
        polling.add_done_callback(self._woken)
        stuck_at = self._clock.now() + STUCK
        try:
            while not polling.done() and self._final is None and self._clock.now() < stuck_at:
                await self._sleep_until(stuck_at)
        finally:
            if not polling.done():
                polling.cancel()
                await asyncio.wait({polling})
        if self._final is not None:
            return
        try:
            if polling.cancelled():
                raise PollFailed("no answer")
            polled = polling.result()
        except PollFailed as failed:
            self._failed(failed)
            return
        self._failures = self._unreadable = 0
        self._contact = self._clock.now()
        self._unchanged = self._unchanged + 1 if polled.answer is None else 0
        self._etag = polled.etag if polled.answer is not None else polled.etag or self._etag
        if polled.answer is not None:
            self._take(polled.answer, asked_when=seen)
        wait = self._pace.after_answer(polled.retry_after, streaming=streaming and not hinted)
        self._poll_at = self._clock.now() + wait
        self._remind_if_due()

    async def _poll(self, etag: str | None) -> Polled:
        offer = self._state.offer
        async with self._connections.polling(offer.service):
            now = self._clock.now()
            self._allowance.use(now)
            return await poll(
                self._connections.calls,
                offer.hitl.poll_url,
                case_id=offer.case_id,
                now=now,
                may_call=self._allowed,
                etag=etag,
                caller=self._caller,
            )

    def _failed(self, failed: PollFailed) -> None:
        now = self._clock.now()
        if failed.claimed is not None:
            self._claim(failed.claimed)
        self._unreadable += failed.is_unreadable
        if self._unreadable >= UNREADABLE:
            raise ReviewUnreadable(self._state.case_id, str(failed))
        if now > self._expires_at + GRACE and now - self._contact > GRACE:
            raise ReviewUnreachable(self._state.case_id, str(failed))
        self._failures += 1
        self._poll_at = now + self._pace.after_failure(self._failures, failed.demanded)
        if failed.demanded is not None:
            self._quiet_until = self._poll_at

    def _remind_if_due(self) -> None:
        """Now that we know how the case stands."""
        if self._final is None and self._reminders.due(self._clock.now()):
            self.note(reminded=self._reminders.done)
            if may_remind(self._state.seen):
                self._hearer.remind()

    # What an event says.

    def hear(self, event: ServerEvent) -> None:
        """Take an event in; one that cannot be believed as it is makes us ask."""
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
        self._contact, self._unreadable = self._clock.now(), 0
        self._take(answer, asked_when="pending")  # a stream may repeat what is over; only polls contradict
        self._wake.set()

    def _hear_reminder(self, said: Mapping[str, Any], event_id: str | None) -> None:
        at = read_leniently(CaseFacts, said).value.reminder_sent_at
        when = self._clock.now() if at is None else at.timestamp()
        if self._reminders.told(when, event_id):
            self.note(reminded=self._reminders.done)
            if may_remind(self._state.seen) and self._final is None:
                self._hearer.remind()

    # What is true.

    def _claim(self, status: State) -> None:
        """The service says that the case has ended, in a way that cannot be used; it has to stay with that."""
        if may_follow(self._state.seen, status):
            self.note(seen=status)

    def _take(self, answer: PollAnswer, *, asked_when: State) -> None:
        """Believe an answer if it can be true after what was seen before; ``asked_when`` is what was seen then."""
        seen = self._state.seen
        if not may_follow(seen, answer.status):
            if is_final(asked_when):
                raise ReviewContradiction(
                    self._state.case_id, f"it was {seen}, and now the service says that it is {answer.status}"
                )
            return  # older than what we know
        if answer.expires_at is not None:
            self._expires_at = answer.expires_at.timestamp()
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
