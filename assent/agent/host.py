"""What a channel knows of the agent that asks through it."""

from __future__ import annotations

from contextvars import ContextVar

from assent.agent.asking import current_asking
from assent.agent.emitter import Emitter
from assent.agent.inbox import Inbox
from assent.agent.run import Run, Thread
from assent.events import HitlAnswerEvent, HitlRequestEvent
from assent.messages import JsonObject
from assent.requests import (
    ArgsCheck,
    ChannelHost,
    HitlChannel,
    HitlRequest,
    StoredRequest,
    plain_answer,
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
        if self.current_run is None:
            return None
        asking = current_asking()
        return await self.current_run.record(request, release=asking is None or asking.place != "tool")

    async def announce(self, request: HitlRequest) -> None:
        """Tell listeners of a request."""
        await self.emitter.emit(HitlRequestEvent, self.run_id or "", request=request)

    async def announce_settled(self, stored: StoredRequest) -> None:
        """Tell listeners how a request was settled, and remember it while its call is open."""
        if self.current_run is not None:
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
        if known is None or known.status == "pending" or not same_question(known.request, request.payload):
            return None
        return known

    def args_check(self, tool_name: str) -> ArgsCheck | None:
        """How to check edited arguments of one of the agent's tools."""
        return self.inbox.args_check(tool_name)

    def args_schema(self, tool_name: str) -> JsonObject | None:
        """What the arguments of one of the agent's tools are like."""
        return self.inbox.args_schema(tool_name)


hosting: ContextVar[Host | None] = ContextVar("assent_hosting", default=None)
"""The agent whose run this code belongs to: several may ask through one channel."""


def host_of(channel: HitlChannel, bound: ChannelHost | None) -> ChannelHost | None:
    """The agent that asks through a channel just now: the one whose run this is, else the one it is bound to."""
    current = hosting.get()
    return current if current is not None and current.channel is channel else bound
