"""Presses of our Slack buttons and modals. Only Slack's envelope identifies the person, never a form's content."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from askfirst.delivery.base import CLOSED, FAILED, UNKNOWN, Button, OnPress, Press, PressAnswer, Sent
from askfirst.delivery.fields import REASON, Field
from askfirst.delivery.slack_api import NAME, SlackApi, SlackRefused
from askfirst.delivery.slack_blocks import ACTION, decided_message
from askfirst.delivery.slack_modals import CALLBACK, entered_values, modal, notice_modal
from askfirst.delivery.slack_posts import SlackPost
from askfirst.delivery.stored_posts import StoredPosts
from askfirst.delivery.text import cut, shown
from askfirst.errors import DeliveryError
from askfirst.visible_text import visible

logger = logging.getLogger("askfirst.delivery")
PRESS_SECONDS = 60.0
_NAME_LIMIT = 128
_EPHEMERAL_LIMIT = 2000
_CLOSING_KINDS = ("done", "closed")

TOO_SLOW = "Slack did not show the form in time. Press again."


@dataclass(frozen=True, slots=True)
class SlackUser:
    """A person, identified by the workspace and user id in Slack's envelope."""

    team: str
    id: str
    name: str | None = None
    """Their display name in Slack: a claim, only to be shown."""

    @property
    def account(self) -> str:
        """Workspace and user id, as a place's ``deciders`` name the person."""
        return f"{self.team}:{self.id}"


def user_of(payload: Mapping[str, Any]) -> SlackUser:
    """The person in an envelope. Raises ``LookupError`` if the envelope names nobody."""
    user: Mapping[str, Any] = payload["user"]
    within: Mapping[str, Any] = payload.get("team") or {}
    team = user.get("team_id") or within.get("id")
    if not team or not user.get("id"):
        raise LookupError("the envelope names nobody")
    name = user.get("name") or user.get("username")
    return SlackUser(str(team), str(user["id"]), cut(visible(str(name)), _NAME_LIMIT) if name else None)


class SlackPresses:
    """Handles the interactions with our messages. The result of `handle` is sent with the acknowledgement."""

    def __init__(
        self, api: SlackApi, posts: StoredPosts[SlackPost], on_press: OnPress, *, asks_address: bool = False
    ) -> None:
        self._api = api
        self._posts = posts
        self._on_press = on_press
        self._asks_address = asks_address
        self._team: str | None = None

    async def handle(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Handle a pressed button or a submitted modal of ours; ignore everything else."""
        if payload.get("type") == "block_actions":
            await self._pressed(payload)
        elif payload.get("type") == "view_submission" and payload["view"].get("callback_id") == CALLBACK:
            return await self._submitted(payload)
        return None

    async def _pressed(self, payload: dict[str, Any]) -> None:
        actions: list[dict[str, Any]] = payload.get("actions") or []
        action = actions[0] if actions else {}
        number = str(action.get("action_id") or "").removeprefix(f"{ACTION}:")
        if not number.isdigit():
            return  # the button that opens the page, or a button of another app
        key, user = str(action.get("value") or ""), user_of(payload)
        channel, ts = str(payload["channel"]["id"]), str(payload["container"]["message_ts"])
        place = _Place(channel, ts, payload.get("message", {}).get("thread_ts"))
        post = await self._posts.find(key)
        if post is None or int(number) >= len(post.buttons) or post.channel not in (channel, ""):
            await self._show_privately(place, user, UNKNOWN)
        elif post.is_closed:
            await self._show_privately(place, user, CLOSED)
        else:
            await self._choose(payload, key, post, int(number), place, user)

    async def _choose(
        self, payload: dict[str, Any], key: str, post: SlackPost, number: int, place: _Place, user: SlackUser
    ) -> None:
        button = post.buttons[number]
        fields = fields_of(button)
        if not fields:
            answer = await self._answer(key, post, button, {}, user, place)
            if answer.kind != "done":
                await self._show_privately(place, user, answer.text)
            return
        metadata = {"key": key, "button": str(number), "channel": place.channel, "ts": place.ts}
        if place.thread:
            metadata["thread"] = place.thread
        view = modal(button.label.removesuffix("…"), button.label.removesuffix("…"), metadata, fields)
        try:
            await self._api.call("views.open", {"trigger_id": payload["trigger_id"], "view": view})
        except SlackRefused as error:
            logger.warning("slack: a modal could not be opened: %s", error)
            await self._show_privately(place, user, TOO_SLOW)

    async def _submitted(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        view, user = payload["view"], user_of(payload)
        metadata: dict[str, str] = json.loads(view["private_metadata"])
        place = _Place(metadata["channel"], metadata["ts"], metadata.get("thread"))
        post = await self._posts.find(metadata["key"])
        number = int(metadata["button"])
        if post is None or number >= len(post.buttons):
            return _notice_response("Not known", UNKNOWN)
        if post.is_closed:
            return _notice_response("Too late", CLOSED)
        button = post.buttons[number]
        given, faults = entered_values(view, fields_of(button))
        if faults:
            return {"response_action": "errors", "errors": faults}
        answer = await self._answer(metadata["key"], post, button, data_of(button, given), user, place)
        return None if answer.kind == "done" else _notice_response("Not done", answer.text)

    async def _answer(
        self, key: str, post: SlackPost, button: Button, data: dict[str, Any], user: SlackUser, place: _Place
    ) -> PressAnswer:
        """Pass a press to ``on_press``. If it counts, mark the message as decided and remove its buttons."""
        press = Press(
            post.case_id,
            button.action,
            submitted_via="slack_block_action",
            platform=NAME,
            platform_user_id=user.account,
            display_name=user.name,
            shown=post.shown,
            data=data,
            email=await self._email_of(user),
            sent=place.sent(post.case_id, key),
        )
        try:
            async with asyncio.timeout(PRESS_SECONDS):
                answer = await self._on_press(press)
        except Exception as error:
            logger.error("slack: a press could not be handled (%s)", type(error).__name__)
            logger.debug("traceback of the failed press", exc_info=error)
            return PressAnswer("failed", FAILED)
        if answer.kind in _CLOSING_KINDS:
            await self._posts.close(key, post)
        if answer.kind == "done":  # if another answer was first, `Delivery.update` shows that one
            await self._show_decision(post, place, answer.text)
        return answer

    async def _show_decision(self, post: SlackPost, place: _Place, text: str) -> None:
        """Remove the buttons and show the decision. If that fails, `Delivery.update` does it later."""
        message = decided_message(post.blocks, post.title, shown(text).strip())
        try:
            await self._api.call("chat.update", {"channel": place.channel, "ts": place.ts, **message})
        except DeliveryError as error:
            logger.warning("slack: a message could not be updated: %s", error)

    async def _show_privately(self, place: _Place, user: SlackUser, text: str) -> None:
        """Show a text to one person only (an ephemeral message)."""
        said: dict[str, Any] = {"channel": place.channel, "user": user.id, "text": ephemeral(text)}
        if place.thread:
            said["thread_ts"] = place.thread
        try:
            await self._api.call("chat.postEphemeral", said)
        except DeliveryError as error:
            logger.warning("slack: the answer to a press could not be shown: %s", error)

    async def _email_of(self, user: SlackUser) -> str | None:
        """The confirmed e-mail address of a full member of the app's own workspace; otherwise None."""
        if not self._asks_address:
            return None
        try:
            if self._team is None:
                self._team = str((await self._api.call("auth.test"))["team_id"])
            if user.team != self._team:
                return None
            return confirmed_address((await self._api.call("users.info", {"user": user.id}))["user"], user)
        except DeliveryError as error:
            logger.warning("slack: an address could not be looked up: %s", error)
            return None


def confirmed_address(info: Mapping[str, Any], user: SlackUser) -> str | None:
    """The confirmed address of a full member in the result of ``users.info``; None for guests and bots."""
    excluded = ("deleted", "is_bot", "is_restricted", "is_ultra_restricted", "is_stranger")
    if (
        info.get("id") != user.id
        or info.get("team_id") != user.team
        or any(info.get(each) for each in excluded)
    ):
        return None
    if info.get("is_email_confirmed") is not True:
        return None
    profile: Mapping[str, Any] = info.get("profile") or {}
    email = profile.get("email")
    return str(email).lower() if email else None


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a message."""

    channel: str
    ts: str
    thread: str | None

    def sent(self, case_id: str, key: str) -> Sent:
        """The same `Sent` value that `SlackDelivery.send` returned for this message."""
        return Sent(NAME, case_id, {"channel": self.channel, "ts": self.ts, "key": key})


def fields_of(button: Button) -> tuple[Field, ...]:
    """The fields that are filled in before a button counts; a rejection has a field for its reason."""
    return (REASON,) if button.action == "reject" and not button.fields else button.fields


def data_of(button: Button, given: Mapping[str, Any]) -> dict[str, Any]:
    """The entered values as the data of an answer."""
    if button.action == "edit":
        return {"edits": dict(given)}
    if button.action == "retry":
        return {"modified_params": dict(given)} if given else {}
    return {name: value for name, value in given.items() if value is not None}


def ephemeral(text: str) -> str:
    """A text for an ephemeral message. Slack parses markup there, so the text is escaped."""
    said = cut(shown(text), _EPHEMERAL_LIMIT) or "…"
    return said.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _notice_response(title: str, text: str) -> dict[str, Any]:
    return {"response_action": "update", "view": notice_modal(title, text)}
