"""The values of a chat (places, messages, conversations), and the protocol of a chat platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock
from askfirst.delivery.base import Delivery, OnPending, OnPress, Sent
from askfirst.service.places import Decider


@dataclass(frozen=True, slots=True)
class ChatPlace:
    """Where a conversation is: a thread of a Slack channel, or a Telegram chat."""

    platform: str
    channel: str
    thread: str = ""

    @property
    def key(self) -> str:
        """The place as one text, to derive ids from."""
        return f"{self.platform}:{self.channel}:{self.thread}"

    def stored(self) -> dict[str, str]:
        """The place as JSON; ``ChatPlace(**stored)`` reads it back."""
        return {"platform": self.platform, "channel": self.channel, "thread": self.thread}


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a person to the agent. ``account`` comes from the platform, not from the message's text."""

    place: ChatPlace
    message_id: str
    """The platform's id of the message: the same each time the platform delivers it."""
    text: str = field(repr=False)
    account: str
    """The person's account, such as ``slack:T024BE7LD:U2147483697``."""
    is_addressed: bool = True
    """Whether the message is addressed to the agent: it names the agent, or it is a direct message."""


OnSaid = Callable[[Said], Awaitable[None]]


class ChatPlatform(Protocol):
    """A chat platform: it receives people's messages, and posts, edits, reacts and uploads for an agent.

    Raises `askfirst.errors.DeliveryError`, whose ``retry_after`` says when to try again.
    """

    name: str
    people: Mapping[str, Decider]
    """The people who may talk to the agent, by account; the name is the principal on whose behalf the agent works."""
    deciders: Mapping[str, Decider]
    """The people who may decide on the agent's requests, by account."""
    delivery: Delivery
    """The delivery that posts cards, which ask for decisions."""
    text_limit: int
    """The most characters of a message."""
    pause_seconds: float
    """How long to wait between two edits of a message that is being streamed."""

    def open(
        self,
        store: CheckpointKeeper,
        clock: Clock,
        on_said: OnSaid,
        on_press: OnPress,
        on_pending: OnPending,
    ) -> AbstractAsyncContextManager[None]:
        """Receive messages and presses within this context. The store has what each button means, for all
        processes."""
        ...

    def thread_of(self, place: ChatPlace) -> Sent | None:
        """The message that a card has to reply to, to be posted in this place; None if `card_delivery` is enough."""
        ...

    def card_delivery(self, place: ChatPlace) -> Delivery:
        """The delivery of cards to this place."""
        ...

    async def post(self, place: ChatPlace, text: str) -> str:
        """Post a message; returns its id."""
        ...

    async def edit(self, place: ChatPlace, message_id: str, text: str) -> None:
        """Change a message that was posted here."""
        ...

    async def react(self, place: ChatPlace, message_id: str, emoji: str) -> None:
        """React to a message."""
        ...

    async def upload(self, place: ChatPlace, name: str, content: bytes) -> str:
        """Upload a file; returns its id."""
        ...

    async def tell(self, said: Said, text: str) -> None:
        """Answer the person who sent a message; visible to nobody else, if the platform supports that."""
        ...


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in which an agent works: the place, on whose behalf, and the platform for its tools."""

    thread_id: str
    agent: str
    place: ChatPlace
    principal: str
    platform: ChatPlatform = field(repr=False, compare=False)
    told: int = field(default=0, repr=False, compare=False)
    """How many messages the transcript had when the end of a run was last posted."""

    def stored(self) -> dict[str, Any]:
        """The conversation as JSON, without the platform."""
        place = self.place.stored()
        return {"agent": self.agent, "place": place, "principal": self.principal, "told": self.told}


def accounts(platform: str, named: Mapping[str, str]) -> dict[str, Decider]:
    """People by account, from an operator's list: account ids with ``Ada`` or ``Ada <ada@example.com>``."""
    return {f"{platform}:{account}": Decider.read(person) for account, person in named.items()}
