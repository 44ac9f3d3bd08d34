"""Who follows which case in this process: woken when it changes here, or when another process says so."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class Followers:
    """Wakes those who wait for a case to change; what has changed they read from the store."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    @property
    def any(self) -> bool:
        """Whether anybody follows any case."""
        return bool(self._waiting)

    @contextmanager
    def follow(self, case_id: str) -> Generator[asyncio.Event]:
        """An event that is set whenever the case changes; whoever waits clears it first."""
        changed = asyncio.Event()
        self._waiting.setdefault(case_id, set()).add(changed)
        try:
            yield changed
        finally:
            followers = self._waiting[case_id]
            followers.discard(changed)
            if not followers:
                del self._waiting[case_id]

    def wake(self, case_id: str) -> None:
        """The case has changed, or may have."""
        for changed in self._waiting.get(case_id, ()):
            changed.set()

    def follows(self, case_id: str) -> bool:
        """Whether somebody follows this case."""
        return case_id in self._waiting

    def wake_all(self) -> None:
        """Everything may have changed."""
        for case_id in list(self._waiting):
            self.wake(case_id)
