"""What the messages in a chat are about, kept on our side: a button's data is only a key to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from assent.checkpointer.base import CheckpointKeeper
from assent.clock import Clock

AGENT_ID = "assent.telegram"
KEPT_SECONDS = 30 * 86_400
"""How long presses of an old message are still told what became of it."""
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Post:
    """A message that asks: its case, its chat, what it says, and the action behind each button's data."""

    case_id: str
    chat_id: int
    heading: str
    text: str
    actions: Mapping[str, str]
    made_at: float
    is_closed: bool = False

    def moved(self, chat_id: int) -> Post:
        """The same post in another chat."""
        return replace(self, chat_id=chat_id)


class Posts:
    """Posts by key; in a store they survive a restart, and several processes share them."""

    def __init__(self, store: CheckpointKeeper | None, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._here: dict[str, Post] = {}

    async def keep(self, key: str, post: Post) -> None:
        """Remember a post, or what has changed of it."""
        if self._store is None:
            self._here[key] = post
            await self.forget_old()
        else:
            body: dict[str, Any] = asdict(post)
            await self._store.save_checkpoint(_id(key), AGENT_ID, body)

    async def find(self, key: str) -> Post | None:
        """The post of a key, if it is known."""
        if self._store is None:
            return self._here.get(key)
        stored = await self._store.get_checkpoint(_id(key), AGENT_ID)
        if stored is None:
            return None
        body: Any = stored.body
        return Post(**body)

    async def close(self, key: str, post: Post) -> None:
        """Note that there is nothing left to decide."""
        if not post.is_closed:
            await self.keep(key, replace(post, is_closed=True))

    async def forget(self, key: str) -> None:
        """Let go of a post that was never sent."""
        if self._store is None:
            self._here.pop(key, None)
        else:
            await self._store.delete_checkpoint(_id(key), AGENT_ID)

    async def forget_old(self) -> None:
        """Let go of the posts that are older than `KEPT_SECONDS`."""
        oldest = self._clock.now() - KEPT_SECONDS
        while self._here and next(iter(self._here.values())).made_at < oldest:
            del self._here[next(iter(self._here))]
        while self._store is not None:
            page = await self._store.list_checkpoints(AGENT_ID, limit=_PAGE)  # oldest first
            old = [each for each in page if _made_at(each.body) < oldest]
            for each in old:
                await self._store.delete_checkpoint(each.checkpoint_id, AGENT_ID)
            if len(old) < _PAGE:
                return


def _id(key: str) -> str:
    return f"telegram-{key}"


def _made_at(body: Any) -> float:
    return body["made_at"]
