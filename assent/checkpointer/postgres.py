"""Durable threads in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assent.checkpointer.extras import needs, without_login
from assent.checkpointer.sql import SqlCheckpointer
from assent.clock import Clock

if TYPE_CHECKING:
    from assent.store.store import Store


class PostgresCheckpointer(SqlCheckpointer):
    """Keeps threads in a database at ``postgresql://user:password@host:port/name``.

    Any number of processes on any number of machines may share it; answers wake waiters by LISTEN/NOTIFY.
    """

    def __init__(
        self,
        dsn: str,
        *,
        lease_seconds: float = 30.0,
        owner: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(lease_seconds=lease_seconds, owner=owner, clock=clock)
        self._dsn = dsn

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_login(self._dsn)!r})"

    async def _connect(self) -> Store:
        with needs(type(self).__name__, "postgres"):
            from assent.store.postgres_engine import PostgresServer
            from assent.store.server_engine import ServerEngine
            from assent.store.store import Store
        engine = ServerEngine(PostgresServer(self._dsn))
        await engine.open()
        return Store(engine)
