"""What a channel knows of the agent that asks through it."""

from __future__ import annotations

from contextvars import ContextVar

from assent.agent.asking import current_asking
from assent.agent.bodies import Bodies
from assent.agent.emitter import Emitter
from assent.agent.inbox import Inbox
from assent.agent.run import Run, Thread
from assent.agent.seals import known_seal, seal_of
from assent.agent.tools import json_object
from assent.events import HitlAnswerEvent, HitlRequestEvent
from assent.messages import JsonObject
from assent.requests import (
    ArgsCheck,
    AskedCall,
    ChannelHost,
    HitlChannel,
    HitlRequest,
    StoredRequest,
    same_question,
)


class Host:
    """The agent's side of a channel: it stores requests with the run that asks, and tells listeners of them."""

    __slots__ = ("channel", "current_run", "emitter", "inbox", "run_id", "thread")

    def __init__(self, thread: Thread, channel: HitlChannel | None, emitter: Emitter, inbox: Inbox) -> None:
        self.thread = thread
        self.channel = channel
        self.emitter = emitter
        self.inbox = inbox
        self.run_id: str | None = None
        self.current_run: Run | None = None

    @property
    def thread_id(self) -> str:
        """The thread's id."""
        return self.thread.thread_id

    async def record(self, request: HitlRequest) -> StoredRequest | None:
        """Store a request with the run that asks; None if no run does, or nothing is stored."""
        run, asking = self.current_run, current_asking()
        if run is None:
            return None
        if asking is not None and asking.place == "tool":
            return await run.record(request, release=False)
        if asking is not None and asking.place == "safe_point" and run.bodies is not None:
            return await _record_beside(run, run.bodies, asking.tool_call_id, request)
        stored = await run.record(request, release=True)
        if stored is not None and stored.status == "pending":
            await run.rest()
        return stored

    async def stand_back(self) -> None:
        """Wait for others to be asked first, with the thread leased to nobody, as while a person is waited for."""
        run, asking = self.current_run, current_asking()
        if run is None or (asking is not None and asking.place == "tool"):
            return
        if asking is not None and asking.place == "safe_point" and run.bodies is not None:
            rests = await run.bodies.rest(asking.tool_call_id)
        else:
            await run.let_go()
            rests = True
        if rests:
            await run.rest()

    async def announce(self, request: HitlRequest) -> None:
        """Tell listeners of a request."""
        await self.emitter.emit(HitlRequestEvent, self.run_id or "", request=request)

    async def announce_settled(self, stored: StoredRequest) -> None:
        """Tell listeners how a request was settled, and remember it while its call is open."""
        run, asking = self.current_run, current_asking()
        if run is not None:
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

    def recall(self, request: HitlRequest) -> StoredRequest | None:
        """How this very request was settled before, if its call is open still."""
        known = self.thread.requests.get(request.question_id)
        if known is None or known.status == "pending" or not same_question(known.request, request.payload):
            return None
        return known

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


hosting: ContextVar[Host | None] = ContextVar("assent_hosting", default=None)
"""The agent whose run this code belongs to: several may ask through one channel."""


def host_of(channel: HitlChannel, bound: ChannelHost | None) -> ChannelHost | None:
    """The agent that asks through a channel just now: the one whose run this is, else the one it is bound to."""
    current = hosting.get()
    return current if current is not None and current.channel is channel else bound
