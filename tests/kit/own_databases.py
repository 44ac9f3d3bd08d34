"""Temporary databases for one test, one for each server process that it kills."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Self

from kit.stores import SERVERS, on_server, server_address
from kit.throwaway_servers import run_coroutine


class OwnDatabases:
    """Makes databases: ``with OwnDatabases(folder) as own: url = await own.new("postgres")``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for kind, name in self._made:
            force = " WITH (FORCE)" if kind == "postgres" else ""
            run_coroutine(on_server(kind, f"DROP DATABASE {name}{force}"))

    async def new(self, kind: str) -> str:
        """An empty database's URL."""
        name = f"askfirst_test_{secrets.token_hex(4)}"
        if kind not in SERVERS:
            return f"sqlite:///{self._folder / name}.db"
        await on_server(kind, f"CREATE DATABASE {name}")
        self._made.append((kind, name))
        return server_address(kind, name)
