"""What every test shares."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import hypothesis  # here too because its plugin would import it from deep within: a bug of Python 3.11.7
import pytest
from blockbuster import blockbuster_ctx
from kit import (
    attack_table,
    browsers,
    bytecode,  # noqa: F401
    crash_table,
    database_servers,
    shared_tls,
    speeds,
)
from kit.attack_table import attacks_tried  # noqa: F401
from kit.channel_rigs import rig, stored_rig  # noqa: F401
from kit.store_urls import StoreUrls
from kit.stores import SHARED, checkpointer, databases, fresh_databases  # noqa: F401

from askfirst.hitl.testing import RaceTrack

database = databases(*SHARED)

# No test fails because the machine is busy.
hypothesis.settings.register_profile(
    "askfirst", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("askfirst")


gc.disable()  # while tests are collected: ten thousand of them, and nothing is garbage


def pytest_collection_finish() -> None:
    gc.freeze()  # what is known of the tests is looked at by no later collection
    gc.enable()


def pytest_sessionstart(session: pytest.Session) -> None:
    shared_tls.begin()
    database_servers.begin(session)
    browsers.begin(session)


LONGEST = (
    "service/pages/test_render_budgets_browser.py",
    "service/pages/test_render_browser.py",
    "proofs/test_crashes.py",
    "proofs/test_crashes_trees.py",
    "service/pages/test_render_large.py",
    "service/pages/test_inert_text_browser.py",
    "proofs/test_crashes_gate.py",
    "proofs/test_crashes_service.py",
    "service/pages/test_render_complaints_browser.py",
    "proofs/test_crowds_workers.py",
    "service/pages/test_render_link_to_result_browser.py",
    "service/pages/test_render_steps_browser.py",
    "service/pages/test_edits_browser.py",
    "service/pages/test_render_states_browser.py",
    "proofs/test_crashes_chat.py",
    "service/pages/test_language_browser.py",
    "project/test_demo.py",
    "service/test_api_fuzz.py",
    "proofs/test_races.py",
    "proofs/test_crowds_crashing.py",
    "proofs/test_restarts.py",
    "proofs/test_machine_hitl.py",
    "proofs/test_machine_client.py",
    "proofs/test_races_claims.py",
    "project/test_guides.py",
    "service/test_email_codes.py",
    "proofs/test_crashes_holds.py",
    "attacks/test_attack_codes.py",
    "service/pages/test_render_bar_browser.py",
    "service/pages/test_render_trouble_browser.py",
    "proofs/test_machine_gate.py",
    "proofs/test_crashes_durable.py",
    "proofs/test_agent_trees.py",
    "proofs/test_restarts_checkpointer.py",
    "service/pages/test_answered_credentials_browser.py",
    "service/pages/test_inert_text.py",
    "client/test_client_other_service.py",
    "service/pages/test_edits.py",
    "project/test_docs.py",
    "proofs/test_crowds.py",
)
"""Files that take longest come first, so that no process is left with one of them at the end."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(speeds.place(item), len(LONGEST)))
    attack_table.mark(items)
    speeds.mark(items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        crash_table.hand_over(session.config.workeroutput)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    crash_table.take_over(getattr(node, "workeroutput", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    database_servers.summarize(terminalreporter)
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
    with blockbuster_ctx("askfirst") as blockbuster:
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
