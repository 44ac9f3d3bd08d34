"""What the tests of all frameworks share. `tests/conftest.py` is not loaded here: its packages are not installed."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.framework_races import TABLE


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database: a file, or one of a PostgreSQL server that answers."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/askfirst.db"
        return
    server = os.environ.get("ASKFIRST_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
    name = f"askfirst_test_{secrets.token_hex(4)}"
    if not asyncio.run(_on_server(server, f"CREATE DATABASE {name}")):
        pytest.skip("no PostgreSQL server answers")
    yield f"{server.rpartition('/')[0]}/{name}"
    asyncio.run(_on_server(server, f"DROP DATABASE {name} WITH (FORCE)"))


async def _on_server(server: str, statement: str) -> bool:
    import asyncpg

    try:
        connection = await asyncpg.connect(server)
    except (OSError, asyncpg.PostgresError):
        if os.environ.get("CI") == "true":
            raise
        return False
    await connection.execute(statement)
    await connection.close()
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TABLE:
        terminalreporter.section("Answers that race, repeat or come in part: effects, native and ours")
        for line in TABLE:
            terminalreporter.write_line(line)
