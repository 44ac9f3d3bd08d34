"""What a person does in a browser, and reads there.

Playwright's ``click`` returns when the next page begins to arrive. The functions here wait until that page has
arrived completely, so that tests do not depend on its speed.
"""

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


async def click(target: Any) -> None:
    """Click as soon as the page accepts taps, and wait for the page that it leads to."""
    await ready(target.page)
    await target.click()
    await target.page.wait_for_load_state()


async def press(page: Any, name: str) -> None:
    """Click the button of this name."""
    await click(page.get_by_role("button", name=name, exact=True))


async def alert(page: Any) -> str:
    return await page.get_by_role("alert").inner_text()


def ready_now(page: Any) -> None:
    """Wait until the page accepts taps; for Playwright's sync API."""
    page.wait_for_load_state()
    if page.evaluate(IS_SCRIPTED):
        page.locator(READY).wait_for(state="attached")
    else:
        page.evaluate(SETTLED)


def click_now(target: Any) -> None:
    """Click as soon as the page accepts taps, and wait for the page that it leads to; for Playwright's sync API."""
    ready_now(target.page)
    target.click()
    target.page.wait_for_load_state()


def focused_now(target: Any) -> None:
    """Wait until this element has the focus: a browser moves the focus only after the page has arrived."""
    target.and_(target.page.locator(":focus")).wait_for(state="attached")


def press_now(page: Any, name: str) -> None:
    """Click the button of this name; for Playwright's sync API."""
    click_now(page.get_by_role("button", name=name, exact=True))
