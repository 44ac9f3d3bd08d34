"""One case while it is waited for: the waiting, what the person is told meanwhile, and what is stored of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from assent.client import notices
from assent.client.caller import Caller
from assent.client.desk import Desk
from assent.client.results import default_of
from assent.client.telling import Telling
from assent.client.wait_state import WaitState
from assent.client.waiting import Waiting
from assent.delivery.base import Sent
from assent.errors import ReviewContradiction, StoreError
from assent.protocol import PollAnswer

logger = logging.getLogger("assent.client")

_MOMENT = 1.0
_LONGEST_KEEPING = 5.0

Keep = Callable[[WaitState], Awaitable[None]]
"""Stores where a wait stands."""


class LiveCase:
    """A case that a person is asked about. With ``at_once`` it may have moved since it was last looked at."""

    def __init__(
        self, desk: Desk, state: WaitState, caller: Caller, keep: Keep | None, *, at_once: bool
    ) -> None:
        self._desk = desk
        self._keep = keep
        self._asks_later = at_once
        self._unkept: WaitState | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._telling = Telling(desk.teller, state, self._posted)
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
        """Something has happened to the case: ask the service now."""
        self._waiting.hint()

    async def ended(self) -> PollAnswer:
        """Ask the person, and wait for the service to say how it ended; `close` comes afterwards.

        Of a case that may have ended meanwhile, the person is asked when the service says that it has not.
        """
        case_id = self.state.case_id
        self._desk.live[case_id] = self
        if not self._asks_later:
            self._telling.ask(notices.review(self.state))
        try:
            async with self._called_back():
                answer = await self._waiting.ended()
        except BaseException:
            self._telling.stop()
            raise
        finally:
            if self._desk.live.get(case_id) is self:
                del self._desk.live[case_id]
            await self._kept()
        return answer

    async def tell(self) -> None:
        """Ask the person, and come back when every delivery has sent that or has had its time; do not wait."""
        self._telling.ask(notices.review(self.state))
        await self._telling.asked()
        self._telling.stop()
        await self._kept()

    async def close(self, answer: PollAnswer) -> None:
        """Tell the person how it ended. What takes long, or comes of their own decision, is told afterwards."""
        try:
            default = default_of(self.state.offer, answer) if answer.status == "expired" else None
        except ReviewContradiction:
            self._telling.stop()
            raise
        closing = self._telling.close(notices.ended(self.state, answer, default))
        if answer.status != "completed":
            await asyncio.wait({closing}, timeout=_MOMENT)

    # What the waiting tells.

    def news(self, answer: PollAnswer) -> None:
        """The case is open; somebody opened the page perhaps, or is at work on it."""
        if self._asks_later:
            self._asks_later = False
            self._telling.ask(notices.review(self.state))
        if self._desk.progress:
            self._telling.progress(self.state, answer)

    def remind(self) -> None:
        """The time for a reminder has come."""
        self._telling.remind(notices.reminder(self.state))

    def changed(self, state: WaitState) -> None:
        """Store the latest state; what changes while that goes on is stored next, at once."""
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
            except StoreError as error:  # the wait goes on; at worst the link is sent again after a crash
                logger.warning("where the wait for case %s stands was not stored: %s", state.case_id, error)

    async def _kept(self) -> None:
        """Wait until everything is stored, as long as that can be: another process may have taken it over."""
        if self._keeping is not None:
            _, late = await asyncio.wait({self._keeping}, timeout=_LONGEST_KEEPING)
            for task in late:
                task.cancel()

    @asynccontextmanager
    async def _called_back(self) -> AsyncGenerator[None]:
        """Take callbacks as hints meanwhile."""
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
