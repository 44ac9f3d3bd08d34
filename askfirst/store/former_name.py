"""The tables of a database that was written before this package was called Askfirst, renamed when it is opened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import String, column, select, table, text

from askfirst.store.statement import Statement
from askfirst.store.tables import VERSION_TABLE

_FORMER, _NOW = "assent_", "askfirst_"
FORMER_VERSION_TABLE = VERSION_TABLE.replace(_NOW, _FORMER)
FORMER_VERSION = Statement(select(column("version_num", String)).select_from(table(FORMER_VERSION_TABLE)))

_NAMED = {
    "sqlite": "SELECT type, tbl_name, name, sql FROM sqlite_master WHERE substr(name, 1, 7) = 'assent_'",
    "postgresql": (
        "SELECT CASE c.relkind WHEN 'r' THEN 'table' ELSE 'index' END, c.relname, c.relname, NULL"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE left(c.relname, 7) = 'assent_' AND c.relkind IN ('r', 'i') AND n.nspname = current_schema()"
    ),
    "mysql": (
        "SELECT 'table', table_name, table_name, NULL FROM information_schema.tables"
        " WHERE table_schema = DATABASE() AND left(table_name, 7) = 'assent_'"
        " UNION ALL SELECT DISTINCT 'index', table_name, index_name, NULL FROM information_schema.statistics"
        " WHERE table_schema = DATABASE() AND left(index_name, 7) = 'assent_'"
    ),
}
FORMER_NAMES = Statement(lambda dialect: text(_NAMED[dialect]), reads=True)
"""Every table and index with the former name: what it is, its table, its name, and how SQLite has made it."""


def renaming(dialect: str, named: Iterable[Sequence[Any]]) -> list[str]:
    """The statements that give tables and indexes their present names.

    The table with the schema's version comes last: while it has its former name, renaming is not finished, and is
    done again by the next process that opens the database.
    """
    indexes: list[str] = []
    tables: list[str] = []
    for kind, on, name, made in sorted(named, key=lambda row: row[2] == FORMER_VERSION_TABLE):
        now = name.replace(_FORMER, _NOW, 1)
        if kind == "table":
            tables.append(f"ALTER TABLE {name} RENAME TO {now}")
        elif dialect == "postgresql":
            indexes.append(f"ALTER INDEX {name} RENAME TO {now}")
        elif dialect == "mysql":
            indexes.append(f"ALTER TABLE {on} RENAME INDEX {name} TO {now}")
        else:  # SQLite renames no index; one without a statement of its own goes with its table
            tables += [f"DROP INDEX {name}", made.replace(_FORMER, _NOW)] if made else []
    return indexes + tables
