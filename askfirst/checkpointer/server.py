"""The base class of the checkpointers on database servers."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from askfirst.checkpointer.base import LEASE_SECONDS
from askfirst.checkpointer.opening import encrypting, needs, without_login
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.clock import Clock

if TYPE_CHECKING:
    from askfirst.store.server_engine import Server
    from askfirst.store.store import Store


class ServerCheckpointer(SqlCheckpointer):
    """Keeps threads in a database on a server, at the address ``dsn``."""

    _extra: ClassVar[str]
    """The extra that installs the driver."""

    def __init__(
        self,
        dsn: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        owner: str | None = None,
        clock: Clock | None = None,
        encryption_key: str | None = None,
    ) -> None:
        super().__init__(lease_seconds=lease_seconds, owner=owner, clock=clock, encryption_key=encryption_key)
        self._dsn = dsn

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_login(self._dsn)!r})"

    @abstractmethod
    def _server(self, dsn: str) -> Server:
        """The server at this address; loads its driver."""

    async def _connect(self) -> Store:
        with needs(type(self).__name__, self._extra):
            from askfirst.store.server_engine import ServerEngine
            from askfirst.store.store import Store

            server = self._server(self._dsn)
        engine = ServerEngine(server)
        await engine.open()
        return Store(await encrypting(engine, self.master_keys))
