"""What every test shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import servers
from blockbuster import blockbuster_ctx


def pytest_sessionstart(session: pytest.Session) -> None:
    servers.begin(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    servers.summarize(terminalreporter)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def no_blocking_in_the_loop() -> Iterator[None]:
    """A blocking call in the event loop fails the test, wherever one of our frames is on the stack."""
    with blockbuster_ctx("assent"):
        yield
