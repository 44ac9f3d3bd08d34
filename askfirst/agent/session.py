"""Session: the life of runs on one thread, one run at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from askfirst import tracing
from askfirst.agent.asking import end_asked
from askfirst.agent.channel_host import Host, Leaving, Turns
from askfirst.agent.context import Context, current
from askfirst.agent.emitter import Emitter, call_on
from askfirst.agent.inbox import Inbox
from askfirst.agent.journal import Journal
from askfirst.agent.live_thread import LiveThread
from askfirst.agent.loop import advance
from askfirst.agent.result import AgentResult, paused
from askfirst.agent.run import STOPPED, SUPERSEDED, Ending, Run, Unwritten
from askfirst.agent.run_end import (
    asked_unheard,
    cancel_kept,
    cancel_moot,
    check_unsettled,
    end,
    release,
    releasing,
    suspend,
    tell_ended,
    tell_settled,
    write_end,
)
from askfirst.agent.spec import Actor
from askfirst.agent.subagents import SubagentTool
from askfirst.agent.thread import Thread, is_finished, unresolved_calls
from askfirst.agent.tools import ToolResult
from askfirst.agent.tree import (
    check_closed,
    check_owner,
    checkpoint_of,
    end_subagents,
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
from askfirst.ids import child_thread_id, new_id
from askfirst.messages import Message, UserMessage
from askfirst.requests import HitlRequest

OnPending = Literal["raise", "supersede"]
SessionState = Literal["idle", "doomed", "running", "leaving", "resting"]


@dataclass(slots=True)
class Passage:
    """A run on its way through the loop, and how to abort it."""

    run: Run
    scope: asyncio.Timeout
    loop: asyncio.AbstractEventLoop
    leaving: Leaving | None = None
    """Set when the run and its subagents' runs are told to leave their waits for people."""
    is_doomed: bool = False
    """Whether the session's next run is aborted, too."""


class Session:
    """The life of runs on one thread: one run at a time, of one agent or subagent.

    ``live`` is the thread as this process knows it, ``host`` the agent's side of its channel. A session has one
    ``state``::

                 +-------------------------------------------------+
                 v                                                 |
        idle --prompt, resume--> running --end, pause, abort--> resting
         |                       |     ^                           ^
         | abort_soon            |     | the person was first      |
         v                       v     |                           |
        doomed --prompt--> (running) leaving ----------------------+

    ``idle``: no run is here. ``doomed``: the next run is aborted as soon as it begins. ``running``: a run advances,
    or waits for people through a channel; it can be aborted. ``leaving``: its wait is over by a detach, a newer
    prompt or an abort of the request; code that asks within the run gets that signal. ``resting``: the run is writing
    its end or releasing its lease; there is nothing left to abort. ``passage`` is set in the last three.

    A subagent's session knows its ``parent``, and a session its ``children`` by the ids of the calls they work on.
    """

    __slots__ = (
        "__weakref__",
        "_host",
        "actor",
        "channel",
        "children",
        "emitter",
        "inbox",
        "live",
        "lock",
        "parent",
        "passage",
        "state",
        "thread_id",
    )

    def __init__(
        self, actor: Actor, live: LiveThread, channel: HitlChannel | None, parent: Session | None = None
    ) -> None:
        self.thread_id = thread_id = live.thread_id
        self.actor = actor
        self.live = live
        self.channel = channel
        self.parent = parent
        self.children: dict[str, Session] = {}
        self.emitter = Emitter(
            thread_id, actor.spec.onion.on_event, actor.path, None if parent is None else parent.emitter
        )
        self.inbox = Inbox(actor.spec, thread_id, channel, live.checkpointer, shares=parent is not None)
        self._host: Host | None = None
        self.lock = RunLock(thread_id)
        self.state: SessionState = "idle"
        self.passage: Passage | None = None

    @property
    def host(self) -> Host:
        """The agent's side of its channel; made on first use, because an agent without a channel needs none."""
        if self._host is None:
            self._host = Host(self)
        return self._host

    @property
    def run(self) -> Run | None:
        """The run that is here, if any."""
        passage = self.passage
        return None if passage is None else passage.run

    # The tree of agents.

    @property
    def top(self) -> Session:
        """The session at the root of the tree of agents."""
        top = self
        while top.parent is not None:
            top = top.parent
        return top

    def has_under_it(self, thread_id: str | None) -> bool:
        """Whether a thread is this agent's, or one of its subagents'."""
        return self.thread_id == thread_id or any(it.has_under_it(thread_id) for it in self.children.values())

    def child(self, tool: SubagentTool, call_id: str) -> Session:
        """The session of the subagent that a call runs."""
        if call_id not in self.children:
            thread = Thread(child_thread_id(self.thread_id, call_id))
            live = LiveThread(thread, self.live.checkpointer, is_new=False)
            actor = self.actor.subagent(tool.agent, call_id)
            self.children[call_id] = Session(actor, live, tool.channel or self.channel, self)
        return self.children[call_id]

    def apart(self) -> Session:
        """A second session on the same thread, to load and read it while a run of this session may be at work.

        Without a store there is nothing to load, and this is the session itself.
        """
        live = self.live
        if live.checkpointer is None:
            return self
        return Session(
            self.actor, LiveThread(Thread(self.thread_id), live.checkpointer, is_new=False), self.channel
        )

    async def load(self, *, fresh: bool = False) -> None:
        """Load the thread from the store if it is stale, or in any case if ``fresh``."""
        if self.live.checkpointer is None or (self.live.state != "stale" and not fresh):
            return
        keeps_answers = self.channel is not None and self.channel.checkpointer is None
        await self.live.load(fresh=fresh, keeps_answers=keeps_answers)
        if self.children:
            calls = {call.id for call in unresolved_calls(self.live.thread.messages)}
            self.children = {call_id: it for call_id, it in self.children.items() if call_id in calls}
            for child in self.children.values():
                child.live.forget()

    def new_run(self, run_id: str, journal: Journal | None = None) -> Run:
        """Make a run on the thread as it is known; a ``journal`` that is given may hold the lease already."""
        live = self.live
        is_recorded, live.run_id = run_id == live.run_id, run_id
        caller = None if self.parent is None else self.parent.run
        if live.checkpointer is not None and journal is None:
            parent = None if self.parent is None else self.parent.thread_id
            working = None if caller is None else caller.journal
            journal = Journal(live.checkpointer, self.thread_id, live.fence, parent, working)
        return Run(
            self.actor,
            live.thread,
            self.emitter,
            run_id,
            self.channel,
            journal,
            caller=caller,
            unwritten=Unwritten(is_recorded=is_recorded),
        )

    # What the agent does.

    async def prompt(self, message: UserMessage, run_id: str, on_pending: OnPending) -> AgentResult:
        """Run from a new user message."""
        if on_pending not in ("raise", "supersede"):
            raise InvalidAgent(f"on_pending is raise or supersede, not {on_pending!r}")
        self.lock.check()  # before a waiting run is interrupted for one that cannot begin
        self._make_way(on_pending)
        async with self.lock:
            return await self._begin(message, run_id, on_pending)

    async def _begin(self, message: UserMessage, run_id: str, on_pending: OnPending) -> AgentResult:
        for _ in range(_ATTEMPTS):
            await self.load(
                fresh=bool(self.live.thread.requests)
            )  # another worker may have settled the requests and continued
            superseding = await self._check_pending(on_pending)
            try:
                journal = await self._supersede_children() if self.actor.spec.delegates else None
                run = self.new_run(run_id, journal)
                asked = asked_unheard(self)
                async with releasing(self, run):
                    added = await run.open(message, superseding=superseding, is_new=self.live.state == "new")
            except (LeaseLost, HitlStaleAnswer):
                self.live.forget()  # another worker was at the thread since it was loaded: look again
                if self.parent is not None:
                    raise  # the other worker has the whole tree
            else:
                self.live.state = "known"
                self.live.untold += asked
                return await self._work(run, added)
        raise LeaseHeld(self.thread_id, "other workers, one after another", 0)

    async def _supersede_children(self) -> Journal | None:
        """End the unfinished runs of subagents, within the run that called them.

        Returns the journal that holds the lease since then; None if there are no such subagents.
        """
        if not open_subagents(self):
            return None
        run = self.new_run(self.live.run_id or new_id())
        async with releasing(self, run):
            await end_subagents(self, run, SUPERSEDED)
        return run.journal

    async def resume(self, otherwise: UserMessage | None = None) -> AgentResult:
        """Run from where the transcript stands; if it is empty, begin with ``otherwise``."""
        async with self.lock:
            return await self.resume_held(otherwise)

    async def resume_held(self, otherwise: UserMessage | None = None) -> AgentResult:
        """Like `resume`, for a caller that holds the lock."""
        await self.load(fresh=True)
        if otherwise is not None and not self.live.thread.messages:
            return await self._begin(otherwise, new_id(), "raise")
        await self.check_owner()
        return await self.go_on()

    async def go_on(self) -> AgentResult:
        """Run from where the loaded thread stands."""
        run = self.new_run(self.live.run_id or new_id())
        if self.live.held is not None:  # another worker holds the lease: do not ask the model first
            await run.emit(RunStartedEvent, agent_id=self.actor.spec.id, resumed=True)
            return await suspend(self, run, self.live.held)
        return await self._work(run, None)

    async def check_owner(self) -> None:
        """Raise `WrongAgent` if another agent has to resume the loaded thread."""
        await check_owner(self)

    async def close(self, reason: str) -> None:
        """End the conversation where it waits for a person.

        First a run that waits in this process is interrupted, and closes itself. Then, under the lock, the
        conversation is closed if it is still open. Raises `HitlNoPendingRequest` if nobody is being asked, and
        `HitlStaleAnswer` if the person answered first.
        """
        self.lock.check()
        await check_unsettled(self, request_in_flight(self))
        waiting = self._interrupt(HitlAborted(reason))
        if waiting is not None:
            await self._cancel_all_kept(reason)  # at once, so that no answer comes in between
        elif self.state == "running":
            check_closed(self, waiting)  # the run is at work, not waiting
        async with self.lock:
            for _ in range(_ATTEMPTS):
                await self.load(fresh=True)
                await self.check_owner()
                await load_tree(self)
                if await open_request(self) is None and not is_cut_short(self):
                    check_closed(self, waiting)
                    return
                await check_unsettled(self, waiting)  # if it was, the open request is a newer one
                run = self.new_run(self.live.run_id or new_id())
                try:
                    async with releasing(self, run):
                        await self._close(run, Ending("aborted", reason, is_told=True))
                    return
                except (LeaseLost, LeaseHeld, HitlStaleAnswer):
                    pass  # another worker wrote to the thread since it was loaded: load it again
                finally:
                    self.live.forget()
            raise LeaseHeld(self.thread_id, "other workers, one after another", 0)

    async def end(self, ending: Ending) -> None:
        """End the unfinished run of a subagent whose call is dropped."""
        async with self.lock:
            await self.load(fresh=True)
            await load_tree(self)
            if self.live.is_under_way:
                run = self.new_run(self.live.run_id or new_id())
                async with releasing(self, run):
                    await self._close(run, ending)

    async def hold(self, run: Run, ending: Ending) -> None:
        """Take the lease, so that no other worker continues the subagents; the same step settles open requests.

        Listeners are told of these requests with the next events, even if the lease is lost.
        """
        asked = asked_unheard(self)
        await run.hold(ending)
        self.live.untold += asked

    def abort(self) -> None:
        """Abort the current run, if any; may be called from any thread."""
        passage = self.passage
        if passage is not None and self.state != "resting":
            call_on(passage.loop, self.abort_run, passage.run.run_id)

    async def delegate(self, tool: SubagentTool, tool_call_id: str, prompt: str) -> ToolResult:
        """Run a subagent for a call, from its beginning or from where its thread stands."""
        child = self.child(tool, tool_call_id)
        return returned_by(tool, await child.resume(UserMessage(prompt)))

    def abort_soon(self) -> None:
        """Abort the current run, or the one that is about to begin."""
        if self.passage is None:
            self.state = "doomed"
        else:
            self.passage.is_doomed = True
            self.abort()

    def abort_run(self, run_id: str) -> bool:
        """Abort this run; False if it is not the current one."""
        passage = self.passage
        if passage is None or self.state == "resting" or passage.run.run_id != run_id:
            return False
        if not passage.run.stop.is_asked and (passage.leaving is None or passage.leaving.is_heard):
            passage.run.stop.ask()
            passage.scope.reschedule(passage.loop.time())
        return True

    def leave(self, leaving: Leaving | None) -> None:
        """Tell the run and its subagents' runs to leave their waits for people; None lets them wait again."""
        if self.passage is not None:
            self.passage.leaving = leaving
            if self.state in ("running", "leaving"):
                self.state = "running" if leaving is None else "leaving"

    # How a run goes.

    def _make_way(self, on_pending: OnPending) -> None:
        """Before a prompt: raise if a run of this process waits for a person, or interrupt that wait."""
        pending = request_in_flight(self)
        if pending is None:
            return
        if on_pending == "raise":
            raise HitlRequestPending(pending.thread_id or self.thread_id, pending.question_id)
        self._interrupt(HitlDetached(SUPERSEDED.why))

    def _interrupt(self, signal: HitlControlException) -> HitlRequest | None:
        """Raise ``signal`` in the waits of this session and its subagents; returns one of the requests, if any."""
        if (self.channel is None and not self.children) or request_in_flight(self) is None:
            return None
        heard = [channel.interrupt(signal) for channel, _ in in_flight(self)]
        waited_for = next((request for request in heard if request is not None), None)
        if waited_for is not None:
            self.leave(Leaving(signal, is_heard=True))
        return waited_for

    async def _check_pending(self, on_pending: OnPending) -> bool:
        """Raise if a request is open, or cancel it (``supersede``); True if one was open."""
        if self.channel is None and not self.live.thread.requests and not self.actor.spec.delegates:
            return False
        await load_tree(self)
        request = await open_request(self)
        if request is None:
            return False
        if on_pending == "raise":
            raise HitlRequestPending(request.thread_id or self.thread_id, request.question_id)
        await self._cancel_all_kept(SUPERSEDED.why)
        return True

    async def _work(self, run: Run, added: Sequence[Message] | None) -> AgentResult:
        """One passage of the loop in a trace span, from ``added`` messages or from where the transcript stands."""
        if not tracing.is_set_up():
            return await self._pass(run, added)
        with tracing.run_span(self.actor.spec.id, self.thread_id) as span:
            result = await self._pass(run, added)
            if result.status == "failed":
                span.fail(run.reply.error_type)
            return result

    async def _pass(self, run: Run, added: Sequence[Message] | None) -> AgentResult:
        scope, at = asyncio.timeout(None), current.get()
        turns = Turns() if self.parent is None and self.actor.spec.delegates else at.turns
        token = current.set(Context(self, turns, at.turn_at, at.asking, at.hearing, at.framework_run))
        is_doomed = self.state == "doomed" or (self.passage is not None and self.passage.is_doomed)
        passage = self.passage = Passage(run, scope, asyncio.get_running_loop(), is_doomed=is_doomed)
        try:
            try:
                async with scope:
                    self.state = "running"
                    if is_doomed:
                        self.abort_run(run.run_id)
                    await self._tell_started(run, added)
                    await advance(run)
            finally:
                self.state = "resting"
        except HitlPaused:
            return await self._pause(run)
        except (HitlDetached, LeaseLost, LeaseHeld) as stopped:
            return await suspend(self, run, stopped)
        except HitlAborted as aborted:
            return await self._end_aborted(run, aborted.reason)
        except BaseException as error:
            if not (isinstance(error, TimeoutError) and scope.expired()):  # `abort` sets a deadline
                await release(self, run)
                self.emitter.post(RunEndedEvent, run.run_id, status="suspended", reason=type(error).__name__)
                raise
        finally:
            self.passage = None
            self.state = "doomed" if passage.is_doomed else "idle"
            current.reset(token)
        async with releasing(self, run):
            if run.stop.is_asked and not is_finished(run.thread.messages):
                return await self._stop(run)
            await cancel_moot(self, run)
            return await end(self, run)

    async def _tell_started(self, run: Run, added: Sequence[Message] | None) -> None:
        """Tell listeners that the run begins or is resumed, and of the messages that it begins with."""
        if run.emitter.listening:
            await run.emit(RunStartedEvent, agent_id=self.actor.spec.id, resumed=added is None)
        if self.live.untold:
            await tell_settled(self, run)
        if run.emitter.listening:
            for message in added or ():
                await run.tell(message)

    async def _stop(self, run: Run) -> AgentResult:
        """End a run that `abort` has stopped."""
        try:
            await load_tree(self, fresh=False)  # others may have begun what is open here
            for _ in range(_ATTEMPTS):
                # A person may answer meanwhile; the run is aborted all the same.
                with suppress(HitlStaleAnswer):
                    await end_subagents(self, run, STOPPED)
                    break
        except (LeaseLost, LeaseHeld) as lost:
            return await suspend(self, run, lost)
        asked, last = asked_unheard(self), run.close(STOPPED)
        await cancel_kept(self, STOPPED.why)
        result = await end(self, run, last, asked)
        if run.work.asked and result.status == "aborted":
            await end_asked(run)
        return result

    async def _end_aborted(self, run: Run, reason: str) -> AgentResult:
        """Close the conversation where the run stands; if a person answered first, the run continues instead."""
        async with releasing(self, run):
            try:
                await load_tree(self, fresh=False)  # others may have begun what is open here
                return await self._close(run, Ending("aborted", reason, is_told=True))
            except HitlStaleAnswer:
                await release(self, run)
            except (LeaseLost, LeaseHeld) as lost:
                return await suspend(self, run, lost)
        await self.load()
        self.top.leave(None)
        if (turns := current.get().turns) is not None:
            turns.go_on()
        return await self.go_on()

    async def _close(self, run: Run, ending: Ending) -> AgentResult:
        """Close the conversation: cancel requests, end subagents, write the end.

        Raises `HitlStaleAnswer` if a person answered first.
        """
        await self._cancel_all_kept(ending.why)
        await end_subagents(self, run, ending)
        asked = asked_unheard(self)
        last = run.close(ending, {"decision": ending.status, "reason": ending.why})
        result = await write_end(self, run, last, asked)
        if ending.is_told:
            await run.emit(AgentAbortedEvent, reason=ending.why)
        await tell_ended(run, result)
        return result

    async def _cancel_all_kept(self, why: str) -> None:
        """Cancel the requests that only channels keep, of this agent and of its subagents."""
        owners = list(walk(self))
        for _ in owners:  # a channel reports one open request at a time
            if not any([await cancel_kept(owner, why) for owner in owners]):
                return

    async def _pause(self, run: Run) -> AgentResult:
        """Release the lease and return a checkpoint; the requests are stored already, if there is a store.

        An answer that came while this run held the lease could not be resumed by anybody else, so this run continues.
        """
        may_be_late = self.live.checkpointer is not None and (run.is_open or self.actor.spec.delegates)
        await release(self, run)
        if may_be_late and self.parent is None and await self._has_news():
            return await self.go_on()
        await load_tree(self, fresh=False)
        checkpoint = checkpoint_of(self, pending_approvals(self))
        result = paused(self.live.thread.messages, self.thread_id, run.run_id, checkpoint.pending, checkpoint)
        await tell_ended(run, result)
        return result

    async def _has_news(self) -> bool:
        """Load the whole tree again; whether a request was settled meanwhile."""
        asked = {(owner.thread_id, stored.question_id) for owner, stored in open_requests(self)}
        await self.load(fresh=True)
        await load_tree(self)
        open_still = {(owner.thread_id, stored.question_id) for owner, stored in open_requests(self)}
        return not asked <= open_still


_ATTEMPTS = 5
"""How often a prompt loads a thread again that other workers keep writing to."""
