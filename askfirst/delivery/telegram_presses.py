"""Presses of a bot's buttons: read by long polling, checked, handled, and answered in the chat."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from askfirst.clock import Clock
from askfirst.delivery.base import CLOSED, FAILED, UNKNOWN, OnPress, Press, PressAnswer, Sent
from askfirst.delivery.stored_posts import StoredPosts
from askfirst.delivery.telegram_api import NAME, TelegramApi, TelegramRefused
from askfirst.delivery.telegram_messages import ALERT_LIMIT, Post, message, units
from askfirst.delivery.text import cut, shown
from askfirst.errors import DeliveryError
from askfirst.visible_text import visible

logger = logging.getLogger("askfirst.delivery")
OnMessage = Callable[[dict[str, Any]], Awaitable[None]]
"""Takes a message that somebody wrote to the bot, as Telegram's JSON object."""

POLL_SECONDS = 25
PRESS_SECONDS = 60.0
"""The time-out of handling a press. The person sees a spinning button meanwhile."""
_CONFIRM_SECONDS = 5.0
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 60.0
_NAME_LIMIT = 128

NOT_YOURS = "You are not on the list of people who may decide this."


class PressReader:
    """Reads a bot's presses, and handles each of them.

    A press is confirmed to Telegram after it was handled. If a program dies before that, Telegram delivers the press
    again. Presses of one message are handled in order, presses of different messages concurrently.
    """

    def __init__(
        self,
        api: TelegramApi,
        posts: StoredPosts[Post],
        reviewers: frozenset[int] | None,
        clock: Clock,
        on_press: OnPress,
        on_message: OnMessage | None = None,
    ) -> None:
        self._api = api
        self._posts = posts
        self._reviewers = reviewers
        self._clock = clock
        self._on_press = on_press
        self._on_message = on_message
        self._handling = asyncio.Lock()
        self._next: int | None = None
        """The id of the next update to handle. Sending it as ``offset`` confirms all updates before it."""
        self._confirmed: int | None = None
        """The last ``offset`` that was sent."""

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Read in the background; at the end, wait for presses under way."""
        task = asyncio.create_task(self._read())
        try:
            yield
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(PRESS_SECONDS), self._handling:
                    task.cancel()
            task.cancel()
            await asyncio.wait({task})
            if self._next != self._confirmed:
                with suppress(DeliveryError):
                    await self._updates(0, _CONFIRM_SECONDS)

    async def _read(self) -> None:
        backoff = _FIRST_BACKOFF
        while True:
            try:
                updates = await self._updates(POLL_SECONDS, POLL_SECONDS + 10)
            except DeliveryError as error:
                pause = error.retry_after or backoff * random.uniform(0.5, 1)  # noqa: S311  (no secret)
                level = logging.ERROR if _needs_operator(error) else logging.WARNING
                logger.log(level, "presses cannot be read: %s; trying again in %.0f s", error, pause)
                backoff = min(backoff * 2, _LONGEST_BACKOFF)
                await self._clock.sleep(pause)
                continue
            backoff = _FIRST_BACKOFF
            async with self._handling:
                await self._handle_all(updates)
                if updates:
                    self._next = max(update["update_id"] for update in updates) + 1

    async def _updates(self, poll_seconds: int, seconds: float) -> list[dict[str, Any]]:
        kinds = ["callback_query"] if self._on_message is None else ["callback_query", "message"]
        parameters: dict[str, Any] = {"timeout": poll_seconds, "allowed_updates": kinds}
        if self._next is not None:
            parameters["offset"] = self._next
        updates = await self._api.call("getUpdates", parameters, seconds=seconds)
        self._confirmed = self._next
        return updates

    async def _handle_all(self, updates: list[dict[str, Any]]) -> None:
        queues: dict[str, list[dict[str, Any]]] = {}
        for update in updates:
            if query := update.get("callback_query"):
                queues.setdefault(_key(query), []).append(query)
        messages = [update["message"] for update in updates if update.get("message")]
        async with asyncio.TaskGroup() as group:
            for key, queries in queues.items():
                group.create_task(self._handle_in_order(key, queries))
            if self._on_message is not None and messages:
                group.create_task(self._handle_messages(self._on_message, messages))

    async def _handle_messages(self, on_message: OnMessage, messages: list[dict[str, Any]]) -> None:
        for each in messages:
            try:
                await on_message(each)
            except Exception as error:  # one message must not stop the others
                logger.error("telegram: a message could not be handled (%s)", type(error).__name__)
                logger.debug("traceback of the failed message", exc_info=error)

    async def _handle_in_order(self, key: str, queries: list[dict[str, Any]]) -> None:
        for query in queries:
            try:
                await self._handle(key, query)
            except Exception as error:  # one press must not stop the others
                logger.error("telegram: a press could not be handled (%s)", type(error).__name__)
                await self._answer_query(query, FAILED)

    async def _handle(self, key: str, query: dict[str, Any]) -> None:
        post = await self._posts.find(key) if key else None
        action = None if post is None else post.actions.get(query["data"])
        if post is None or action is None:
            await self._answer_query(query, UNKNOWN)
        elif not self._may_decide(query, post):
            await self._answer_query(query, NOT_YOURS)
        elif post.is_closed:
            await self._answer_query(query, CLOSED)
            await self._remove_buttons(post, query)
        else:
            await self._pass_on(key, post, action, query)

    def _may_decide(self, query: dict[str, Any], post: Post) -> bool:
        if query.get("message", {}).get("chat", {}).get("id") != post.chat_id:
            return False
        return self._reviewers is None or query["from"]["id"] in self._reviewers

    async def _pass_on(self, key: str, post: Post, action: str, query: dict[str, Any]) -> None:
        who = _name(query["from"])
        press = Press(
            post.case_id,
            action,
            submitted_via="telegram_inline_button",
            platform="telegram",
            platform_user_id=str(query["from"]["id"]),
            display_name=who,
            shown=post.shown,
            sent=Sent(
                NAME,
                post.case_id,
                {"chat": post.chat_id, "message": query["message"]["message_id"], "key": key},
            ),
        )
        answer = await self._answer_of(press)
        if answer.kind in ("done", "closed"):
            await self._posts.close(key, post)
        await self._answer_query(query, answer.text, alert=answer.kind != "done")
        if answer.kind == "done":
            said = shown(answer.text).strip()
            by = f"{said} ({who})" if who and who not in said else said
            await self._edit("editMessageText", post, query, message(post.heading, post.text, by))
        elif answer.kind == "closed":
            await self._remove_buttons(post, query)

    async def _answer_of(self, press: Press) -> PressAnswer:
        try:
            async with asyncio.timeout(PRESS_SECONDS):
                return await self._on_press(press)
        except Exception as error:
            logger.error("telegram: a press could not be handled (%s)", type(error).__name__)
            return PressAnswer("failed", FAILED)

    async def _answer_query(self, query: dict[str, Any], text: str, *, alert: bool = True) -> None:
        said = cut(shown(text), ALERT_LIMIT, measure=units)
        parameters = {"callback_query_id": query["id"], "text": said, "show_alert": alert}
        try:
            await self._api.call("answerCallbackQuery", parameters)
        except DeliveryError as error:
            if (
                not isinstance(error, TelegramRefused) or error.code != 400
            ):  # 400: the press is too old to be answered
                logger.warning("a press could not be answered: %s", error)

    async def _remove_buttons(self, post: Post, query: dict[str, Any]) -> None:
        await self._edit("editMessageReplyMarkup", post, query, {})

    async def _edit(self, method: str, post: Post, query: dict[str, Any], parameters: dict[str, Any]) -> None:
        """Change the message of a press. If that fails, `Delivery.update` does it later."""
        try:
            await self._api.edit(method, post.chat_id, query["message"]["message_id"], parameters)
        except DeliveryError as error:
            logger.warning("a message could not be updated: %s", error)


def _needs_operator(error: DeliveryError) -> bool:
    return error.permanent or (isinstance(error, TelegramRefused) and error.code == 409)


def _key(query: dict[str, Any]) -> str:
    """The key of the post in a button's callback data; empty if the button is not one of ours."""
    parts = str(query.get("data") or "").split(":", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "hitl" else ""


def _name(user: dict[str, Any]) -> str | None:
    """The display name of the person who pressed: a claim, only to be shown."""
    names = [visible(str(user[part])) for part in ("first_name", "last_name") if user.get(part)]
    name = " ".join(names) or (f"@{user['username']}" if user.get("username") else "")
    return cut(name, _NAME_LIMIT) or None
