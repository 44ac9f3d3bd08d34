"""What a chat is to an agent: a place, what people say there, and the platform that carries it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock
from askfirst.delivery.base import Delivery, OnPress, Sent
from askfirst.errors import AskfirstError
from askfirst.service.places import Decider


class ChatError(AskfirstError):
    """A chat cannot be served as it was asked for."""


@dataclass(frozen=True, slots=True)
class ChatPlace:
    """Where a conversation is: a thread of a Slack channel, or a Telegram chat."""

    platform: str
    channel: str
    thread: str = ""

    @property
    def key(self) -> str:
        """The place in one text."""
        return f"{self.platform}:{self.channel}:{self.thread}"

    def stored(self) -> dict[str, str]:
        """As JSON; ``ChatPlace(**stored)`` is the way back."""
        return {"platform": self.platform, "channel": self.channel, "thread": self.thread}


@dataclass(frozen=True, slots=True)
class Said:
    """Something that a person said to the agent. Who they are is what the platform vouches for."""

    place: ChatPlace
    message_id: str
    """The same whenever the platform delivers this message again."""
    text: str = field(repr=False)
    account: str
    """The person's account, such as ``slack:T024BE7LD:U2147483697``."""
    is_addressed: bool = True
    """Whether it is meant for the agent by itself: it is named, or the chat is with it alone."""


OnSaid = Callable[[Said], Awaitable[None]]
OnPendingAsked = Callable[[str], Awaitable[str]]
"""Answers an account that asks what waits for a decision."""


class ChatPlatform(Protocol):
    """A platform: it hears people, and posts, edits, reacts and uploads for an agent.

    Raises `askfirst.errors.DeliveryError`, which says when to try again.
    """

    name: str
    people: Mapping[str, Decider]
    """Who may talk to the agent, by account; the name is the principal on whose behalf it works."""
    deciders: Mapping[str, Decider]
    """Who may decide what it asks, by account."""
    delivery: Delivery
    """Posts the cards that ask for decisions."""
    text_limit: int
    """How many characters a message may have."""
    pause_seconds: float
    """How long to wait between two changes of a message that grows."""

    def open(
        self,
        store: CheckpointKeeper,
        clock: Clock,
        on_said: OnSaid,
        on_press: OnPress,
        on_pending: OnPendingAsked,
    ) -> AbstractAsyncContextManager[None]:
        """Hear people within this context; what the platform's buttons mean is kept in the store."""
        ...

    def thread_of(self, place: ChatPlace) -> Sent | None:
        """What a card follows, so that it stands in this place; None where the delivery's target is enough."""
        ...

    def card_delivery(self, place: ChatPlace) -> Delivery:
        """The delivery of cards to this place."""
        ...

    async def post(self, place: ChatPlace, text: str) -> str:
        """Post a message; returns its id."""
        ...

    async def edit(self, place: ChatPlace, message_id: str, text: str) -> None:
        """Change a message of ours."""
        ...

    async def react(self, place: ChatPlace, message_id: str, emoji: str) -> None:
        """React to a message."""
        ...

    async def upload(self, place: ChatPlace, name: str, content: bytes) -> str:
        """Upload a file; returns its id."""
        ...

    async def tell(self, said: Said, text: str) -> None:
        """Tell the person who said something, and nobody else where the platform can do that."""
        ...


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in which an agent works: the place, on whose behalf, and the platform for its tools."""

    thread_id: str
    agent: str
    place: ChatPlace
    principal: str
    platform: ChatPlatform = field(repr=False, compare=False)

    def stored(self) -> dict[str, Any]:
        """As JSON, without the platform."""
        return {"agent": self.agent, "place": self.place.stored(), "principal": self.principal}


def accounts(platform: str, named: Mapping[str, str]) -> dict[str, Decider]:
    """A list of people as an operator writes it: the account, and ``Ada`` or ``Ada <ada@example.com>``."""
    return {f"{platform}:{account}": Decider.read(person) for account, person in named.items()}
