"""A desk with cases and a browser to look at them: fixtures, for modules that name this one as a plugin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kit.browsers import chromium_path
from kit.page_browser import Desk, served


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """An empty one, served."""
    with served(Desk()) as desk:
        yield desk


@pytest.fixture(scope="module")
def browser(desk: Desk) -> Iterator[Any]:
    """After the desk: a browser leaves a loop running in this thread, in which our code may not read files."""
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
