"""What a channel may ask of the agent behind it, and the turns that agents take at one channel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from askfirst.agent.arguments import known_seal, seal_of
from askfirst.agent.context import Asking, Context, current, current_asking
from askfirst.agent.emitter import together
from askfirst.agent.inbox import tell
from askfirst.agent.run import Bodies, Run
from askfirst.agent.tools import json_object
from askfirst.answers import decision_in
from askfirst.channels import ChannelHost, HitlChannel
from askfirst.errors import HitlAborted, HitlControlException, HitlDetached
from askfirst.events import AgentSuspendedEvent, HitlAnswerEvent, HitlRequestEvent
from askfirst.messages import JsonObject
from askfirst.requests import ArgsCheck, AskedCall, HitlRequest, StoredRequest, same_question

if TYPE_CHECKING:
    from askfirst.agent.session import Session

# The agent's side of a channel.


class Leaving:
    """How a run leaves its waits for people: code that asks within the run gets the ``signal``.

    After a detach the listeners are told first (``told`` is set), then the signal is raised in the run.
    """

    __slots__ = ("is_heard", "signal", "told")

    def __init__(self, signal: HitlControlException, *, is_heard: bool = False) -> None:
        self.signal = signal
        self.told = asyncio.Event()
        self.is_heard = is_heard
        if is_heard:
            self.told.set()

    async def hear(self) -> None:
        """Wait until the listeners were told."""
        await self.told.wait()
        self.is_heard = True


class Host:
    """The agent's side of a channel: a view of its session.

    It stores requests with the run that asks, and tells listeners of them.
    """

    __slots__ = ("__weakref__", "session")

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def thread_id(self) -> str:
        """The id of the agent's thread."""
        return self.session.live.thread_id

    @property
    def agent_path(self) -> tuple[str, ...]:
        """The ids of the agents from the root to this one."""
        return self.session.actor.path

    def works_with(self, thread_id: str | None) -> bool:
        """Whether a thread belongs to an agent of the same tree."""
        return self.session.top.has_under_it(thread_id)

    async def record(self, request: HitlRequest) -> StoredRequest | None:
        """Store a request in a step of the run that asks; None without a run or a store."""
        run, asking = self.session.run, current_asking()
        if run is None:
            return None
        if run.work.bodies is not None and (call_id := self._safe_point(asking)) is not None:
            return await _record_beside(run, run.work.bodies, call_id, request)
        rests = self._rests(run, asking)
        stored = await run.record(request, release=rests)
        if rests and stored is not None and stored.status == "pending":
            await run.release_callers()
        return stored

    def _rests(self, run: Run, asking: Asking | None) -> bool:
        """Whether the lease can be released while a person is asked: no body but one at a safe point is at work."""
        if asking is not None and asking.place == "tool":
            return False
        return all(call_id == self._safe_point(asking) for call_id in run.work.calls)

    def _safe_point(self, asking: Asking | None) -> str | None:
        """The id of the call that asks from a safe point; None for another place, or for an agent within a tool."""
        if asking is None or asking.place != "safe_point" or current.get().session is not self.session:
            return None
        return asking.tool_call_id

    async def release(self) -> None:
        """Release the lease while an answer is awaited that is kept outside the store, so that any worker may resume.

        That is the case with a channel that keeps its requests itself, and while another agent has the turn at the
        channel. The lease is kept while another body of this run is at work.
        """
        run, asking = self.session.run, current_asking()
        if run is None or run.journal is None:
            return
        if run.work.bodies is not None and (call_id := self._safe_point(asking)) is not None:
            rests = await run.work.bodies.pause(call_id)
        else:
            rests = self._rests(run, asking)
            if rests and (run.journal.lease.holds or run.unwritten.messages or run.journal.failure):
                await run.commit(release=True)
        if rests:
            await run.release_callers()

    async def leave(self, asked: Sequence[tuple[HitlChannel, HitlRequest]]) -> bool:
        """Leave the waits for these requests: tell the listeners, then raise `HitlDetached` in the run.

        False if no run waits any more. An async listener may itself wait for that run, so the run waits only until
        each listener has begun.
        """
        leaving, loop = Leaving(HitlDetached()), asyncio.get_running_loop()
        left = [it for channel, it in asked if channel.interrupt(leaving.signal, after=leaving.hear)]
        if not left:
            return False
        self.session.leave(leaving)
        loop.call_soon(loop.call_soon, leaving.told.set)  # async listeners begin in the next iteration
        try:
            for pending in left:
                await self.session.emitter.emit(
                    AgentSuspendedEvent, self.session.live.run_id or "", pending_request=pending
                )
        finally:
            leaving.told.set()
        return True

    def announce(self, request: HitlRequest) -> Awaitable[None]:
        """Tell listeners of a request; await what is returned."""
        run, asking = self.session.run, current_asking()
        if run is not None:
            run.work.asked[request.question_id] = "" if asking is None else asking.tool_call_id
        asked = self.session.emitter.emit(HitlRequestEvent, self.session.live.run_id or "", request=request)
        if run is None or request.payload.call is None:
            return asked
        return together([asked, tell(run, request, "requested")])

    async def announce_settled(self, stored: StoredRequest) -> None:
        """Tell listeners how a request was settled, and keep it on the thread while its call has no result."""
        run, asking = self.session.run, current_asking()
        if run is not None:
            run.work.asked.pop(stored.question_id, None)
            self.session.live.thread.requests[stored.question_id] = stored
            if run.work.bodies is not None and asking is not None:
                run.work.bodies.stir(asking.tool_call_id)
        await self.session.emitter.emit(
            HitlAnswerEvent,
            self.session.live.run_id or "",
            question_id=stored.question_id,
            answer=self.session.inbox.shown_answer(self.session.live.thread, stored),
            cancelled=stored.status not in ("answered", "timed_out"),
            timed_out=stored.status == "timed_out",
        )
        if run is not None and stored.status == "answered" and stored.request.payload.call is not None:
            await tell(run, stored.request, "resolved", decision_in(stored.answer))

    def recall(self, request: HitlRequest) -> StoredRequest | None:
        """This request as it was settled before, if its call has no result yet."""
        known = self.session.live.thread.requests.get(request.question_id)
        if known is None or known.status == "pending" or not same_question(known.request, request.payload):
            return None
        return known

    async def known(self, question_id: str) -> StoredRequest | None:
        """The request under an id, of a call without a result; a pending one is read from the store again."""
        live = self.session.live
        known = live.thread.requests.get(question_id)
        if known is None or known.status != "pending" or live.checkpointer is None:
            return known
        found = await live.checkpointer.request(self.thread_id, question_id)
        if found is not None:
            live.thread.requests[question_id] = found
        return found or known

    @property
    def stores(self) -> bool:
        """Whether a run is here whose requests are stored with its thread."""
        run = self.session.run
        return run is not None and run.journal is not None

    def args_check(self, tool_name: str, call: AskedCall | None = None) -> ArgsCheck | None:
        """A function that checks edited arguments of one of the agent's tools."""
        return self.session.inbox.args_check(tool_name, self.session.live.thread, call)

    def seal(self, call: AskedCall, known: str | None = None) -> str | None:
        """The seal that binds an answer to the hidden arguments of a call at the gate; None if nothing is hidden."""
        known = known or known_seal(self.session.live.thread, call.tool_call_id)
        args = self.session.live.thread.at_gate.get(call.tool_call_id)
        if args is None or json_object(args) != call.args:
            return known  # the gate does not have these arguments: only an earlier seal can apply
        return seal_of(args, call.args, known)

    def args_schema(self, tool_name: str) -> JsonObject | None:
        """The JSON Schema of the arguments of one of the agent's tools."""
        return self.session.inbox.args_schema(tool_name)

    def words(self, tool_name: str, args: Mapping[str, Any]) -> JsonObject | None:
        """The words of the tool's author for a call with these arguments."""
        return self.session.inbox.words(tool_name, args)


async def _record_beside(
    run: Run, bodies: Bodies, call_id: str, request: HitlRequest
) -> StoredRequest | None:
    """Store a request of a body while other bodies execute; release the lease only if all of them wait."""
    async with bodies.lock:
        stored = await run.record(request, release=False)
    if stored is not None and stored.status == "pending" and await bodies.pause(call_id):
        await run.release_callers()
    return stored


def host_of(
    channel: HitlChannel, bound: ChannelHost | None, others: Collection[ChannelHost] = ()
) -> ChannelHost | None:
    """The agent that asks through a channel: the one whose run executes here, else the one ``bound`` to the channel.

    The running agent counts if this is its channel, or if the channel keeps requests on the agent's own thread, or
    if the agent or one of its callers is among the ``others`` bound to the channel, such as through a wrapper.
    """
    running = current.get().session
    if running is None:
        return bound
    store = channel.checkpointer
    keeps_for_it = store is not None and store is running.live.checkpointer
    if running.channel is channel or (keeps_for_it and channel.thread_id == running.thread_id):
        return running.host
    session: Session | None = running
    while others and session is not None:
        if session.host in others:
            return running.host
        session = session.parent
    return bound


T = TypeVar("T")


class Turns:
    """Shared by an agent and its subagents for the length of a run: one line of askers for each channel."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}

    async def take(self, channel: HitlChannel, ask: Callable[[], Awaitable[T]]) -> T:
        """Wait for the turn at a channel, then ask and wait for the answer."""
        line = self._lines.setdefault(id(channel), _Line())
        session = current.get().session
        if line.is_taken and channel.checkpointer is not None and session is not None:
            await session.host.release()
        return await line.take(ask)

    def go_on(self) -> None:
        """Let agents ask again: the signal that stopped them came after the person's answer."""
        for line in self._lines.values():
            line.stopped = None


class _Line:
    """The agents of one run that want to ask through one channel, one at a time.

    When one of them is detached or aborted, the signal is raised in those that wait for their turn, too.
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
    """Ask through a channel when no other agent of this run asks there; code that has the turn asks at once.

    A channel without a store does not release the lease with its request, so the lease is released here.
    """
    at = current.get()
    session = at.session
    if session is not None and channel.checkpointer is None:
        run = session.run
        if run is not None and run.journal is not None:
            await session.host.release()
            run.work.is_released_unstored = True
    if at.turns is None or at.turn_at is channel:
        return await ask()

    async def now() -> T:
        token = current.set(Context(at.session, at.turns, channel, at.asking, at.hearing, at.framework_run))
        try:
            return await ask()
        finally:
            current.reset(token)

    return await at.turns.take(channel, now)
