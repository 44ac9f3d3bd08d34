"""A review from its first case to its last."""

from __future__ import annotations

from assent.client.caller import Caller
from assent.client.desk import Desk
from assent.client.live import Keep, LiveCase
from assent.client.outcome import ReviewOutcome
from assent.client.polling import PollFailed, poll
from assent.client.results import outcome_of
from assent.client.rounds import following
from assent.client.wait_state import WaitState
from assent.client.waiting import UNREADABLE
from assent.errors import InvalidOutcome, ReviewRefused, ReviewUnreachable, ReviewUnreadable
from assent.protocol import PollAnswer

_TRIES = 10


async def see_through(
    desk: Desk, state: WaitState, caller: Caller, keep: Keep | None = None, *, at_once: bool = False
) -> tuple[WaitState, ReviewOutcome]:
    """Wait for a case, and for those that its service lets follow it; gives the last and how it ended.

    The link is sent to whoever does not have it yet. ``keep`` stores each step before the next is taken.
    Raises the review's errors, see `assent.errors.ReviewError`.
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
    """How a case stands; raises as `assent.client.polling.poll` does."""
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
    """How a case stands, with patience.

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
    """The case that follows; None if there is none, or none yet: then whoever asked has to do something first."""
    later = None if answer.next_case_id is None else following(state, answer.next_case_id)
    if later is None:
        return None
    try:
        await ask_until_answered(desk, later, caller)
    except ReviewRefused:
        return None
    return later
