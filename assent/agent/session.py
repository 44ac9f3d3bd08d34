"""One thread's live state in this process: loaded, run, and given back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Literal

from assent import tracing
from assent.agent.asking import current_asking, is_about
from assent.agent.emitter import Emitter, call_on, logger
from assent.agent.fold import is_finished, unresolved_calls
from assent.agent.inbox import Inbox
from assent.agent.journal import Journal
from assent.agent.loop import advance
from assent.agent.result import AgentResult, result_of, suspended
from assent.agent.run import Run, Thread
from assent.agent.spec import AgentSpec
from assent.checkpointer.base import Checkpointer
from assent.errors import (
    HitlAborted,
    HitlDetached,
    HitlNoPendingRequest,
    HitlRequestPending,
    HitlStaleAnswer,
    LeaseHeld,
    LeaseLost,
)
from assent.events import (
    AgentAbortedEvent,
    HitlAnswerEvent,
    HitlRequestEvent,
    RunEndedEvent,
    RunStartedEvent,
)
from assent.messages import Message, UserMessage
from assent.requests import (
    ArgsCheck,
    HitlChannel,
    HitlRequest,
    StoredRequest,
    plain_answer,
    same_question,
)

OnPending = Literal["raise", "supersede"]


class Session:
    """Runs one thread, one run at a time; it is what the agent's channel knows of the agent.

    With a checkpointer the thread is loaded when it is first needed, and again whenever another worker may
    have been at it.
    """

    __slots__ = (
        "_fence",
        "_held",
        "_loaded",
        "_running",
        "channel",
        "checkpointer",
        "emitter",
        "inbox",
        "lock",
        "run_id",
        "spec",
        "thread",
    )

    def __init__(
        self,
        spec: AgentSpec,
        thread: Thread,
        channel: HitlChannel | None,
        checkpointer: Checkpointer | None,
        *,
        is_new: bool,
    ) -> None:
        self.spec = spec
        self.thread = thread
        self.channel = channel
        self.checkpointer = checkpointer
        self.emitter = Emitter(thread.thread_id, spec.onion.on_event)
        self.inbox = Inbox(spec, thread.thread_id, channel, checkpointer)
        self.lock = asyncio.Lock()
        self.run_id: str | None = None
        self._fence = 0
        self._held: LeaseHeld | None = None
        self._loaded = is_new or checkpointer is None  # a new thread is nowhere to be loaded from
        self._running: _Running | None = None

    # What the agent does.

    async def prompt(self, message: UserMessage, run_id: str, on_pending: OnPending) -> AgentResult:
        """A run that begins with a message."""
        self._make_way(on_pending)
        async with self.lock:
            for _ in range(_ATTEMPTS):
                await self.load()
                superseding = await self._check_pending(on_pending)
                run = self._new_run(run_id)
                try:
                    added = await run.open(message, superseding=superseding)
                except (LeaseLost, HitlStaleAnswer):
                    self._loaded = False  # another worker was at the thread since it was loaded: look again
                except BaseException:
                    self._loaded = self.checkpointer is None
                    raise
                else:
                    return await self._work(run, added)
            raise LeaseHeld(self.thread_id, "other workers, one after another", 0)

    async def resume(self) -> AgentResult:
        """A run that goes on from what the transcript says."""
        async with self.lock:
            await self.load(fresh=True)
            run = self._new_run(self.run_id or new_run_id())
            if self._held is not None:  # then the model need not be asked to find that out
                await run.emit(RunStartedEvent, agent_id=self.spec.id, resumed=True)
                return await self._suspend(run, self._held)
            return await self._work(run, None)

    async def close(self, reason: str) -> None:
        """End the conversation where it waits for a person.

        First a run that waits here is woken, and closes itself; then, under the lock, whatever nobody waits
        for is closed. Raises `HitlNoPendingRequest` if nobody is being asked, and `HitlStaleAnswer` if the
        person was first.
        """
        waiting = self.channel.interrupt(HitlAborted(reason)) if self.channel is not None else None
        if waiting is None and self._running is not None:
            self._check_closed(waiting)  # it is at work, not waiting
        async with self.lock:
            for _ in range(_ATTEMPTS):
                await self.load(fresh=True)
                if await self.inbox.open_in(self.thread) is None:
                    self._check_closed(waiting)
                    return
                run = self._new_run(self.run_id or new_run_id())
                try:
                    await self._abort(run, reason)
                    return
                except (LeaseLost, LeaseHeld, HitlStaleAnswer):
                    pass  # it moved on since it was loaded: look again
                finally:
                    self._loaded = self.checkpointer is None
            raise LeaseHeld(self.thread_id, "other workers, one after another", 0)

    def _check_closed(self, waiting: HitlRequest | None) -> None:
        """Nothing is open: that is right if the run that waited has closed itself, and else an error."""
        for call in unresolved_calls(self.thread.messages):
            for known in self.thread.requests.values():
                if is_about(known.question_id, call.id):
                    status = None if known.status == "pending" else known.status
                    raise HitlStaleAnswer(known.question_id, status)
        if waiting is None:
            raise HitlNoPendingRequest(self.thread_id)
        if result_of(self.thread.messages, self.thread_id, "").status != "aborted":
            raise HitlStaleAnswer(waiting.question_id)

    def abort(self) -> None:
        """Stop the run that is going on, if any; from any thread."""
        if (running := self._running) is not None:
            call_on(running.loop, self.abort_run, running.run.run_id)

    def abort_run(self, run_id: str) -> bool:
        """Stop this run; False if it is not the one that is going on."""
        running = self._running
        if running is None or running.run.run_id != run_id:
            return False
        if not running.run.aborted:
            running.run.abort()
            running.scope.reschedule(running.loop.time())
        return True

    async def load(self, *, fresh: bool = False) -> None:
        """Know the thread as the store does; ``fresh`` looks again even if nothing seems to have changed."""
        if self.checkpointer is None or (self._loaded and not fresh):
            return
        stored = await self.checkpointer.load(self.thread_id)
        self.thread = Thread(self.thread_id, stored.messages if stored is not None else ())
        self._fence = stored.fence if stored is not None else 0
        self.run_id = stored.run.run_id if stored is not None and stored.run is not None else None
        if stored is not None:
            self.thread.effects.update(stored.effects)
            self.thread.ledger.update(stored.effects)
            self.thread.requests.update(stored.requests)
            self._held = None
            if stored.is_leased:
                self._held = LeaseHeld(self.thread_id, stored.lease_owner or "", stored.lease_until)
        self._loaded = True

    # What the channel asks of the agent.

    @property
    def thread_id(self) -> str:
        """The thread's id."""
        return self.thread.thread_id

    async def record(self, request: HitlRequest) -> StoredRequest | None:
        """Store a request with the run that asks; None if no run does, or nothing is stored."""
        if self._running is None:
            return None
        asking = current_asking()
        return await self._running.run.record(request, release=asking is None or asking.place != "tool")

    async def announce(self, request: HitlRequest) -> None:
        """Tell listeners of a request."""
        await self.emitter.emit(HitlRequestEvent, self.run_id or "", request=request)

    async def announce_settled(self, stored: StoredRequest) -> None:
        """Tell listeners how a request was settled, and remember it while its call is open."""
        if self._running is not None:
            self.thread.requests[stored.question_id] = stored
        await self.emitter.emit(
            HitlAnswerEvent,
            self.run_id or "",
            question_id=stored.question_id,
            answer=None if stored.answer is None else plain_answer(stored.answer),
            cancelled=stored.status not in ("answered", "timed_out"),
            timed_out=stored.status == "timed_out",
        )

    def recall(self, request: HitlRequest) -> StoredRequest | None:
        """How this very request was settled before, if its call is open still."""
        known = self.thread.requests.get(request.question_id)
        if known is None or known.status == "pending" or not same_question(known.request, request):
            return None
        return known

    def args_check(self, tool_name: str) -> ArgsCheck | None:
        """How to check edited arguments of one of the agent's tools."""
        return self.inbox.args_check(tool_name)

    # How a run goes.

    def _make_way(self, on_pending: OnPending) -> None:
        """A run of this process that waits for a person is not waited for: it is named, or let go."""
        pending = self.channel.pending if self.channel is not None else None
        if pending is None or self.channel is None:
            return
        if on_pending == "raise":
            raise HitlRequestPending(self.thread_id, pending.question_id)
        self.channel.interrupt(HitlDetached())

    async def _check_pending(self, on_pending: OnPending) -> bool:
        """Refuse to go on while a person is being asked, or see to it that nobody is: True if one was."""
        request = await self.inbox.open_in(self.thread)
        if request is None:
            return False
        if on_pending == "raise":
            raise HitlRequestPending(self.thread_id, request.question_id)
        await self.inbox.drop("superseded by a newer prompt")
        return True

    def _new_run(self, run_id: str) -> Run:
        self.run_id = run_id
        journal = None
        if self.checkpointer is not None:
            journal = Journal(self.checkpointer, self.thread_id, self._fence)
        return Run(self.spec, self.thread, self.emitter, run_id, self.channel, journal)

    async def _work(self, run: Run, added: Sequence[Message] | None) -> AgentResult:
        """One passage of the loop, from new messages or from where the transcript stands."""
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._running = _Running(run, scope, asyncio.get_running_loop())
                await run.emit(RunStartedEvent, agent_id=self.spec.id, resumed=added is None)
                for message in added or ():
                    await run.tell(message)
                with tracing.run_span(self.spec.id, self.thread_id):
                    await advance(run)
        except (HitlDetached, LeaseLost, LeaseHeld) as stopped:
            return await self._suspend(run, stopped)
        except HitlAborted as aborted:
            return await self._end_aborted(run, aborted.reason)
        except BaseException as error:
            if not (isinstance(error, TimeoutError) and scope.expired()):  # not `abort`, which sets deadlines
                await self._let_go(run)
                self.emitter.post(RunEndedEvent, run.run_id, status="suspended", reason=type(error).__name__)
                raise
        finally:
            self._running = None
        if run.aborted and not is_finished(run.messages):
            await run.close()
            await self.inbox.drop("the run was aborted")
        elif added is None:
            await self.inbox.drop_moot(run.messages)
        return await self._end(run)

    async def _end(self, run: Run) -> AgentResult:
        """Write the end, then tell of it."""
        try:
            result = await self._finish(run)
        except (LeaseLost, LeaseHeld, HitlStaleAnswer) as lost:
            return await self._suspend(run, lost)
        await self._tell_ended(run, result)
        return result

    async def _end_aborted(self, run: Run, reason: str) -> AgentResult:
        """Close the conversation where the run stands."""
        try:
            return await self._abort(run, reason)
        except (LeaseLost, LeaseHeld, HitlStaleAnswer) as lost:
            return await self._suspend(run, lost)

    async def _abort(self, run: Run, reason: str) -> AgentResult:
        """Close the conversation at a request that nobody is to answer any more, unless somebody has."""
        await run.close(reason, {"decision": "aborted", "reason": reason})
        await self.inbox.drop(reason)
        result = await self._finish(run)
        await run.emit(AgentAbortedEvent, reason=reason)
        await self._tell_ended(run, result)
        return result

    async def _finish(self, run: Run) -> AgentResult:
        """Write the end of a run; the thread as it stands here is then the thread as it is stored."""
        result = result_of(run.messages, self.thread_id, run.run_id)
        await run.finish(result.status)
        if run.journal is not None:
            self._fence = run.journal.fence
        return result

    async def _suspend(self, run: Run, stopped: BaseException) -> AgentResult:
        """Stop where the thread stands; somebody goes on with it later, or does already."""
        await self._let_go(run)
        reason = "it waits for a person" if isinstance(stopped, HitlDetached) else str(stopped)
        if not isinstance(stopped, HitlDetached):
            await self.load(fresh=True)  # what this run has made of the thread is not what is stored
        result = suspended(self.thread.messages, self.thread_id, run.run_id, reason)
        await self._tell_ended(run, result)
        return result

    async def _let_go(self, run: Run) -> None:
        """Give the lease back, if it is held, with all that happened; the next run looks at the thread anew."""
        try:
            await run.let_go()
        except (LeaseLost, LeaseHeld):
            pass  # then it is another's already
        except Exception:
            logger.exception("the lease of thread %s could not be given back; it will lapse", self.thread_id)
        self._loaded = self.checkpointer is None

    async def _tell_ended(self, run: Run, result: AgentResult) -> None:
        await run.emit(
            RunEndedEvent, status=result.status, text=result.text, reason=result.reason, usage=result.usage
        )


def new_run_id() -> str:
    """An id that no other run has."""
    return f"{random.getrandbits(128):032x}"


class _Running:
    """The run that is going on, and how to abort it."""

    __slots__ = ("loop", "run", "scope")

    def __init__(self, run: Run, scope: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> None:
        self.run = run
        self.scope = scope
        self.loop = loop


_ATTEMPTS = 5
"""How often a prompt looks at a thread again that other workers keep moving on."""
