"""What a person does in a browser, and reads there.

Playwright's ``click`` may return before the browser has begun to load the page that the click leads to. The functions
here mark the page that is about to be left, and wait until another one has arrived completely in its place, so that
tests do not depend on the speed of either.
"""

from __future__ import annotations

from typing import Any

READY = "html[data-ready=yes]"
IS_SCRIPTED = "'ready' in document.documentElement.dataset"
"""Whether a page runs script. Such a page says itself when it accepts taps."""
SETTLED = "document.getAnimations().forEach(it => it.finish())"
"""Without script, an animation keeps taps from what has just appeared; here it is over at once."""
LEFT = "html[data-left]"
"""A page that the last click leads away from, and that no other has replaced yet."""
MARK = """node => {
  const root = document.documentElement, before = node.closest('a[href], button, input');
  const leads = (link) => {
    if (!link || link.target || link.hasAttribute('download')) return false;
    const { href, hash } = link;
    return !hash || href.slice(0, -hash.length) !== location.href.replace(/#.*/, '');
  };
  const leave = () => { root.dataset.left = 'yes'; };
  delete root.dataset.left;
  if ('ready' in root.dataset) {  // its script may hold a click back, so the events tell
    addEventListener('submit', (event) => { if (!event.defaultPrevented) leave(); });
    addEventListener('click', (event) => {
      if (!event.defaultPrevented && leads(event.target.closest('a[href]'))) leave();
    });
  } else if (before?.matches('a') ? leads(before) : before?.type === 'submit' && before.form) {
    if (before.matches('a') || before.formNoValidate || before.form.matches(':valid, [novalidate]')) leave();
  }
}"""
"""Marks the page if a click on the element leads to another one. No event is heard on a page without script."""


async def ready(page: Any) -> None:
    """Wait until the page accepts taps."""
    await page.wait_for_load_state()
    if await page.evaluate(IS_SCRIPTED):
        await page.locator(READY).wait_for(state="attached")
    else:
        await page.evaluate(SETTLED)


async def click(target: Any) -> None:
    """Click as soon as the page accepts taps, and wait for the page that it leads to."""
    page = target.page
    await ready(page)
    await target.evaluate(MARK)
    await target.click()
    await page.locator(LEFT).wait_for(state="detached")
    await page.wait_for_load_state()


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
    page = target.page
    ready_now(page)
    target.evaluate(MARK)
    target.click()
    page.locator(LEFT).wait_for(state="detached")
    page.wait_for_load_state()


def focused_now(target: Any) -> None:
    """Wait until this element has the focus: a browser moves the focus only after the page has arrived."""
    target.and_(target.page.locator(":focus")).wait_for(state="attached")


def press_now(page: Any, name: str) -> None:
    """Click the button of this name; for Playwright's sync API."""
    click_now(page.get_by_role("button", name=name, exact=True))
