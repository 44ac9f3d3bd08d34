"""Reaching people on Slack: a message in a channel, with buttons and modals, over Socket Mode or signed HTTP."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock, SystemClock
from askfirst.delivery.base import Ended, Notice, OnPending, OnPress, Sent, heading
from askfirst.delivery.slack_api import BASE_URL, NAME, SlackApi, SlackRefused
from askfirst.delivery.slack_blocks import asking, body_blocks, decided, ending_text, pressable
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
class _Hearing:
    """Who handles what comes from Slack; one for a delivery and all its copies, as they are one app."""

    handle: Handle | None = None


class SlackDelivery:
    """Sends to one channel as an app, and hears its buttons being pressed there.

    ``bot_token`` (``xoxb-``) sends. ``app_token`` (``xapp-``) hears over Socket Mode, which needs no public address;
    ``signing_secret`` hears by signed HTTP requests instead: mount `request_app()`, an ASGI application, where the
    app's request URL leads. Without either the messages have links only. A button that approves is there only if
    all that is approved stands in the message.

    What buttons mean is kept in ``store`` (any checkpointer, open), else in memory, where it ends with the process.
    ``asks_address`` looks up the e-mail address that Slack has confirmed of whoever presses, for lists of those who
    may decide by address.
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
        """The Web API, for those who post besides."""
        if app_token is not None:
            SlackApi(app_token, "xapp", base_url=base_url)
        self._channel = None if channel is None else _channel(channel)
        self._bot_token = bot_token
        self._app_token = app_token
        self._asks_address = asks_address
        self._base_url = base_url
        self._clock = clock or SystemClock()
        self._posts = StoredPosts(NAME, SlackPost.read, store, self._clock)
        self._hearing = _Hearing()
        self._signing_secret = signing_secret
        self.shows_buttons = app_token is not None or signing_secret is not None
        self.hears_requests = app_token is None and signing_secret is not None
        self._on_pending: OnPending | None = None

    def request_app(self) -> SlackRequests:
        """The ASGI application for signed requests; it answers while this delivery is being listened to."""
        if self._signing_secret is None:
            raise DeliveryError(NAME, "signed requests need the app's signing secret", permanent=True)
        return SlackRequests(self._signing_secret, self._handle, clock=self._clock)

    async def missing(self) -> list[str]:
        """What is missing for messages to be sent and buttons heard, a sentence each; nothing is sent."""
        return await missing(
            self._bot_token,
            self._app_token,
            self._channel,
            signing_secret=self._signing_secret,
            base_url=self._base_url,
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
        """The same delivery, with what its buttons mean in an open store."""
        other = copy(self)
        other._clock, other._posts = clock, StoredPosts(NAME, SlackPost.read, store, clock)
        return other

    async def send(self, notice: Notice) -> Sent:
        """Send a message; the meaning of its buttons is stored before they can be pressed.

        One that follows another about the same case goes into that one's thread.
        """
        key = secrets.token_urlsafe(12)
        buttons = tuple(each for each in pressable(notice) if fits(each.fields)) if self.shows_buttons else ()
        channel, thread = self._channel, ""
        if notice.follows is not None:
            channel, thread = str(notice.follows.place["channel"]), _thread_of(notice.follows)
        if channel is None:
            raise DeliveryError(NAME, "there is no channel to send this to", permanent=True)
        shown = None if notice.asked is None else notice.asked.shown
        at = self._clock.now()
        post = SlackPost(notice.case_id, "", heading(notice), tuple(body_blocks(notice)), buttons, shown, at)
        await self._posts.keep(key, post)
        message: dict[str, Any] = {"channel": channel, **asking(notice, key, buttons)}
        if thread:
            message["thread_ts"] = thread
        said = await self.api.call("chat.postMessage", message)
        await self._posts.keep(key, replace(post, channel=str(said["channel"])))
        place: dict[str, str | int] = {"channel": said["channel"], "ts": said["ts"], "key": key}
        if thread:
            place["thread"] = thread
        return Sent(NAME, notice.case_id, place)

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Update the message with who decided and what came of it, and take its buttons away."""
        key = str(sent.place["key"])
        post = await self._posts.find(key)
        if post is None:
            message = decided([], f"Case {visible(ended.case_id)}", ending_text(ended))
        else:
            await self._posts.close(key, post)
            message = decided(post.blocks, post.title, ending_text(ended))
        where = {"channel": sent.place["channel"], "ts": sent.place["ts"]}
        try:
            await self.api.call("chat.update", {**where, **message})
        except SlackRefused as error:
            if error.error not in _GONE:
                raise
            logger.warning("slack: a message could not be updated: %s", error)

    @asynccontextmanager
    async def listening(self, on_press: OnPress, on_other: Handle | None = None) -> AsyncGenerator[None]:
        """Within this context, presses are passed on and answered.

        ``on_other`` gets events (``events_api``), which are not ours.
        """
        if self._hearing.handle is not None:
            raise DeliveryError(NAME, "this delivery is being listened to already", permanent=True)
        presses = SlackPresses(self.api, self._posts, on_press, asks_address=self._asks_address)

        async def handle(kind: str, payload: dict[str, Any]) -> dict[str, Any] | None:
            if kind == "interactive":
                return await presses.handle(payload)
            if kind == "slash_commands":
                return await self._command(payload)
            return None if on_other is None else await on_other(kind, payload)

        self._hearing.handle = handle
        try:
            await self._posts.forget_old()
            if self._app_token is None:
                yield
            else:
                async with SocketMode(self._app_token, handle, base_url=self._base_url).connected():
                    yield
        finally:
            self._hearing.handle = None

    async def _command(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Answer ``/askfirst pending``, seen by whoever asked alone."""
        if self._on_pending is None:
            return None
        said = await self._on_pending(f"{NAME}:{payload['team_id']}:{payload['user_id']}")
        return {"response_type": "ephemeral", "text": ephemeral(said)}

    async def _handle(self, kind: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        if self._hearing.handle is None:
            raise DeliveryError(NAME, "nobody listens to this delivery")
        return await self._hearing.handle(kind, payload)


def _thread_of(sent: Sent) -> str:
    """The ts that a thread begins with: that of the first message, or of the thread that it is in."""
    return str(sent.place.get("thread") or sent.place["ts"])


def _channel(given: str) -> str:
    """A channel's id or name. Raises `DeliveryError` for what can be neither."""
    text = given.strip()
    if not text or len(text) > 100 or not text.isprintable() or any(each.isspace() for each in text):
        raise DeliveryError(
            NAME, "a channel is an id such as C024BE7LD, or a name such as #ops", permanent=True
        )
    return text
