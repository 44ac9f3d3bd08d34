"""The way in for Alembic's own commands, on the database at ``sqlalchemy.url``."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, pool

from assent.store.all_tables import metadata
from assent.store.tables import VERSION_TABLE

url = context.config.get_main_option("sqlalchemy.url")
if url is None:
    raise SystemExit("set sqlalchemy.url to the database that is to be migrated")
with create_engine(url, poolclass=pool.NullPool).begin() as connection:
    context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE)
    with context.begin_transaction():
        context.run_migrations()
