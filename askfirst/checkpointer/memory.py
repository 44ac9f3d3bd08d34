"""Threads in this process's memory, for tests and for trying things out."""

from __future__ import annotations

from askfirst.checkpointer.base import LEASE_SECONDS
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.clock import Clock


class MemoryCheckpointer(SQLiteCheckpointer):
    """Keeps threads until it is closed. It is SQLite in memory, so it runs the same code as the durable ones."""

    def __init__(
        self, *, lease_seconds: float = LEASE_SECONDS, owner: str | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(":memory:", lease_seconds=lease_seconds, owner=owner, clock=clock)

    @property
    def master_keys(self) -> None:
        """None: nothing is written to disk, so nothing is encrypted."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
