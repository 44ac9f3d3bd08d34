"""The Telegram delivery: a message with the link and, if the service allows it, with buttons."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock, SystemClock
from askfirst.delivery.base import APPROVE_LABEL, OPEN_LABEL, Ended, Notice, OnPress, Sent, heading
from askfirst.delivery.stored_posts import StoredPosts
from askfirst.delivery.telegram_api import NAME, TelegramApi, TelegramRefused
from askfirst.delivery.telegram_messages import (
    Post,
    asking_text,
    can_be_button,
    data_of,
    ending_text,
    keyboard,
    message,
    pressable,
)
from askfirst.delivery.telegram_presses import OnMessage, PressReader
from askfirst.errors import DeliveryError
from askfirst.visible_text import visible

if TYPE_CHECKING:
    import httpx2

_LINK_LIMIT = 3_000


class TelegramDelivery:
    """Sends messages to one chat as a bot, and takes presses of their buttons.

    ``token`` is the bot's token from @BotFather, ``chat_id`` the number of a chat, group or channel that the bot may
    write to. Only presses in that chat count, and, if ``reviewers`` are given (user ids), only theirs. An approving
    button is shown only if the message shows everything that is approved. The meaning of buttons is stored in
    ``store`` (an open checkpointer), or else in memory, for the life of the process.
    """

    name = NAME
    shows_buttons = True

    def __init__(
        self,
        token: str,
        chat_id: int | str,
        *,
        reviewers: Collection[int] | None = None,
        store: CheckpointKeeper | None = None,
        http: httpx2.AsyncClient | None = None,
        base_url: str = "https://api.telegram.org",
        clock: Clock | None = None,
    ) -> None:
        self.api = TelegramApi(token, http=http, base_url=base_url)
        """The Bot API, for code that posts other messages with the same bot."""
        self._chat_id = _chat(chat_id)
        self._reviewers = None if reviewers is None else frozenset(reviewers)
        self._clock = clock or SystemClock()
        self._posts = StoredPosts(NAME, Post.read, store, self._clock)
        self._is_listening = False

    def to(self, target: str) -> TelegramDelivery:
        """The same bot in another chat."""
        other = copy(self)
        other._chat_id = _chat(target)
        return other

    def stored_in(self, store: CheckpointKeeper, clock: Clock) -> TelegramDelivery:
        """The same delivery, with the meaning of its buttons in an open store."""
        other = copy(self)
        other._clock, other._posts = clock, StoredPosts(NAME, Post.read, store, clock)
        other.api = copy(self.api)  # its open connections belong to one event loop
        return other

    async def send(self, notice: Notice) -> Sent:
        """Send a message. The meaning of its buttons is stored before they can be pressed."""
        if notice.review_url and len(notice.review_url) > _LINK_LIMIT:
            raise DeliveryError(NAME, "the link is longer than a message may be", permanent=True)
        key = secrets.token_urlsafe(9)
        text = asking_text(notice)
        actions = data_of(key, pressable(notice, text))
        shown = None if notice.contents is None else notice.contents.shown
        at = self._clock.now()
        post = Post(notice.case_id, self._chat_id, heading(notice), text, actions, at, shown=shown)
        if notice.review_url or actions:  # a message about an ended case needs no stored post
            await self._posts.keep(key, post)
        try:
            sent = await self._post(notice, post)
        except TelegramRefused as error:
            if error.code < 500:  # refused: nothing was sent (after a server error it may have been)
                await self._posts.forget(key)
            raise
        if actions and self._chat_id != post.chat_id:  # the group became a supergroup, with a new id
            await self._posts.keep(key, post.moved(self._chat_id))
        return Sent(NAME, notice.case_id, {"chat": self._chat_id, "message": sent["message_id"], "key": key})

    async def update(self, sent: Sent, ended: Ended) -> None:
        """Update the message with the end of its case, and remove its buttons."""
        key = str(sent.place["key"])
        post = await self._posts.find(key)
        if post is None:
            text = message(f"Case {visible(ended.case_id)}", ending_text(ended))
        else:
            await self._posts.close(key, post)
            text = message(post.heading, post.text, ending_text(ended))
        await self.api.edit("editMessageText", sent.place["chat"], sent.place["message"], text)

    @asynccontextmanager
    async def listening(self, on_press: OnPress, on_message: OnMessage | None = None) -> AsyncGenerator[None]:
        """Within this context, pass presses to ``on_press`` and answer them. Only one program may listen for a bot.

        ``on_message`` gets the messages that people write to the bot.
        """
        if self._is_listening:
            raise DeliveryError(NAME, "this delivery is listening already", permanent=True)
        self._is_listening = True
        try:
            await self._posts.forget_old()
            reader = PressReader(self.api, self._posts, self._reviewers, self._clock, on_press, on_message)
            async with self.api.connected(), reader.reading():
                yield
        finally:
            self._is_listening = False

    async def _post(self, notice: Notice, post: Post) -> Any:
        """Send the message, with the link as a button if Telegram accepts it, otherwise in the text."""
        link = notice.review_url
        quiet = {"disable_notification": True} if notice.kind == "progress" else {}
        if link and can_be_button(link):
            is_all = len(post.actions) == sum(each.is_plain for each in notice.buttons)
            label = OPEN_LABEL if is_all else APPROVE_LABEL
            buttons = keyboard(post.actions, notice.buttons, link, label)
            try:
                return await self._send(
                    {**message(post.heading, post.text), "reply_markup": buttons, **quiet}
                )
            except TelegramRefused as error:
                if error.code != 400 or "URL" not in error.said.upper():
                    raise
        shown = {**message(post.heading, post.text, link=link), **quiet}
        buttons = keyboard(post.actions, notice.buttons, None)
        return await self._send({**shown, "reply_markup": buttons} if post.actions else shown)

    async def _send(self, parameters: dict[str, Any]) -> Any:
        try:
            return await self.api.call("sendMessage", {"chat_id": self._chat_id, **parameters})
        except TelegramRefused as error:
            if error.new_chat_id is None:
                raise
            self._chat_id = error.new_chat_id
        return await self.api.call("sendMessage", {"chat_id": self._chat_id, **parameters})


def _chat(chat_id: int | str) -> int:
    try:
        return int(chat_id)
    except ValueError:
        raise DeliveryError(
            NAME, "chat_id must be a number, such as -1001234567890", permanent=True
        ) from None
