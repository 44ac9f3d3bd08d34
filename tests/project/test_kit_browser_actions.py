"""The kit's clicks: what comes after one looks at a page that has arrived whole."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.browser_actions import press

pytest.importorskip("playwright.async_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.browser_fixtures",)
pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<!doctype html>"
FORM = b"<title>Question</title><form method=post><button>Send</button></form>"
FIRST_HALF = b"<title>Answer</title><p>half</p>"
SECOND_HALF = b"<p id=rest>whole</p>"


@pytest.fixture
def window() -> dict[str, Any]:
    return {"java_script_enabled": False}


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
