"""One thread's live state in this process: loaded, run, and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Self

from askfirst import tracing
from askfirst.agent.asking import end_asked
from askfirst.agent.channel_host import Leaving, Turns
from askfirst.agent.context import Context, current
from askfirst.agent.emitter import call_on
from askfirst.agent.journal import Journal
from askfirst.agent.live_thread import LeavingThread
from askfirst.agent.loop import advance
from askfirst.agent.result import AgentResult, paused
from askfirst.agent.run import STOPPED, SUPERSEDED, Ending, Run
from askfirst.agent.spec import AgentSpec
from askfirst.agent.subagents import SubagentTool
from askfirst.agent.thread import Thread, is_finished
from askfirst.agent.tools import ToolResult
from askfirst.agent.tree import (
    check_closed,
    check_owner,
    checkpoint_of,
    cut,
    in_flight,
    is_cut_short,
    load_tree,
    open_request,
    open_requests,
    open_subagents,
    pending_approvals,
    request_in_flight,
    returned_by,
    walk,
)
from askfirst.channels import HitlChannel
from askfirst.checkpointer.base import Checkpointer
from askfirst.concurrency import RunLock
from askfirst.errors import (
    HitlAborted,
    HitlControlException,
    HitlDetached,
    HitlPaused,
    HitlRequestPending,
    HitlStaleAnswer,
    InvalidAgent,
    LeaseHeld,
    LeaseLost,
)
from askfirst.events import AgentAbortedEvent, RunEndedEvent, RunStartedEvent
from askfirst.ids import new_id
from askfirst.messages import Message, UserMessage
from askfirst.requests import HitlRequest

OnPending = Literal["raise", "supersede"]


class Session(LeavingThread):
    """Runs one thread, one run at a time."""

    __slots__ = ("_doomed", "_running", "lock")

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
        super().__init__(
            spec,
            thread,
            channel,
            checkpointer,
            is_new=is_new,
            principal=principal,
            parent=parent,
            call_id=call_id,
        )
        self.ended = ()
        self.lock = RunLock(thread.thread_id)
        self._running: _Running | None = None
        self._doomed = False

    # What the agent does.

    async def prompt(self, message: UserMessage, run_id: str, on_pending: OnPending) -> AgentResult:
        """A run that begins with a message."""
        if on_pending not in ("raise", "supersede"):
            raise InvalidAgent(f"on_pending is raise or supersede, not {on_pending!r}")
        self.lock.check()  # before anyone makes way for a run that cannot be
        self._make_way(on_pending)
        async with self.lock:
            return await self._begin(message, run_id, on_pending)

    async def _begin(self, message: UserMessage, run_id: str, on_pending: OnPending) -> AgentResult:
        for _ in range(_ATTEMPTS):
            await self.load(fresh=bool(self.thread.requests))  # others may have settled them, and gone on
            superseding = await self._check_pending(on_pending)
            try:
                run = self.new_run(run_id, await self._supersede_children())
                asked = self._asked_still()
                async with self._letting_go(run):
                    added = await run.open(message, superseding=superseding, is_new=self.is_new)
            except (LeaseLost, HitlStaleAnswer):
                self.loaded = False  # another worker was at the thread since it was loaded: look again
                if self.parent is not None:
                    raise  # for the whole tree is that one's
            else:
                self.is_new = False
                self.ended += asked
                return await self._work(run, added)
        raise LeaseHeld(self.thread_id, "other workers, one after another", 0)

    async def _supersede_children(self) -> Journal | None:
        """End what subagents have open, in the name of the run that called them.

        Returns the journal that holds the thread since then, if there may have been anything to end.
        """
        if not any(open_subagents(self)):
            return None
        run = self.new_run(self.run_id or new_id())
        async with self._letting_go(run):
            await cut(self, run, SUPERSEDED)
        return run.journal

    async def resume(self, otherwise: UserMessage | None = None) -> AgentResult:
        """A run that goes on from what the transcript says; ``otherwise`` begins one that says nothing yet."""
        async with self.lock:
            await self.load(fresh=True)
            if otherwise is not None and not self.thread.messages:
                return await self._begin(otherwise, new_id(), "raise")
            await self.check_owner()
            return await self._go_on()

    async def _go_on(self) -> AgentResult:
        """A run from where the thread stands, which is known."""
        run = self.new_run(self.run_id or new_id())
        if self.held is not None:  # then the model need not be asked to find that out
            await run.emit(RunStartedEvent, agent_id=self.spec.id, resumed=True)
            return await self._suspend(run, self.held)
        return await self._work(run, None)

    async def check_owner(self) -> None:
        """Raise `WrongAgent` if the thread, which is known, is another agent's to go on with."""
        await check_owner(self)

    async def close(self, reason: str) -> None:
        """End the conversation where it waits for a person.

        First a run that waits here is woken, and closes itself; then, under the lock, whatever nobody waits
        for is closed. Raises `HitlNoPendingRequest` if nobody is being asked, and `HitlStaleAnswer` if the
        person was first.
        """
        self.lock.check()
        await self._check_unsettled(request_in_flight(self))
        waiting = self._interrupt(HitlAborted(reason))
        if waiting is not None:
            await self._drop_all(reason)  # at once: nobody is to answer any more
        elif self._running is not None and self.leaving is None:
            check_closed(self, waiting)  # it is at work, not waiting
        async with self.lock:
            for _ in range(_ATTEMPTS):
                await self.load(fresh=True)
                await self.check_owner()
                await load_tree(self)
                if await open_request(self) is None and not is_cut_short(self):
                    check_closed(self, waiting)
                    return
                await self._check_unsettled(waiting)  # else this is the next question, which nobody meant
                run = self.new_run(self.run_id or new_id())
                try:
                    async with self._letting_go(run):
                        await self._close(run, Ending("aborted", reason, is_told=True))
                    return
                except (LeaseLost, LeaseHeld, HitlStaleAnswer):
                    pass  # it moved on since it was loaded: look again
                finally:
                    self.loaded = self.checkpointer is None
            raise LeaseHeld(self.thread_id, "other workers, one after another", 0)

    async def cut(self, ending: Ending) -> None:
        """End what is under way here, whomever it waits for: the call that it serves is not run any more."""
        async with self.lock:
            await self.load(fresh=True)
            await load_tree(self)
            if self.is_under_way:
                run = self.new_run(self.run_id or new_id())
                async with self._letting_go(run):
                    await self._close(run, ending)

    def abort(self) -> None:
        """Stop the run that is going on, if any; from any thread."""
        if (running := self._running) is not None:
            call_on(running.loop, self.abort_run, running.run.run_id)

    async def delegate(self, tool: SubagentTool, tool_call_id: str, prompt: str) -> ToolResult:
        """Let a subagent work on a call, from its beginning or from where it stands."""
        child = self.child(tool, tool_call_id)
        return returned_by(tool, await child.resume(UserMessage(prompt)))

    def abort_soon(self) -> None:
        """Stop the run that is going on, or the one that is about to begin."""
        self._doomed = True
        self.abort()

    def abort_run(self, run_id: str) -> bool:
        """Stop this run; False if it is not the one that is going on."""
        running = self._running
        if running is None or running.run.run_id != run_id:
            return False
        if not running.run.aborted and (self.leaving is None or self.leaving.is_heard):
            running.run.abort()
            running.scope.reschedule(running.loop.time())
        return True

    # How a run goes.

    def _make_way(self, on_pending: OnPending) -> None:
        """A run of this process that waits for a person is not waited for: it is named, or let go."""
        pending = request_in_flight(self)
        if pending is not None and on_pending == "raise":
            raise HitlRequestPending(pending.thread_id or self.thread_id, pending.question_id)
        self._interrupt(HitlDetached(SUPERSEDED.why))

    def _interrupt(self, signal: HitlControlException) -> HitlRequest | None:
        """Let the run that waits for people hear this, if it is one of ours; what was waited for, or some of it."""
        if (self.channel is None and not self.children) or request_in_flight(self) is None:
            return None
        heard = [channel.interrupt(signal) for channel, _ in in_flight(self)]
        waited_for = next((request for request in heard if request is not None), None)
        if waited_for is not None and self.current_run is not None:
            self.leaving = Leaving(signal, is_heard=True)
        return waited_for

    async def _check_pending(self, on_pending: OnPending) -> bool:
        """Refuse to go on while a person is being asked, or see to it that nobody is: True if one was."""
        if self.channel is None and not self.thread.requests and not self.spec.delegates:
            return False
        await load_tree(self)
        request = await open_request(self)
        if request is None:
            return False
        if on_pending == "raise":
            raise HitlRequestPending(request.thread_id or self.thread_id, request.question_id)
        await self._drop_all(SUPERSEDED.why)
        return True

    async def _work(self, run: Run, added: Sequence[Message] | None) -> AgentResult:
        """One passage of the loop, from new messages or from where the transcript stands; traced."""
        with tracing.run_span(self.spec.id, self.thread_id) as span:
            result = await self._pass(run, added)
            if result.status == "failed":
                span.fail(run.error_type)
            return result

    async def _pass(self, run: Run, added: Sequence[Message] | None) -> AgentResult:
        scope = asyncio.timeout(None)
        at = current.get()
        turns = Turns() if self.parent is None and self.spec.delegates else at.turns
        token = current.set(Context(self, turns, at.turn_at, at.asking, at.hearing))
        try:
            try:
                async with scope:
                    self._running = _Running(run, scope, asyncio.get_running_loop())
                    self.current_run = run
                    if self._doomed:
                        self.abort_run(run.run_id)
                    await run.emit(RunStartedEvent, agent_id=self.spec.id, resumed=added is None)
                    if self.ended:
                        await self._tell_settled(run)
                    for message in added or ():
                        await run.tell(message)
                    await advance(run)
            finally:
                self._running = None  # it comes to rest, and there is nothing left to abort
        except HitlPaused:
            return await self._pause(run)
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
            self.current_run = self.leaving = None
            current.reset(token)
        async with self._letting_go(run):
            if run.aborted and not is_finished(run.messages):
                return await self._stop(run)
            await self._drop_moot(run, is_resumed=added is None)
            return await self._end(run)

    async def _stop(self, run: Run) -> AgentResult:
        """End a run that was aborted while it went on."""
        try:
            await load_tree(self, fresh=False)  # others may have begun what is open here
            for _ in range(_ATTEMPTS):
                # A person may answer just now; that changes nothing any more.
                with suppress(HitlStaleAnswer):
                    await cut(self, run, STOPPED)
                    break
        except (LeaseLost, LeaseHeld) as lost:
            return await self._suspend(run, lost)
        asked, last = self._asked_still(), run.close(STOPPED)
        await self.drop(STOPPED.why)
        result = await self._end(run, last, asked)
        if run.asked and result.status == "aborted":
            await end_asked(run)
        return result

    async def _end_aborted(self, run: Run, reason: str) -> AgentResult:
        """Close the conversation where the run stands; if a person answered just before, it goes on instead."""
        async with self._letting_go(run):
            try:
                await load_tree(self, fresh=False)  # others may have begun what is open here
                return await self._close(run, Ending("aborted", reason, is_told=True))
            except HitlStaleAnswer:
                await self._let_go(run)
            except (LeaseLost, LeaseHeld) as lost:
                return await self._suspend(run, lost)
        await self.load()
        self.top.leaving = None
        if (turns := current.get().turns) is not None:
            turns.go_on()
        return await self._go_on()

    async def _close(self, run: Run, ending: Ending) -> AgentResult:
        """Close the conversation at a request that nobody is to answer any more, unless somebody has."""
        await self._drop_all(ending.why)
        await cut(self, run, ending)
        asked = self._asked_still()
        last = run.close(ending, {"decision": ending.status, "reason": ending.why})
        result = await self._finish(run, last, asked)
        if ending.is_told:
            await run.emit(AgentAbortedEvent, reason=ending.why)
        await self._tell_ended(run, result)
        return result

    async def _drop_all(self, why: str) -> None:
        """Cancel the requests that only channels keep, of this agent and of its subagents."""
        owners = list(walk(self))
        for _ in owners:  # a channel names but one at a time
            if not any([await owner.drop(why) for owner in owners]):
                return

    async def _pause(self, run: Run) -> AgentResult:
        """Stop where people have to decide; what they are asked is stored by now, where there is a store.

        Whoever answers while the thread is still leased to this run cannot go on: then this run does.
        """
        may_be_late = self.checkpointer is not None and (run.is_open or self.spec.delegates)
        await self._let_go(run)
        if may_be_late and self.parent is None and await self._has_news():
            return await self._go_on()
        await load_tree(self, fresh=False)
        pending = tuple(approval for approval, _, _ in pending_approvals(self))
        result = paused(
            self.thread.messages, self.thread_id, run.run_id, pending, checkpoint_of(self, pending)
        )
        await self._tell_ended(run, result)
        return result

    async def _has_news(self) -> bool:
        """Know the thread, and those under it, as the store does; whether something was settled meanwhile."""
        asked = {(owner.thread_id, stored.question_id) for owner, stored in open_requests(self)}
        await self.load(fresh=True)
        await load_tree(self)
        open_still = {(owner.thread_id, stored.question_id) for owner, stored in open_requests(self)}
        return not asked <= open_still


@dataclass(slots=True)
class _Running:
    """The run that is going on, and how to abort it."""

    run: Run
    scope: asyncio.Timeout
    loop: asyncio.AbstractEventLoop


_ATTEMPTS = 5
"""How often a prompt looks at a thread again that other workers keep moving on."""
