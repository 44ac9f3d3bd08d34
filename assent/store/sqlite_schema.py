"""Bringing a SQLite file's tables up to date."""

from __future__ import annotations

import sqlite3

from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect

from assent.store.schema import VERSION, is_current, migration


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date, holding the write lock meanwhile."""
    if is_current(_version(connection)):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # another process may have been faster
        if not is_current(version):
            for sql in migration("sqlite", version):
                connection.execute(sql)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> str | None:
    try:
        row = connection.execute(VERSION.form(sqlite_dialect()).sql).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise
    return None if row is None else row[0]
