"""The Slack delivery: messages in a channel, with buttons and modals, over Socket Mode or signed HTTP requests."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock, SystemClock
from askfirst.delivery.base import Ended, Notice, OnPending, OnPress, Sent, heading
from askfirst.delivery.slack_api import BASE_URL, NAME, SlackApi, SlackRefused
from askfirst.delivery.slack_blocks import (
    asking_message,
    body_blocks,
    decided_message,
    ending_text,
    pressable,
)
from askfirst.delivery.slack_check import missing
from askfirst.delivery.slack_http import SlackRequests
from askfirst.delivery.slack_modals import fits
from askfirst.delivery.slack_posts import SlackPost
from askfirst.delivery.slack_presses import SlackPresses, ephemeral
from askfirst.delivery.slack_socket import Handle, SocketMode
from askfirst.delivery.stored_posts import StoredPosts
from askfirst.errors import DeliveryError
from askfirst.visible_text import visible

logger = logging.getLogger("askfirst.delivery")
_GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed", "is_inactive"})


@dataclass
class _Handler:
    """The function that handles Slack's envelopes while the delivery listens.

    All copies of a delivery share this object, because they are one app.
    """

    handle: Handle | None = None


@dataclass(frozen=True, slots=True)
class _App:
    """The tokens and the secret of a Slack app, and the address of Slack's Web API."""

    bot_token: str = field(repr=False)
    app_token: str | None = field(repr=False)
    signing_secret: str | None = field(repr=False)
    base_url: str


class SlackDelivery:
    """Sends messages to one channel as an app, and takes presses of their buttons.

    ``bot_token`` (``xoxb-``) sends. Presses come over Socket Mode with ``app_token`` (``xapp-``), which needs no
    public address, or as signed HTTP requests with ``signing_secret``: then mount `request_app()`, an ASGI
    application, at the app's request URL. Without both, messages have a link and no buttons. An approving button is
    shown only if the message shows everything that is approved.

    The meaning of buttons is stored in ``store`` (an open checkpointer), or else in memory, for the life of the
    process. ``asks_address`` looks up the confirmed e-mail address of the person who pressed, for lists of deciders
    by address.
    """

    name = NAME

    def __init__(
        self,
        bot_token: str,
        channel: str | None,
        *,
        app_token: str | None = None,
        signing_secret: str | None = None,
        asks_address: bool = False,
        store: CheckpointKeeper | None = None,
        base_url: str = BASE_URL,
        clock: Clock | None = None,
    ) -> None:
        self.api = SlackApi(bot_token, base_url=base_url)
        """The Web API, for code that posts other messages with the same app."""
        if app_token is not None:
            SlackApi(app_token, "xapp", base_url=base_url)
        self._channel = None if channel is None else _channel(channel)
        self._app = _App(bot_token, app_token, signing_secret, base_url)
        self._asks_address = asks_address
        self._clock = clock or SystemClock()
        self._posts = StoredPosts(NAME, SlackPost.read, store, self._clock)
        self._handler = _Handler()
        self.shows_buttons = app_token is not None or signing_secret is not None
        self.takes_requests = app_token is None and signing_secret is not None
        self._on_pending: OnPending | None = None

    def request_app(self) -> SlackRequests:
        """The ASGI application for signed requests. It works while this delivery is `listening`."""
        if self._app.signing_secret is None:
            raise DeliveryError(NAME, "signed requests need the app's signing secret", permanent=True)
        return SlackRequests(self._app.signing_secret, self._handle, clock=self._clock)

    async def missing(self) -> list[str]:
        """What is missing to send messages and take presses, one sentence each. No message is sent."""
        return await missing(
            self._app.bot_token,
            self._app.app_token,
            self._channel,
            signing_secret=self._app.signing_secret,
            base_url=self._app.base_url,
        )

    def answering_pending(self, on_pending: OnPending) -> Self:
        """The same delivery, answering ``/askfirst pending``."""
        other = copy(self)
        other._on_pending = on_pending
        return other

    def to(self, target: str) -> Self:
        """The same delivery to another channel."""
        other = copy(self)
        other._channel = _channel(target)
        return other

    def stored_in(self, store: CheckpointKeeper, clock: Clock) -> Self:
        """The same delivery, with the meaning of its buttons in an open store."""
        other = copy(self)
        other._clock, other._posts = clock, StoredPosts(NAME, SlackPost.read, store, clock)
        return other

    async def send(self, notice: Notice) -> Sent:
        """Send a message. The meaning of its buttons is stored before they can be pressed.

        A message that follows another one about the same case is posted in the thread of that message.
        """
        key = secrets.token_urlsafe(12)
        buttons = tuple(each for each in pressable(notice) if fits(each.fields)) if self.shows_buttons else ()
        channel, thread = self._channel, ""
        if notice.follows is not None:
            channel, thread = str(notice.follows.place["channel"]), _thread_of(notice.follows)
        if channel is None:
            raise DeliveryError(NAME, "there is no channel to send this to", permanent=True)
        shown = None if notice.contents is None else notice.contents.shown
        at = self._clock.now()
        post = SlackPost(notice.case_id, "", heading(notice), tuple(body_blocks(notice)), buttons, shown, at)
        await self._posts.keep(key, post)
        message: dict[str, Any] = {"channel": channel, **asking_message(notice, key, buttons)}
        if thread:
            message["thread_ts"] = thread
        said = await self.api.call("chat.postMessage", message)
        await self._posts.keep(key, replace(post, channel=str(said["channel"])))
        place: dict[str, str | int] = {"channel": said["channel"], "ts": said["ts"], "key": key}
        if thread:
            place["thread"] = thread
        return Sent(NAME, notice.case_id, place)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Update the message with who decided and with the outcome, and remove its buttons."""
        key = str(sent.place["key"])
        post = await self._posts.find(key)
        if post is None:
            message = decided_message([], f"Case {visible(ended.case_id)}", ending_text(ended))
        else:
            await self._posts.close(key, post)
            message = decided_message(post.blocks, post.title, ending_text(ended))
        where = {"channel": sent.place["channel"], "ts": sent.place["ts"]}
        try:
            await self.api.call("chat.update", {**where, **message})
        except SlackRefused as error:
            if error.error not in _GONE:
                raise
            logger.warning("slack: a message could not be updated: %s", error)

    @asynccontextmanager
    async def listening(self, on_press: OnPress, on_other: Handle | None = None) -> AsyncGenerator[None]:
        """Within this context, pass presses to ``on_press`` and answer them.

        ``on_other`` gets Slack's events (``events_api``), such as messages to an agent.
        """
        if self._handler.handle is not None:
            raise DeliveryError(NAME, "this delivery is listening already", permanent=True)
        presses = SlackPresses(self.api, self._posts, on_press, asks_address=self._asks_address)

        async def handle(kind: str, payload: dict[str, Any]) -> dict[str, Any] | None:
            if kind == "interactive":
                return await presses.handle(payload)
            if kind == "slash_commands":
                return await self._command(payload)
            return None if on_other is None else await on_other(kind, payload)

        self._handler.handle = handle
        try:
            await self._posts.forget_old()
            if self._app.app_token is None:
                yield
            else:
                async with SocketMode(self._app.app_token, handle, base_url=self._app.base_url).connected():
                    yield
        finally:
            self._handler.handle = None

    async def _command(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Answer ``/askfirst pending``. Only the person who asked sees the answer."""
        if self._on_pending is None:
            return None
        said = await self._on_pending(f"{NAME}:{payload['team_id']}:{payload['user_id']}")
        return {"response_type": "ephemeral", "text": ephemeral(said)}

    async def _handle(self, kind: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        if self._handler.handle is None:
            raise DeliveryError(NAME, "this delivery is not listening")
        return await self._handler.handle(kind, payload)


def _thread_of(sent: Sent) -> str:
    """The ``ts`` of the message that begins the thread."""
    return str(sent.place.get("thread") or sent.place["ts"])


def _channel(given: str) -> str:
    """A channel's id or name. Raises `DeliveryError` for a text that cannot be one."""
    text = given.strip()
    if not text or len(text) > 100 or not text.isprintable() or any(each.isspace() for each in text):
        raise DeliveryError(
            NAME, "a channel must be an id such as C024BE7LD, or a name such as #ops", permanent=True
        )
    return text
