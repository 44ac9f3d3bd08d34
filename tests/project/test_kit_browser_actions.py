"""The kit's clicks: what comes after one looks at a page that has arrived whole."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.browser_actions import click, press

pytest.importorskip("playwright.async_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.browser_fixtures",)
pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<!doctype html>"
FORM = (
    b"<title>Question</title><form method=post><button>Send</button></form>"
    b"<script>document.documentElement.dataset.ready = 'yes'</script>"
)
PRESS = "document.querySelector('button').click()"
"""A click that the browser carries out, while who clicked does not wait for what comes of it."""
FIRST_HALF = b"<title>Answer</title><p>half</p>"
SECOND_HALF = b"<p id=rest>whole</p>"


@pytest.fixture(params=[False, True], ids=["without script", "with script"])
def window(request: Any) -> dict[str, Any]:
    return {"java_script_enabled": request.param}


async def test_a_press_waits_for_the_whole_page_that_it_leads_to(page: Any) -> None:
    rest = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_answer = (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST")
        writer.write(HEAD + (FIRST_HALF if is_answer else FORM))
        if is_answer:
            await writer.drain()
            await rest.wait()
            writer.write(SECOND_HALF)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        await page.goto(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        pressing = asyncio.create_task(press(page, "Send"))
        await page.locator("p", has_text="half").wait_for()
        for _ in range(10):  # questions to the browser, in whose time a bare click would have returned
            await page.title()
        assert not pressing.done()
        rest.set()
        await pressing
        assert await page.locator("#rest").count() == 1


async def test_a_click_that_is_over_before_the_next_page_begins_waits_for_it(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted, answered = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST"):
            posted.set()
            await answered.wait()
            writer.write(HEAD + FIRST_HALF)
        else:
            writer.write(HEAD + FORM)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        await page.goto(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        button = page.get_by_role("button")
        monkeypatch.setattr(button, "click", lambda: page.evaluate(PRESS))
        clicking = asyncio.create_task(click(button))
        await posted.wait()
        for _ in range(10):
            await page.context.cookies()
        assert not clicking.done()
        answered.set()
        await clicking
        assert await page.title() == "Answer"
