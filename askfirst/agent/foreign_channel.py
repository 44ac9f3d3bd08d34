"""Channels that users write: they have the six members of the protocol, and perhaps no more."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from askfirst.channels import ChannelHost, HitlChannel
from askfirst.errors import HitlControlException, HitlError, HitlStaleAnswer, InvalidAgent
from askfirst.requests import EscalateAnswer, HitlRequest, check_seen

SIX = ("confirm", "approve", "ask", "pending", "answer", "cancel")
"""The members that a channel must have."""
_MORE = ("escalate", "subscribe", "thread_id", "checkpointer", "bind", "interrupt", "open_request")
"""Further members that an agent uses if a channel has them."""
_WAY_OUT = (
    "add it to the channel, as askfirst.hitl.HitlChannel describes it, or derive that from InMemoryChannel"
)


def whole_channel(channel: Any) -> HitlChannel:
    """A channel with all members that an agent uses: itself, or wrapped in `OwnChannel`.

    Raises `InvalidAgent` if it lacks one of the six members.
    """
    kind: type = channel.__class__
    missing = [name for name in SIX if not hasattr(channel, name)] or _outdated(kind)
    if missing:
        raise InvalidAgent(
            f"{kind.__name__} is not a channel that an agent can ask through: it lacks {', '.join(missing)}; "
            f"a channel has {', '.join(SIX)}; see askfirst.hitl.HitlChannel, or derive it from InMemoryChannel"
        )
    is_whole = all(hasattr(channel, name) for name in _MORE) and _takes(kind, "answer", "digest")
    return cast(HitlChannel, channel) if is_whole else OwnChannel(channel)


@lru_cache(64)
def _outdated(kind: type) -> Sequence[str]:
    """The methods of a channel that lack a parameter which agents pass."""
    told = (("interrupt", "after"), ("open_request", "thread_id"))
    return [f"{name} with {parameter}" for name, parameter in told if not _takes(kind, name, parameter)]


@lru_cache(256)
def _takes(kind: type, name: str, parameter: str) -> bool:
    """Whether a method has a parameter of this name; True if the method is missing or has no signature."""
    try:
        parameters = inspect.signature(getattr(kind, name)).parameters
    except (AttributeError, ValueError, TypeError):
        return True
    return parameter in parameters or any(it.kind is it.VAR_KEYWORD for it in parameters.values())


class OwnChannel:
    """A wrapper for a channel that lacks some members: using a missing one raises `HitlError` with a way out."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self._kind: type = channel.__class__

    def _lacks(self, name: str, what: str) -> HitlError:
        return HitlError(f"{self._kind.__name__} has no {name}, and so {what}; {_WAY_OUT}")

    def _of_its_own(self, name: str) -> Any:
        return getattr(self.channel, name, None)

    async def confirm(self, prompt: str, **options: Any) -> bool:
        """Ask yes or no."""
        return await self.channel.confirm(prompt, **options)

    async def approve(
        self, tool_name: str, tool_call_id: str, args: Mapping[str, Any], **options: Any
    ) -> Any:
        """Ask whether a tool may run with these arguments."""
        return await self.channel.approve(tool_name, tool_call_id, args, **options)

    async def ask(self, questions: Sequence[Any], **options: Any) -> Any:
        """Ask some questions."""
        return await self.channel.ask(questions, **options)

    async def escalate(self, prompt: str, **options: Any) -> EscalateAnswer:
        """Ask what to do about something that went wrong, if the channel can."""
        escalate = self._of_its_own("escalate")
        if escalate is None:
            raise self._lacks("escalate()", f"nobody can be asked what to do now: {prompt}")
        return await escalate(prompt, **options)

    @property
    def pending(self) -> HitlRequest | None:
        """The request that waits for an answer, if any."""
        return self.channel.pending

    def subscribe(self) -> AsyncIterator[HitlRequest]:
        """The requests as they come, if the channel has `subscribe`."""
        subscribe = self._of_its_own("subscribe")
        if subscribe is None:
            raise self._lacks("subscribe()", "its requests cannot be followed")
        return subscribe()

    async def answer(
        self,
        question_id: str,
        answer: Any,
        *,
        by: str | None = None,
        via: str | None = None,
        digest: str | None = None,
    ) -> None:
        """Answer the pending request; raises `HitlStaleAnswer` if it is not pending."""
        options: dict[str, Any] = {}
        for name, value in (("by", by), ("via", via), ("digest", digest)):
            if value is None:
                continue
            if _takes(self._kind, "answer", name):
                options[name] = value
            elif name != "digest":
                raise self._lacks(f"answer({name}=)", "it cannot keep who answers, and where")
        if digest is not None and "digest" not in options:
            pending = self.pending
            if pending is None or pending.question_id != question_id:
                raise HitlStaleAnswer(question_id)
            check_seen(pending, digest)
        await self.channel.answer(question_id, answer, **options)

    async def cancel(self, question_id: str, reason: str = "cancelled") -> None:
        """End the pending request without an answer."""
        await self.channel.cancel(question_id, reason)

    @property
    def thread_id(self) -> str | None:
        """The thread that the channel is for, where it says so."""
        return self._of_its_own("thread_id")

    @property
    def checkpointer(self) -> Any:
        """The checkpointer that keeps the channel's requests, where it settles them itself."""
        return self._of_its_own("checkpointer")

    def bind(self, host: ChannelHost) -> None:
        """Bind the channel to an agent, if it has `bind`."""
        bind = self._of_its_own("bind")
        if bind is not None:
            bind(host)

    def interrupt(
        self, signal: HitlControlException, *, after: Callable[[], Awaitable[object]] | None = None
    ) -> HitlRequest | None:
        """End the wait in this process, if the channel can."""
        interrupt = self._of_its_own("interrupt")
        if interrupt is None:
            raise self._lacks(
                "interrupt()", "a run that waits there can be neither detached, superseded nor closed"
            )
        return interrupt(signal, after=after)

    async def open_request(self, thread_id: str | None = None) -> HitlRequest | None:
        """The request that waits for an answer."""
        open_request = self._of_its_own("open_request")
        return self.pending if open_request is None else await open_request(thread_id=thread_id)
