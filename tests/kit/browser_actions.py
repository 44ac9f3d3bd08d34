"""What a person does in a browser, and reads there."""

from __future__ import annotations

from typing import Any

READY = "html[data-ready=yes]"
IS_SCRIPTED = "'ready' in document.documentElement.dataset"
"""Whether a page runs script. Such a page says itself when it accepts taps."""
SETTLED = "document.getAnimations().forEach(it => it.finish())"
"""Without script, an animation keeps taps from what has just appeared; here it is over at once."""


async def ready(page: Any) -> None:
    """Wait until the page accepts taps."""
    await page.wait_for_load_state()
    if await page.evaluate(IS_SCRIPTED):
        await page.locator(READY).wait_for(state="attached")
    else:
        await page.evaluate(SETTLED)


async def press(page: Any, name: str) -> None:
    await ready(page)
    await page.get_by_role("button", name=name, exact=True).click()


async def alert(page: Any) -> str:
    return await page.get_by_role("alert").inner_text()


def ready_now(page: Any) -> None:
    """Wait until the page accepts taps; for Playwright's sync API."""
    page.wait_for_load_state()
    if page.evaluate(IS_SCRIPTED):
        page.locator(READY).wait_for(state="attached")
    else:
        page.evaluate(SETTLED)


def press_now(page: Any, name: str) -> None:
    """Press a button as soon as the page accepts taps; for Playwright's sync API."""
    ready_now(page)
    page.get_by_role("button", name=name, exact=True).click()
