"""Run: one passage of the loop over a thread, its bodies at rest, and how it is cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from askfirst.agent.emitter import NOTHING, Emitter
from askfirst.agent.journal import Journal
from askfirst.agent.question_ids import replaced
from askfirst.agent.spec import Actor
from askfirst.agent.subagents import SubagentTool
from askfirst.agent.thread import Thread, iterations, unresolved_calls
from askfirst.agent.verdicts import (
    INTERRUPTED,
    INTERRUPTED_HARMLESS,
    LARGE,
    SUPERSEDED_CALL,
    ended_before,
    synthetic,
    too_large,
    with_answer,
)
from askfirst.channels import HitlChannel
from askfirst.checkpointer.base import RunRecord, Settlement, Step, StoredEffect
from askfirst.clock import Clock, SystemClock
from askfirst.errors import HitlDetached, HitlStaleAnswer, InvalidStep, StoreError
from askfirst.events import (
    Event,
    HitlRequestEvent,
    MessageDeltaEvent,
    MessageEndedEvent,
    MessageStartedEvent,
    RunStatus,
)
from askfirst.keeper import MemoryKeeper
from askfirst.messages import (
    AssistantMessage,
    Delta,
    JsonObject,
    Message,
    TextDelta,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    encode,
)
from askfirst.requests import HitlRequest, StoredRequest, same_question

# How a conversation ends before its time.


@dataclass(frozen=True, slots=True)
class Ending:
    """How a conversation is ended early; the requests that are open in it get the same ``status`` and reason."""

    status: Literal["aborted", "superseded"]
    why: str
    is_told: bool = False
    """Whether `AgentAbortedEvent` is emitted: somebody chose to end the conversation here."""


SUPERSEDED = Ending("superseded", "superseded by a newer prompt")
OVERTAKEN = Ending("superseded", "a newer prompt came")
STOPPED = Ending("aborted", "the run was aborted")


# The tool bodies of a run that are executing: which are at work, and which only wait for people.


class Bodies:
    """A group of calls that a run has started together, some of which are subagents.

    While every unfinished body of the group waits for a person, the run releases its lease. A subagent that
    continues takes its caller's lease first, and the caller takes its own caller's. So if two workers have the
    answer, one of them gets the whole tree.
    """

    __slots__ = ("_keeps_result", "_left", "_resting", "_results", "_run", "lock")

    def __init__(
        self, run: Run, keeps_result: Mapping[str, bool], results: dict[str, ToolResultMessage]
    ) -> None:
        self._run = run
        self._keeps_result = keeps_result
        self._left = set(keeps_result)
        self._resting: set[str] = set()
        self._results = results
        self.lock = asyncio.Lock()
        """Held while a body writes to the run's thread, so that bodies write one at a time."""

    def is_alone(self, call_id: str) -> bool:
        """Whether this call is the only unfinished one of the group."""
        return self._left == {call_id}

    async def pause(self, call_id: str) -> bool:
        """Note that a body waits for a person. True if the run's lease was released because of that."""
        self._resting.add(call_id)
        return await self._release()

    def stir(self, call_id: str) -> None:
        """Note that a body no longer waits for a person."""
        self._resting.discard(call_id)

    async def wake(self, call_id: str) -> None:
        """Take the run's lease again, before a body writes to its own thread; raises `LeaseHeld` or `LeaseLost`."""
        self.stir(call_id)
        async with self.lock:
            if self._run.journal is not None and not self._run.journal.lease.holds:
                await self._run.commit()

    async def done(self, call_id: str) -> bool:
        """Note that a body has ended. True if the lease was released because all others wait for people."""
        self._left.discard(call_id)
        self._resting.discard(call_id)
        return await self._release()

    async def _release(self) -> bool:
        """Write the finished results and release the lease, if every unfinished body waits for people."""
        async with self.lock:
            run = self._run
            if (
                not self._left
                or self._left - self._resting
                or run.journal is None
                or not run.journal.lease.holds
            ):
                return False
            with suppress(StoreError):  # the next step raises it again
                await run.append(*self._take_finished())
                await run.commit(release=True)
            return not run.journal.lease.holds

    def _take_finished(self) -> list[ToolResultMessage]:
        """The results to write now. A subagent's result stays on its own thread while another body waits."""
        finished = [
            call_id
            for call_id, keeps in self._keeps_result.items()
            if call_id not in self._left and call_id in self._results and not keeps
        ]
        return [self._results.pop(call_id) for call_id in finished]


# What a run keeps while it goes on.


class Stop:
    """Whether somebody has asked a run to stop. It has no constructor: every run makes one."""

    is_asked = False
    _event: asyncio.Event | None = None

    @property
    def event(self) -> asyncio.Event:
        """An event that is set when the run is to stop; created on first use, because most runs never need it."""
        if self._event is None:
            self._event = asyncio.Event()
            if self.is_asked:
                self._event.set()
        return self._event

    def ask(self) -> None:
        """Ask the run to stop."""
        self.is_asked = True
        if self._event is not None:
            self._event.set()


class Reply:
    """The model's message while it is streamed. It has no constructor: every run makes one."""

    said: list[str] | None = None
    """The text streamed so far; None between messages."""
    error_type = "failed"
    """The name of the error that the model failed with, for traces."""


@dataclass(slots=True, eq=False)
class Unwritten:
    """What the next commit of a run writes."""

    messages: list[Message] = field(default_factory=list[Message])
    settlements: list[Settlement] = field(default_factory=list[Settlement])
    """How `Run.close` settles the open requests; `Run.finish` writes it."""
    is_recorded: bool = False
    """Whether the run's record is in the store already."""


@dataclass(slots=True, eq=False)
class Work:
    """What is under way in a run: the bodies of calls, and requests to people."""

    bodies: Bodies | None = None
    """The group of calls that is executing, if it has subagents and there is a store."""
    calls: frozenset[str] = frozenset()
    """The calls whose bodies may have begun, and whose results are not in the transcript yet."""
    asked: dict[str, str] = field(default_factory=dict[str, str])
    """The unsettled requests of this run: question id to the id of the call that asked, or ``""``."""
    is_released_unstored: bool = False
    """Whether the lease was released for a request that is in no store: another worker may have taken the thread."""


@dataclass(slots=True, eq=False)
class Run:
    """One passage of the loop: the agent, its thread, its listeners, and the journal that writes its steps."""

    actor: Actor
    thread: Thread
    emitter: Emitter
    run_id: str
    channel: HitlChannel | None = None
    journal: Journal | None = None
    clock: Clock = field(default_factory=SystemClock)
    caller: Run | None = None
    """The run whose call this one serves."""
    stop: Stop = field(default_factory=Stop)
    reply: Reply = field(default_factory=Reply)
    unwritten: Unwritten = field(default_factory=Unwritten)
    work: Work = field(default_factory=Work)

    def emit(self, event_type: type[Event], **fields: Any) -> Awaitable[None]:
        """Emit an event to the agent's listeners, if there are any; await what is returned."""
        if not self.emitter.listening:
            return NOTHING
        return self.emitter.emit(event_type, self.run_id, **fields)

    async def append(self, *messages: Message) -> None:
        """Append messages to the transcript and tell the listeners; the next commit writes the messages."""
        added = self._add(messages)
        if self.emitter.listening:
            for message in added:
                await self.tell(message)
        elif added:
            self.reply.said = None

    def _add(self, messages: Iterable[Message]) -> list[Message]:
        added = list(map(self.thread.add, messages))
        if self.journal is not None:
            self.unwritten.messages += added
        return added

    async def tell(self, message: Message) -> None:
        """Tell listeners of a message that was appended."""
        if self.reply.said is None:
            await self.emit(MessageStartedEvent, role=message.role)
        self.reply.said = None
        await self.emit(MessageEndedEvent, message=message)

    async def commit(
        self,
        *,
        opened: Sequence[HitlRequest] = (),
        settled: Sequence[Settlement] = (),
        started: Sequence[StoredEffect] = (),
        run: RunRecord | None = None,
        release: bool = False,
        wait: bool = True,
    ) -> None:
        """Write one step in one transaction: unwritten messages, requests, settlements and effects.

        A result and the end of its effect are in the same step. Without a store only the thread in memory is updated.
        Without ``wait`` the run continues while the step is written; use that only if the next thing is a model call,
        which has no effect.
        """
        journal = self.journal
        if journal is None:
            self.thread.know(settled, opened, self.run_id)
            return
        if journal.lags:
            await journal.catch_up()
        if self.caller is not None and self.caller.work.bodies is not None and not journal.lease.holds:
            await self.caller.work.bodies.wake(self.actor.call_path[-1])
        writing, self.unwritten.messages = self.unwritten.messages, []
        was_recorded, self.unwritten.is_recorded = self.unwritten.is_recorded, True
        ledger = self.thread.ledger
        if started:
            ledger.update([effect.tool_call_id for effect in started])
        ended = [it.tool_call_id for it in writing if it.role == "tool" and it.tool_call_id in ledger]
        if run is None and not was_recorded:
            run = RunRecord(self.actor.spec.id)  # the thread has no run yet: it is a fork, for instance
        step = Step(self.run_id, writing, opened, settled, started, ended, run, release)
        if opened and self.actor.resumer is not None:
            step = step._replace(resumer=self.actor.resumer, resumes=self.actor.root_thread_id)
        try:
            await journal.write(step, wait=wait)
        except (InvalidStep, asyncio.CancelledError):
            if not journal.has_sent(step):  # nothing was sent: the next commit writes the same
                self.unwritten.messages, self.unwritten.is_recorded = (
                    [*writing, *self.unwritten.messages],
                    was_recorded,
                )
                ledger.difference_update([effect.tool_call_id for effect in started])
            elif journal.failure is None:  # the step is written: the requests are open, and no wait follows
                self.thread.know(settled, opened, self.run_id)
                self.work.asked.update({it.question_id: "" for it in opened})
            raise
        ledger.difference_update(ended)
        self.thread.know(settled, opened, self.run_id)

    async def commit_results(self, *, wait: bool) -> None:
        """Write results, with the other unwritten messages. A result too large for the database is replaced by a
        short error result, so that the end of its effect is recorded."""
        try:
            await self.commit(wait=wait)
        except InvalidStep as error:
            if not self._shorten(error.problem):
                raise
            await self.commit(wait=wait)

    def _shorten(self, problem: str) -> bool:
        """Replace the large results among the unwritten messages; False if there is none."""
        large = [it for it in self.unwritten.messages if it.role == "tool" and len(encode(it)) > LARGE]
        for result in large:
            short = too_large(result, problem)
            self.unwritten.messages[self.unwritten.messages.index(result)] = short
            self.thread.messages[self.thread.messages.index(result)] = short
        return bool(large)

    async def open(
        self, message: UserMessage, *, superseding: bool = False, is_new: bool = False
    ) -> list[Message]:
        """Begin with a user message, committed before listeners are told; returns the messages that were added.

        Unresolved calls get results that say so, and their requests are settled as superseded. On a thread that
        ``is_new`` no other worker can have written, so without listeners the commit need not be waited for.
        """
        superseded = self._settlements(OVERTAKEN)
        trace: JsonObject | None = {"decision": "superseded"} if superseding else None
        unrun = self._unrun(SUPERSEDED_CALL, trace, "superseded")
        added = self._add([*unrun, message])
        wait = not is_new or self.emitter.listening
        await self.commit(settled=superseded, run=RunRecord(self.actor.spec.id), wait=wait)
        return added

    async def record(self, request: HitlRequest, *, release: bool) -> StoredRequest | None:
        """Store a request in one step with the unwritten messages; or return it as it was stored before a restart."""
        if self.journal is None:
            return None
        known = self.thread.requests.get(request.question_id)
        if known is None or not same_question(known.request, request.payload):
            await self._open([request], release=release)
            return self.thread.requests[request.question_id]
        if release and known.status == "pending":
            await self.release()
        return known

    async def release_callers(self) -> None:
        """Release the callers' leases too while a person is asked, up to a caller with other bodies at work."""
        caller = self.caller
        if (
            caller is not None
            and caller.work.bodies is not None
            and await caller.work.bodies.pause(self.actor.call_path[-1])
        ):
            await caller.release_callers()

    async def cancel(self, question_id: str, why: str) -> None:
        """Cancel a stored request that is no longer needed; nothing happens if it was settled meanwhile."""
        settled = None if self.journal is None else await self.journal.cancel(question_id, why)
        if settled is not None:
            self.thread.requests[question_id] = settled

    async def expire(self, known: StoredRequest) -> StoredRequest:
        """A pending request as it stands: timed out, if its deadline has passed."""
        if known.request.expires_at is None:
            return known
        if self.journal is not None:
            known = await self.journal.expire(known)
            self.thread.requests[known.question_id] = known
            return known
        return MemoryKeeper(self.thread.requests, self.clock).expire(known.question_id, known)

    async def cancel_where(self, is_moot: Callable[[str], bool], why: str) -> None:
        """Cancel each pending request whose question id makes ``is_moot`` return True."""
        for known in list(self.thread.requests.values()):
            if known.status == "pending" and is_moot(known.question_id):
                await self.cancel(known.question_id, why)

    async def put(self, requests: Sequence[HitlRequest], *, release: bool) -> list[HitlRequest]:
        """Store these requests, unless they are open already; returns the new ones, of which listeners are told.

        ``release`` also releases the lease.
        """
        known = self.thread.requests
        new = [request for request in requests if not _is_known(known.get(request.question_id), request)]
        holds = self.journal is not None and self.journal.lease.holds
        if new or (release and (self.unwritten.messages or holds)):
            await self._open(new, release=release)
        for request in new:
            await self.emit(HitlRequestEvent, request=request)
        return new

    async def _open(self, requests: Sequence[HitlRequest], *, release: bool) -> None:
        """Store requests; the same step settles the requests that they replace."""
        known = self.thread.requests
        over = replaced(known, requests) if known else ()
        try:
            await self.commit(opened=requests, settled=over, release=release)
        except HitlStaleAnswer as stale:  # answered meanwhile: the run that resumes reads the thread again
            raise HitlDetached(str(stale)) from stale

    async def open_message(self) -> None:
        """Note that the model begins a message."""
        self.reply.said = []
        if self.emitter.listening:
            await self.emit(MessageStartedEvent, role="assistant")

    async def hear(self, delta: Delta) -> None:
        """Take one delta of the model's message."""
        if self.reply.said is not None:
            if isinstance(delta, TextDelta):
                self.reply.said.append(delta.text)
            elif delta.type == "restart":
                self.reply.said.clear()
        if self.emitter.listening:
            await self.emit(MessageDeltaEvent, delta=delta)

    async def hold(self, ending: Ending) -> None:
        """Take the lease and settle every open request, so that no other worker resumes while the thread is ended."""
        settled = self._settlements(ending)
        if settled or (self.journal is not None and not self.journal.lease.holds):
            await self.commit(settled=settled)

    def close(self, ending: Ending, trace: JsonObject | None = None) -> list[Message]:
        """End a run early: every unresolved call gets a result, then comes what the model had streamed so far.

        Returns the messages that were added; tell listeners of them once they are written.
        """
        last = AssistantMessage("".join(self.reply.said or ()) or (), stop_reason="aborted", error=ending.why)
        self.unwritten.settlements = self._settlements(ending)
        return self._add([*self._unrun(ended_before(ending.why), trace, ending.status), last])

    async def finish(self, status: RunStatus, usage: Usage) -> None:
        """Write the end of the run, and release the lease."""
        if self.journal is not None:
            record = RunRecord(self.actor.spec.id, status, iterations(self.thread.messages), usage)
            await self.commit(settled=self.unwritten.settlements, run=record, release=True)

    @property
    def failure(self) -> Exception | None:
        """The failed write after which nothing more can be written, if there was one."""
        return None if self.journal is None else self.journal.failure

    @property
    def is_open(self) -> bool:
        """Whether this run holds the lease or has unwritten messages, and can still write."""
        journal = self.journal
        return (
            journal is not None
            and journal.failure is None
            and bool(journal.lease.holds or self.unwritten.messages)
        )

    async def release(self) -> None:
        """Write the unwritten messages and release the lease; does nothing if the lease is lost.

        Messages that the store refuses (`InvalidStep`) are dropped. They are the last ones, and the next run loads
        the thread again.
        """
        if not self.is_open:
            return
        try:
            await self.commit(release=True)
        except InvalidStep:
            self.unwritten.messages.clear()
            if self.is_open:
                await self.commit(release=True)

    def _settlements(self, ending: Ending) -> list[Settlement]:
        """Settlements for the pending requests of a conversation that ends early."""
        return [
            Settlement(it.question_id, ending.status, ending.why)
            for it in self.thread.requests.values()
            if it.status == "pending"
        ]

    def _unrun(self, why: str, trace: JsonObject | None, status: str) -> list[ToolResultMessage]:
        """A result for every unresolved call, so that the transcript can be continued by any provider."""
        found: list[ToolResultMessage] = []
        for call in unresolved_calls(self.thread.messages):
            noted = with_answer(trace, self.thread.requests.get(call.id), status)
            begun = self.interrupted(call, noted) if call.id in self.thread.effects else None
            found.append(self.thread.returned.get(call.id) or begun or synthetic(call, why, noted))
        return found

    def interrupted(self, call: ToolCall, trace: JsonObject | None = None) -> ToolResultMessage:
        """A result for a call in doubt: its body was started, and its end is unknown."""
        is_subagent = isinstance(self.actor.spec.tools_by_name.get(call.name), SubagentTool)
        why = INTERRUPTED
        if self.thread.effects[call.id].effect == "none" and not is_subagent:
            why = INTERRUPTED_HARMLESS
        return synthetic(call, why, trace)


def _is_known(known: StoredRequest | None, request: HitlRequest) -> bool:
    return known is not None and known.status == "pending" and same_question(known.request, request.payload)
