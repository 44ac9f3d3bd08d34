"""Durable threads in MySQL or MariaDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assent.checkpointer.server import ServerCheckpointer

if TYPE_CHECKING:
    from assent.store.server_engine import Server


class MySQLCheckpointer(ServerCheckpointer):
    """Keeps threads in a database at ``mysql://user:password@host:port/name``, MySQL 8 or MariaDB 10.6 on.

    Any number of processes on any number of machines may share it; waiters look for answers by polling.
    """

    _extra = "mysql"

    def _server(self, dsn: str) -> Server:
        from assent.store.mysql_engine import MySQLServer

        return MySQLServer(dsn)
