"""Large cases in a browser, with and without script: a list in parts, and an argument of a megabyte."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from anyio import Path as AsyncPath
from kit.browser_actions import click, press
from kit.running_service import Served, serving, until

pytest.importorskip("playwright.async_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.browser_fixtures",)
pytestmark = pytest.mark.anyio
ITEMS = [{"id": f"i{place}", "title": f"Item number {place}"} for place in range(1, 201)]
LINES = "\n".join(f"line {number} of a megabyte" for number in range(1, 45_001))


@pytest.fixture(params=[True, False], ids=["script", "no script"])
def window(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"viewport": {"width": 360, "height": 740}, "java_script_enabled": request.param}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as service:
        yield service


async def choose(page: Any, title: str) -> None:
    await page.get_by_label(title, exact=True).check()


async def test_choices_of_several_parts_and_a_search_are_the_result(served: Served, page: Any) -> None:
    case = await (await served.agent()).open("selection", context={"items": ITEMS})
    await page.goto(case.hitl["review_url"])
    await choose(page, "Item number 2")
    for first in (31, 61, 91, 121):
        await press(page, "Next")
        await page.get_by_text(f"{first}–{first + 29} of 200").wait_for()
    await choose(page, "Item number 125")
    await page.get_by_role("searchbox").fill("number 199")
    await press(page, "Search")
    await page.get_by_text("1 found").wait_for()
    await choose(page, "Item number 199")
    await press(page, "Send choice")

    async def completed() -> Any:
        said = await case.poll()
        return said["result"] if said["status"] == "completed" else None

    expected = {"action": "select", "data": {"selected": ["i2", "i125", "i199"]}}
    assert await until(completed) == expected


async def test_an_argument_of_a_megabyte_is_read_in_parts_and_downloaded(served: Served, page: Any) -> None:
    assert len(LINES) > 1_000_000
    case = await (await served.agent()).open("approval", context={"log": LINES})
    await page.goto(case.hitl["review_url"])
    assert await page.get_by_text("line 20000 of a megabyte").count() == 0
    await click(page.locator(".cut a").first)
    await page.get_by_role("link", name="Download").wait_for()
    assert len(await page.content()) < 200_000
    async with page.expect_download() as coming:
        await page.get_by_role("link", name="Download").click()
    assert await AsyncPath(await (await coming.value).path()).read_text() == LINES
    await click(page.get_by_role("link", name="Back to the whole request").first)
    await press(page, "Approve")
    assert (await case.poll())["status"] == "completed"


SCRIPT = "\n".join(["set -e", *(f"echo {number}\u200b" for number in range(11)), "rm -rf /srv/\U0001f600"])


async def test_a_script_is_copied_and_downloaded_to_the_letter(
    served: Served, page: Any, window: dict[str, Any]
) -> None:
    """What a page shows has names in place of hidden characters; what is copied has the characters."""
    context = {"command": SCRIPT, "note": "short"}
    case = await (await served.agent()).open("approval", context=context)
    await page.goto(case.hitl["review_url"])
    async with page.expect_download() as coming:
        await page.get_by_role("link", name="Download").click()
    assert await AsyncPath(await (await coming.value).path()).read_text() == SCRIPT
    copy = page.get_by_role("button", name="Copy", exact=True)
    if not window["java_script_enabled"]:
        assert await copy.count() == 0  # without script nothing can be put on the clipboard
        return
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await click(copy)
    await page.get_by_role("button", name="Copied").wait_for()
    assert await page.evaluate("navigator.clipboard.readText()") == SCRIPT
    assert (await case.poll())["status"] == "opened"
