"""Telling the person about a case through every delivery, and what the person reads."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

from askfirst.client.submit import offered_buttons
from askfirst.client.wait_state import WaitState
from askfirst.clock import Clock
from askfirst.concurrency import first_of
from askfirst.delivery.base import (
    Deliver,
    Delivery,
    Ended,
    Notice,
    NoticeKind,
    OnPress,
    PressDelivery,
    Sent,
    is_web_link,
)
from askfirst.delivery.registry import (
    NAMES,
    VARIABLES,
    FunctionDelivery,
    auto,
    delivery_named,
    given_deliveries,
)
from askfirst.delivery.several import pause_after
from askfirst.errors import DeliveryError
from askfirst.protocol import Form, PollAnswer, Progress, State

# Notices. The service's text is data: inserted unchanged, never parsed.


def review(state: WaitState) -> Notice:
    """The first notice: what is to be decided, and where."""
    hitl = state.offer.hitl
    asked = [_round(state) + (state.offer.message or hitl.prompt)]
    if state.offer.message and hitl.prompt not in state.offer.message:
        asked.append(hitl.prompt)
    if hitl.form is not None:
        asked.append(form_line(hitl.form))
    if state.offer.foreign_page is not None:
        asked.append(_elsewhere(state.offer.foreign_page, state.offer.service))
    if state.derived:
        asked.append("The service has begun this round by itself. It should be found where the last one was:")
    return _asking(state, "review", "\n\n".join(asked), whole=state.offer.about is not None)


def reminder(state: WaitState) -> Notice:
    """A reminder: the same, shorter."""
    offer = state.offer
    whole = offer.about is not None and offer.message in (None, offer.hitl.prompt)
    asked = f"Reminder: {_round(state)}{offer.hitl.prompt}"
    if offer.foreign_page is not None:
        asked = f"{asked}\n\n{_elsewhere(offer.foreign_page, offer.service)}"
    return _asking(state, "reminder", asked, whole=whole)


def progress(state: WaitState, answer: PollAnswer) -> Notice | None:
    """A notice of progress; None if there is none to tell."""
    if answer.status == "opened":
        said = "The review page was opened."
    elif answer.status == "in_progress":
        where = "" if answer.progress is None else progress_line(answer.progress)
        said = f"Somebody is at work on it. {where}".strip()
    else:
        return None
    return Notice("progress", state.case_id, _round(state) + said, round=state.round, facts=_facts(state))


def ended(state: WaitState, answer: PollAnswer, default: str | None) -> Ended:
    """How the case ended, for updating the messages that asked."""
    by = None if answer.responded_by is None else answer.responded_by.name or answer.responded_by.email
    if answer.status == "expired":
        return Ended(
            state.case_id,
            "expired",
            f"{_round(state)}Nobody answered in time. By default: {default}.",
            default,
        )
    if answer.status == "cancelled":
        why = f": {answer.reason}" if answer.reason else "."
        return Ended(state.case_id, "cancelled", f"{_round(state)}The review was cancelled{why}")
    action = "" if answer.result is None else answer.result.action
    who = f" by {by}" if by else ""
    more = " Another round follows." if answer.next_case_id else ""
    return Ended(state.case_id, "completed", f"{_round(state)}Decided: {action}{who}.{more}", action, by)


def _elsewhere(page: str, service: str) -> str:
    return f"The page is on {page}. That is another host than {service}, which asks."


def form_line(form: Form) -> str:
    """How much there is to fill in."""
    if form.steps is not None:
        titles = " → ".join(step.title for step in form.steps)
        return f"{_count(len(form.steps), 'step')}: {titles}"
    return f"Please fill {_count(len(form.all_fields), 'field')}."


def progress_line(progress: Progress) -> str:
    """How far somebody is in a form, such as ``Step 2 of 3, 4 of 8 fields.``; empty where nothing is known."""
    parts: list[str] = []
    if progress.current_step is not None:
        total = "" if progress.total_steps is None else f" of {progress.total_steps}"
        parts.append(f"Step {progress.current_step}{total}")
    if progress.completed_fields is not None:
        total = "" if progress.total_fields is None else f" of {progress.total_fields}"
        parts.append(f"{progress.completed_fields}{total} fields")
    return f"{', '.join(parts)}." if parts else ""


def _asking(state: WaitState, kind: NoticeKind, body: str, *, whole: bool) -> Notice:
    hitl = state.offer.hitl
    return Notice(
        kind,
        state.case_id,
        body,
        review_url=hitl.review_url,
        buttons=() if hitl.submit_url is None else offered_buttons(hitl),
        round=state.round,
        expires_at=hitl.expires_at.timestamp() if state.offer.has_expiry else None,
        facts=_facts(state) | ({"context": state.offer.about} if state.offer.about else {}),
        whole=whole and state.offer.hitl.form is None and not state.derived,
    )


def _facts(state: WaitState) -> dict[str, str]:
    offer = state.offer
    message = {} if offer.message is None else {"message": offer.message}
    return {"type": offer.hitl.type, "prompt": offer.hitl.prompt, "service": offer.service, **message}


def _round(state: WaitState) -> str:
    return "" if state.round == 1 else f"Round {state.round}: "


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# Sending notices through every delivery, in the background.


logger = logging.getLogger("askfirst.client")

SECONDS = 60.0
"""The time-out of one attempt to send."""
_LONGEST_PAUSE = 300.0
_CLOSING_TRIES = 4
_BETWEEN_PROGRESS = 30.0
"""Seconds between two progress notices of the same step; a new step is always told."""


def labelled(deliver: Deliver | Sequence[Deliver]) -> dict[str, Delivery]:
    """The deliveries, each by a label that is the same in every process: its name, and its number among equals."""
    found: dict[str, Delivery] = {}
    for delivery in given_deliveries(deliver):
        label, number = delivery.name, 1
        while label in found:
            number += 1
            label = f"{delivery.name}#{number}"
        found[label] = delivery
    return found


class Deliveries:
    """All deliveries of a client, and the notices being sent."""

    def __init__(self, deliver: Deliver | Sequence[Deliver], clock: Clock) -> None:
        self.by_label = labelled(deliver)
        self.clock = clock
        self._under_way: set[asyncio.Task[Any]] = set()

    async def listen(self, on_press: OnPress, stack: AsyncExitStack) -> None:
        """Listen to the buttons of deliveries that have some, until the stack is closed."""
        for label, delivery in self.by_label.items():
            if isinstance(delivery, PressDelivery):
                try:
                    await stack.enter_async_context(delivery.listening(on_press))
                except DeliveryError as error:
                    logger.warning("the buttons of %s are not listened to: %s", label, error)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a sending in the background."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def finish(self, seconds: float) -> None:
        """Wait for notices being sent, for so many seconds, and cancel the rest."""
        if self._under_way:
            _, late = await asyncio.wait(set(self._under_way), timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                logger.warning("%d messages about reviews that ended were not sent", len(late))
                await asyncio.wait(late)


class CaseNotices:
    """The notices of one case. ``posted`` gets each message that asked, with its delivery's label."""

    def __init__(self, deliveries: Deliveries, state: WaitState, posted: Callable[[str, Sent], None]) -> None:
        self._deliveries = deliveries
        self._posted = posted
        self._sent = list(state.sent)
        self._over = asyncio.Event()
        self._lanes = {label: asyncio.Lock() for label in deliveries.by_label}
        self._tasks: list[asyncio.Task[None]] = []
        self._last_progress: tuple[str, tuple[State, int | None], float] | None = None

    def ask(self, notice: Notice) -> None:
        """Send the link through deliveries that have not sent it yet."""
        has_it = {label for label, _ in self._sent}
        for label in self._lanes:
            if label not in has_it:
                self._start(self._send(label, notice, until_taken=True))

    async def asked(self) -> None:
        """Wait until the link is sent, for the time of one attempt."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=SECONDS)

    def remind(self, notice: Notice) -> None:
        """Send the link again."""
        for label in self._lanes:
            self._start(self._send(label, notice, until_taken=True))

    def progress(self, state: WaitState, answer: PollAnswer) -> None:
        """Send progress, unless it is nothing new or too frequent."""
        notice = progress(state, answer)
        if notice is None:
            return
        now = self._deliveries.clock.now()
        step = None if answer.progress is None else answer.progress.current_step
        if self._last_progress is not None:
            body, where, at = self._last_progress
            if body == notice.body or (where == (answer.status, step) and now - at < _BETWEEN_PROGRESS):
                return
        self._last_progress = notice.body, (answer.status, step), now
        for label in self._lanes:
            self._start(self._send(label, notice, until_taken=False))

    def close(self, ended: Ended) -> asyncio.Task[None]:
        """Update every message that asked with the outcome, and send no other any more."""
        self._over.set()
        self._posted = _nothing  # a message being sent is updated too, and no longer stored
        return self._deliveries.start(self._close(list(self._tasks), ended))

    def stop(self) -> None:
        """Stop sending: this process has left the wait, and the case goes on."""
        self._over.set()
        self._posted = _nothing
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._deliveries.start(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _send(self, label: str, notice: Notice, *, until_taken: bool) -> None:
        delivery, tries = self._deliveries.by_label[label], 0
        async with self._lanes[label]:
            while not self._over.is_set():
                tries += 1
                try:
                    async with asyncio.timeout(SECONDS):
                        sent = await delivery.send(notice)
                except Exception as error:
                    if tries == 1:
                        _report(label, notice.kind, notice.case_id, error)
                    if not until_taken or (isinstance(error, DeliveryError) and error.permanent):
                        return
                    pause = pause_after(tries, error, longest=_LONGEST_PAUSE)
                    await first_of(self._over.wait(), self._deliveries.clock.sleep(pause))
                else:
                    self._note(label, sent, notice)
                    return

    def _note(self, label: str, sent: Sent, notice: Notice) -> None:
        """Remember a message that asked; one of a plain function suffices, for it cannot update any."""
        again = any(label == other for other, _ in self._sent)
        plain = isinstance(self._deliveries.by_label[label], FunctionDelivery)
        if notice.review_url is not None and not (again and plain):
            self._sent.append((label, sent))
            self._posted(label, sent)

    async def _close(self, sending: list[asyncio.Task[None]], ended: Ended) -> None:
        if sending:
            await asyncio.wait(sending)  # a message that is being sent is updated too
        await asyncio.gather(*(self._update(label, sent, ended) for label, sent in self._sent))

    async def _update(self, label: str, sent: Sent, ended: Ended) -> None:
        delivery = self._deliveries.by_label.get(label)
        if delivery is None:
            return  # sent by the process that began the wait
        for tries in range(1, _CLOSING_TRIES + 1):
            try:
                async with asyncio.timeout(SECONDS):
                    await delivery.update(sent, ended)
                return
            except Exception as error:
                if tries == 1:
                    _report(label, ended.kind, ended.case_id, error)
                if isinstance(error, DeliveryError) and error.permanent:
                    return
                if tries < _CLOSING_TRIES:
                    await self._deliveries.clock.sleep(pause_after(tries, error, longest=_LONGEST_PAUSE))


def _nothing(label: str, sent: Sent) -> None:
    pass


def _report(label: str, kind: str, case_id: str, error: Exception) -> None:
    """Log a failed sending once; only our own errors are known to hold no secret."""
    why = str(error) if isinstance(error, DeliveryError) else type(error).__name__
    logger.warning("the %s notice of case %s did not get through %s: %s", kind, case_id, label, why)


_MESSAGING = "messaging"
_ASKED = "Please review this and decide."


def deliver_review_url(url: str, mode: str = "auto") -> None:
    """Bring a ``review_url`` to the person: show it, open it, or send it.

    ``mode`` is ``"desktop"`` (the browser of this machine), ``"qr"`` (a code in the terminal, for a phone),
    ``"messaging"`` (the messengers and mail that the environment configures), ``"auto"``, which finds out which of
    these fits, or the name of a delivery, such as ``"telegram"``. It returns when the link is on its way. Raises
    `DeliveryError` if that did not work and ``ValueError`` for an unknown mode or no web address.
    Whoever has the link may answer: it is in no error and in no log.

    In a thread that runs an event loop it raises ``RuntimeError``: the loop would stand still meanwhile. Call it as
    ``await asyncio.to_thread(deliver_review_url, url)`` there, or use a `HitlClient`.
    """
    if not is_web_link(url):
        raise ValueError(
            "a review URL is a web address: it begins with https://, or with http:// on this machine"
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(_handed_over(url, _delivery(mode)))
    else:
        raise RuntimeError(
            "this thread runs an event loop, which would stand still; "
            "await asyncio.to_thread(deliver_review_url, url) instead"
        )


async def _handed_over(url: str, delivery: Delivery) -> None:
    await delivery.send(Notice("review", "review", _ASKED, review_url=url))


def _delivery(mode: str) -> Delivery:
    if mode == _MESSAGING:
        if not any(os.environ.get(variables[0]) for variables in VARIABLES.values()):
            names = ", ".join(variables[0] for variables in VARIABLES.values())
            raise DeliveryError(mode, f"no messenger is configured: set one of {names}", permanent=True)
        return auto()
    if mode not in NAMES:
        raise ValueError(f"mode is one of {', '.join(sorted({*NAMES, _MESSAGING}))}")
    return delivery_named(mode)
