"""SlackChat: agents in Slack threads, over Socket Mode or signed requests."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from askfirst.chat.base import ChatPlace, OnSaid, Said, accounts
from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock
from askfirst.delivery.base import Delivery, OnPending, OnPress, Sent
from askfirst.delivery.slack import SlackDelivery
from askfirst.delivery.slack_api import BASE_URL, NAME, SlackRefused
from askfirst.delivery.slack_blocks import TEXT_LIMIT, fallback, text_blocks
from askfirst.delivery.slack_http import SlackRequests
from askfirst.delivery.slack_presses import ephemeral
from askfirst.delivery.text import shown
from askfirst.service.places import Decider

_MENTION = re.compile(r"<@[UW][A-Z0-9]+(\|[^>]*)?>")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
_PAUSE = 1.3
_EMOJI = re.compile(r"[a-z0-9_+'-]{1,100}")


class SlackChat:
    """A Slack app through which people talk to agents.

    A message that names the app begins a thread with the agent. Later messages in that thread go to the agent too,
    and so do all direct messages. ``people`` may talk to the agent: accounts (``"T024BE7LD:U2147483697"``) with the
    name that becomes the principal. ``deciders`` may decide on its requests, by default the same people.
    ``app_token`` is for Socket Mode, ``signing_secret`` for signed requests: then mount `request_app()`.
    ``buttons=False`` asks in plain text: "reply approve 3f2a9c".
    """

    name = NAME
    text_limit = TEXT_LIMIT
    pause_seconds = _PAUSE

    def __init__(
        self,
        bot_token: str,
        *,
        people: Mapping[str, str],
        deciders: Mapping[str, str] | None = None,
        app_token: str | None = None,
        signing_secret: str | None = None,
        buttons: bool = True,
        base_url: str = BASE_URL,
    ) -> None:
        self.people: Mapping[str, Decider] = accounts(NAME, people)
        self.deciders: Mapping[str, Decider] = self.people if deciders is None else accounts(NAME, deciders)
        self._delivery = SlackDelivery(
            bot_token, None, app_token=app_token, signing_secret=signing_secret, base_url=base_url
        )
        self._delivery.shows_buttons = self._delivery.shows_buttons and buttons
        self._api = self._delivery.api
        self.delivery: Delivery = self._delivery
        self._bot_user = ""

    def request_app(self) -> SlackRequests:
        """The ASGI application for signed requests."""
        return self._delivery.request_app()

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
        self._bot_user = str((await self._api.call("auth.test"))["user_id"])

        async def hear(kind: str, payload: dict[str, Any]) -> None:
            said = self._said(payload)
            if said is not None:
                await on_said(said)

        self._delivery = self._delivery.stored_in(store, clock).answering_pending(on_pending)
        self.delivery = self._delivery
        async with self._delivery.listening(on_press, hear):
            yield

    def _said(self, payload: Mapping[str, Any]) -> Said | None:
        """The message of a person in an event; None for edits, joins, messages of bots and other events."""
        event: Mapping[str, Any] = payload.get("event") or {}
        if event.get("type") not in ("app_mention", "message") or event.get("subtype") or event.get("bot_id"):
            return None
        team = event.get("user_team") or event.get("team") or payload.get("team_id")
        user = event.get("user")
        if not team or not user or user == self._bot_user:
            return None
        is_direct = event.get("channel_type") == "im"
        text = str(event.get("text") or "")
        names_us = f"<@{self._bot_user}" in text
        ts = str(event["ts"])
        return Said(
            ChatPlace(NAME, str(event["channel"]), str(event.get("thread_ts") or ts)),
            f"{event['channel']}:{ts}",
            _plain(text),
            f"{NAME}:{team}:{user}",
            is_addressed=is_direct or names_us,
        )

    def thread_of(self, place: ChatPlace) -> Sent:
        """The thread that a card is posted to."""
        return Sent(NAME, "", {"channel": place.channel, "ts": place.thread})

    def card_delivery(self, place: ChatPlace) -> Delivery:
        """The delivery of all cards; `thread_of` gives the thread."""
        return self._delivery

    async def post(self, place: ChatPlace, text: str) -> str:
        """Post into the thread; returns the message's ts."""
        message = {"channel": place.channel, "thread_ts": place.thread, **_message(text)}
        return str((await self._api.call("chat.postMessage", message))["ts"])

    async def edit(self, place: ChatPlace, message_id: str, text: str) -> None:
        """Change a message of the app."""
        await self._api.call("chat.update", {"channel": place.channel, "ts": message_id, **_message(text)})

    async def react(self, place: ChatPlace, message_id: str, emoji: str) -> None:
        """React with an emoji by its name, such as ``white_check_mark``; a repeated reaction changes nothing."""
        name = emoji.strip(":")
        if _EMOJI.fullmatch(name) is None:
            raise SlackRefused("invalid_name")
        reaction = {"channel": place.channel, "timestamp": message_id, "name": name}
        try:
            await self._api.call("reactions.add", reaction)
        except SlackRefused as error:
            if error.error != "already_reacted":
                raise

    async def upload(self, place: ChatPlace, name: str, content: bytes) -> str:
        """Upload a file into the thread; returns its id."""
        asked = {"filename": name, "length": str(len(content))}
        where = await self._api.call("files.getUploadURLExternal", asked)
        await self._api.upload(str(where["upload_url"]), content)
        file_id = str(where["file_id"])
        await self._api.call(
            "files.completeUploadExternal",
            {
                "files": [{"id": file_id, "title": name}],
                "channel_id": place.channel,
                "thread_ts": place.thread,
            },
        )
        return file_id

    async def tell(self, said: Said, text: str) -> None:
        """Answer a person with an ephemeral message, which nobody else sees."""
        user = said.account.rpartition(":")[2]
        message = {"channel": said.place.channel, "user": user, "text": ephemeral(text)}
        if not said.message_id.endswith(f":{said.place.thread}"):
            message["thread_ts"] = said.place.thread
        await self._api.call("chat.postEphemeral", message)


def _message(text: str) -> dict[str, Any]:
    clean = shown(text)
    return {
        "text": fallback(clean),
        "blocks": text_blocks(clean),
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _plain(text: str) -> str:
    """A message's text without the mention of the app at its beginning and without Slack's escapes."""
    said = _MENTION.sub("", text, count=1).strip() if text.lstrip().startswith("<@") else text.strip()
    for escaped, plain in _ENTITIES:
        said = said.replace(escaped, plain)
    return said
