"""Bringing a database's schema up to date when it is opened; Alembic is loaded only if there is work to do.

Alembic writes the statements, the engines run them under a lock of their own, so that any number of processes
may open a fresh database at once.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

from sqlalchemy import String, column, select, table

from askfirst.errors import StoreError
from askfirst.store.statement import Statement
from askfirst.store.tables import VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

REVISIONS = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
    "0008",
    "0009",
    "0010",
    "0011",
    "0012",
    "0013",
)
"""The history, oldest first; the last is what this version works with."""

_ONE_AT_A_TIME = Lock()
"""Alembic's ``op`` is one for the whole process, and databases are opened in threads of their own."""

VERSION = Statement(select(column("version_num", String)).select_from(table(VERSION_TABLE)))


def is_current(version: str | None) -> bool:
    """Whether nothing is to be migrated. Raises `StoreError` for a schema that this version does not know."""
    if version is not None and version not in REVISIONS:
        raise StoreError(
            f"the database has schema {version}, made by a newer Askfirst; this one knows up to {REVISIONS[-1]}"
        )
    return version == REVISIONS[-1]


def alembic_config() -> Config:
    """Askfirst's migrations as Alembic wants them: set ``sqlalchemy.url`` and hand it to a command."""
    config: Config = import_module("alembic.config").Config()
    config.set_main_option("script_location", "askfirst.store:migrations")
    config.set_main_option("path_separator", "os")
    return config


class _Statements(list[str]):
    """Collects what Alembic writes, a statement at a time."""

    def write(self, written: str) -> None:
        sql = written.strip().removesuffix(";")
        if not sql.startswith("--"):
            self.append(sql)

    def flush(self) -> None:
        pass


@cache
def migration(dialect: str, version: str | None) -> tuple[str, ...]:
    """The statements that lead from a version (None: an empty database) to the latest; written once a process."""
    scripts: Any = import_module("alembic.script").ScriptDirectory.from_config(alembic_config())
    statements = _Statements()

    def steps(revision: Any, _context: Any) -> Any:
        return scripts._upgrade_revs("head", revision)

    context: Any = import_module("alembic.runtime.migration").MigrationContext.configure(
        dialect_name=dialect,
        opts={
            "as_sql": True,
            "fn": steps,
            "output_buffer": statements,
            "starting_rev": version,
            "transactional_ddl": False,
            "version_table": VERSION_TABLE,
        },
    )
    with _ONE_AT_A_TIME, import_module("alembic.operations").Operations.context(context):
        context.run_migrations()
    return tuple(statements)
