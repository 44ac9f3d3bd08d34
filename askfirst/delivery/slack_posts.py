"""Stored Slack messages: what a message shows and what its buttons mean, for as long as they may be pressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from askfirst.delivery.base import Button
from askfirst.delivery.fields import Field


@dataclass(frozen=True, slots=True)
class SlackPost:
    """A message that asks: its case, its channel, what it shows, and its buttons."""

    case_id: str
    channel: str
    title: str
    blocks: tuple[dict[str, Any], ...]
    buttons: tuple[Button, ...]
    shown: str | None
    """The digest of what the message shows."""
    made_at: float
    is_closed: bool = False

    def closed(self) -> SlackPost:
        """The same post, marked as decided."""
        return replace(self, is_closed=True)

    def stored(self) -> dict[str, Any]:
        """The post as JSON, for `read`."""
        buttons = [
            {"action": each.action, "label": each.label, "fields": [field.stored() for field in each.fields]}
            for each in self.buttons
        ]
        return {
            "case_id": self.case_id,
            "channel": self.channel,
            "title": self.title,
            "blocks": list(self.blocks),
            "buttons": buttons,
            "shown": self.shown,
            "made_at": self.made_at,
            "is_closed": self.is_closed,
        }

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> SlackPost:
        """A post from the JSON of `stored`."""
        buttons = tuple(
            Button(each["action"], each["label"], tuple(Field.read(field) for field in each["fields"]))
            for each in body["buttons"]
        )
        more: dict[str, Any] = {**body, "blocks": tuple(body["blocks"]), "buttons": buttons}
        return cls(**more)
