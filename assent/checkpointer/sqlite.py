"""Durable threads in an SQLite file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from assent.checkpointer.encryption import encrypting
from assent.checkpointer.extras import needs
from assent.checkpointer.sql import SqlCheckpointer
from assent.clock import Clock
from assent.errors import StoreError

if TYPE_CHECKING:
    from assent.store.store import Store


class SQLiteCheckpointer(SqlCheckpointer):
    """Keeps threads in a file: ``async with SQLiteCheckpointer("threads.db") as checkpointer: ...``

    Any number of processes may share the file. What is committed survives a power cut. If the file is removed or
    replaced while it is open, whoever writes to it gets `StoreError`.
    """

    keeps_order = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lease_seconds: float = 30.0,
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
            from assent.store.sqlite_engine import SQLiteEngine
            from assent.store.store import Store
        engine = SQLiteEngine(self._path)
        await engine.open()
        return Store(await encrypting(engine, self.master_keys))
