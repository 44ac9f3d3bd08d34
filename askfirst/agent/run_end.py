"""How a run ends on its thread: the end is written, the lease released, open requests settled, listeners told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from askfirst.agent.asking import end_asked, end_left
from askfirst.agent.emitter import logger
from askfirst.agent.result import AgentResult, result_of, suspended
from askfirst.agent.run import Run
from askfirst.agent.thread import is_finished
from askfirst.concurrency import finish
from askfirst.errors import HitlDetached, HitlStaleAnswer, InvalidStep, LeaseHeld, LeaseLost
from askfirst.events import HitlAnswerEvent, RunEndedEvent
from askfirst.messages import Message
from askfirst.requests import HitlRequest

if TYPE_CHECKING:
    from askfirst.agent.session import Session


async def end(
    session: Session, run: Run, last: Sequence[Message] = (), asked: Sequence[str] = ()
) -> AgentResult:
    """Write the end of a run and tell listeners; if another worker has the lease, the run is suspended instead.

    ``last`` and ``asked`` are as in `write_end`.
    """
    try:
        result = await write_end(session, run, last, asked)
    except (LeaseLost, LeaseHeld, HitlStaleAnswer) as lost:
        return await suspend(session, run, lost)
    await tell_ended(run, result)
    return result


async def write_end(session: Session, run: Run, last: Sequence[Message], asked: Sequence[str]) -> AgentResult:
    """Write the end of a run, then tell listeners of its ``last`` messages.

    The same step settles the requests ``asked``, and listeners are told of these first. Afterwards the thread in
    memory equals the stored one.
    """
    result = result_of(run.thread.messages, session.thread_id, run.run_id)
    await run.finish(result.status, result.usage)
    if run.journal is not None:
        session.live.fence = run.journal.lease.fence
    session.live.untold += tuple(asked)
    if session.live.untold:
        await tell_settled(session, run)
    for message in last:
        await run.tell(message)
    return result


async def suspend(session: Session, run: Run, stopped: BaseException) -> AgentResult:
    """Stop where the thread stands, so that another worker can resume it, or because another has."""
    await release(session, run)
    stopped = run.failure or stopped  # a subagent may have been the first to notice the lost lease
    if not isinstance(stopped, HitlDetached):
        await session.load(fresh=True)  # the thread in memory differs from the stored one
    await tell_settled(session, run)
    result = suspended(session.live.thread.messages, session.thread_id, run.run_id, str(stopped))
    await tell_ended(run, result)
    return result


async def release(session: Session, run: Run) -> None:
    """Write what is unwritten and release the lease, if it is held; the next run loads the thread again.

    If the task is cancelled meanwhile, the cancellation is raised after the write.
    """
    try:
        if run.is_open:
            await finish(asyncio.ensure_future(_write_and_release(session, run)))
    except (LeaseLost, LeaseHeld, HitlStaleAnswer):
        pass  # another worker has the thread already
    except Exception:
        logger.exception("the lease of thread %s could not be released; it will lapse", session.thread_id)
    if run.journal is not None:
        session.live.fence = run.journal.lease.fence
    session.live.forget()


async def _write_and_release(session: Session, run: Run) -> None:
    """Write what is unwritten and release the lease; if the last message is the end of the run, write that too."""
    if run.thread.messages and is_finished(run.thread.messages):
        with suppress(InvalidStep):  # the last message cannot be stored, so the run has not ended
            result = result_of(run.thread.messages, session.thread_id, run.run_id)
            await run.finish(result.status, result.usage)
            return
    await run.release()


class releasing:  # noqa: N801  (used like a function)
    """A context that releases the lease of a run's thread if its body raises or is cancelled."""

    __slots__ = ("_run", "_session")

    def __init__(self, session: Session, run: Run) -> None:
        self._session = session
        self._run = run

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            await release(self._session, self._run)


# Requests that nobody waits for.


def asked_unheard(session: Session) -> tuple[str, ...]:
    """The ids of pending stored requests that no wait of this process is for.

    A wait of this process is notified by its channel; of these, listeners have to be told here.
    """
    if session.channel is None:
        return ()
    known = session.live.thread.requests.values()
    return tuple(
        it.question_id for it in known if it.status == "pending" and not _is_waited_for(session, it.request)
    )


async def cancel_kept(session: Session, why: str) -> bool:
    """Cancel the request that only the channel keeps, and note it for listeners; False if there was none."""
    channel = session.channel
    if channel is None or channel.checkpointer is not None:
        return False
    kept = await channel.open_request(thread_id=session.thread_id)
    is_unheard = kept is not None and not _is_waited_for(session, kept)
    if not await session.inbox.cancel_kept(why):
        return False
    if kept is not None and is_unheard:
        session.live.untold += (kept.question_id,)
    return True


async def cancel_moot(session: Session, run: Run) -> None:
    """Cancel the requests that are still open at the end of a run: their answers are no longer needed."""
    if run.work.asked:
        await end_asked(run)
    if run.thread.requests:
        await end_left(run)
    if (
        session.channel is not None and session.channel.checkpointer is None
    ):  # it may keep one that no run knows
        await session.inbox.cancel_moot(run.thread.messages)


def _is_waited_for(session: Session, request: HitlRequest) -> bool:
    waited_for = None if session.channel is None else session.channel.pending
    return (
        waited_for is not None
        and waited_for.question_id == request.question_id
        and waited_for.thread_id in (None, session.thread_id)
    )


async def check_unsettled(session: Session, request: HitlRequest | None) -> None:
    """Raise `HitlStaleAnswer` if the store has a request as settled; the waiting run may not know yet."""
    if request is not None and session.live.checkpointer is not None:
        thread_id = request.thread_id or session.thread_id
        stored = await session.live.checkpointer.request(thread_id, request.question_id)
        if stored is not None and stored.status not in ("pending", "aborted"):
            raise HitlStaleAnswer(request.question_id, stored.status)


# What listeners are told in the end.


async def tell_settled(session: Session, run: Run) -> None:
    """Tell listeners, once each, of requests that were settled while no wait was open for them."""
    untold, session.live.untold = session.live.untold, ()
    for question_id in untold:
        await run.emit(HitlAnswerEvent, question_id=question_id, cancelled=True)


async def tell_ended(run: Run, result: AgentResult) -> None:
    """Emit `RunEndedEvent`: how the run ended."""
    if run.emitter.listening:
        await run.emit(
            RunEndedEvent, status=result.status, text=result.text, reason=result.reason, usage=result.usage
        )
