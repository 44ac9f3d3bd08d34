"""The pages in Chromium: phone and desktop, light and dark, with and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from kit import page_cases as cases
from kit.browser_actions import SETTLED, click_now, press_now, ready_now
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
        press_now(self.page, name)

    def open_edit(self) -> None:
        """Go to the page where the values are fields, by the menu."""
        self.press("More")
        click_now(self.page.get_by_role("link", name="Change something"))

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
    return visit.page.evaluate("'ready' in document.documentElement.dataset")


# From the link to the result.


def test_approve_with_a_note(visit: Visit, desk: Desk) -> None:
    visit.page.goto(desk.put("a", cases.approval()))
    visit.press("More")
    visit.page.get_by_label("Note optional").fill("As we said")
    visit.press("Approve with this note")
    assert visit.heading() == "Approved: Send email"
    assert desk.result("a") == {"action": "approve", "data": {"feedback": "As we said"}}


def test_one_tap_approves(visit: Visit, desk: Desk) -> None:
    visit.page.goto(desk.put("a", cases.approval()))
    visit.press("Approve")
    assert desk.result("a") == {"action": "approve", "data": {}}


@pytest.mark.parametrize(("button", "action"), [("Reject", "reject"), ("Ask for another try", "edit")])
def test_rejecting_asks_why_and_takes_no_words(visit: Visit, desk: Desk, button: str, action: str) -> None:
    page = visit.page
    page.goto(desk.put("a", cases.approval()))
    visit.press("Reject")
    sheet = page.locator("#no")
    assert sheet.is_visible()
    assert desk.result("a") is None
    sheet.get_by_text("Wrong person").click()
    click_now(sheet.get_by_role("button", name=button, exact=True))
    assert desk.result("a") == {"action": action, "data": {"feedback": "Wrong person"}}


def test_an_edit_is_refused_and_then_accepted(visit: Visit, desk: Desk) -> None:
    page = visit.page
    page.goto(desk.put("a", cases.approval()))
    visit.open_edit()
    page.get_by_label("amount", exact=True).fill("lots")
    visit.press("Check the changes")
    problems = page.get_by_role("alert")
    assert "“amount” must be a number." in re.sub(r"\s+", " ", problems.inner_text())
    problems.get_by_role("link", name="amount").click()
    assert page.get_by_label("amount", exact=True).input_value() == "lots"
    page.get_by_label("amount", exact=True).fill("99")
    page.get_by_label("body", exact=True).fill("First\nsecond")
    visit.press("Check the changes")
    assert "Nothing was sent yet" in page.get_by_role("status").first.inner_text()
    assert "99" in page.locator("ins").all_inner_texts()
    assert desk.result("a") is None
    visit.press("Approve with these changes")
    assert visit.heading() == "Approved with changes: Send email"
    edits = {**EMAIL_ARGS, "amount": 99, "body": "First\nsecond"}
    assert desk.result("a") == {"action": "edit", "data": {"edits": edits}}


def test_untouched_arguments_come_back_from_a_real_browser_unchanged(visit: Visit, desk: Desk) -> None:
    args: dict[str, Any] = {
        name.replace(" ", "_"): text for name, text in CORPUS.items() if name != "megabyte"
    }
    args |= {"number": 1e21, "nested": {"a": ["\u202e", None]}, "lead": "\n\nafter", "change": "me"}
    visit.page.goto(desk.put("a", cases.approval(args)))
    visit.open_edit()
    visit.page.get_by_label("change", exact=True).fill("you")
    visit.press("Check the changes")
    visit.press("Approve with these changes")
    assert desk.result("a")["data"]["edits"] == {**args, "change": "you"}


def test_a_wizard_with_a_condition(visit: Visit, desk: Desk) -> None:
    page = visit.page
    page.goto(desk.put("w", cases.wizard()))
    has_script = scripted(visit)
    visit.press("Next")
    assert "Fill in “City”." in re.sub(r"\s+", " ", page.get_by_role("alert").inner_text())
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
    visit.press("More")
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
    page.get_by_role("textbox", name="Age").fill("36")
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
    has_script = scripted(visit)
    if has_script:
        ready_now(page)
        page.get_by_role("button", name="Choose first").click(force=True)  # idle, and it says why
        assert page.locator("#decide [role=status]").inner_text() == "Choose something first."
    else:
        visit.press("Send choice")
        assert "Choose something first." in page.get_by_role("alert").inner_text()
    page.get_by_label("Frontend Tech Lead").check()
    visit.press("Send choice")
    assert desk.result("s") == {"action": "select", "data": {"selected": ["job_3"]}}
    page.goto(desk.put("c", cases.confirmation()))
    page.get_by_label("Zalando").check()
    visit.press("Confirm 1 of 2" if has_script else "Confirm the chosen")
    assert desk.result("c") == {"action": "confirm", "data": {"confirmed_items": ["email_2"]}}
    page.goto(desk.put("d", cases.confirmation()))
    if has_script:
        visit.press("Choose all")
        assert "2 of 2 chosen" in page.locator("#confirmed_items").inner_text()
    visit.press("Confirm all 2")
    assert desk.result("d")["data"] == {"confirmed_items": ["email_1", "email_2"]}
    page.goto(desk.put("e", cases.escalation()))
    page.get_by_label("It happened").check()
    visit.press("Send choice")
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
def test_every_page_fits_and_axe_finds_nothing(browser: Any, desk: Desk, window: str) -> None:
    context = browser.new_context(**WINDOWS[window])
    context.add_init_script(axe_source())
    visit = Visit(context.new_page())
    visit.page.set_default_timeout(PATIENCE * 1000)
    visit.page.set_content("<title>axe is awake</title><img src=x>")
    assert "awake: image-alt" in violations(visit, "awake")
    found: dict[str, Any] = {}
    for name, case in ALL_CASES.items():
        visit.page.goto(desk.put(name, case))
        visit.page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert visit.fits(), name
        found |= violations(visit, name)
    visit.page.goto(desk.put("refused", cases.every_field()))
    visit.press("Send answer")
    found |= violations(visit, "refused")
    visit.page.goto(desk.put("preview", cases.approval()))
    visit.press("Reject")
    found |= violations(visit, "reject sheet")
    visit.press("Back")
    visit.open_edit()
    found |= violations(visit, "edit")
    visit.page.get_by_label("amount", exact=True).fill("99")
    visit.press("Check the changes")
    found |= violations(visit, "preview")
    visit.page.goto(f"{desk.url}/review/none")
    found |= violations(visit, "unknown")
    context.close()
    assert found == {}


def violations(visit: Visit, name: str) -> dict[str, Any]:
    """What axe finds on the page, by page and rule."""
    visit.page.wait_for_load_state()  # its scripts have run
    visit.page.evaluate("Promise.all(document.getAnimations().map(it => it.finished))")  # a sheet rises
    rules = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"
    # Told of the violations alone: all that passed would be as much to write down as to find out.
    run = f"axe.run({{runOnly: {rules}, resultTypes: ['violations']}}).then(found => found.violations)"
    found = visit.page.evaluate(run)
    return {f"{name}: {each['id']}": [node["html"] for node in each["nodes"]] for each in found}


@pytest.mark.parametrize("text", CORPUS.values(), ids=list(CORPUS))
def test_hostile_text_stays_in_its_box(phone: Visit, desk: Desk, text: str) -> None:
    for number, (name, case) in enumerate(everywhere(text).items()):
        phone.page.goto(desk.put(f"h{number}", case))
        assert phone.fits(), name
        phone.page.evaluate(SETTLED)
        strangers, acts, covered = phone.page.evaluate(LOOK)
        assert strangers == [], name
        assert covered == [], name
        if acts and not case.is_final:
            assert len(acts) == 1


LOOK = """[
    [...document.querySelectorAll("img, iframe, object, style, a:not([href^='#'], [href^='/review/'])")]
        .map(node => node.outerHTML),
    [...document.querySelectorAll(".act")].map(node => node.getBoundingClientRect().top),
    [...document.querySelectorAll(".decide button, #state")].filter(node => {
        const box = node.getBoundingClientRect();
        const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        return box.width && !node.contains(top);
    }).map(node => node.textContent),
]"""
"""What should not be on a page; where it says what will happen; what of the decision and the state something else is
painted over. It is asked for at once, as each question costs."""


def test_the_keyboard_reaches_everything_in_reading_order(phone: Visit, desk: Desk) -> None:
    phone.page.goto(desk.put("a", cases.approval()))
    ready_now(phone.page)
    assert phone.page.evaluate("document.activeElement === document.body"), "nothing has the focus by itself"
    reached: list[str] = []
    name = "document.activeElement.ariaLabel ?? document.activeElement.innerText.trim().split('\\n')[0]"
    for _ in range(len(EMAIL_ARGS) + 6):
        phone.page.keyboard.press("Tab")
        reached.append(phone.page.evaluate(name))
    pill, raw, *reached = reached
    assert pill.endswith(" left"), "which opens the exact time"
    assert raw == "Raw"
    pencils, others = reached[: len(EMAIL_ARGS)], reached[len(EMAIL_ARGS) :]
    assert pencils == [f"Change {argument}" for argument in EMAIL_ARGS]
    assert others == ["Details", "Reject", "Approve", "More"]
    for key in ("a", "r", "y", "n", "1", " "):
        phone.page.locator("h1").evaluate("node => document.activeElement.blur()")
        phone.page.keyboard.press(key)
    assert desk.result("a") is None, "no single key decides"


def test_enter_in_an_argument_decides_nothing(windows: Callable[[str], Any], desk: Desk) -> None:
    for window in ("phone", "phone without script"):
        with visiting(windows(window), desk) as visit:
            visit.page.goto(desk.put("a", cases.approval()))
            visit.open_edit()
            visit.page.get_by_label("amount", exact=True).fill("99")
            visit.page.get_by_label("amount", exact=True).press("Enter")
            assert visit.page.get_by_label("amount", exact=True).input_value() == "99"
            assert desk.result("a") is None


def test_a_tap_on_what_has_just_appeared_does_not_count(phone: Visit, desk: Desk) -> None:
    phone.page.goto(desk.put("a", cases.approval()))
    phone.page.evaluate("document.dispatchEvent(new Event('settle')); document.getElementById('go').click()")
    assert desk.result("a") is None
    phone.press("Approve")
    assert desk.result("a") is not None


def test_a_tap_on_what_has_just_appeared_does_not_count_without_script_either(
    browser: Any, desk: Desk
) -> None:
    """Nor before the script has arrived, on a slow line. The clock of animations stands still meanwhile."""
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(desk.put("a", cases.approval()))
        clock = context.new_cdp_session(page)
        clock.send("Animation.enable")
        clock.send("Animation.setPlaybackRate", {"playbackRate": 0})
        page.reload()
        button = page.locator("#go").bounding_box()
        assert button is not None
        page.mouse.click(button["x"] + button["width"] / 2, button["y"] + button["height"] / 2)
        assert desk.result("a") is None
        clock.send("Animation.setPlaybackRate", {"playbackRate": 1})
        page.locator("[popovertarget=no]").first.hover(trial=True)  # the page takes taps now
        clock.send("Animation.setPlaybackRate", {"playbackRate": 0})
        page.locator("[popovertarget=no]").first.click()
        reject = page.locator("#no .go").bounding_box()  # of a sheet that has just opened
        assert reject is not None
        page.mouse.click(reject["x"] + reject["width"] / 2, reject["y"] + reject["height"] / 2)
        assert desk.result("a") is None
        clock.send("Animation.setPlaybackRate", {"playbackRate": 1})
        page.locator("#no .go").click()
        assert desk.result("a") is not None
    finally:
        context.close()


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
