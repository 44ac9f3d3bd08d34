"""From the link to the poll answer: the real service, a real browser, phone and desktop, with and without script."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from kit import page_cases
from kit.browser_actions import alert, click, press
from kit.running_service import Agent, Opened, Served, serving, until
from pydantic import Field

from askfirst import Agent as LiveAgent
from askfirst import tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.service.embedding import review_link
from askfirst.store import cases as case_store

pytest.importorskip("playwright.async_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.browser_fixtures",)
pytestmark = pytest.mark.anyio

WINDOWS: dict[str, dict[str, Any]] = {
    "phone without script": {"viewport": {"width": 360, "height": 740}, "java_script_enabled": False},
    "phone": {"viewport": {"width": 360, "height": 740}},
    "desktop without script": {"viewport": {"width": 1280, "height": 900}, "java_script_enabled": False},
    "desktop": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
}


@pytest.fixture(params=WINDOWS)
def window(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WINDOWS[request.param]


async def settled(opened: Opened) -> dict[str, Any]:
    """What the agent polls once it is over."""

    async def completed() -> dict[str, Any] | None:
        said = await opened.poll()
        return said if said["status"] == "completed" else None

    said = await until(completed)
    assert said["opened_at"]
    assert said["submission_context"] == {"mode": "browser_submit"}
    return said["result"]


async def opened_as(agent: Agent, case: Any) -> Opened:
    """The same case as a page's test shows, opened over the API."""
    return await agent.open(case.type, prompt=case.prompt, context=case.context)


async def test_each_type_from_link_to_poll_result(tmp_path: Path, page: Any) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        agent = await served.agent()
        approval = await agent.open("approval", prompt="Deploy v2?")
        await page.goto(approval.hitl["review_url"])
        await press(page, "More")
        await page.get_by_label("Note").fill("go on")
        await press(page, "Approve with this note")
        assert await settled(approval) == {"action": "approve", "data": {"feedback": "go on"}}
        await page.goto(approval.hitl["review_url"])  # once more: the answer, and no form
        assert await page.get_by_role("button", name="Approve").count() == 0

        selection = await opened_as(agent, page_cases.selection())
        await page.goto(selection.hitl["review_url"])
        await page.get_by_label("Frontend Tech Lead").check()
        await press(page, "Send choice")
        assert await settled(selection) == {"action": "select", "data": {"selected": ["job_3"]}}

        confirmation = await opened_as(agent, page_cases.confirmation())
        await page.goto(confirmation.hitl["review_url"])
        await page.get_by_label("Zalando").check()
        await click(page.locator("#go"))
        assert (await settled(confirmation))["action"] == "confirm"

        escalation = await agent.open("escalation", prompt="The upload failed. What now?")
        await page.goto(escalation.hitl["review_url"])
        await page.get_by_label("Skip it").check()
        await press(page, "Send choice")
        assert await settled(escalation) == {"action": "skip", "data": {}}

        question = await agent.open("input", prompt="What is the code word?")
        await page.goto(question.hitl["review_url"])
        await page.get_by_label("Your answer").fill("kettle")
        await press(page, "Send answer")
        assert await settled(question) == {"action": "submit", "data": {"response": "kettle"}}


async def test_a_megabyte_is_decided_on_and_said_not_to_be_opened(tmp_path: Path, page: Any) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        case = await (await served.agent()).open("approval", context={"log": "word " * 200_000})
        await page.goto(case.hitl["review_url"])
        assert len((await page.content()).encode()) < 200_000
        assert "not opened" in await page.locator(".decide").inner_text()
        await press(page, "Approve")
        assert await settled(case) == {"action": "approve", "data": {}}


async def test_a_form_in_steps_from_link_to_poll_result(
    tmp_path: Path, window: dict[str, Any], page: Any
) -> None:
    scripted = window.get("java_script_enabled", True)
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        trip = await opened_as(await served.agent(), page_cases.wizard())
        await page.goto(trip.hitl["review_url"])
        await press(page, "Next")
        assert "Fill in “City”." in await page.get_by_role("alert").inner_text()
        assert (await trip.poll())["status"] == "opened"
        await page.get_by_label("City").fill("Rome")
        await page.get_by_label("By car").check()
        if not scripted:
            await press(page, "Next")  # brings up the field that depends on it
        await page.get_by_label("Number plate").fill("B 1")
        await press(page, "Next")
        progress = (await trip.poll())["progress"]
        assert (progress["current_step"], progress["total_steps"]) == (2, 4)
        await page.get_by_label("Days").fill("3")
        await press(page, "More")
        await press(page, "Save for later")
        await page.goto(trip.hitl["review_url"])  # another day: what was filled in is still there
        assert await page.get_by_label("City").input_value() == "Rome"
        for _ in range(2):
            await press(page, "Next")
        await page.get_by_label("Card number").fill("4111")
        await press(page, "Next")
        await press(page, "Send answer")
        data = {"city": "Rome", "by": "car", "plate": "B 1", "days": 3, "card": "4111"}
        assert await settled(trip) == {"action": "submit", "data": data}


paid: list[int] = []


@tool(requires_approval=True)
async def pay(cents: Annotated[int, Field(ge=1, le=1000)], to: str = "Ada") -> str:
    """Pay somebody."""
    paid.append(cents)
    return f"paid {cents} to {to}"


async def test_an_agents_request_is_edited_on_the_page_and_runs_as_it_was_seen(
    tmp_path: Path, window: dict[str, Any], page: Any
) -> None:
    paid.clear()
    script = [ToolCall("c1", "pay", {"cents": 500}), "Done."]
    async with SQLiteCheckpointer(tmp_path / "threads.db") as store:
        agent = LiveAgent(model=ScriptedModel(script), tools=[pay], checkpointer=store, thread_id="t")
        assert (await agent.prompt("Pay Ada.")).status == "paused"
        async with serving(store) as served:
            case_id = await until(lambda: _adopted(served))
            await page.goto(await review_link(served.app, case_id))
            await press(page, "More")
            await click(page.get_by_role("link", name="Change something"))
            cents = page.get_by_label("cents", exact=True)
            await cents.fill("a lot")
            await press(page, "Check the changes")
            assert await page.get_by_role("alert").count() == 1  # refused: it is not a number
            await cents.fill("5000")
            await press(page, "Check the changes")  # refused: the tool takes no more than 1,000
            assert "“cents” is 1,000 at most." in " ".join((await alert(page)).split())
            assert await cents.input_value() == "5000"
            await cents.fill("40")
            await press(page, "Check the changes")
            assert paid == []
            await press(page, "Approve with these changes")
            await page.locator("h1").get_by_text("You approved with changes: Pay").wait_for()
            await until(lambda: _settled(store))
            result = await agent.resume()
            if window.get("java_script_enabled", True):  # the page follows by itself
                await page.locator("h1").get_by_text("It ran: ").wait_for()
                assert "paid 40 to Ada" in await page.locator("main").inner_text()
    assert (result.text, paid) == ("Done.", [40])


async def _adopted(served: Served) -> str | None:
    for row in await served.service.cases.engine.read(partial(case_store.due, 2**62, 10)):
        return row
    return None


async def _settled(store: SQLiteCheckpointer) -> bool:
    return not await store.pending()
