"""The way in for Alembic's own commands, on the database at ``sqlalchemy.url``."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, inspect, pool

from askfirst.store.case_tables import metadata
from askfirst.store.former_name import FORMER_NAMES, renaming
from askfirst.store.tables import VERSION_TABLE

url = context.config.get_main_option("sqlalchemy.url")
if url is None:
    raise SystemExit("set sqlalchemy.url to the database that is to be migrated")
with create_engine(url, poolclass=pool.NullPool).begin() as connection:
    if not inspect(connection).has_table(VERSION_TABLE):
        named = connection.exec_driver_sql(FORMER_NAMES.form(connection.dialect).sql)
        for sql in renaming(connection.dialect.name, named.fetchall()):
            connection.exec_driver_sql(sql)
    context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE)
    with context.begin_transaction():
        context.run_migrations()
