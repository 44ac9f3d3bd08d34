"""How a run leaves its thread: at its end, before it, or with nothing but the lease given back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from assent.agent.emitter import logger
from assent.agent.live import LiveThread
from assent.agent.result import AgentResult, result_of, suspended
from assent.agent.run import Run
from assent.errors import HitlDetached, HitlStaleAnswer, LeaseHeld, LeaseLost
from assent.events import RunEndedEvent
from assent.messages import Message
from assent.store.finish import finish


class LeavingThread(LiveThread):
    """A thread that runs are done with."""

    __slots__ = ()

    async def _end(self, run: Run, last: Sequence[Message] = ()) -> AgentResult:
        """Write the end, then tell of it, and of the ``last`` messages before."""
        try:
            result = await self._finish(run, last)
        except (LeaseLost, LeaseHeld, HitlStaleAnswer) as lost:
            return await self._suspend(run, lost)
        await self._tell_ended(run, result)
        return result

    async def _finish(self, run: Run, last: Sequence[Message]) -> AgentResult:
        """Write the end of a run, then tell of its ``last`` messages, if nobody was told of them yet.

        The thread as it stands here is then the thread as it is stored.
        """
        result = result_of(run.messages, self.thread_id, run.run_id)
        await run.finish(result.status, result.usage)
        if run.journal is not None:
            self.fence = run.journal.fence
        for message in last:
            await run.tell(message)
        return result

    async def _suspend(self, run: Run, stopped: BaseException) -> AgentResult:
        """Stop where the thread stands; somebody goes on with it later, or does already."""
        await self._let_go(run)
        stopped = run.failure or stopped  # a subagent may have found that the thread is another's by now
        reason = "it waits for a person" if isinstance(stopped, HitlDetached) else str(stopped)
        if not isinstance(stopped, HitlDetached):
            await self.load(fresh=True)  # what this run has made of the thread is not what is stored
        result = suspended(self.thread.messages, self.thread_id, run.run_id, reason)
        await self._tell_ended(run, result)
        return result

    async def _let_go(self, run: Run) -> None:
        """Give the lease back, if it is held, with all that happened; the next run looks at the thread anew.

        Whoever is cancelled meanwhile hears of it afterwards.
        """
        try:
            if run.is_open:
                await finish(asyncio.ensure_future(run.let_go()))
        except (LeaseLost, LeaseHeld):
            pass  # then it is another's already
        except Exception:
            logger.exception("the lease of thread %s could not be given back; it will lapse", self.thread_id)
        self.loaded = self.checkpointer is None

    def _letting_go(self, run: Run) -> _LettingGo:
        """See to it that no lease is left behind if what is done within ends in an error, or is cancelled."""
        return _LettingGo(self._let_go, run)

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
