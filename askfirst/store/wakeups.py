"""Wakes the waiters of a request when any process settles it. A wake-up is a hint; the table is the truth."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

logger = logging.getLogger("askfirst.store")
RETRY_SECONDS = 1.0

Key = tuple[str, str]
"""Thread id and question id. An empty question id stands for every request of the thread."""
SIGNAL = "askfirst:"
"""How the first part of a key begins that stands for no request: it wakes those who wait for anything of a kind."""


class Hub:
    """The waiters of this process, by request.

    ``watch`` is a coroutine function that notices what other processes settle and calls `wake`. It is started
    for the first waiter, and again for a later one if it has returned.
    """

    def __init__(self, watch: Callable[[Hub], Awaitable[None]]) -> None:
        self._watch = watch
        self._waiters: dict[Key, list[asyncio.Event]] = {}
        self._rounds: dict[Key, int] = {}
        self._watching: asyncio.Task[None] | None = None
        self.arrived = asyncio.Event()
        """Set whenever somebody begins to wait; a watcher that backs off may clear and await it."""

    @property
    def keys(self) -> list[Key]:
        """The requests that are waited for."""
        return list(self._waiters)

    @contextmanager
    def waiting(self, key: Key) -> Generator[asyncio.Event]:
        """An event that is set when the request may have been settled. Read the table after entering, too."""
        event = asyncio.Event()
        self._waiters.setdefault(key, []).append(event)
        self.arrived.set()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watched())
        try:
            yield event
        finally:
            events = self._waiters[key]
            events.remove(event)
            if not events:
                del self._waiters[key]
                self._rounds.pop(key, None)

    def wake(self, keys: Iterable[Key]) -> None:
        """Wake the waiters of these requests, and those who wait for anything of their threads."""
        for key in keys:
            for event in self._waiters.get(key, ()):
                event.set()
            for event in self._waiters.get((key[0], ""), ()):
                event.set()

    def wake_changed(self, keys: Sequence[Key], rounds: Mapping[Key, int]) -> bool:
        """Wake the waiters of requests that are no longer pending in the round that was last seen; True if any are.

        A request that is seen for the first time wakes its waiters, too: its waiter may wait for an earlier
        round. A signal (see `SIGNAL`) has no row to compare: whoever waits for it is woken each time, and does not
        count.
        """
        changed = [key for key in keys if key not in rounds or self._rounds.get(key) != rounds[key]]
        self._rounds.update((key, rounds[key]) for key in changed if key in rounds and key in self._waiters)
        self.wake(changed)
        return any(not thread_id.startswith(SIGNAL) for thread_id, _ in changed)

    def wake_all(self) -> None:
        """Wake everyone."""
        self.wake(self.keys)

    async def close(self) -> None:
        """Stop watching and wake everyone, to find the store closed."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None
        self.wake_all()

    async def _watched(self) -> None:
        """Run ``watch``; after an error wake everyone, and start it again.

        Waiters read the table, and find the error there.
        """
        while True:
            try:
                await self._watch(self)
                return
            except Exception as error:
                logger.warning("answers from other processes may come late: %s", error)
                self.wake_all()
                await asyncio.sleep(RETRY_SECONDS)


async def look_after(
    hub: Hub, still_open: Callable[[list[Key]], Awaitable[Mapping[Key, int]]], *, batch: int = 50
) -> bool:
    """Wake the waiters of requests that were settled or asked again; True if there were any."""
    woken = False
    keys = hub.keys
    for start in range(0, len(keys), batch):
        asked = keys[start : start + batch]
        woken = hub.wake_changed(asked, await still_open(asked)) or woken
    return woken
