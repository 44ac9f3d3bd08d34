"""The system's Chromium, for the tests that click through pages."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

from kit.debian_packages import in_ci, install

PACKAGE = "chromium-headless-shell"
"""Chromium without windows, which would take as much time as the pages; preferred to other Chromium packages."""
BROWSERS = (PACKAGE, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--js-flags=--no-opt --no-maglev --min-semi-space-size=16 --single-threaded-gc",
)
"""How tests start it. Pages live for a second, so compiling their scripts a second time, for speed, takes longer than
it saves: up to a quarter of what a page with axe takes."""
_INSTALLED_BY = f"a run of all tests installs Debian's {PACKAGE} where it may"


def begin(session: pytest.Session) -> None:
    """Install a browser if all tests are to be run: it is large, and few test files need it."""
    config = session.config
    is_worker = hasattr(config, "workerinput")
    is_part = config.args_source is pytest.Config.ArgsSource.ARGS or config.option.markexpr
    is_part = is_part or config.option.collectonly
    if is_worker or is_part or find_browser() is not None:
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    say = reporter.write_line if reporter else print
    if refusal := install(PACKAGE, find_browser, say):
        say(f"No Chromium: {refusal}")


def find_browser() -> str | None:
    """The path of the system's Chromium, or of the one that ``ASKFIRST_TEST_CHROMIUM`` names."""
    named = os.environ.get("ASKFIRST_TEST_CHROMIUM")
    return named or next(filter(None, map(shutil.which, BROWSERS)), None)


def chromium_path() -> str:
    """The path of a browser; without one the test is skipped, or fails if CI=true."""
    return find_browser() or give_up(f"no Chromium is installed ({_INSTALLED_BY})")


def give_up(why: str) -> NoReturn:
    """Skip a test in a browser, or fail if CI=true."""
    raise (pytest.fail if in_ci() else pytest.skip).Exception(f"pages in a browser: {why}")
