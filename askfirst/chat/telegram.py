"""TelegramChat: agents in Telegram chats."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from askfirst.chat.base import ChatPlace, OnSaid, Said, accounts
from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock
from askfirst.delivery.base import Delivery, OnPending, OnPress, Sent
from askfirst.delivery.telegram import TelegramDelivery
from askfirst.delivery.telegram_api import NAME
from askfirst.delivery.telegram_messages import units
from askfirst.delivery.text import shown
from askfirst.service.places import Decider

_PAUSE = 1.5
_TEXT = 2000
"""About half of Telegram's limit: Telegram counts some characters twice, and hidden ones are written as names."""


class TelegramChat:
    """A Telegram bot through which people talk to an agent; each chat, or topic of a group, is a conversation.

    ``people`` may talk to the agent: account numbers with the name that becomes the principal. ``deciders`` may
    decide on its requests, by default the same people. ``buttons=False`` asks in plain text. In a group, a bot
    receives only messages that name it, unless its privacy mode is off.
    """

    name = NAME
    text_limit = _TEXT
    pause_seconds = _PAUSE

    def __init__(
        self,
        token: str,
        *,
        people: Mapping[str, str],
        deciders: Mapping[str, str] | None = None,
        buttons: bool = True,
        base_url: str = "https://api.telegram.org",
    ) -> None:
        self.people: Mapping[str, Decider] = accounts(NAME, people)
        self.deciders: Mapping[str, Decider] = self.people if deciders is None else accounts(NAME, deciders)
        self._delivery = TelegramDelivery(token, 0, base_url=base_url)
        self._delivery.shows_buttons = buttons
        self._api = self._delivery.api
        self.delivery: Delivery = self._delivery

    @asynccontextmanager
    async def open(
        self,
        store: CheckpointKeeper,
        clock: Clock,
        on_said: OnSaid,
        on_press: OnPress,
        on_pending: OnPending,
    ) -> AsyncGenerator[None]:
        """Receive messages and presses within this context."""

        async def hear(message: dict[str, Any]) -> None:
            said = _said(message)
            if said is None:
                return
            if said.text.split("@")[0] == "/pending":
                await self.tell(said, await on_pending(said.account))
            else:
                await on_said(said)

        self._delivery = self._delivery.stored_in(store, clock)
        self.delivery, self._api = self._delivery, self._delivery.api
        async with self._delivery.listening(on_press, hear):
            yield

    def thread_of(self, place: ChatPlace) -> Sent | None:
        """None: `card_delivery` gives the chat."""
        return None

    def card_delivery(self, place: ChatPlace) -> Delivery:
        """The delivery to this chat."""
        return self._delivery.to(place.channel)

    async def post(self, place: ChatPlace, text: str) -> str:
        """Post into the chat; returns the message's id."""
        where: dict[str, Any] = {"chat_id": int(place.channel)}
        if place.thread:
            where["message_thread_id"] = int(place.thread)
        return str((await self._api.call("sendMessage", {**where, **_message(text)}))["message_id"])

    async def edit(self, place: ChatPlace, message_id: str, text: str) -> None:
        """Change a message of the bot."""
        await self._api.edit("editMessageText", int(place.channel), int(message_id), _message(text))

    async def react(self, place: ChatPlace, message_id: str, emoji: str) -> None:
        """React with an emoji, such as 👍."""
        reaction = [{"type": "emoji", "emoji": emoji}]
        where = {"chat_id": int(place.channel), "message_id": int(message_id)}
        await self._api.call("setMessageReaction", {**where, "reaction": reaction})

    async def upload(self, place: ChatPlace, name: str, content: bytes) -> str:
        """Upload a file into the chat; returns the message's id."""
        where = {"chat_id": place.channel}
        if place.thread:
            where["message_thread_id"] = place.thread
        said = await self._api.upload("sendDocument", where, "document", name, content)
        return str(said["message_id"])

    async def tell(self, said: Said, text: str) -> None:
        """Answer a person, in the chat: Telegram has no messages that only one person of a group sees."""
        await self.post(said.place, text)


def _said(message: Mapping[str, Any]) -> Said | None:
    """The message of a person; None for messages without text, and for those of bots and channels."""
    sender: Mapping[str, Any] = message.get("from") or {}
    chat: Mapping[str, Any] = message.get("chat") or {}
    text = message.get("text")
    if (
        not text
        or sender.get("is_bot")
        or "id" not in sender
        or "id" not in chat
        or message.get("sender_chat")
    ):
        return None
    topic = str(message.get("message_thread_id") or "") if message.get("is_topic_message") else ""
    place = ChatPlace(NAME, str(chat["id"]), topic)
    return Said(place, f"{chat['id']}:{message['message_id']}", str(text).strip(), f"{NAME}:{sender['id']}")


def _message(text: str) -> dict[str, Any]:
    """A message with the text as preformatted: in it, Telegram makes no links, mentions or commands."""
    said = shown(text)
    return {
        "text": said,
        "entities": [{"type": "pre", "offset": 0, "length": units(said)}],
        "link_preview_options": {"is_disabled": True},
    }
