"""The protocols between an agent and its channel."""

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
    """The minimal channel: six members, described in `HitlChannel`.

    An agent raises an error for an operation that needs more, such as detaching from a request.
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
        """The requests as they are opened, beginning with the pending one."""
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
        """Answer the pending request, with the answer's model or with plain JSON.

        ``by`` and ``via`` say who answered, and where.

        ``digest`` is the digest of the request that was shown. Without it, an answer counts only for the first
        request under this id.
        """
        ...

    @property
    def thread_id(self) -> str | None:
        """The thread that this channel was made for, if any."""
        ...

    @property
    def checkpointer(self) -> Any:
        """The checkpointer in which the channel itself stores and settles its requests; None if it does not."""
        ...

    def bind(self, host: ChannelHost) -> None:
        """Bind the channel to an agent: the agent's listeners are notified of requests, its thread stores them."""
        ...

    def interrupt(
        self, signal: HitlControlException, *, after: Callable[[], Awaitable[object]] | None = None
    ) -> HitlRequest | None:
        """End the wait in this process by raising a signal in the waiting run; the request stays open.

        An answer that comes later is kept until a run asks again. The waiting run awaits ``after()``, if given,
        before the signal is raised. Returns the request that the run waited for, or None.
        """
        ...

    async def open_request(self, thread_id: str | None = None) -> HitlRequest | None:
        """The open request, of this process or (where requests are stored) of any.

        Where several agents share the channel, a request of ``thread_id`` comes first.
        """
        ...


class ChannelHost(Protocol):
    """The agent as its channel sees it."""

    @property
    def thread_id(self) -> str:
        """The agent's thread."""
        ...

    @property
    def agent_path(self) -> tuple[str, ...]:
        """The ids of the agents from the root to this one."""
        ...

    async def record(self, request: HitlRequest) -> StoredRequest | None:
        """Store a request in one step with the run's unwritten messages, and release the thread's lease.

        Returns the stored request. It may be settled already, if the same question was asked before a restart.
        None if the agent has no store.
        """
        ...

    def announce(self, request: HitlRequest) -> Awaitable[None]:
        """Notify the agent's listeners of a request; await it for async listeners."""
        ...

    async def announce_settled(self, stored: StoredRequest) -> None:
        """Notify the agent's listeners of a settled request; keep it for `recall` while its call is unresolved."""
        ...

    def recall(self, request: HitlRequest) -> StoredRequest | None:
        """The settled request, if this run asked and settled the same one before."""
        ...

    def args_check(self, tool_name: str, call: AskedCall | None = None) -> ArgsCheck | None:
        """A function that checks edited arguments of one of the agent's tools.

        Hidden arguments of the ``call`` may stay masked. None if there is no such tool, or its hidden arguments
        are not known any more.
        """
        ...

    def seal(self, call: AskedCall, known: str | None = None) -> str | None:
        """The seal (a salted digest) that binds an answer to the hidden arguments of a call.

        None if all arguments are shown. ``known`` is the seal of an earlier round of the same question, whose
        salt is used again.
        """
        ...

    def args_schema(self, tool_name: str) -> JsonObject | None:
        """The JSON Schema of a tool's arguments, with which other processes check edits."""
        ...

    def words(self, tool_name: str, args: Mapping[str, Any]) -> JsonObject | None:
        """The words of the tool's author for a call with these arguments, which people are shown."""
        ...
