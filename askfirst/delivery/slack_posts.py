"""What a Slack message asked, and what its buttons mean, kept for as long as they may be pressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock
from askfirst.delivery.base import Button
from askfirst.delivery.fields import Field

AGENT_ID = "askfirst.slack"
KEPT_SECONDS = 30 * 86_400
"""How long presses of an old message are still answered with its outcome."""
_PAGE = 100


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

    def stored(self) -> dict[str, Any]:
        """As JSON; `read` is the way back."""
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
        """From what `stored` gave."""
        buttons = tuple(
            Button(each["action"], each["label"], tuple(Field.read(field) for field in each["fields"]))
            for each in body["buttons"]
        )
        more: dict[str, Any] = {**body, "blocks": tuple(body["blocks"]), "buttons": buttons}
        return cls(**more)


class SlackPosts:
    """Posts by key; in a store they survive a restart, and several processes share them."""

    def __init__(self, store: CheckpointKeeper | None, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._here: dict[str, SlackPost] = {}

    async def keep(self, key: str, post: SlackPost) -> None:
        """Remember a post, or what has changed of it."""
        if self._store is None:
            self._here[key] = post
        else:
            await self._store.save_checkpoint(_id(key), AGENT_ID, post.stored())

    async def find(self, key: str) -> SlackPost | None:
        """The post of a key, if it is known."""
        if self._store is None:
            return self._here.get(key)
        stored = await self._store.get_checkpoint(_id(key), AGENT_ID)
        if stored is None:
            return None
        body: Any = stored.body
        return SlackPost.read(body)

    async def close(self, key: str, post: SlackPost) -> None:
        """Note that there is nothing left to decide."""
        if not post.is_closed:
            await self.keep(key, replace(post, is_closed=True))

    async def forget_old(self) -> None:
        """Delete posts that are older than `KEPT_SECONDS`."""
        oldest = self._clock.now() - KEPT_SECONDS
        for key, post in list(self._here.items()):
            if post.made_at < oldest:
                del self._here[key]
        while self._store is not None:
            page = await self._store.list_checkpoints(AGENT_ID, limit=_PAGE)  # oldest first
            old = [each for each in page if _made_at(each.body) < oldest]
            for each in old:
                await self._store.delete_checkpoint(each.checkpoint_id, AGENT_ID)
            if len(old) < _PAGE:
                return


def _id(key: str) -> str:
    return f"slack-{key}"


def _made_at(body: Any) -> float:
    return body["made_at"]
