"""Durable threads in MySQL or MariaDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from askfirst.checkpointer.opening import GROWTH
from askfirst.checkpointer.server import ServerCheckpointer

if TYPE_CHECKING:
    from askfirst.store.server_engine import Server
    from askfirst.store.store import Store


class MySQLCheckpointer(ServerCheckpointer):
    """Keeps threads in a database at ``mysql://user:password@host:port/name``, MySQL 8 or MariaDB 10.6 on.

    Any number of processes on any number of machines may share it; waiting runs poll for answers.
    """

    _extra = "mysql"

    async def _connect(self) -> Store:
        store = await super()._connect()
        from askfirst.store.mysql_engine import largest_packet

        try:
            largest = await store.engine.read(largest_packet)
            self._largest = largest if self.master_keys is None else int(largest / GROWTH)
        except BaseException:
            await store.close()
            raise
        return store

    def _server(self, dsn: str) -> Server:
        from askfirst.store.mysql_engine import MySQLServer

        return MySQLServer(dsn)
