"""A browser beside a service in the test's own loop: fixtures, for modules that name this one as a plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kit.browsers import chromium_path
from kit.patience import PATIENCE


@pytest.fixture(scope="module")
async def chromium(anyio_backend: str) -> AsyncIterator[Any]:
    """One for all tests of a module, which have one loop for that."""
    from playwright.async_api import async_playwright

    path = chromium_path()
    async with async_playwright() as player:
        browser = await player.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture
async def page(chromium: Any, window: dict[str, Any]) -> AsyncIterator[Any]:
    """A page in a window that nobody has used before, as the module's fixture ``window`` describes it."""
    context = await chromium.new_context(**window)
    page = await context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    yield page
    await context.close()
