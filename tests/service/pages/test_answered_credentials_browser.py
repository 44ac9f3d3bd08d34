"""What a person shows of themselves on a phone, with and without script: a code from an e-mail, a proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.browser_actions import alert, press, ready
from kit.page_browser import axe_source
from kit.proof_badges import POLICY, Badges
from kit.running_service import serving
from kit.smtp_mailbox import mailbox

pytest_plugins = ("kit.browser_fixtures",)
pytestmark = pytest.mark.anyio
MAIL = "ann@example.com"
PHONE = {"width": 360, "height": 740}
RULES = "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"


@pytest.fixture(params=["script", "no script"])
def window(request: pytest.FixtureRequest) -> dict[str, Any]:
    scripted = request.param == "script"
    return {
        "viewport": PHONE,
        "java_script_enabled": scripted,
        "color_scheme": "dark" if scripted else "light",
    }


@pytest.fixture
def axe(window: dict[str, Any]) -> str | None:
    """Axe's script; it cannot run where none does, but the page is the same there."""
    return axe_source() if window["java_script_enabled"] else None


async def looked_at(page: Any, axe: str | None) -> None:
    """The page fits a phone, its buttons a thumb, and axe finds nothing."""
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for button in await page.locator("button").all():
        if await button.is_visible():
            assert (await button.bounding_box())["height"] >= 44
    if axe is None:
        return
    await page.evaluate(axe)
    found = (await page.evaluate(RULES))["violations"]
    assert {each["id"]: [node["html"] for node in each["nodes"]] for each in found} == {}


async def heading(page: Any) -> str:
    return await page.locator("h1").inner_text()


async def test_a_code_from_an_email(tmp_path: Path, page: Any, axe: str | None) -> None:
    async with (
        mailbox() as box,
        serving(f"sqlite:///{tmp_path}/cases.db", smtp_url=box.url) as served,
    ):
        case = await (await served.agent()).open("approval", verify_email=MAIL, context={"version": "2.4"})
        await page.goto(case.hitl["review_url"])
        assert MAIL not in await page.content()
        await looked_at(page, axe)
        await press(page, "More")
        await page.get_by_label("Note").fill("As we said")
        await press(page, "Approve with this note")
        assert await heading(page) == "Show that it is you"  # a step of its own, and a code is on its way
        assert "We sent a code to a***@example.com for:" in await page.locator("#code-for").inner_text()
        assert "Please decide." in await page.locator("main").inner_text()
        await looked_at(page, axe)
        [code] = box.codes
        field = page.get_by_label("The code from the e-mail")
        assert await field.get_attribute("autocomplete") == "one-time-code"
        wrong = f"{(int(code) + 1) % 1_000_000:06}"
        await enter(page, field, wrong, axe)
        assert "This is not the code" in await alert(page)
        await looked_at(page, axe)
        await field.fill(code[:3])
        await field.press("Enter")
        assert (await case.poll())["status"] == "opened"
        await enter(page, field, code, axe)
        await page.locator("h1").get_by_text("approved: ").wait_for()
        assert len(box.codes) == 1
        polled = await case.poll()
        assert polled["responded_by"] == {"email": MAIL}
        assert polled["result"] == {"action": "approve", "data": {"feedback": "As we said"}}


async def enter(page: Any, field: Any, code: str, axe: str | None) -> None:
    """Six digits are sent by themselves with script, else by the button."""
    if axe is not None:
        await ready(page)
        async with page.expect_navigation():
            await field.fill(code)
        return
    await field.fill(code)
    await press(page, "Approve")


async def test_a_proof_from_a_badge(tmp_path: Path, page: Any, axe: str | None) -> None:
    badges = Badges()
    async with serving(f"sqlite:///{tmp_path}/cases.db", verification={"badge": badges}) as served:
        agent = await served.agent()
        case = await agent.open("confirmation", verification_policy=POLICY)
        await page.goto(case.hitl["review_url"])
        await looked_at(page, axe)
        field = page.get_by_label("Code from your badge")
        await press(page, "Yes, go on")
        problem = page.get_by_role("alert")
        assert "Your proof: A proof that a person decided is needed." in " ".join((await alert(page)).split())
        await problem.get_by_role("link", name="Your proof").click()
        await looked_at(page, axe)
        await field.fill(badges.make(case.case_id, "cancel"))
        await press(page, "Yes, go on")
        assert "This proof was not accepted." in await alert(page)
        assert await field.input_value() == ""
        proof = badges.make(case.case_id, "confirm")
        await field.fill(proof)
        await field.press("Enter")  # a new line, and no decision
        assert (await case.poll())["status"] == "opened"
        await press(page, "Yes, go on")
        await page.locator("h1").get_by_text("Confirmed: ").wait_for()
        result = (await case.poll())["submission_context"]["verification_result"]
        assert result["satisfied"] is True
        badges.good_anywhere = True  # now only that it was used before speaks against it
        again = await agent.open("confirmation", verification_policy=POLICY)
        await page.goto(again.hitl["review_url"])
        await field.fill(proof)
        await press(page, "Yes, go on")
        assert "This proof was not accepted." in await alert(page)
        assert (await again.poll())["status"] == "opened"
