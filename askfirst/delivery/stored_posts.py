"""Stored messages of a messenger: what their buttons mean, for as long as they may be pressed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from askfirst.checkpointer.base import CheckpointKeeper
from askfirst.clock import Clock

KEPT_SECONDS = 30 * 86_400
"""How long a message is stored. A press on an older message is answered with "no longer known"."""
_PAGE = 100


class StoredPost(Protocol):
    """A message about a case, as a messenger's delivery stores it."""

    @property
    def made_at(self) -> float:
        """When the message was made, in seconds since 1970."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the case is decided."""
        ...

    def closed(self) -> Self:
        """The same post, marked as decided."""
        ...

    def stored(self) -> dict[str, Any]:
        """The post as JSON."""
        ...


P = TypeVar("P", bound=StoredPost)


class StoredPosts(Generic[P]):
    """Posts by key. In a store they survive a restart, and several processes share them; otherwise in memory.

    ``messenger`` is the name of the platform; each platform has its own posts. ``read`` makes a post from its JSON.
    """

    def __init__(
        self,
        messenger: str,
        read: Callable[[Mapping[str, Any]], P],
        store: CheckpointKeeper | None,
        clock: Clock,
    ) -> None:
        self._messenger = messenger
        self._owner = f"askfirst.{messenger}"
        self._read = read
        self._store = store
        self._clock = clock
        self._here: dict[str, P] = {}

    async def keep(self, key: str, post: P) -> None:
        """Store a post, or its changes."""
        if self._store is None:
            self._here[key] = post
            await self.forget_old()
        else:
            await self._store.save_checkpoint(self._id(key), self._owner, post.stored())

    async def find(self, key: str) -> P | None:
        """The post with this key; None if it is not known."""
        if self._store is None:
            return self._here.get(key)
        stored = await self._store.get_checkpoint(self._id(key), self._owner)
        if stored is None:
            return None
        body: Any = stored.body
        return self._read(body)

    async def close(self, key: str, post: P) -> None:
        """Mark a post as decided."""
        if not post.is_closed:
            await self.keep(key, post.closed())

    async def forget(self, key: str) -> None:
        """Delete a post that was never sent."""
        if self._store is None:
            self._here.pop(key, None)
        else:
            await self._store.delete_checkpoint(self._id(key), self._owner)

    async def forget_old(self) -> None:
        """Delete posts that are older than `KEPT_SECONDS`."""
        oldest = self._clock.now() - KEPT_SECONDS
        for key in [key for key, post in self._here.items() if post.made_at < oldest]:
            del self._here[key]
        while self._store is not None:
            page = await self._store.list_checkpoints(self._owner, limit=_PAGE)  # oldest first
            old = [each for each in page if _made_at(each.body) < oldest]
            for each in old:
                await self._store.delete_checkpoint(each.checkpoint_id, self._owner)
            if len(old) < _PAGE:
                return

    def _id(self, key: str) -> str:
        return f"{self._messenger}-{key}"


def _made_at(body: Any) -> float:
    return body["made_at"]
