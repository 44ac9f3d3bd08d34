"""A case while it is waited for, the review it is part of, and what all waits of a client share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from askfirst.client import notify
from askfirst.client.callback import CallbackReceiver
from askfirst.client.case_wait import UNREADABLE, Waiting
from askfirst.client.connections import Caller, Connections
from askfirst.client.notify import CaseNotices, Deliveries
from askfirst.client.offer import may_call
from askfirst.client.outcome import ReviewOutcome, SignatureChecks, default_of, outcome_of
from askfirst.client.polling import Pace, PollFailed, poll
from askfirst.client.wait_state import Rounds, WaitState, following
from askfirst.clock import Clock
from askfirst.delivery.base import Sent
from askfirst.errors import (
    InvalidOutcome,
    ReviewContradiction,
    ReviewRefused,
    ReviewUnreachable,
    ReviewUnreadable,
    StoreError,
)
from askfirst.protocol import PollAnswer


@dataclass(frozen=True, slots=True)
class Desk:
    """The parts of an open client, and its cases that are waited for just now, by id."""

    connections: Connections
    deliveries: Deliveries
    clock: Clock
    pace: Pace
    allowed_hosts: frozenset[str]
    progress: bool
    callback: CallbackReceiver | None
    signatures: SignatureChecks
    rounds: Rounds = field(default_factory=Rounds)
    live: dict[str, LiveCase] = field(default_factory=dict[str, "LiveCase"])

    def may_call(self, url: str, service: str) -> bool:
        """Whether the credentials for a service may go to this address."""
        return may_call(url, service, self.allowed_hosts)


logger = logging.getLogger("askfirst.client")

_MOMENT = 1.0
_LONGEST_KEEPING = 5.0

Keep = Callable[[WaitState], Awaitable[None]]
"""Stores the state of a wait."""


class LiveCase:
    """A case that a person is asked about. ``at_once`` polls it first: it may have changed since it was stored."""

    def __init__(
        self, desk: Desk, state: WaitState, caller: Caller, keep: Keep | None, *, at_once: bool
    ) -> None:
        self._desk = desk
        self._keep = keep
        self._asks_later = at_once
        self._unkept: WaitState | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._notices = CaseNotices(desk.deliveries, state, self._posted)
        self._waiting = Waiting(
            state,
            desk.connections,
            self,
            desk.clock,
            pace=desk.pace,
            allowed=lambda url: desk.may_call(url, state.offer.service),
            caller=caller,
            at_once=at_once,
        )

    @property
    def state(self) -> WaitState:
        """Where the wait stands."""
        return self._waiting.state

    def hint(self) -> None:
        """Poll the service now, because the case may have changed."""
        self._waiting.hint()

    async def ended(self) -> PollAnswer:
        """Ask the person, and wait for the service to say how it ended; `close` comes afterwards.

        With ``at_once``, the person is asked only if the service says that the case is still open.
        """
        case_id = self.state.case_id
        self._desk.live[case_id] = self
        if not self._asks_later:
            self._notices.ask(notify.review(self.state))
        try:
            async with self._called_back():
                answer = await self._waiting.ended()
        except BaseException:
            self._notices.stop()
            raise
        finally:
            if self._desk.live.get(case_id) is self:
                del self._desk.live[case_id]
            await self._kept()
        return answer

    async def tell(self) -> None:
        """Ask the person, and return when every delivery has sent the notice or timed out."""
        self._notices.ask(notify.review(self.state))
        await self._notices.asked()
        self._notices.stop()
        await self._kept()

    async def close(self, answer: PollAnswer) -> None:
        """Tell the person how the case ended, in the background where that takes long or they decided themselves."""
        try:
            default = default_of(self.state.offer, answer) if answer.status == "expired" else None
        except ReviewContradiction:
            self._notices.stop()
            raise
        closing = self._notices.close(notify.ended(self.state, answer, default))
        if answer.status != "completed":
            await asyncio.wait({closing}, timeout=_MOMENT)

    # Called by `Waiting`.

    def news(self, answer: PollAnswer) -> None:
        """The case is open; somebody opened the page perhaps, or is at work on it."""
        if self._asks_later:
            self._asks_later = False
            self._notices.ask(notify.review(self.state))
        if self._desk.progress:
            self._notices.progress(self.state, answer)

    def remind(self) -> None:
        """The time for a reminder has come."""
        self._notices.remind(notify.reminder(self.state))

    def changed(self, state: WaitState) -> None:
        """Store the latest state, in the background and one write at a time."""
        if self._keep is not None:
            self._unkept = state
            if self._keeping is None or self._keeping.done():
                self._keeping = asyncio.create_task(self._keep_latest(self._keep))

    def _posted(self, label: str, sent: Sent) -> None:
        self._waiting.note(sent=(*self.state.sent, (label, sent)))

    async def _keep_latest(self, keep: Keep) -> None:
        while self._unkept is not None:
            state, self._unkept = self._unkept, None
            try:
                await keep(state)
            except StoreError as error:  # at worst the link is sent again after a crash
                logger.warning("where the wait for case %s stands was not stored: %s", state.case_id, error)

    async def _kept(self) -> None:
        """Wait for pending writes, for a limited time: another process may hold the lease."""
        if self._keeping is not None:
            _, late = await asyncio.wait({self._keeping}, timeout=_LONGEST_KEEPING)
            for task in late:
                task.cancel()

    @asynccontextmanager
    async def _called_back(self) -> AsyncGenerator[None]:
        """Take callbacks as hints within this context."""
        if self._desk.callback is None:
            yield
            return
        with self._desk.callback.heard(self.state.case_id) as called:
            listening = asyncio.create_task(self._listen(called))
            try:
                yield
            finally:
                listening.cancel()

    async def _listen(self, called: asyncio.Event) -> None:
        while True:
            await called.wait()
            called.clear()
            self.hint()


_TRIES = 10


async def see_through(
    desk: Desk, state: WaitState, caller: Caller, keep: Keep | None = None, *, at_once: bool = False
) -> tuple[WaitState, ReviewOutcome]:
    """Wait for a case and its next rounds; returns the last one's state and outcome.

    The link is sent through deliveries that have not sent it yet. ``keep`` stores each state before the next.
    Raises the review's errors, see `askfirst.errors.ReviewError`.
    """
    while True:
        case = LiveCase(desk, state, caller, keep, at_once=at_once)
        answer = await case.ended()
        try:
            is_verified = await desk.signatures.checked(case.state.offer, answer)
        except InvalidOutcome:
            await case.close(answer)
            raise
        desk.rounds.ended(case.state)
        later = await _next_round(desk, case.state, answer, caller)
        await case.close(answer)
        if later is None:
            return case.state, outcome_of(case.state, answer, is_verified=is_verified)
        if keep is not None:
            await keep(later)
        state, at_once = later, True


async def ask_once(desk: Desk, state: WaitState, caller: Caller) -> PollAnswer:
    """Poll a case once; raises as `askfirst.client.polling.poll` does."""
    offer = state.offer
    async with desk.connections.polling(offer.service):
        polled = await poll(
            desk.connections.calls,
            offer.hitl.poll_url,
            case_id=offer.case_id,
            now=desk.clock.now(),
            may_call=lambda url: desk.may_call(url, offer.service),
            caller=caller.at(offer),
        )
    if polled.answer is None:
        raise PollFailed("nothing was answered")
    return polled.answer


async def ask_until_answered(desk: Desk, state: WaitState, caller: Caller) -> PollAnswer:
    """Poll a case until it is answered, with back-off.

    Raises `ReviewRefused`, `ReviewContradiction`, `ReviewUnreadable`, `ReviewUnreachable`.
    """
    problem, unreadable = "", 0
    for failures in range(1, _TRIES + 1):
        try:
            return await ask_once(desk, state, caller)
        except PollFailed as failed:
            problem = str(failed)
            unreadable += failed.is_unreadable
            if unreadable >= UNREADABLE:
                raise ReviewUnreadable(state.case_id, problem) from None
            await desk.clock.sleep(desk.pace.after_failure(failures, failed.demanded))
    raise ReviewUnreachable(state.case_id, problem)


async def _next_round(desk: Desk, state: WaitState, answer: PollAnswer, caller: Caller) -> WaitState | None:
    """The next round; None if there is none, or if the caller has to begin it."""
    later = None if answer.next_case_id is None else following(state, answer.next_case_id)
    if later is None:
        return None
    try:
        await ask_until_answered(desk, later, caller)
    except ReviewRefused:
        return None
    return later
