"""Opening a store: schema and migrations, addresses and their errors, extras that are missing."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from kit import racers_store
from kit.paths import with_kit
from kit.stores import (
    SERVERS,
    SHARED,
    Database,
    Fresh,
    asked,
    connect,
    on_server,
    server_address,
    whole_cycle,
)
from sqlalchemy import Connection, NullPool, create_engine, inspect
from sqlalchemy.ext.asyncio import create_async_engine

from askfirst.checkpointer.mysql import MySQLCheckpointer
from askfirst.checkpointer.postgres import PostgresCheckpointer
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import MissingExtra, StoreError
from askfirst.hitl.testing import RaceTrack
from askfirst.store import case_tables, schema, tables
from askfirst.store.inspect import look

pytestmark = pytest.mark.anyio
DRIVERS = {"postgres": "postgresql+asyncpg", "mysql": "mysql+asyncmy"}


def differences(connection: Connection) -> list[Any]:
    options = {"version_table": tables.VERSION_TABLE, "compare_server_default": True}
    return compare_metadata(MigrationContext.configure(connection, opts=options), case_tables.metadata)


@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_the_migrated_schema_of_a_server_equals_the_metadata(database: Database) -> None:
    url = urlsplit(database.address)._replace(scheme=DRIVERS[database.kind]).geturl()
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []


def test_the_migrated_schema_of_sqlite_equals_the_metadata(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    asyncio.run(open_and_close(SQLiteCheckpointer(path)))
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as connection:
        assert differences(connection) == []


def test_alembic_itself_runs_the_same_history(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    config = schema.alembic_config()
    config.set_main_option("sqlalchemy.url", f"sqlite:///{path}")
    command.upgrade(config, "head")
    with create_engine(f"sqlite:///{path}", poolclass=NullPool).connect() as connection:
        assert differences(connection) == []
    revisions = ScriptDirectory.from_config(config).walk_revisions()
    assert tuple(reversed([script.revision for script in revisions])) == schema.REVISIONS
    asyncio.run(open_and_close(SQLiteCheckpointer(path)))


async def open_and_close(checkpointer: Any) -> None:
    async with checkpointer:
        pass


async def test_a_schema_from_the_future_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await open_and_close(SQLiteCheckpointer(path))
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {tables.VERSION_TABLE} SET version_num = '9999'")  # noqa: S608
    connection.close()
    with pytest.raises(StoreError, match="schema 9999, made by a newer Askfirst"):
        await open_and_close(SQLiteCheckpointer(path))


async def test_a_migration_that_died_on_mysql_goes_on(fresh_databases: Fresh) -> None:
    fresh_databases.address("mysql")
    name = "askfirst_test_half"
    await on_server("mysql", f"DROP DATABASE IF EXISTS {name}")
    await on_server("mysql", f"CREATE DATABASE {name}")
    try:
        for sql in (await asyncio.to_thread(schema.migration, "mysql", None))[:-3]:
            await on_server("mysql", sql, database=name)
        async with MySQLCheckpointer(server_address("mysql", name)) as checkpointer:
            await whole_cycle(checkpointer, "t")
    finally:
        await on_server("mysql", f"DROP DATABASE {name}")


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_servers_first_schema_is_brought_up_to_date(kind: str, fresh_databases: Fresh) -> None:
    fresh_databases.address(kind)
    name = "askfirst_test_first"
    await on_server(kind, f"DROP DATABASE IF EXISTS {name}")
    await on_server(kind, f"CREATE DATABASE {name}")
    try:
        dialect = {"postgres": "postgresql", "mysql": "mysql"}[kind]
        statements = await asyncio.to_thread(schema.migration, dialect, None)
        first = next(n for n, sql in enumerate(statements) if "'0001'" in sql)
        for sql in statements[: first + 1]:
            await on_server(kind, sql, database=name)
        async with connect(kind, server_address(kind, name)) as checkpointer:
            await whole_cycle(checkpointer, "t")
            await checkpointer.save_checkpoint("c", "agent", {})
            await checkpointer.save_grant("s", "k", {}, created_at=1, expires_at=None)
        assert await on_server(kind, f"SELECT version_num FROM {tables.VERSION_TABLE}", database=name) == [  # noqa: S608
            (schema.REVISIONS[-1],)
        ]
    finally:
        await on_server(kind, f"DROP DATABASE {name}")


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_servers_tables_with_the_former_name_are_renamed(kind: str, fresh_databases: Fresh) -> None:
    fresh_databases.address(kind)
    name = "askfirst_test_former"
    await on_server(kind, f"DROP DATABASE IF EXISTS {name}")
    await on_server(kind, f"CREATE DATABASE {name}")
    address = server_address(kind, name)
    try:
        for sql in await former_schema({"postgres": "postgresql", "mysql": "mysql"}[kind]):
            await on_server(kind, sql, database=name)
        async with connect(kind, address) as checkpointer:
            await whole_cycle(checkpointer, "new")
            assert {known.thread_id for known in await checkpointer.threads()} == {"old", "new"}
        url = urlsplit(address)._replace(scheme=DRIVERS[kind]).geturl()
        async with create_async_engine(url, poolclass=NullPool).connect() as connection:
            assert await connection.run_sync(differences) == []
            assert await connection.run_sync(with_the_former_name) == []
    finally:
        await on_server(kind, f"DROP DATABASE {name}")


async def test_a_files_tables_with_the_former_name_are_renamed(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        for sql in await former_schema("sqlite"):
            made.execute(sql)
    assert (await look(f"sqlite:///{path}")).version == schema.REVISIONS[-1]
    async with SQLiteCheckpointer(path) as checkpointer:
        await whole_cycle(checkpointer, "new")
        assert {known.thread_id for known in await checkpointer.threads()} == {"old", "new"}
    with create_engine(f"sqlite:///{path}", poolclass=NullPool).connect() as connection:
        assert differences(connection) == []
        assert with_the_former_name(connection) == []


async def former_schema(dialect: str) -> list[str]:
    """The statements of a database, with a thread, as it was made before this package was called Askfirst."""
    made = await asyncio.to_thread(schema.migration, dialect, None)
    columns = "thread_id, next_seq, fence, lease_until, write_id, created_at, updated_at"
    thread = f"INSERT INTO askfirst_threads ({columns}) VALUES ('old', 0, 1, 0, 0, 1, 1)"  # noqa: S608
    return [sql.replace("askfirst_", "assent_") for sql in (*made, thread)]


def with_the_former_name(connection: Connection) -> list[str]:
    found = inspect(connection)
    indexes = [index["name"] for name in found.get_table_names() for index in found.get_indexes(name)]
    return [name for name in (*found.get_table_names(), *indexes) if name and name.startswith("assent")]


@pytest.mark.parametrize("kind", SHARED)
async def test_twelve_processes_open_a_fresh_database_at_once(
    kind: str, tmp_path: Path, fresh_databases: Fresh, race_track: RaceTrack
) -> None:
    name = "askfirst_test_rush"
    known = fresh_databases.address(kind) if kind in SERVERS else str(tmp_path / "known.db")
    await racers_store.warm_up(race_track, kind, known)
    if kind in SERVERS:
        await on_server(kind, f"DROP DATABASE IF EXISTS {name}")
        await on_server(kind, f"CREATE DATABASE {name}")
    address = server_address(kind, name) if kind in SERVERS else str(tmp_path / "x.db")
    jobs = [{"kind": kind, "address": address, "thread_id": f"t{number}"} for number in range(12)]
    outcomes = await race_track.race(racers_store.OPEN, jobs)
    assert [outcome for outcome in outcomes if not outcome.won] == []
    async with {"postgres": PostgresCheckpointer, "mysql": MySQLCheckpointer, "sqlite": SQLiteCheckpointer}[
        kind
    ](address) as checkpointer:
        assert len(await checkpointer.threads()) == 12
    if kind in SERVERS:
        await on_server(kind, f"DROP DATABASE {name}")


# Errors.


@pytest.mark.parametrize(
    "checkpointer",
    [
        SQLiteCheckpointer("/nowhere/at/all/x.db"),
        SQLiteCheckpointer("/proc/version"),
        PostgresCheckpointer("postgresql://ann:sesame@127.0.0.1:1/x"),
        PostgresCheckpointer("mysql://ann:sesame@127.0.0.1:1/x"),
        PostgresCheckpointer("ann:sesame"),
        MySQLCheckpointer("mysql://ann:sesame@127.0.0.1:1/x"),
        MySQLCheckpointer("mysql://ann:sesame@127.0.0.1:1"),
        MySQLCheckpointer("mysql://ann:sesame@127.0.0.1:1/x?sesame=1"),
        MySQLCheckpointer("postgresql://ann:sesame@127.0.0.1/x"),
    ],
    ids=lambda it: repr(it),
)
async def test_what_cannot_be_opened_says_why_in_one_line_without_the_password(checkpointer: Any) -> None:
    with pytest.raises(StoreError) as failed:
        await open_and_close(checkpointer)
    said = f"{failed.value} {failed.value!r} {checkpointer!r}"
    assert "\n" not in said
    assert "ann:" not in said
    assert ":sesame" not in said
    assert len(str(failed.value)) > 20


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_wrong_password_is_not_repeated(kind: str, fresh_databases: Fresh) -> None:
    fresh_databases.address(kind)
    dsn = urlsplit(server_address(kind))
    wrong = dsn._replace(netloc=f"nobody-at-all:sesame@{dsn.hostname}:{dsn.port}").geturl()
    checkpointer = {"postgres": PostgresCheckpointer, "mysql": MySQLCheckpointer}[kind](wrong)
    with pytest.raises(StoreError, match="cannot be opened") as failed:
        await open_and_close(checkpointer)
    assert "sesame" not in f"{failed.value!r} {checkpointer!r} {failed.value.__cause__!r}"


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"this is no database at all, but long enough to be one" * 100)
    with pytest.raises(StoreError, match=r"x\.db' cannot be opened: file is not a database"):
        await open_and_close(SQLiteCheckpointer(path))


async def test_sqlite_in_memory_is_open_to_all_of_its_process() -> None:
    async with SQLiteCheckpointer(":memory:") as checkpointer:
        await asked(checkpointer)
        assert len(await checkpointer.pending()) == 1


def test_new_databases_are_opened_by_many_threads_at_once() -> None:
    """Alembic works on one at a time in a process, whatever thread asks it."""
    asyncio.run(open_and_close(SQLiteCheckpointer(":memory:")))  # loads what the threads would wait for
    schema.migration.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        opening = [
            pool.submit(asyncio.run, open_and_close(SQLiteCheckpointer(":memory:"))) for _ in range(24)
        ]
    assert [opened.exception() for opened in opening] == [None] * 24


WITHOUT = """
import asyncio, sys
sys.modules.update({name: None for name in sys.argv[3].split(",")})
from importlib import import_module
kind = getattr(import_module("askfirst.checkpointer." + sys.argv[1]), sys.argv[2])
checkpointer = kind("somewhere")
from askfirst.errors import MissingExtra
async def main():
    async with checkpointer: pass
try:
    asyncio.run(main())
except MissingExtra as missing:
    print(missing)
"""


@pytest.mark.parametrize(
    ("module", "name", "without"),
    [
        ("sqlite", "SQLiteCheckpointer", "sqlalchemy"),
        ("postgres", "PostgresCheckpointer", "sqlalchemy"),
        ("postgres", "PostgresCheckpointer", "asyncpg"),
        ("mysql", "MySQLCheckpointer", "asyncmy"),
    ],
)
def test_a_missing_library_is_named_when_the_store_is_opened(module: str, name: str, without: str) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", WITHOUT, module, name, without], capture_output=True, text=True
    )
    assert done.stdout.strip() == str(MissingExtra(name, module)), done.stderr


def test_opening_a_known_database_loads_no_alembic(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    asyncio.run(open_and_close(SQLiteCheckpointer(path)))
    check = (
        "import asyncio, sys\n"
        "from askfirst.checkpointer.sqlite import SQLiteCheckpointer\n"
        "assert 'sqlalchemy' not in sys.modules\n"
        "async def main():\n"
        f"    async with SQLiteCheckpointer({str(path)!r}): pass\n"
        "asyncio.run(main())\n"
        "assert 'alembic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", check], check=True)  # noqa: S603


def test_a_store_without_encryption_opens_without_the_extra_for_encryption(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "sys.modules['cryptography'] = None  # as if it were not installed\n"
        "from askfirst import SQLiteCheckpointer\n"
        "async def main():\n"
        "    async with SQLiteCheckpointer(sys.argv[1]) as store:\n"
        "        print(await store.load('none'))\n"
        "asyncio.run(main())\n"
    )
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script, str(tmp_path / "a.db")],
        capture_output=True,
        text=True,
        env=with_kit(),
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "None\n", "")
