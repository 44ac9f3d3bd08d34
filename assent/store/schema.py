"""Bringing a database's schema up to date when it is opened; Alembic is loaded only if there is work to do."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, StaticPool, String, column, create_engine, select, table

from assent.errors import StoreError
from assent.store.statement import Statement
from assent.store.tables import VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

VERSION = Statement(select(column("version_num", String)).select_from(table(VERSION_TABLE)))
REVISIONS = ("0001",)
"""The history, oldest first; the last is what this version works with."""


def is_current(version: str | None) -> bool:
    """Whether nothing is to be migrated. Raises `StoreError` for a schema that this version does not know."""
    if version is not None and version not in REVISIONS:
        raise StoreError(
            f"the database has schema {version}, made by a newer Assent; this one knows up to {REVISIONS[-1]}"
        )
    return version == REVISIONS[-1]


def alembic_config() -> Config:
    """Assent's migrations as Alembic wants them; set ``sqlalchemy.url`` or ``attributes["connection"]``."""
    config: Config = import_module("alembic.config").Config()
    config.set_main_option("script_location", "assent.store:migrations")
    config.set_main_option("path_separator", "os")
    return config


def upgrade(connection: Connection) -> None:
    """Migrate to the latest schema over an open connection."""
    config = alembic_config()
    config.attributes["connection"] = connection
    import_module("alembic.command").upgrade(config, "head")


def prepare_sqlite(connection: sqlite3.Connection) -> None:
    """Migrate an SQLite database, if it needs that, holding its write lock meanwhile."""
    if is_current(_sqlite_version(connection)):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not is_current(_sqlite_version(connection)):
            with _borrowed(connection).connect() as borrowed:
                upgrade(borrowed)
        if connection.in_transaction:
            connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _borrowed(connection: sqlite3.Connection) -> Engine:
    return create_engine(
        "sqlite://", creator=lambda: connection, poolclass=StaticPool, pool_reset_on_return=None
    )


def _sqlite_version(connection: sqlite3.Connection) -> str | None:
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if not connection.execute(known, (VERSION_TABLE,)).fetchall():
        return None
    row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()  # noqa: S608
    return None if row is None else row[0]
