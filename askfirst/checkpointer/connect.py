"""The checkpointer for a database's URL."""

from __future__ import annotations

import os
from typing import TypedDict
from urllib.parse import parse_qs

from askfirst.checkpointer.base import LEASE_SECONDS
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.checkpointer.mysql import MySQLCheckpointer
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.clock import Clock
from askfirst.errors import StoreError


def checkpointer_from_url(
    url: str,
    *,
    lease_seconds: float = LEASE_SECONDS,
    owner: str | None = None,
    clock: Clock | None = None,
    encryption_key: str | None = None,
) -> SqlCheckpointer:
    """The checkpointer for a database, to be opened with ``async with``.

    ``sqlite:///threads.db`` is a file in the working directory, ``sqlite:////var/lib/threads.db`` a file with an
    absolute path, and ``sqlite://`` or ``sqlite:///:memory:`` this process's memory. ``postgresql://`` and
    ``mysql://`` (or ``mariadb://``) are servers, and end with the database's name. A driver in the scheme
    (``postgresql+asyncpg://``) is ignored. The other arguments are those of `SqlCheckpointer`. Raises `StoreError`
    for any other URL.
    """
    if not isinstance(url, str):
        raise StoreError(f"a store's URL is a text, not {type(url).__name__}")
    scheme, separator, rest = url.partition("://")
    kind = scheme.partition("+")[0].lower()
    if not separator or kind not in ("sqlite", "postgresql", "postgres", "mysql", "mariadb"):
        given = repr(scheme) if separator else "a URL without a scheme"
        raise StoreError(
            f"no store is known for {given}: a store's URL begins with sqlite:///, postgresql:// or mysql://"
        )
    options = _Options(lease_seconds=lease_seconds, owner=owner, clock=clock, encryption_key=encryption_key)
    if kind == "sqlite":
        return _sqlite(rest, options)
    if kind in ("postgresql", "postgres"):
        if not _names_database(rest):
            raise StoreError(
                "a PostgreSQL address ends with the database's name: postgresql://user:password@host/name"
            )
        return PostgresCheckpointer(f"postgresql://{rest}", **options)
    return MySQLCheckpointer(f"mysql://{rest}", **options)


class _Options(TypedDict):
    """The arguments that every checkpointer takes."""

    lease_seconds: float
    owner: str | None
    clock: Clock | None
    encryption_key: str | None


def _sqlite(rest: str, options: _Options) -> SqlCheckpointer:
    if rest == "/":
        raise StoreError(
            "this SQLite URL names no file: write sqlite:///path, or sqlite:///:memory: for this process's memory"
        )
    if rest in ("", "/:memory:"):
        return MemoryCheckpointer(
            lease_seconds=options["lease_seconds"], owner=options["owner"], clock=options["clock"]
        )
    if not rest.startswith("/"):
        raise StoreError("an SQLite URL has three slashes and a path (four, if the path begins with one)")
    return SQLiteCheckpointer(rest[1:], **options)


def _names_database(rest: str) -> bool:
    """Whether the address names the database, or the variable ``PGDATABASE`` does."""
    address, _, query = rest.partition("?")
    named = address.partition("/")[2] or {"database", "dbname", "service"} & parse_qs(query).keys()
    return bool(named or os.environ.get("PGDATABASE"))
