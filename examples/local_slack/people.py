"""The people of a local Slack workspace: they write, press buttons, fill in modals and give commands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .limits import Json, check_view, elements_of, many
from .server import BOT_USER, TEAM, Delivered, LocalSlack


@dataclass(frozen=True)
class SlackPerson:
    """A person with an account in this workspace, or in another one."""

    id: str
    name: str
    email: str | None = None
    team: str = TEAM
    is_guest: bool = False

    def info(self) -> Json:
        """The person's profile, as ``users.info`` returns it."""
        profile: Json = {"display_name": self.name, "real_name": self.name}
        if self.email is not None:
            profile["email"] = self.email
        return {
            "id": self.id,
            "team_id": self.team,
            "name": self.name.lower(),
            "is_bot": False,
            "deleted": False,
            "is_restricted": self.is_guest,
            "is_stranger": self.team != TEAM,
            "is_email_confirmed": self.email is not None,
            "profile": profile,
        }


ADA = SlackPerson("U0ADA", "Ada", "ada@example.com")
BEN = SlackPerson("U0BEN", "Ben", "ben@example.com")
STRANGER = SlackPerson("U0MAL", "Ada", "mallory@example.com")
"""A person of this workspace who may not decide, with Ada's display name."""
GUEST = SlackPerson("U0ADA", "Ada", "ada@example.com", team="T0OTHER")
"""A person of another workspace with Ada's user id, name and e-mail address."""


class People:
    """The actions of people in a workspace; most of them return the app's response."""

    def __init__(self, slack: LocalSlack) -> None:
        self._slack = slack
        for person in (ADA, BEN, STRANGER):
            slack.users[person.id] = person.info()

    async def press(
        self,
        channel: str,
        ts: str,
        button: str,
        *,
        by: SlackPerson = ADA,
        message: Json | None = None,
        **changes: Any,
    ) -> Delivered:
        """Press a button by its label; a confirm step is accepted.

        ``message`` is an older version of the message, which the person still sees. ``changes`` replace parts of the
        payload, to forge a request.
        """
        shown = message or self._slack.messages[channel, ts]
        found = [each for each in elements_of(shown) if each.get("text", {}).get("text") == button]
        if len(found) != 1:
            raise LookupError(f"no button {button!r} there, but {self.buttons(channel, ts)}")
        element, [block] = found[0], [each for each in shown["blocks"] if found[0] in _inside(each)]
        action = {
            "type": "button",
            "action_id": element.get("action_id"),
            "block_id": block.get("block_id"),
            "value": element.get("value"),
            "action_ts": self._slack.new_ts(),
        }
        payload: Json = {
            "type": "block_actions",
            **self._who(by),
            "trigger_id": self._slack.new_trigger(),
            "channel": {"id": channel, "name": "ops"},
            "container": {"type": "message", "message_ts": ts, "channel_id": channel},
            "message": {**shown, "ts": ts},
            "actions": [action],
        }
        return await self._slack.deliver("interactive", {**payload, **changes})

    def buttons(self, channel: str, ts: str) -> list[str]:
        """The labels of a message's buttons."""
        shown = self._slack.messages[channel, ts]
        return [each["text"]["text"] for each in elements_of(shown) if each["type"] == "button"]

    async def submit(self, view_id: str, values: dict[str, Any], *, by: SlackPerson = ADA) -> Delivered:
        """Fill in a modal, by block id, and submit it. It stays open if the app finds faults."""
        view = self._slack.views[view_id]
        state: Json = {}
        for block in view["blocks"]:
            if block["type"] == "input":
                element = block["element"]
                given = values.get(block["block_id"], _initial(element))
                state[block["block_id"]] = {element["action_id"]: _state(element, given)}
        payload: Json = {
            "type": "view_submission",
            **self._who(by),
            "view": {**view, "state": {"values": state}},
        }
        done = await self._slack.deliver("interactive", payload)
        action = done.payload.get("response_action")
        if action == "update":
            check_view(done.payload["view"])
            self._slack.views[view_id] = {**view, **done.payload["view"]}
        elif action is None and done.acked:
            self._slack.views.pop(view_id, None)
        return done

    async def say(
        self,
        channel: str,
        text: str,
        *,
        by: SlackPerson = ADA,
        thread_ts: str | None = None,
        mentions: bool = True,
        **changes: Any,
    ) -> str:
        """Write to the app, in a thread or at the top of a channel; returns the message's ts."""
        ts = self._slack.new_ts()
        said = f"<@{BOT_USER}> {text}" if mentions else text
        event: Json = {
            "type": "app_mention" if mentions else "message",
            "channel": channel,
            "channel_type": "im" if channel.startswith("D") else "channel",
            "user": by.id,
            "team": by.team,
            "text": said,
            "ts": ts,
        }
        if thread_ts is not None:
            event["thread_ts"] = thread_ts
        self._slack.messages[channel, ts] = {**event}
        event |= changes
        wrapped = {"type": "event_callback", "team_id": TEAM, "event_id": f"Ev{ts}", "event": event}
        await self._slack.deliver("events_api", wrapped)
        return ts

    async def command(self, text: str, *, channel: str, by: SlackPerson = ADA) -> Delivered:
        """Give the command ``/askfirst``."""
        return await self._slack.deliver(
            "slash_commands",
            {
                "command": "/askfirst",
                "text": text,
                "user_id": by.id,
                "user_name": by.name.lower(),
                "team_id": by.team,
                "channel_id": channel,
                "trigger_id": self._slack.new_trigger(),
            },
        )

    def _who(self, by: SlackPerson) -> Json:
        user = {"id": by.id, "username": by.name.lower(), "name": by.name.lower(), "team_id": by.team}
        return {"user": user, "team": {"id": TEAM, "domain": "local"}, "api_app_id": "A0LOCAL"}


def _inside(block: Json) -> list[Json]:
    return [*many(block, "elements"), *([block["accessory"]] if "accessory" in block else [])]


def _initial(element: Json) -> Any:
    chosen = element.get("initial_options")
    if chosen is not None:
        return [each["value"] for each in chosen]
    option = element.get("initial_option")
    return element.get("initial_value") if option is None else option["value"]


def _state(element: Json, value: Any) -> Json:
    kind = element["type"]
    if kind in ("static_select", "radio_buttons"):
        chosen = [each for each in element["options"] if each["value"] == value]
        return {"type": kind, "selected_option": chosen[0] if chosen else None}
    if kind in ("checkboxes", "multi_static_select"):
        return {
            "type": kind,
            "selected_options": [each for each in element["options"] if each["value"] in (value or [])],
        }
    if kind == "datepicker":
        return {"type": kind, "selected_date": value}
    return {"type": kind, "value": None if value is None else json.loads(json.dumps(value))}
