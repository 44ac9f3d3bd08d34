"""Fixtures for a desk with cases and a browser, for modules that name this module as a plugin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kit.browsers import FLAGS, chromium_path
from kit.page_browser import Desk, served


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A desk without cases, on a server."""
    with served(Desk()) as desk:
        yield desk


@pytest.fixture(scope="module")
def browser(desk: Desk) -> Iterator[Any]:
    """A browser, started after the desk: it leaves an event loop running in this thread, so code must not block."""
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
