"""Alembic's way in: it migrates the connection it is handed, or the database at ``sqlalchemy.url``."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine, pool

from assent.store.tables import VERSION_TABLE, metadata


def migrate(connection: Connection) -> None:
    """Bring the database behind a connection up to date, in one transaction where it can do that."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        transactional_ddl=connection.dialect.name != "mysql",
    )
    with context.begin_transaction():
        context.run_migrations()


handed_in: Connection | None = context.config.attributes.get("connection")
if handed_in is not None:
    migrate(handed_in)
else:
    url = context.config.get_main_option("sqlalchemy.url")
    if url is None:
        raise SystemExit("set sqlalchemy.url to the database that is to be migrated")
    with create_engine(url, poolclass=pool.NullPool).begin() as own:
        migrate(own)
