"""The page of the real service as a case goes on: pressed twice, undone, decided elsewhere, asked once more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kit.browser_actions import press, ready
from kit.running_service import Opened, serving, until

pytest.importorskip("playwright.async_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.browser_fixtures",)
pytestmark = pytest.mark.anyio

PHONE = {"width": 360, "height": 740}


@pytest.fixture(params=["script", "no script"])
def window(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"viewport": PHONE, "java_script_enabled": request.param == "script"}


def has_script(window: dict[str, Any]) -> bool:
    return bool(window["java_script_enabled"])


async def status(case: Opened) -> str:
    return (await case.poll())["status"]


async def test_a_double_tap_on_a_slow_line_is_one_decision(tmp_path: Path, page: Any) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", hold_seconds=5) as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?")
        sent: list[Any] = []

        async def slowly(route: Any) -> None:
            sent.append(route)
            await asyncio.sleep(
                0.3
            )  # the line is slow: what is tested is what comes of a second tap meanwhile
            await route.continue_()

        await page.route("**/respond?*", slowly)
        await page.goto(case.hitl["review_url"])
        await ready(page)
        await page.locator("#go").dblclick(no_wait_after=True)
        await page.locator("h1").get_by_text("You approved: ").wait_for()
        assert "was not counted" not in await page.locator("main").inner_text()
        assert await page.get_by_role("button", name="Undo").count() == 1


async def test_a_decision_is_undone(tmp_path: Path, page: Any) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", hold_seconds=60) as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?")
        await page.goto(case.hitl["review_url"])
        await press(page, "Approve")
        await page.locator("h1").get_by_text("You approved: ").wait_for()
        assert await status(case) == "opened"
        await press(page, "Undo")
        await page.locator("#go").wait_for()
        assert await status(case) == "opened"
        await press(page, "Reject")
        await ready(page)
        await page.locator("#no").get_by_role("button", name="Reject", exact=True).click()
        await page.locator("h1").get_by_text("You rejected: ").wait_for()


async def test_what_somebody_else_decided_is_seen_or_told(
    tmp_path: Path, page: Any, window: dict[str, Any]
) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?")
        await page.goto(case.hitl["review_url"])
        await ready(page)
        assert (await case.say("reject")).status_code == 200
        if has_script(window):
            await page.locator("h1").get_by_text("Rejected: ").wait_for()  # by itself
            assert await page.locator("#go").count() == 0
        else:
            await press(page, "Approve")
            assert "was not counted" in await page.get_by_role("status").inner_text()
        assert (await case.poll())["result"]["action"] == "reject"


async def test_high_risk_asks_once_more(tmp_path: Path, page: Any, window: dict[str, Any]) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        case = await (await served.agent()).open("approval", prompt="Drop the table?", risk="high")
        await page.goto(case.hitl["review_url"])
        await press(page, "Approve…")
        if has_script(window):
            await page.locator("dialog#second").wait_for()
            assert await page.evaluate("document.activeElement.id") == "second-title"
            await page.keyboard.press("Escape")
            assert not await page.locator("dialog#second").is_visible()
            await press(page, "Approve…")
        else:
            assert await page.locator("h1").inner_text() == "Approve?"
        assert await status(case) == "opened"
        await press(page, "Approve")
        await page.locator("h1").get_by_text("pproved: ").wait_for()
        assert (await case.poll())["result"]["action"] == "approve"


async def test_after_the_deadline_the_page_says_so(tmp_path: Path, page: Any) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?")
        await page.goto(case.hitl["review_url"])
        await case.cancel(reason="Called off.")
        await until(lambda: _is(case, "cancelled"))
        await page.goto(case.hitl["review_url"])
        assert (await page.locator("h1").inner_text()).startswith("Withdrawn: ")
        assert "Called off." in await page.locator("main").inner_text()
        assert await page.locator("#state").inner_text() == "Withdrawn"


async def _is(case: Opened, wanted: str) -> bool:
    return await status(case) == wanted


async def test_the_language_follows_the_browser_or_the_address(tmp_path: Path, chromium: Any) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", name="商城") as served:
        case = await (await served.agent()).open("approval", prompt="发布新版本？")
        context = await chromium.new_context(viewport=PHONE, locale="zh-CN")
        page = await context.new_page()
        await page.goto(case.hitl["review_url"])
        assert await page.locator("html").get_attribute("lang") == "zh-Hans"
        assert await page.locator("#go").inner_text() == "批准"
        assert "商城" in await page.locator("header").inner_text()
        await page.goto(case.hitl["review_url"] + "&lang=en")
        assert await page.locator("#go").inner_text() == "Approve"
        await press(page, "Approve")
        await page.locator("h1").get_by_text("pproved: ").wait_for()
        assert "lang=en" in page.url, "the choice stays"
        await context.close()
