"""The page of the real service as a case goes on: pressed twice, undone, decided elsewhere, asked once more."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.browser_actions import click, press, ready
from kit.logins import ANN, by_header, signed_in
from kit.running_service import HandClock, Opened, Served, serving, until
from kit.smtp_mailbox import Mailbox, mailbox

from askfirst.service.audit import export
from askfirst.store import audit_chain

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


class SlowLine:
    """A line on which every answer that is posted arrives at the server, and what the server says to it waits."""

    def __init__(self, served: Served) -> None:
        self.posted: list[str] = []
        self.quick = asyncio.Event()
        self._app = served.app.middleware_stack
        served.app.middleware_stack = self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self._app is not None
        is_answer = scope.get("method") == "POST"

        async def later(message: Any) -> None:
            if is_answer:
                await self.quick.wait()
            await send(message)

        if is_answer:
            self.posted.append(scope["path"])
        await self._app(scope, receive, later)

    async def arrived(self, count: int) -> None:
        """Wait until so many answers have arrived."""

        async def there() -> bool:
            return len(self.posted) >= count

        await until(there)


async def acts(served: Served, case: Opened) -> list[str]:
    """What the audit trail says of a case, but for its opening."""
    rows = [json.loads(line) async for line in export(served.service.cases.engine)]
    found = [row["act"].removeprefix("case.") for row in rows if row["subject"] == case.case_id]
    return [act for act in found if act not in ("created", "delivered", "opened")]


NOTING = """new MutationObserver(() => {
  const button = document.getElementById('go');
  if (button) sessionStorage.setItem('noted', `${sessionStorage.getItem('noted') ?? ''}${button.innerText}\\n`);
}).observe(document.getElementById('decide'), {childList: true, subtree: true, characterData: true})"""
"""Notes in the page what its button says: while a page waits for its answer, Playwright may not reach it."""


@pytest.mark.parametrize("hold_seconds", [60, 0])
async def test_a_double_tap_on_a_slow_line_is_one_decision(
    tmp_path: Path, page: Any, window: dict[str, Any], hold_seconds: int
) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", hold_seconds=hold_seconds) as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?")
        line = SlowLine(served)
        await without_news(page, case)
        button = await page.locator("#go").bounding_box()
        place = button["x"] + button["width"] / 2, button["y"] + button["height"] / 2
        if has_script(window):
            await page.evaluate(NOTING)
        await page.mouse.click(*place)
        await line.arrived(1)
        await page.mouse.click(*place)
        if not has_script(window):  # a script sends a form once
            await line.arrived(2)
        line.quick.set()
        await page.locator("h1").get_by_text("You approved: ").wait_for()
        if has_script(window):
            assert "Sending …" in await page.evaluate("sessionStorage.getItem('noted')")
        assert len(line.posted) == (1 if has_script(window) else 2)
        assert "was not counted" not in await page.locator("main").inner_text()
        assert await page.get_by_role("button", name="Undo").count() == (1 if hold_seconds else 0)
        assert await acts(served, case) == (["held"] if hold_seconds else ["answered"])


async def test_a_decision_is_undone(tmp_path: Path, page: Any) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", hold_seconds=60) as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?")
        await page.goto(case.hitl["review_url"])
        await press(page, "Approve")
        await page.locator("h1").get_by_text("You approved: ").wait_for()
        assert await status(case) == "opened"
        await press(page, "Undo")
        await page.locator("#go").wait_for()
        assert await page.locator(".notice").inner_text() == "Undone. Nothing was sent."
        assert await status(case) == "opened"
        await press(page, "Reject")
        await click(page.locator("#no").get_by_role("button", name="Reject", exact=True))
        await page.locator("h1").get_by_text("You rejected: ").wait_for()


async def test_a_page_that_tells_what_was_decided_follows_its_case_too(
    tmp_path: Path, page: Any, window: dict[str, Any]
) -> None:
    if not has_script(window):
        pytest.skip("without script a page is loaded again by its reader")
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/cases.db", hold_seconds=60, clock=clock) as served:
        agent = await served.agent()
        case = await agent.open("approval", prompt="Deploy v2?")
        await page.goto(case.hitl["review_url"])
        await press(page, "Reject")
        await page.get_by_label("Not now").check()
        await press(page, "Ask for another try")
        await page.locator("[data-held]").wait_for()
        assert await page.locator("#state").inner_text() == "Waiting for a new try"
        assert "Not now" in await page.locator(".answer").inner_text()
        clock.turn(61)
        await page.get_by_text("You will be asked again").wait_for()
        assert await page.locator("[data-held]").count() == 0
        again = await agent.open("approval", prompt="Deploy v2 tonight?", previous_case_id=case.case_id)
        await click(page.get_by_role("link", name="The next try is here"))
        await page.locator("h1").get_by_text("Deploy v2 tonight?").wait_for()
        assert again.case_id in page.url
        await click(page.get_by_role("link", name="Look at try 1"))
        await page.locator("h1").get_by_text("Deploy v2?").wait_for()
        assert case.case_id in page.url


async def test_who_cannot_answer_may_undo_that(tmp_path: Path, page: Any, window: dict[str, Any]) -> None:
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/cases.db", hold_seconds=60, clock=clock) as served:
        case = await (await served.agent()).open("input", prompt="What is the code word?")
        await page.goto(case.hitl["review_url"])
        await press(page, "I cannot answer this")
        await page.get_by_label("In your own words").fill("Ask Bo.")
        await click(page.locator("#decline").get_by_role("button", name="I cannot answer this"))
        await page.locator("h1").get_by_text("You declined: ").wait_for()
        assert await page.locator("#state").inner_text() == "Declined"
        assert "Ask Bo." in await page.locator(".answer").inner_text()
        assert await status(case) == "opened"
        await press(page, "Undo")
        await page.locator("#go").wait_for()
        await press(page, "I cannot answer this")
        await click(page.locator("#decline").get_by_role("button", name="I cannot answer this"))
        await page.locator("h1").get_by_text("You declined: ").wait_for()
        clock.turn(61)
        await until(lambda: _is_cancelled(case))
        await page.goto(case.hitl["review_url"])
        assert await page.locator("h1").inner_text() == "You declined: “What is the code word?”"
        assert await page.locator("#state").inner_text() == "Declined"
        assert await acts(served, case) == ["held", "undone", "held", "released", "cancelled"]


async def _is_cancelled(case: Opened) -> bool:
    return await status(case) == "cancelled"


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


async def test_a_withdrawn_case_says_so(tmp_path: Path, page: Any) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?")
        await page.goto(case.hitl["review_url"])
        await case.cancel(reason="Called off.")
        await until(lambda: _is(case, "cancelled"))
        await page.goto(case.hitl["review_url"])
        assert (await page.locator("h1").inner_text()).startswith("Withdrawn: ")
        assert "Called off." in await page.locator("main").inner_text()
        assert await page.locator("#state").inner_text() == "Withdrawn"


async def without_news(page: Any, case: Opened) -> None:
    """Open the link on a line over which no news comes: the page stays as it is until something is pressed."""

    async def cut_off(route: Any) -> None:
        await route.abort()

    await page.route("**/live?*", cut_off)
    await page.goto(case.hitl["review_url"])
    await ready(page)


async def test_a_press_after_the_deadline_does_not_count(tmp_path: Path, page: Any) -> None:
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/cases.db", clock=clock) as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?", timeout="1h")
        await without_news(page, case)
        clock.turn(3600)
        await until(lambda: _is(case, "expired"))
        await press(page, "Approve")
        await page.locator("h1").get_by_text("Nobody answered: ").wait_for()
        assert "came too late and was not counted" in await page.get_by_role("status").first.inner_text()
        assert await page.locator("#go").count() == 0
        said = await case.poll()
        assert said["status"] == "expired"
        assert "result" not in said


async def test_a_press_while_a_decision_is_held_elsewhere_does_not_count(
    tmp_path: Path, page: Any, chromium: Any, window: dict[str, Any]
) -> None:
    clock = HandClock()
    async with serving(f"sqlite:///{tmp_path}/cases.db", hold_seconds=60, clock=clock) as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?")
        await without_news(page, case)
        context = await chromium.new_context(**window)
        other = await context.new_page()
        await other.goto(case.hitl["review_url"])
        await press(other, "Reject")
        await click(other.locator("#no").get_by_role("button", name="Reject", exact=True))
        await other.locator("h1").get_by_text("You rejected: ").wait_for()
        await press(page, "Approve")
        await page.locator("[data-held]").wait_for()
        assert "was not counted" in await page.locator(".notice").inner_text()
        assert "rejected this; it goes out in" in await page.locator("[data-held]").inner_text()
        assert await page.locator("#go").count() == 0
        assert await page.get_by_role("button", name="Undo").count() == 0, "only who decided may undo it"
        assert await status(case) == "opened"
        clock.turn(61)
        await until(lambda: _is(case, "completed"))
        assert (await case.poll())["result"]["action"] == "reject"
        await context.close()


async def test_critical_takes_a_reason_and_a_code_from_link_to_result(
    tmp_path: Path, page: Any, window: dict[str, Any]
) -> None:
    async with (
        mailbox() as box,
        serving(f"sqlite:///{tmp_path}/cases.db", smtp_url=box.url, identify=by_header) as served,
    ):
        await page.set_extra_http_headers(signed_in(ANN))
        case = await (await served.agent()).open("approval", prompt="Pay 9,000 EUR?", risk="critical")
        await page.goto(case.hitl["review_url"])
        await press(page, "Approve…")
        await page.locator("#second-reason").fill("fine")
        await press(page, "Approve")
        assert "10" in await page.locator("#second-reason-fault").inner_text()
        assert await status(case) == "opened"
        await page.locator("#second-reason").fill("checked with the bank")
        await press(page, "Approve")
        await page.locator("h1").get_by_text("Show that it is you").wait_for()
        assert await status(case) == "opened"
        await page.locator("#email_code").fill(await _code(box))
        if not has_script(window):  # with script, the sixth digit sends it
            await click(page.locator("#go"))
        await page.locator("h1").get_by_text("pproved: ").wait_for()
        said = await case.poll()
        assert said["result"] == {"action": "approve", "data": {"feedback": "checked with the bank"}}
        assert said["responded_by"]["email"] == ANN["email"]


async def _code(box: Mailbox) -> str:
    async def arrived() -> list[str]:
        return box.codes

    return (await until(arrived))[-1]


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


async def test_a_scheme_is_chosen_in_the_details_and_stays(
    tmp_path: Path, page: Any, window: dict[str, Any]
) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        agent = await served.agent()
        case, other = await agent.open("approval", prompt="One?"), await agent.open("approval", prompt="Two?")
        await page.goto(case.hitl["review_url"] + "&lang=zh-Hans")
        assert await page.locator("html").get_attribute("data-scheme") is None
        await page.locator(".details summary").click()
        await page.get_by_role("link", name="深色").click()
        await page.locator("html[data-scheme=dark]").wait_for()
        assert "scheme" not in page.url
        assert "lang=zh-Hans" in page.url, "the language stays"
        await page.goto(other.hitl["review_url"])
        assert await page.locator("html").get_attribute("data-scheme") == "dark", (
            "on every page of the service"
        )
        await page.locator(".details summary").click()
        assert await page.locator(".details .langs [aria-current]").all_inner_texts() == ["English", "Dark"]
        await page.get_by_role("link", name="System").click()
        await page.locator("html:not([data-scheme])").wait_for()


async def test_changes_that_came_too_late_can_be_copied(
    tmp_path: Path, page: Any, window: dict[str, Any]
) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as served:
        case = await (await served.agent()).open("approval", prompt="Deploy v2?")
        await without_news(page, case)
        await press(page, "Reject")
        await page.locator("#feedback").fill("Wait for the tests first.")
        assert (await case.say("approve")).status_code == 200
        await click(page.locator("#no").get_by_role("button", name="Reject", exact=True))
        await page.locator("#unsent").wait_for()
        assert "were not sent" in await page.locator("#unsent").inner_text()
        assert "Wait for the tests first." in await page.locator("main").inner_text()
        assert (await case.poll())["result"] == {"action": "approve", "data": {}}


async def test_an_ended_page_says_who_decided_how_that_is_known_and_where_it_is_recorded(
    tmp_path: Path, page: Any, chromium: Any, window: dict[str, Any]
) -> None:
    clock = HandClock()
    async with serving(
        f"sqlite:///{tmp_path}/cases.db", identify=by_header, hold_seconds=60, clock=clock
    ) as served:
        case = await (await served.agent("billing")).open("approval", prompt="Deploy v2?")
        await page.set_extra_http_headers(signed_in(ANN))
        await page.goto(case.hitl["review_url"])
        await press(page, "Approve")
        await press(page, "Undo")
        await page.locator("#go").wait_for()
        await press(page, "Approve")
        await page.locator("h1").get_by_text("You approved: ").wait_for()
        clock.turn(61)
        await until(lambda: _is(case, "completed"))
        context = await chromium.new_context(**window)
        other = await context.new_page()
        await other.goto(case.hitl["review_url"])
        assert (await other.locator("h1").inner_text()).startswith("Ann approved this ")
        told = await other.locator(".steps li > div:first-child").all_inner_texts()
        assert told == [
            "Asked by billing",
            "Opened",
            "Undone before it went out",
            "Approved by Ann, who was signed in",
        ]
        assert "You can close this page." in await other.locator("main").inner_text()

        async def recorded() -> str:
            await other.goto(case.hitl["review_url"])
            await other.locator(".details summary").click()
            hashes = await other.locator(".details .digest").all_inner_texts()
            return next((it for it in hashes if len(it) == 64), "")

        hash_shown = await until(recorded)
        trail = await served.service.cases.engine.read(partial(audit_chain.of_subjects, [case.case_id]))
        assert hash_shown == trail[-1].hash
        assert f"row {trail[-1].seq}" in await other.locator(".details").inner_text()
        await context.close()
