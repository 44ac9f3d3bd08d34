"""How a run leaves its thread: at its end, before it, or with nothing but the lease given back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from assent.agent.emitter import logger
from assent.agent.ending import Ending
from assent.agent.fold import is_finished
from assent.agent.live import LiveThread
from assent.agent.people import end_asked, end_left
from assent.agent.result import AgentResult, result_of, suspended
from assent.agent.run import Run
from assent.errors import HitlDetached, HitlStaleAnswer, InvalidStep, LeaseHeld, LeaseLost
from assent.events import HitlAnswerEvent, RunEndedEvent
from assent.messages import Message
from assent.requests import HitlRequest
from assent.store.finish import finish


class LeavingThread(LiveThread):
    """A thread that runs are done with."""

    __slots__ = ("ended",)

    ended: tuple[str, ...]
    """The requests that have ended with nobody waiting for them, and of which listeners are to be told."""

    async def _end(self, run: Run, last: Sequence[Message] = (), asked: Sequence[str] = ()) -> AgentResult:
        """Write the end, then tell of it, and of what was ``asked`` and the ``last`` messages before."""
        try:
            result = await self._finish(run, last, asked)
        except (LeaseLost, LeaseHeld, HitlStaleAnswer) as lost:
            return await self._suspend(run, lost)
        await self._tell_ended(run, result)
        return result

    async def _finish(self, run: Run, last: Sequence[Message], asked: Sequence[str]) -> AgentResult:
        """Write the end of a run, then tell of its ``last`` messages, if nobody was told of them yet.

        What was ``asked`` till then ends with it, and is told of first. The thread as it stands here is then the
        thread as it is stored.
        """
        result = result_of(run.messages, self.thread_id, run.run_id)
        await run.finish(result.status, result.usage)
        if run.journal is not None:
            self.fence = run.journal.fence
        self.ended += tuple(asked)
        if self.ended:
            await self._tell_settled(run)
        for message in last:
            await run.tell(message)
        return result

    async def _suspend(self, run: Run, stopped: BaseException) -> AgentResult:
        """Stop where the thread stands; somebody goes on with it later, or does already."""
        await self._let_go(run)
        stopped = run.failure or stopped  # a subagent may have found that the thread is another's by now
        if not isinstance(stopped, HitlDetached):
            await self.load(fresh=True)  # what this run has made of the thread is not what is stored
        await self._tell_settled(run)
        result = suspended(self.thread.messages, self.thread_id, run.run_id, str(stopped))
        await self._tell_ended(run, result)
        return result

    async def _let_go(self, run: Run) -> None:
        """Give the lease back, if it is held, with all that happened; the next run looks at the thread anew.

        Whoever is cancelled meanwhile hears of it afterwards.
        """
        try:
            if run.is_open:
                await finish(asyncio.ensure_future(self._give_back(run)))
        except (LeaseLost, LeaseHeld, HitlStaleAnswer):
            pass  # then it is another's already
        except Exception:
            logger.exception("the lease of thread %s could not be given back; it will lapse", self.thread_id)
        if run.journal is not None:
            self.fence = run.journal.fence
        self.loaded = self.checkpointer is None

    async def _give_back(self, run: Run) -> None:
        """Write what is unwritten; if that is the end, the run has ended with it."""
        if run.messages and is_finished(run.messages):
            with suppress(InvalidStep):  # then that is no end
                result = result_of(run.messages, self.thread_id, run.run_id)
                await run.finish(result.status, result.usage)
                return
        await run.let_go()

    def _letting_go(self, run: Run) -> _LettingGo:
        """See to it that no lease is left behind if what is done within ends in an error, or is cancelled."""
        return _LettingGo(self._let_go, run)

    # What people were asked, and nobody waits for.

    def _asked_still(self) -> tuple[str, ...]:
        """What was asked through the channel, is stored, and would end with nobody there to hear of it.

        Whoever waits for a request in this process is told of its end by the channel.
        """
        if self.channel is None:
            return ()
        known = self.thread.requests.values()
        return tuple(
            it.question_id for it in known if it.status == "pending" and not self._is_waited_for(it.request)
        )

    async def take(self, run: Run, ending: Ending) -> None:
        """Have a run hold the thread, so that nobody goes on with those under it; what is asked here ends with that.

        Listeners are told of it with whatever comes next, be it that the thread is lost.
        """
        asked = self._asked_still()
        await run.take(ending)
        self.ended += asked

    async def drop(self, why: str) -> bool:
        """End a request that only the channel keeps, for listeners to be told of; False if there was none."""
        channel = self.channel
        if channel is None or channel.checkpointer is not None:
            return False
        kept = await channel.open_request(thread_id=self.thread_id)
        is_ours_to_tell = kept is not None and not self._is_waited_for(kept)
        if not await self.inbox.drop(why):
            return False
        if kept is not None and is_ours_to_tell:
            self.ended += (kept.question_id,)
        return True

    async def _drop_moot(self, run: Run, *, is_resumed: bool) -> None:
        """End what was asked and what nobody needs to know any more, now that the run has come to its end."""
        if run.asked:
            await end_asked(run)
        await end_left(run)
        if is_resumed or (self.channel is not None and self.channel.checkpointer is None):
            await self.inbox.drop_moot(run.messages)

    def _is_waited_for(self, request: HitlRequest) -> bool:
        waited_for = None if self.channel is None else self.channel.pending
        return (
            waited_for is not None
            and waited_for.question_id == request.question_id
            and waited_for.thread_id in (None, self.thread_id)
        )

    async def _check_unsettled(self, request: HitlRequest | None) -> None:
        """Raise `HitlStaleAnswer` if somebody has settled a request, though the run that waits may not know yet."""
        if request is not None and self.checkpointer is not None:
            thread_id = request.thread_id or self.thread_id
            stored = await self.checkpointer.request(thread_id, request.question_id)
            if stored is not None and stored.status not in ("pending", "aborted"):
                raise HitlStaleAnswer(request.question_id, stored.status)

    # What listeners are told in the end.

    async def _tell_settled(self, run: Run) -> None:
        """Tell of the requests that ended without anybody waiting for them, each once."""
        ended, self.ended = self.ended, ()
        for question_id in ended:
            await run.emit(HitlAnswerEvent, question_id=question_id, cancelled=True)

    async def _tell_ended(self, run: Run, result: AgentResult) -> None:
        await run.emit(
            RunEndedEvent, status=result.status, text=result.text, reason=result.reason, usage=result.usage
        )


class _LettingGo:
    """A context that gives a run's thread back where it is left in haste."""

    __slots__ = ("_let_go", "_run")

    def __init__(self, let_go: Callable[[Run], Awaitable[None]], run: Run) -> None:
        self._let_go = let_go
        self._run = run

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            await self._let_go(self._run)
