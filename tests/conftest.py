"""What every test shares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import attack_table
import browsers
import bytecode  # noqa: F401
import crash_table
import hypothesis  # here too because its plugin would import it from deep within: a bug of Python 3.11.7
import pytest
import servers
from attack_table import attacks_tried  # noqa: F401
from blockbuster import blockbuster_ctx
from processes import StoreUrls
from rigs import rig, stored_rig  # noqa: F401
from stores import checkpointer, database, fresh_databases  # noqa: F401

from assent.hitl.testing import RaceTrack

# No test fails because the machine is busy.
hypothesis.settings.register_profile(
    "assent", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("assent")


def pytest_sessionstart(session: pytest.Session) -> None:
    servers.begin(session)
    browsers.begin(session)


LONGEST = (
    "test_pages_browser.py",
    "test_crashes.py",
    "test_crashes_trees.py",
    "test_service_crashes.py",
    "test_races.py",
    "test_restarts.py",
    "test_demo.py",
    "test_client_other_service.py",
    "test_servers.py",
    "test_checkpointer_races.py",
    "test_credentials_browser.py",
    "test_cli_corners.py",
    "test_examples.py",
    "test_email_codes.py",
    "test_client_durable.py",
    "test_cli_answer.py",
    "test_pages_edits.py",
    "test_link_to_result.py",
    "test_hitl_machine.py",
)
"""Files that take longest come first, so that no process is left with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))
    attack_table.mark(items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        crash_table.hand_over(session.config.workeroutput)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    crash_table.take_over(getattr(node, "workeroutput", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    servers.summarize(terminalreporter)
    crash_table.summarize(terminalreporter)
    attack_table.summarize(terminalreporter)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def no_files_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept for an account, such as the key of stored waits, is kept for this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_blocking_in_the_loop() -> Iterator[None]:
    """A blocking call in the event loop fails the test, wherever one of our frames is on the stack."""
    with blockbuster_ctx("assent") as blockbuster:
        for function in blockbuster.functions.values():  # as it connects: ~/.pgpass, certificates
            function.can_block_in("asyncpg/connect_utils.py", "_parse_connect_dsn_and_args")
        yield


@pytest.fixture(scope="session")
def store_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreUrls]:
    """Databases that many processes of one test share."""
    with ExitStack() as stack:
        yield StoreUrls(tmp_path_factory.mktemp("stores"), stack)


@pytest.fixture(scope="session")
def race_track() -> Iterator[RaceTrack]:
    """A process from which the processes of all tests are forked: it has loaded everything before."""
    with RaceTrack() as track:
        yield track
