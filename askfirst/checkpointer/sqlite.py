"""Durable threads in an SQLite file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from askfirst.checkpointer.base import LEASE_SECONDS
from askfirst.checkpointer.opening import encrypting, needs
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import Clock
from askfirst.errors import StoreError

if TYPE_CHECKING:
    from askfirst.store.store import Store


class SQLiteCheckpointer(SqlCheckpointer):
    """Keeps threads in a file: ``async with SQLiteCheckpointer("threads.db") as checkpointer: ...``

    Any number of processes may share the file. What is committed survives a power cut. If the file is removed or
    replaced while it is open, writing to it raises `StoreError`.
    """

    keeps_order = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lease_seconds: float = LEASE_SECONDS,
        owner: str | None = None,
        clock: Clock | None = None,
        encryption_key: str | None = None,
    ) -> None:
        super().__init__(lease_seconds=lease_seconds, owner=owner, clock=clock, encryption_key=encryption_key)
        self._path = os.fspath(path)
        if not self._path:
            raise StoreError("the path of an SQLite database is empty; MemoryCheckpointer needs none")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r})"

    async def _connect(self) -> Store:
        with needs(type(self).__name__, "sqlite"):
            from askfirst.store.sqlite_engine import SQLiteEngine
            from askfirst.store.store import Store
        engine = SQLiteEngine(self._path)
        await engine.open()
        return Store(await encrypting(engine, self.master_keys))
