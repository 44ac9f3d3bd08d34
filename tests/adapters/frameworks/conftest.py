"""What the tests of all frameworks share. `tests/conftest.py` is not loaded here: its packages are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.framework_races import TABLE
from kit.framework_stores import KINDS, new_store


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database: a file, or one of a PostgreSQL server."""
    with new_store(request.param, tmp_path) as url:
        yield url


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TABLE:
        terminalreporter.section("Answers that race, repeat or come in part: effects, native and ours")
        for line in TABLE:
            terminalreporter.write_line(line)
