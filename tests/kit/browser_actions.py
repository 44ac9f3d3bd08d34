"""What a person does in a browser, and reads there."""

from __future__ import annotations

from typing import Any

READY = "html[data-ready=yes]"
IS_SCRIPTED = "'ready' in document.documentElement.dataset"
"""A page with script counts no tap within the first moments after something appears on it."""


async def ready(page: Any) -> None:
    """Wait until the page counts taps."""
    await page.wait_for_load_state()
    if await page.evaluate(IS_SCRIPTED):
        await page.locator(READY).wait_for(state="attached")


async def press(page: Any, name: str) -> None:
    await ready(page)
    await page.get_by_role("button", name=name, exact=True).click()


async def alert(page: Any) -> str:
    return await page.get_by_role("alert").inner_text()


def ready_now(page: Any) -> None:
    """Wait until the page counts taps; for a browser that is not asynchronous."""
    page.wait_for_load_state()
    if page.evaluate(IS_SCRIPTED):
        page.locator(READY).wait_for(state="attached")


def press_now(page: Any, name: str) -> None:
    """Press a button as soon as it counts."""
    ready_now(page)
    page.get_by_role("button", name=name, exact=True).click()
