"""Fixtures for a browser in the test's own event loop, for modules that name this module as a plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kit.browsers import FLAGS, chromium_path
from kit.patience import PATIENCE


@pytest.fixture(scope="module")
async def chromium(anyio_backend: str) -> AsyncIterator[Any]:
    """One browser for all tests of a module, which share one event loop."""
    from playwright.async_api import async_playwright

    path = chromium_path()
    async with async_playwright() as player:
        browser = await player.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture
async def page(chromium: Any, window: dict[str, Any]) -> AsyncIterator[Any]:
    """A page in a new browser context, with the options of the module's fixture ``window``."""
    context = await chromium.new_context(**window)
    page = await context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    yield page
    await context.close()
