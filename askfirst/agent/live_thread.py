"""A thread in this process: loaded, worked on under its lease, and released however a run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Self

from askfirst.agent.asking import end_asked, end_left
from askfirst.agent.channel_host import Host
from askfirst.agent.emitter import Emitter, logger
from askfirst.agent.inbox import Inbox
from askfirst.agent.journal import Journal
from askfirst.agent.result import AgentResult, result_of, suspended
from askfirst.agent.run import Ending, Run
from askfirst.agent.spec import AgentSpec
from askfirst.agent.subagents import SubagentTool
from askfirst.agent.thread import Thread, is_finished, unresolved_calls
from askfirst.channels import HitlChannel
from askfirst.checkpointer.base import Checkpointer, StoredThread
from askfirst.concurrency import finish
from askfirst.errors import HitlDetached, HitlStaleAnswer, InvalidStep, LeaseHeld, LeaseLost
from askfirst.events import HitlAnswerEvent, RunEndedEvent
from askfirst.ids import birth_of, child_thread_id
from askfirst.messages import Message
from askfirst.requests import HitlRequest, StoredRequest

# A thread as this process knows it: its transcript, who works on it, and the subagents under it.


class LiveThread(Host):
    """One thread, of an agent or of a subagent.

    With a checkpointer the thread is loaded when it is first needed, and again whenever another worker may
    have been at it. A subagent's thread knows its ``parent`` and the call that it serves.
    """

    __slots__ = (
        "call_path",
        "fence",
        "held",
        "is_new",
        "loaded",
        "path",
        "policy",
        "principal",
        "run_by",
        "spec",
    )

    def __init__(
        self,
        spec: AgentSpec,
        thread: Thread,
        channel: HitlChannel | None,
        checkpointer: Checkpointer | None,
        *,
        is_new: bool,
        principal: str = "*",
        parent: Self | None = None,
        call_id: str = "",
    ) -> None:
        self.path: tuple[str, ...] = (spec.id,) if parent is None else (*parent.path, spec.id)
        self.call_path: tuple[str, ...] = () if parent is None else (*parent.call_path, call_id)
        emitter = Emitter(
            thread.thread_id, spec.onion.on_event, self.path, None if parent is None else parent.emitter
        )
        inbox = Inbox(spec, thread.thread_id, channel, checkpointer, shares=parent is not None)
        super().__init__(thread, channel, checkpointer, emitter, inbox, parent)
        self.spec = spec
        self.principal = principal
        self.policy = parent.policy if spec.policy is None and parent is not None else spec.policy
        self.fence = 0
        self.run_by: str | None = None
        """The agent whose run is the thread's latest, as far as the store knows."""
        self.held: LeaseHeld | None = None
        self.is_new = is_new
        self.loaded = is_new or checkpointer is None  # a new thread is nowhere to be loaded from

    async def load(self, *, fresh: bool = False) -> None:
        """Know the thread as the store does; ``fresh`` looks again even if nothing seems to have changed."""
        if self.checkpointer is None or (self.loaded and not fresh):
            return
        stored = await self.checkpointer.load(self.thread_id)
        heard = {} if stored is None else self._heard_here(stored)
        self.thread = Thread(self.thread_id, stored.messages if stored is not None else ())
        self.fence = stored.fence if stored is not None else 0
        self.run_id = stored.run.run_id if stored is not None and stored.run is not None else None
        self.run_by = stored.run.agent_id if stored is not None and stored.run is not None else None
        self.held = None
        if stored is not None:
            self.thread.effects.update(stored.effects)
            self.thread.ledger.update(stored.effects)
            self.thread.requests.update({**heard, **stored.requests})
            if self.children:
                self._keep_children()
            if stored.is_leased:
                self.held = LeaseHeld(self.thread_id, stored.lease_owner or "", stored.lease_until)
        self.loaded = True

    def _heard_here(self, stored: StoredThread) -> dict[str, StoredRequest]:
        """What people have answered through a channel that is in no store, if the thread has not moved."""
        known, channel = self.thread.requests, self.channel
        if not known or channel is None or channel.checkpointer is not None:
            return {}
        is_same = birth_of(self.fence) == birth_of(stored.fence)  # and no other thread of the same name
        if not is_same or len(stored.messages) != len(self.thread.messages):
            return {}
        return {question_id: it for question_id, it in known.items() if it.status != "pending"}

    def _keep_children(self) -> None:
        """Know those that work for open calls; how they stand by now, each has to look up."""
        calls = {call.id for call in unresolved_calls(self.thread.messages)}
        for call_id in [it for it in self.children if it not in calls]:
            del self.children[call_id]
        for child in self.children.values():
            child.loaded = False

    def child(self, tool: SubagentTool, call_id: str) -> Self:
        """The thread of the subagent that a call runs."""
        if call_id not in self.children:
            thread = Thread(child_thread_id(self.thread_id, call_id))
            self.children[call_id] = type(self)(
                tool.agent,
                thread,
                tool.channel or self.channel,
                self.checkpointer,
                is_new=False,
                principal=self.principal,
                parent=self,
                call_id=call_id,
            )
        return self.children[call_id]

    def apart(self) -> Self:
        """The thread to be looked at while a run may go on with it: what is loaded there changes nothing here.

        Without a store there is nothing to load, and this is the thread itself.
        """
        if self.checkpointer is None:
            return self
        return type(self)(
            self.spec,
            Thread(self.thread_id),
            self.channel,
            self.checkpointer,
            is_new=False,
            principal=self.principal,
        )

    @property
    def is_under_way(self) -> bool:
        """Whether something was begun here, as far as is known, and is not done."""
        return bool(self.thread.messages) and not is_finished(self.thread.messages)

    def new_run(self, run_id: str, journal: Journal | None = None) -> Run:
        """A run on the thread as it is known; with a ``journal`` that may hold it already."""
        is_recorded, self.run_id = run_id == self.run_id, run_id
        caller = None if self.parent is None else self.parent.current_run
        if self.checkpointer is not None and journal is None:
            parent = None if self.parent is None else self.parent.thread_id
            working = None if caller is None else caller.journal
            journal = Journal(self.checkpointer, self.thread_id, self.fence, parent, working)
        return Run(
            self.spec,
            self.thread,
            self.emitter,
            run_id,
            self.channel,
            journal,
            path=self.path,
            call_path=self.call_path,
            principal=self.principal,
            policy=self.policy,
            is_recorded=is_recorded,
            caller=caller,
        )


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
