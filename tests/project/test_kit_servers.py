"""The tests' own servers: they survive kill -9 with their data, leave nothing behind, and are reported."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import pytest
from kit.database_servers import (
    Missing,
    Server,
    ThrowawayMySQL,
    ThrowawayPostgres,
    find_or_start_mysql,
    find_or_start_postgres,
    mysql_login,
    start_own,
)
from kit.paths import TESTS, with_kit
from kit.patience import PATIENCE
from kit.throwaway_servers import Throwaway, free_port, run_coroutine

KINDS = [ThrowawayPostgres, ThrowawayMySQL]


async def execute(dsn: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement in a connection of its own, committed, and return its rows."""
    if dsn.startswith("postgresql:"):
        connection = await asyncpg.connect(dsn, timeout=PATIENCE)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()
    connection = await asyncmy.connect(**mysql_login(dsn), autocommit=True)
    try:
        async with connection.cursor() as cursor:
            await cursor.execute(statement)
            return list(await cursor.fetchall())
    finally:
        await connection.ensure_closed()


def query(dsn: str, statement: str) -> list[tuple[object, ...]]:
    return run_coroutine(execute(dsn, statement))


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def server(request: pytest.FixtureRequest) -> Iterator[Throwaway]:
    with start_own(request.param) as server:
        yield server


def test_data_outlives_a_kill_and_nothing_outlives_the_end(server: Throwaway) -> None:
    assert server.port not in (5432, 3306)
    query(server.dsn, "CREATE TABLE kept (id INT PRIMARY KEY)")
    query(server.dsn, "INSERT INTO kept VALUES (1)")
    server.kill()
    assert not answers(server.port)
    server.start()
    query(server.dsn, "INSERT INTO kept VALUES (2)")
    server.stop()
    assert not answers(server.port)
    server.start()
    server.start()  # harmless
    assert query(server.dsn, "SELECT id FROM kept ORDER BY id") == [(1,), (2,)]
    server.close()
    server.close()  # harmless
    assert not answers(server.port)
    assert not server.directory.exists()


def test_a_server_leaves_the_temporary_tables_of_others_alone() -> None:
    with start_own(ThrowawayMySQL) as server:
        leftover = server.directory.parent / f"#sql-temptable-{server.port}-1-1.MAI"
        leftover.touch()
        try:
            server.stop()
            server.start()
            assert query(server.dsn, "SELECT @@tmpdir") == [(str(server.directory),)]
            assert leftover.exists()
        finally:
            leftover.unlink(missing_ok=True)


def test_a_kill_ends_the_work_under_way() -> None:
    asleep = "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'"
    with start_own(ThrowawayPostgres) as server:
        command = (sys.executable, __file__, server.dsn, "SELECT pg_sleep(60)")
        client = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=with_kit())  # noqa: S603
        wait_until(lambda: query(server.dsn, asleep) == [(1,)])
        server.kill()
        assert client.wait(PATIENCE) != 0
        server.start()
        assert query(server.dsn, asleep) == []


def test_a_killed_test_run_leaves_no_server_behind() -> None:
    if ThrowawayPostgres.binary() is None:
        pytest.skip("no postgres binary is installed")
    program = (
        "from kit.throwaway_servers import ThrowawayPostgres as Own\n"
        "own = Own(); print(own.port, own.directory, flush=True); input()"
    )
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", program], cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout
        port, directory = run.stdout.readline().split()
        assert answers(int(port))
        run.kill()
    wait_until(lambda: not answers(int(port)) and not Path(directory).exists())


def test_a_server_is_started_only_where_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASKFIRST_TEST_POSTGRES", raising=False)
    with start_own(ThrowawayPostgres) as own:
        monkeypatch.setattr(ThrowawayPostgres, "default_dsn", own.dsn)
        on_loopback = find_or_start_postgres()
        monkeypatch.setattr(ThrowawayPostgres, "default_dsn", "postgresql://127.0.0.1:1/test")
        monkeypatch.setenv("ASKFIRST_TEST_POSTGRES", own.dsn)
        named = find_or_start_postgres()
        monkeypatch.delenv("ASKFIRST_TEST_POSTGRES")
        started = find_or_start_postgres()
    assert isinstance(on_loopback, Server)
    assert isinstance(named, Server)
    assert isinstance(started, Server)
    started.close()
    assert str(on_loopback).endswith(f"at 127.0.0.1:{own.port} (already there)")
    assert str(named).endswith(f"at 127.0.0.1:{own.port} (from ASKFIRST_TEST_POSTGRES)")
    assert str(started).endswith("(throwaway)")
    assert started.dsn != own.dsn


@pytest.mark.parametrize(
    ("kind", "find"), [(ThrowawayPostgres, find_or_start_postgres), (ThrowawayMySQL, find_or_start_mysql)]
)
def test_a_dead_server_in_the_environment_is_not_replaced(
    kind: type[Throwaway], find: Callable[[], Server | Missing], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = urlsplit(kind.default_dsn).scheme
    monkeypatch.setenv(kind.variable, f"{scheme}://me:secret@127.0.0.1:{free_port()}/test")
    found = find()
    assert isinstance(found, Missing)
    assert found.asked_for
    assert f"{kind.variable} is set" in found.reason
    assert "secret" not in str(found)


@pytest.fixture
def run_without_postgres(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A test run of one skipped test, on a machine that neither has nor may install PostgreSQL."""
    shutil.copy(TESTS / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text("import pytest\ndef test_it(): pytest.skip('no moon tonight')\n")
    (tmp_path / "no_postgres.py").write_text(
        "from kit.database_servers import ThrowawayPostgres as postgres\n"
        "postgres.binary = classmethod(lambda cls: None)\n"
        f"postgres.default_dsn = 'postgresql://postgres@127.0.0.1:{free_port()}/test'\n"
    )

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        kept = {
            name: value for name, value in os.environ.items() if name not in ("ASKFIRST_TEST_POSTGRES", "CI")
        }
        kept |= {"PYTHONPATH": f"{TESTS}:{tmp_path}", "ASKFIRST_TEST_INSTALL": "no", **environment}
        plugins = ("-p", "no_postgres", "-p", "no:langsmith_plugin", "-p", "no:schemathesis")
        command = (sys.executable, "-m", "pytest", "-q", *plugins, "-c", os.devnull, "test_it.py")
        return subprocess.run(  # noqa: S603
            command, cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=PATIENCE
        )

    return run


def test_what_was_used_and_what_was_skipped_is_said(
    run_without_postgres: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run = run_without_postgres()
    assert run.returncode == 0, run.stdout
    assert "Servers used: M" in run.stdout
    assert "All tests on a real server of PostgreSQL: none lets us in at" in run.stdout
    assert "no postgres binary is installed, and ASKFIRST_TEST_INSTALL=no forbids to install it" in run.stdout
    assert "test_it.py: 1 skipped: no moon tonight" in run.stdout


def test_in_ci_a_missing_server_is_a_failure(
    run_without_postgres: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run = run_without_postgres(CI="true")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "PostgreSQL: none lets us in at" in run.stderr


if __name__ == "__main__":  # a client with a long query, for a server that will be killed
    query(*sys.argv[1:])
