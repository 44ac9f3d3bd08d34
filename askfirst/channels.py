"""How people are asked: what an agent needs of a channel, and a channel of the agent it belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from askfirst.errors import HitlControlException
from askfirst.messages import JsonObject
from askfirst.requests import (
    Answers,
    ApproveAnswer,
    ArgsCheck,
    AskedCall,
    EscalateAnswer,
    HitlRequest,
    Question,
    StoredRequest,
)


class _Unset:
    """Stands for "the channel's default" where None means "no limit"."""

    def __repr__(self) -> str:
        return "DEFAULT"

    def __reduce__(self) -> str:
        return "DEFAULT"  # by its name: a copy would be another object


DEFAULT: Any = _Unset()
"""The time-out that a channel was made with."""


class LeastChannel(Protocol):
    """The least that an agent can ask through: six members. What they mean is said in `HitlChannel`.

    An agent says so when it comes to something that needs more, such as detaching from a request.
    """

    async def confirm(
        self,
        prompt: str,
        *,
        details: Mapping[str, Any] | None = None,
        timeout: float | None = DEFAULT,
        signal: asyncio.Event | None = None,
    ) -> bool:
        """Ask yes or no."""
        ...

    async def approve(
        self,
        tool_name: str,
        tool_call_id: str,
        args: Mapping[str, Any],
        *,
        details: Mapping[str, Any] | None = None,
        timeout: float | None = DEFAULT,
        signal: asyncio.Event | None = None,
    ) -> ApproveAnswer:
        """Ask whether a tool may run with these arguments."""
        ...

    async def ask(
        self,
        questions: Sequence[Question],
        *,
        timeout: float | None = DEFAULT,
        signal: asyncio.Event | None = None,
    ) -> Answers:
        """Ask some questions."""
        ...

    @property
    def pending(self) -> HitlRequest | None:
        """The request that waits for an answer in this process, if any."""
        ...

    async def answer(self, question_id: str, answer: Any) -> None:
        """Answer the pending request."""
        ...

    async def cancel(self, question_id: str, reason: str = "cancelled") -> None:
        """End the pending request without an answer."""
        ...


class HitlChannel(LeastChannel, Protocol):
    """How an agent, a tool or a middleware asks a person, and how a host answers.

    A verb opens a request, waits and returns the answer; it raises `HitlTimedOut`, `HitlCancelled`,
    `HitlDetached` or `HitlAborted` if there will be none. ``timeout`` in seconds overrides the channel's
    default, None switches it off; setting ``signal`` ends the wait with `HitlAborted`. A channel asks one
    thing at a time (`HitlConcurrencyError`).
    """

    async def escalate(
        self,
        prompt: str,
        *,
        choices: Sequence[str] = ("retry", "skip", "abort"),
        details: Mapping[str, Any] | None = None,
        timeout: float | None = DEFAULT,
        signal: asyncio.Event | None = None,
    ) -> EscalateAnswer:
        """Ask what to do about something that went wrong."""
        ...

    def subscribe(self) -> AsyncIterator[HitlRequest]:
        """The requests as they come, the current one first."""
        ...

    async def answer(
        self,
        question_id: str,
        answer: Any,
        *,
        by: str | None = None,
        via: str | None = None,
        digest: str | None = None,
    ) -> None:
        """Answer the pending request, with the answer's model or with plain JSON; say who answers, and where.

        ``digest`` is that of the request that was shown. Without it an answer counts only if nothing else was asked
        under this id before.
        """
        ...

    @property
    def thread_id(self) -> str | None:
        """The thread that this channel is for, where it is made for one."""
        ...

    @property
    def checkpointer(self) -> Any:
        """The checkpointer that keeps this channel's requests, where it settles them itself; else None."""
        ...

    def bind(self, host: ChannelHost) -> None:
        """Belong to an agent from now on: its listeners hear of requests, its thread stores them."""
        ...

    def interrupt(
        self, signal: HitlControlException, *, after: Callable[[], Awaitable[object]] | None = None
    ) -> HitlRequest | None:
        """End the wait in this process by raising a signal in it; the request stays as it is.

        From now on an answer is kept for whoever asks again. Whoever waits awaits ``after()``, if it is given,
        before the signal is raised there. Returns the request that was waited for, or None if there was none.
        """
        ...

    async def open_request(self, thread_id: str | None = None) -> HitlRequest | None:
        """The request that waits for an answer, here or (where requests are stored) anywhere.

        Where several agents share the channel, ``thread_id`` says whose is wanted first.
        """
        ...


class ChannelHost(Protocol):
    """What a channel may ask of the agent it belongs to."""

    @property
    def thread_id(self) -> str:
        """The agent's thread."""
        ...

    async def record(self, request: HitlRequest) -> StoredRequest | None:
        """Store a request together with what the run has not written yet, and give the thread's lease back.

        Returns the request as it is stored, which may be settled by now if the same was asked before a
        restart; None if the agent stores nothing.
        """
        ...

    def announce(self, request: HitlRequest) -> Awaitable[None]:
        """Tell the agent's listeners of a request; to be awaited for those that are async."""
        ...

    async def announce_settled(self, stored: StoredRequest) -> None:
        """Tell the agent's listeners how a request was settled; while its call is open, `recall` knows it."""
        ...

    def recall(self, request: HitlRequest) -> StoredRequest | None:
        """How this very request was settled earlier in the run that goes on now, if it was."""
        ...

    def args_check(self, tool_name: str, call: AskedCall | None = None) -> ArgsCheck | None:
        """How to check edited arguments of one of the agent's tools.

        What is not shown of the ``call`` that people are asked about may stay as it is. None if there is no such
        tool, or if that cannot be told any more.
        """
        ...

    def seal(self, call: AskedCall, known: str | None = None) -> str | None:
        """What binds an answer to what is not shown of a call's arguments, for the request to be ``sealed`` with.

        None if they are shown whole. ``known`` is the seal of the same question where it was asked before.
        """
        ...

    def args_schema(self, tool_name: str) -> JsonObject | None:
        """What the arguments of one of the agent's tools are like, for those who check them elsewhere."""
        ...
