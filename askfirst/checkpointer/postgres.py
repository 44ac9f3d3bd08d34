"""Durable threads in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from askfirst.checkpointer.server import ServerCheckpointer

if TYPE_CHECKING:
    from askfirst.store.server_engine import Server


class PostgresCheckpointer(ServerCheckpointer):
    """Keeps threads in a database at ``postgresql://user:password@host:port/name``.

    Any number of processes on any number of machines may share it; answers wake waiting runs by LISTEN/NOTIFY.
    """

    _extra = "postgres"

    @property
    def dsn(self) -> str:
        """The database's address, with the password, for another library that uses the same database."""
        return self._dsn

    def _server(self, dsn: str) -> Server:
        from askfirst.store.postgres_engine import PostgresServer

        return PostgresServer(dsn)
