"""Stores that several processes share, by URL, for the crash and race tests."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from kit.database_servers import ThrowawayMySQL, ThrowawayPostgres, start_own

STORES = ("sqlite", "postgresql", "mysql")


class StoreUrls:
    """A database of each kind, made at its first use. PostgreSQL and MySQL databases are on separate servers, because
    fifty processes connect to them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._urls: dict[str, str] = {}

    def get(self, store: str) -> str:
        """The URL of the database of this kind."""
        if store not in self._urls:
            self._urls[store] = self._make(store)
        return self._urls[store]

    def _make(self, store: str) -> str:
        if store == "sqlite":
            return f"sqlite:///{self._folder / 'threads.db'}"
        kind = ThrowawayPostgres if store == "postgresql" else ThrowawayMySQL
        return self._stack.enter_context(start_own(kind)).dsn
