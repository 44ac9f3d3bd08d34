"""The pages in Chromium: phone and desktop, light and dark, with and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from kit import page_cases as cases
from kit.hostile_text import CORPUS, everywhere
from kit.page_browser import Desk, axe_source
from kit.page_cases import CLOSED_CASES, EMAIL_ARGS, OPEN_CASES
from kit.patience import PATIENCE

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)

PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 900}
ALL_CASES = {**OPEN_CASES, **CLOSED_CASES}


class Visit:
    """What one test does in a browser window, and everything the window asked for or complained about meanwhile."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self._listeners = {
            "request": lambda request: self.asked.append(request.url),
            "pageerror": lambda error: self.complaints.append(str(error)),
            "console": self._hear,
            "dialog": lambda dialog: self.complaints.append(dialog.message),
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def end(self) -> None:
        """Leave the window to the next one."""
        self.page.goto("about:blank")
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def _hear(self, message: Any) -> None:
        if "status of 4" not in message.text:  # a refused answer is a page with status 422
            self.complaints.append(message.text)

    def heading(self) -> str:
        return self.page.locator("h1").inner_text()

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def fits(self) -> bool:
        """Whether nothing sticks out at the side."""
        return self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


WINDOWS: dict[str, dict[str, Any]] = {
    "phone": {"viewport": PHONE},
    "phone without script": {"viewport": PHONE, "java_script_enabled": False},
    "desktop": {"viewport": DESKTOP},
    "desktop without script": {"viewport": DESKTOP, "java_script_enabled": False},
    "dark desktop": {"viewport": DESKTOP, "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def windows(browser: Any) -> Callable[[str], Any]:
    """A window of each kind. The pages keep a cookie for each form at most, so the tests share them."""

    @cache
    def window(name: str) -> Any:
        page = browser.new_context(**WINDOWS[name]).new_page()
        page.set_default_timeout(PATIENCE * 1000)
        return page

    return window


@contextmanager
def visiting(page: Any, desk: Desk) -> Iterator[Visit]:
    """A visit during which nothing goes wrong and nobody else is asked for anything."""
    visit = Visit(page)
    try:
        yield visit
    finally:
        visit.end()
    assert visit.complaints == []
    assert all(url.startswith(f"{desk.url}/") for url in visit.asked), visit.asked
    kept = page.context.storage_state()
    assert kept["origins"] == []
    for cookie in kept["cookies"]:  # whose draft it is: for one case, and for no script
        assert cookie["name"] == "askfirst_browser"
        assert cookie["path"].startswith("/review/")
        assert cookie["httpOnly"]


@pytest.fixture(params=["phone", "phone without script", "desktop", "desktop without script"])
def visit(request: pytest.FixtureRequest, windows: Callable[[str], Any], desk: Desk) -> Iterator[Visit]:
    with visiting(windows(request.param), desk) as visit:
        yield visit


@pytest.fixture
def phone(windows: Callable[[str], Any], desk: Desk) -> Iterator[Visit]:
    with visiting(windows("phone"), desk) as visit:
        yield visit


def scripted(visit: Visit) -> bool:
    return visit.page.locator("time[title]").count() > 0


# From the link to the result.


@pytest.mark.parametrize(("button", "action"), [("Approve", "approve"), ("Reject", "reject")])
def test_approve_and_reject(visit: Visit, desk: Desk, button: str, action: str) -> None:
    visit.page.goto(desk.put("a", cases.approval()))
    visit.page.get_by_label("Note optional").first.fill("As we said")
    visit.press(button)
    assert visit.heading() == {"approve": "Approved", "reject": "Rejected"}[action]
    assert desk.result("a") == {"action": action, "data": {"feedback": "As we said"}}


def test_an_edit_is_refused_and_then_accepted(visit: Visit, desk: Desk) -> None:
    visit.page.goto(desk.put("a", cases.approval()))
    visit.page.get_by_text("Change it first").click()
    visit.page.get_by_label("amount").fill("lots")
    visit.press("See what changes")
    problems = visit.page.get_by_role("alert")
    assert "amount: must be a number" in re.sub(r"\s+", " ", problems.inner_text())
    problems.get_by_role("link", name="amount").click()
    assert visit.page.get_by_label("amount").input_value() == "lots"
    visit.page.get_by_label("amount").fill("99")
    visit.page.get_by_label("body").fill("First\nsecond")
    visit.press("See what changes")
    assert visit.heading() == "Check your changes"
    assert "+ 99" in visit.page.locator("ins").last.evaluate(
        "node => getComputedStyle(node, '::before').content.replaceAll('\"', '') + node.lastChild.textContent"
    )
    assert desk.result("a") is None
    visit.press("Approve with these changes")
    assert visit.heading() == "Approved with changes"
    edits = {**EMAIL_ARGS, "amount": 99, "body": "First\nsecond"}
    assert desk.result("a") == {"action": "edit", "data": {"edits": edits}}


def test_untouched_arguments_come_back_from_a_real_browser_unchanged(visit: Visit, desk: Desk) -> None:
    args: dict[str, Any] = {
        name.replace(" ", "_"): text for name, text in CORPUS.items() if name != "megabyte"
    }
    args |= {"number": 1e21, "nested": {"a": ["\u202e", None]}, "lead": "\n\nafter", "change": "me"}
    visit.page.goto(desk.put("a", cases.approval(args)))
    visit.page.get_by_text("Change it first").click()
    visit.page.get_by_label("change", exact=False).last.fill("you")
    visit.press("See what changes")
    visit.press("Approve with these changes")
    assert desk.result("a")["data"]["edits"] == {**args, "change": "you"}


def test_a_wizard_with_a_condition(visit: Visit, desk: Desk) -> None:
    page = visit.page
    page.goto(desk.put("w", cases.wizard()))
    has_script = scripted(visit)
    visit.press("Next")
    assert "City: is required" in re.sub(r"\s+", " ", page.get_by_role("alert").inner_text())
    page.get_by_label("City").fill("Rome")
    page.get_by_label("By car").check()
    plate = page.get_by_label("Number plate")
    assert plate.is_visible() == has_script
    if not has_script:
        visit.press("Next")
        assert "brought up more" in page.get_by_role("status").inner_text()
    plate.fill("B 1")
    visit.press("Next")
    assert "Step 2 of 4" in page.locator("#decide").inner_text()
    page.get_by_label("Days").fill("3")
    visit.press("Save for later")
    assert "Saved." in page.get_by_role("status").inner_text()
    visit.press("Next")
    page.get_by_label("Card number").fill("4111")
    visit.press("Next")
    assert "given, not shown" in page.locator("main").inner_text()
    visit.press("Back")
    assert page.get_by_label("Card number").input_value() == ""
    visit.press("Next")
    visit.press("Send answer")
    assert desk.result("w") == {
        "action": "submit",
        "data": {"city": "Rome", "by": "car", "plate": "B 1", "days": 3, "card": "4111"},
    }
    assert "4111" not in page.content()


def test_every_field_type(visit: Visit, desk: Desk) -> None:
    page = visit.page
    page.goto(desk.put("f", cases.every_field()))
    page.get_by_label("Full name").fill("Ada")
    page.get_by_label("Start date").fill("2026-03-01")
    page.get_by_label("Age").fill("36")
    page.get_by_label("No", exact=True).check()
    page.get_by_role("group", name="All colours").get_by_label("Green").check()
    page.get_by_label("Bank PIN").fill("4711")
    visit.press("Send answer")
    assert desk.result("f")["data"] == {
        "name": "Ada",
        "start": "2026-03-01",
        "age": 36,
        "remote": False,
        "colours": ["green"],
        "secret": "4711",
    }


def test_selection_confirmation_and_escalation(visit: Visit, desk: Desk) -> None:
    page = visit.page
    page.goto(desk.put("s", cases.selection()))
    visit.press("Send choice")
    assert "needs a choice" in page.get_by_role("alert").inner_text()
    page.get_by_label("Frontend Tech Lead").check()
    visit.press("Send choice")
    assert desk.result("s") == {"action": "select", "data": {"selected": ["job_3"]}}
    page.goto(desk.put("c", cases.confirmation()))
    page.get_by_label("Zalando").check()
    visit.press("Confirm")
    assert desk.result("c") == {"action": "confirm", "data": {"confirmed_items": ["email_2"]}}
    page.goto(desk.put("e", cases.escalation()))
    visit.press("Skip it")
    assert desk.result("e") == {"action": "skip", "data": {}}
    page.goto(desk.put("q", cases.agent_questions()))
    page.get_by_label("What should the project be called?").fill("Askfirst")
    page.get_by_label("MIT").check()
    visit.press("Send answer")
    assert desk.result("q") == {"action": "submit", "data": {"q1": "Askfirst", "q2": "mit"}}


def test_a_wrong_link(visit: Visit, desk: Desk) -> None:
    visit.page.goto(desk.put("a", cases.approval()).replace("ttt", "tt"))
    assert visit.heading() == "There is nothing here"


# How it looks and sounds.


@pytest.mark.parametrize("window", ["phone", "dark desktop"])
def test_every_page_fits_and_axe_finds_nothing(
    windows: Callable[[str], Any], desk: Desk, window: str
) -> None:
    axe = axe_source()
    visit = Visit(windows(window))
    visit.page.set_content("<title>axe is awake</title><img src=x>")
    assert "awake: image-alt" in violations(visit, axe, "awake")
    found: dict[str, Any] = {}
    for name, case in ALL_CASES.items():
        visit.page.goto(desk.put(name, case))
        visit.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert visit.fits(), name
        found |= violations(visit, axe, name)
    visit.page.goto(desk.put("refused", cases.every_field()))
    visit.press("Send answer")
    found |= violations(visit, axe, "refused")
    visit.page.goto(desk.put("preview", cases.approval()))
    visit.page.get_by_text("Change it first").click()
    visit.page.get_by_label("amount").fill("99")
    visit.press("See what changes")
    found |= violations(visit, axe, "preview")
    visit.page.goto(f"{desk.url}/review/none")
    found |= violations(visit, axe, "unknown")
    visit.end()
    assert found == {}


def violations(visit: Visit, axe: str, name: str) -> dict[str, Any]:
    """What axe finds on the page, by page and rule."""
    visit.page.evaluate(axe)
    rules = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"
    # Told of the violations alone: all that passed would be as much to write down as to find out.
    run = f"axe.run({{runOnly: {rules}, resultTypes: ['violations']}}).then(found => found.violations)"
    found = visit.page.evaluate(run)
    return {f"{name}: {each['id']}": [node["html"] for node in each["nodes"]] for each in found}


@pytest.mark.parametrize("text", CORPUS.values(), ids=list(CORPUS))
def test_hostile_text_stays_in_its_box(phone: Visit, desk: Desk, text: str) -> None:
    for name, case in everywhere(text).items():
        phone.page.goto(desk.put("h", case))
        assert phone.fits(), name
        strangers, acts = phone.page.evaluate(LOOK)
        assert strangers == [], name
        if acts and not case.is_final:
            assert len(acts) == 1
            assert acts[0] < PHONE["height"] / 2, "what will happen is the first thing to be seen"


LOOK = """[
    [...document.querySelectorAll("img, iframe, object, style, a:not([href^='#'])")].map(node => node.outerHTML),
    [...document.querySelectorAll(".act")].map(node => node.getBoundingClientRect().top),
]"""
"""What should not be on a page, and where it says what will happen: asked for at once, as each question costs."""


def test_the_keyboard_reaches_everything_in_reading_order(phone: Visit, desk: Desk) -> None:
    phone.page.goto(desk.put("a", cases.approval()))
    reached: list[str] = []
    for _ in range(4):
        phone.page.keyboard.press("Tab")
        reached.append(phone.page.evaluate("document.activeElement.innerText || document.activeElement.id"))
    assert reached == ["Change it first", "feedback", "Approve", "Reject"]
    phone.page.keyboard.press("Enter")
    assert phone.heading() == "Rejected"


def test_enter_in_an_argument_shows_the_changes_and_decides_nothing(
    windows: Callable[[str], Any], desk: Desk
) -> None:
    with visiting(windows("phone without script"), desk) as visit:
        visit.page.goto(desk.put("a", cases.approval()))
        visit.page.get_by_text("Change it first").click()
        visit.page.get_by_label("amount").fill("99")
        visit.page.get_by_label("amount").press("Enter")
        assert visit.heading() == "Check your changes"
        assert desk.result("a") is None


def test_buttons_are_large_enough_for_a_thumb(phone: Visit, desk: Desk) -> None:
    heights = (
        "[...document.querySelectorAll('button')].filter(node => node.checkVisibility())"
        ".map(node => node.getBoundingClientRect().height)"
    )
    for name, case in OPEN_CASES.items():
        phone.page.goto(desk.put(name, case))
        found = phone.page.evaluate(heights)
        assert found, name
        assert min(found) >= 44, name
