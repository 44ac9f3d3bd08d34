"""Durable threads in MySQL or MariaDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assent.checkpointer.extras import needs, without_login
from assent.checkpointer.sql import SqlCheckpointer
from assent.clock import Clock

if TYPE_CHECKING:
    from assent.store.store import Store


class MySQLCheckpointer(SqlCheckpointer):
    """Keeps threads in a database at ``mysql://user:password@host:port/name``, MySQL 8 or MariaDB 10.6 on.

    Any number of processes on any number of machines may share it; waiters look for answers by polling.
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
        with needs(type(self).__name__, "mysql"):
            from assent.store.mysql_engine import MySQLServer
            from assent.store.server_engine import ServerEngine
            from assent.store.store import Store
        engine = ServerEngine(MySQLServer(self._dsn))
        await engine.open()
        return Store(engine)
