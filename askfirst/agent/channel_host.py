"""What a channel may ask of the agent behind it, and the turns that agents take at one channel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Self, TypeVar

from askfirst.agent.arguments import known_seal, seal_of
from askfirst.agent.context import Asking, Context, current, current_asking
from askfirst.agent.emitter import Emitter, together
from askfirst.agent.inbox import Inbox, tell
from askfirst.agent.run import Bodies, Run
from askfirst.agent.thread import Thread
from askfirst.agent.tools import json_object
from askfirst.answers import decision_in
from askfirst.channels import ChannelHost, HitlChannel
from askfirst.checkpointer.base import Checkpointer
from askfirst.errors import HitlAborted, HitlControlException, HitlDetached
from askfirst.events import AgentSuspendedEvent, HitlAnswerEvent, HitlRequestEvent
from askfirst.messages import JsonObject
from askfirst.requests import ArgsCheck, AskedCall, HitlRequest, StoredRequest, same_question

# What a channel knows of the agent that asks through it.


class Leaving:
    """The way out of a run that is to wait for nobody any more: whoever asks within it gets the ``signal``.

    If it was detached, its listeners hear of it first (``told``), then the run does.
    """

    __slots__ = ("is_heard", "signal", "told")

    def __init__(self, signal: HitlControlException, *, is_heard: bool = False) -> None:
        self.signal = signal
        self.told = asyncio.Event()
        self.is_heard = is_heard
        if is_heard:
            self.told.set()

    async def hear(self) -> None:
        """Wait until listeners were told."""
        await self.told.wait()
        self.is_heard = True


class Host:
    """The agent's side of a channel: it stores requests with the run that asks, and tells listeners of them."""

    __slots__ = (
        "__weakref__",
        "channel",
        "checkpointer",
        "children",
        "current_run",
        "emitter",
        "inbox",
        "leaving",
        "parent",
        "run_id",
        "thread",
    )

    def __init__(
        self,
        thread: Thread,
        channel: HitlChannel | None,
        checkpointer: Checkpointer | None,
        emitter: Emitter,
        inbox: Inbox,
        parent: Self | None,
    ) -> None:
        self.thread = thread
        self.channel = channel
        self.checkpointer = checkpointer
        self.emitter = emitter
        self.inbox = inbox
        self.parent = parent
        """The agent that this one works for."""
        self.children: dict[str, Self] = {}
        """The agents that work for this one, as far as they are known, by the ids of the calls that they serve."""
        self.run_id: str | None = None
        self.current_run: Run | None = None
        self.leaving: Leaving | None = None
        """There if the current run, and those that work for it, are to wait for nobody any more."""

    @property
    def thread_id(self) -> str:
        """The thread's id."""
        return self.thread.thread_id

    @property
    def top(self) -> Host:
        """The agent that this one works for in the end; itself, if it works for none."""
        top: Host = self
        while top.parent is not None:
            top = top.parent
        return top

    def works_with(self, thread_id: str | None) -> bool:
        """Whether a thread is that of an agent which works, as this one does, for the agent at the top."""
        return self.top.has_under_it(thread_id)

    def has_under_it(self, thread_id: str | None) -> bool:
        """Whether a thread is this agent's, or that of one which works for it."""
        return self.thread_id == thread_id or any(it.has_under_it(thread_id) for it in self.children.values())

    async def record(self, request: HitlRequest) -> StoredRequest | None:
        """Store a request with the run that asks; None if no run does, or nothing is stored."""
        run, asking = self.current_run, current_asking()
        if run is None:
            return None
        if run.bodies is not None and (call_id := self._safe_point(asking)) is not None:
            return await _record_beside(run, run.bodies, call_id, request)
        rests = self._rests(run, asking)
        stored = await run.record(request, release=rests)
        if rests and stored is not None and stored.status == "pending":
            await run.rest()
        return stored

    def _rests(self, run: Run, asking: Asking | None) -> bool:
        """Whether nothing goes on in the run while a person is asked: no body but one at a safe point."""
        if asking is not None and asking.place == "tool":
            return False
        return all(call_id == self._safe_point(asking) for call_id in run.under_way)

    def _safe_point(self, asking: Asking | None) -> str | None:
        """The call that asks from a safe point, if it is this agent's and not that of one within its tools."""
        if asking is None or asking.place != "safe_point" or current.get().host is not self:
            return None
        return asking.tool_call_id

    async def stand_back(self) -> None:
        """Release the lease while an answer is awaited that is kept outside the store, so that any worker may resume.

        That is the case with a channel that keeps its requests itself, and while another agent has the turn at the
        channel. The lease is kept while another body of this run is at work.
        """
        run, asking = self.current_run, current_asking()
        if run is None or run.journal is None:
            return
        if run.bodies is not None and (call_id := self._safe_point(asking)) is not None:
            rests = await run.bodies.rest(call_id)
        else:
            rests = self._rests(run, asking)
            if rests and (run.journal.holds or run.unwritten or run.journal.failed):
                await run.commit(release=True)
        if rests:
            await run.rest()

    async def leave(self, asked: Sequence[tuple[HitlChannel, HitlRequest]]) -> bool:
        """Detach from what channels ask: listeners are told, then the run that waits; False if none does any more.

        An async listener may wait for that very run, so the run waits only until each of them has begun.
        """
        leaving, loop = Leaving(HitlDetached()), asyncio.get_running_loop()
        left = [it for channel, it in asked if channel.interrupt(leaving.signal, after=leaving.hear)]
        if not left:
            return False
        if self.current_run is not None:
            self.leaving = leaving
        loop.call_soon(loop.call_soon, leaving.told.set)  # those that get tasks begin in the loop's next turn
        try:
            for pending in left:
                await self.emitter.emit(AgentSuspendedEvent, self.run_id or "", pending_request=pending)
        finally:
            leaving.told.set()
        return True

    def announce(self, request: HitlRequest) -> Awaitable[None]:
        """Tell listeners of a request; to be awaited."""
        run, asking = self.current_run, current_asking()
        if run is not None:
            run.asked[request.question_id] = "" if asking is None else asking.tool_call_id
        asked = self.emitter.emit(HitlRequestEvent, self.run_id or "", request=request)
        if run is None or request.payload.call is None:
            return asked
        return together([asked, tell(run, request, "requested")])

    async def announce_settled(self, stored: StoredRequest) -> None:
        """Tell listeners how a request was settled, and remember it while its call is open."""
        run, asking = self.current_run, current_asking()
        if run is not None:
            run.asked.pop(stored.question_id, None)
            self.thread.requests[stored.question_id] = stored
            if run.bodies is not None and asking is not None:
                run.bodies.stir(asking.tool_call_id)
        await self.emitter.emit(
            HitlAnswerEvent,
            self.run_id or "",
            question_id=stored.question_id,
            answer=self.inbox.shown_answer(self.thread, stored),
            cancelled=stored.status not in ("answered", "timed_out"),
            timed_out=stored.status == "timed_out",
        )
        if run is not None and stored.status == "answered" and stored.request.payload.call is not None:
            await tell(run, stored.request, "resolved", decision_in(stored.answer))

    def recall(self, request: HitlRequest) -> StoredRequest | None:
        """How this very request was settled before, if its call is open still."""
        known = self.thread.requests.get(request.question_id)
        if known is None or known.status == "pending" or not same_question(known.request, request.payload):
            return None
        return known

    async def known(self, question_id: str) -> StoredRequest | None:
        """What was asked under an id about the calls that are open; of what seems pending, how it stands by now."""
        known = self.thread.requests.get(question_id)
        if known is None or known.status != "pending" or self.checkpointer is None:
            return known
        found = await self.checkpointer.request(self.thread_id, question_id)
        if found is not None:
            self.thread.requests[question_id] = found
        return found or known

    @property
    def stores(self) -> bool:
        """Whether a run goes on whose requests are written with its thread."""
        return self.current_run is not None and self.current_run.journal is not None

    def args_check(self, tool_name: str, call: AskedCall | None = None) -> ArgsCheck | None:
        """How to check edited arguments of one of the agent's tools."""
        return self.inbox.args_check(tool_name, self.thread, call)

    def seal(self, call: AskedCall, known: str | None = None) -> str | None:
        """What binds an answer to what is not shown of the arguments that a call stands at the gate with."""
        known = known or known_seal(self.thread, call.tool_call_id)
        args = self.thread.at_gate.get(call.tool_call_id)
        if args is None or json_object(args) != call.args:
            return known  # what is asked is what was asked before, or nothing that the gate knows
        return seal_of(args, call.args, known)

    def args_schema(self, tool_name: str) -> JsonObject | None:
        """What the arguments of one of the agent's tools are like."""
        return self.inbox.args_schema(tool_name)


async def _record_beside(
    run: Run, bodies: Bodies, call_id: str, request: HitlRequest
) -> StoredRequest | None:
    """Store a request of a body beside which others are under way, for which the thread may be needed."""
    async with bodies.lock:
        stored = await run.record(request, release=False)
    if stored is not None and stored.status == "pending" and await bodies.rest(call_id):
        await run.rest()
    return stored


def host_of(
    channel: HitlChannel, bound: ChannelHost | None, others: Collection[ChannelHost] = ()
) -> ChannelHost | None:
    """The agent that asks through a channel just now: the one whose run this is, else the one it is bound to.

    The run's agent may ask through another channel around this one, to which it, or the one that it works for,
    was ``bound`` too; or through one that keeps its requests on the agent's own thread.
    """
    running = current.get().host
    if running is None:
        return bound
    keeps_for_it = channel.checkpointer is not None and channel.checkpointer is running.checkpointer
    if running.channel is channel or (keeps_for_it and channel.thread_id == running.thread_id):
        return running
    host: Host | None = running
    while others and host is not None:
        if host in others:
            return running
        host = host.parent
    return bound


T = TypeVar("T")


class Turns:
    """Shared by an agent and its subagents for the length of a run: one line of askers for each channel."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}

    async def take(self, channel: HitlChannel, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask when it is our turn, and wait for the answer."""
        line = self._lines.setdefault(id(channel), _Line())
        if line.is_taken and channel.checkpointer is not None and (host := current.get().host) is not None:
            await host.stand_back()
        return await line.take(ask)

    def go_on(self) -> None:
        """Let all ask again: whoever told them to stop was too late."""
        for line in self._lines.values():
            line.stopped = None


class _Line:
    """Those who want to ask through one channel.

    When one of them is told to stop waiting, so are those that have not had their turn.
    """

    __slots__ = ("_lock", "stopped")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.stopped: HitlDetached | HitlAborted | None = None

    @property
    def is_taken(self) -> bool:
        return self._lock.locked()

    async def take(self, ask: Callable[[], Awaitable[T]]) -> T:
        async with self._lock:
            if self.stopped is not None:
                raise self.stopped
            try:
                return await ask()
            except (HitlDetached, HitlAborted) as signal:
                self.stopped = signal
                raise


async def in_turn(channel: HitlChannel, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask through a channel when no other agent of this run does; whoever has the turn may ask at once.

    A channel without a store does not give the thread back with its request, so that is done here.
    """
    at = current.get()
    host = at.host
    if host is not None and channel.checkpointer is None:
        await host.stand_back()
        if host.current_run is not None:
            host.current_run.stood_back = True
    if at.turns is None or at.turn_at is channel:
        return await ask()

    async def now() -> T:
        token = current.set(Context(at.host, at.turns, channel, at.asking, at.hearing))
        try:
            return await ask()
        finally:
            current.reset(token)

    return await at.turns.take(channel, now)
