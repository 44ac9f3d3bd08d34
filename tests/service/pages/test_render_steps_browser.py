"""In Chromium: choosing, forms, wizards, sheets, the second step and the code, each with script and without."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from kit import page_cases as cases
from kit.browser_actions import click_now, focused_now, press_now, ready_now
from kit.page_browser import Desk
from kit.page_scenes import Scene, accounts, doubt, flights, refund, scenes, shell
from kit.patience import PATIENCE

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)

WINDOWS: dict[str, dict[str, Any]] = {
    "phone": {"viewport": {"width": 360, "height": 740}},
    "phone, no script": {"viewport": {"width": 360, "height": 740}, "java_script_enabled": False},
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "desktop, no script": {"viewport": {"width": 1280, "height": 900}, "java_script_enabled": False},
}
FOCUS = "document.activeElement.id || document.activeElement.tagName"


@pytest.fixture(params=WINDOWS)
def page(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    context = browser.new_context(**WINDOWS[request.param])
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    yield page
    context.close()


@pytest.fixture
def scripted(request: pytest.FixtureRequest) -> bool:
    return "no script" not in request.node.callspec.params["page"]


def show(page: Any, desk: Desk, scene: Scene, sent: list[str] | None = None) -> None:
    """Show a scene; what its form posts goes to ``sent``."""

    def shown(route: Any) -> None:
        route.fulfill(body=scene.html(), content_type="text/html")

    def cut_off(route: Any) -> None:
        route.abort()

    def kept(route: Any) -> None:
        if sent is not None:
            sent.append(route.request.post_data)
        route.fulfill(body="kept", content_type="text/plain")

    page.route("**/scene", shown)
    page.route("**/live?*", cut_off)
    page.route("**/respond?*", kept)
    page.goto(f"{desk.url}/scene")


# Choosing.


def test_the_button_waits_for_a_choice_and_then_names_it(page: Any, desk: Desk, scripted: bool) -> None:
    case = dataclasses.replace(flights(), shown={"approve": "Book {title}"})
    page.goto(desk.put("flight", case))
    ready_now(page)
    go = page.locator("#go")
    assert go.inner_text() == ("Choose first" if scripted else "Send choice")
    assert go.get_attribute("aria-disabled") == ("true" if scripted else None)
    go.click(force=True)
    if scripted:
        assert page.locator("#decide [role=status]").inner_text() == "Choose something first."
    else:
        assert page.locator("#selected-fault").inner_text() == "Choose something first."
        focused_now(page.locator("#selected"))
    assert desk.result("flight") is None
    page.get_by_label("TAP TP1331").check()
    assert go.inner_text() == ("Book TAP TP1331" if scripted else "Send choice")
    click_now(go)
    page.get_by_role("heading", level=1).filter(has_text="Chosen").wait_for()
    assert desk.result("flight") == {"action": "select", "data": {"selected": ["tp"]}}


def test_none_of_these_takes_a_reason(page: Any, desk: Desk) -> None:
    sent: list[str] = []
    show(page, desk, Scene(flights()), sent)
    press_now(page, "None of these")
    assert page.evaluate(FOCUS) == "decline-title"
    page.locator("#decline_reason").fill("All too dear")
    click_now(page.locator("#decline").get_by_role("button", name="None of these"))
    page.get_by_text("kept").wait_for()
    assert "decline=1" in sent[0]
    assert "All+too+dear" in sent[0]
    show(page, desk, Scene(dataclasses.replace(flights(), shown={"decline": False})))
    assert page.get_by_role("button", name="None of these").count() == 0


def test_a_confirmation_names_how_many_in_the_callers_words(page: Any, desk: Desk, scripted: bool) -> None:
    case = dataclasses.replace(accounts(), shown={"approve": "Delete {n} accounts"})
    page.goto(desk.put("accounts", case))
    ready_now(page)
    if not scripted:
        assert page.get_by_role("button", name="Delete 12 accounts").is_visible()
        page.get_by_label("user3@example.com").check()
        click_now(page.get_by_role("button", name="Confirm the chosen"))
    else:
        press_now(page, "Choose all")
        assert page.locator("#go").inner_text() == "Delete 12 accounts"
        press_now(page, "Choose none")
        page.get_by_label("user3@example.com").check()
        click_now(page.get_by_role("button", name="Delete 1 accounts"))
    page.get_by_role("heading", level=1).filter(has_text="Confirmed").wait_for()
    assert desk.result("accounts") == {"action": "confirm", "data": {"confirmed_items": ["a3"]}}


# Forms and wizards.


def test_what_is_wrong_stands_below_its_field_in_a_sentence_and_has_the_focus(page: Any, desk: Desk) -> None:
    page.goto(desk.put("form", cases.every_field()))
    page.get_by_role("textbox", name="Age").fill("12")
    press_now(page, "Send answer")
    page.get_by_role("alert").wait_for()
    assert page.locator("[id='f-name-fault']").inner_text() == "Fill this in."
    assert page.locator("[id='f-age-fault']").inner_text() == "Enter 18 or more."
    listed = page.get_by_role("alert").get_by_role("link").all_inner_texts()
    assert listed[:2] == ["Fill in “Full name”.", "“Age” is 18 at least."]
    focused_now(page.locator("#f-name"))
    field, fault = page.locator("#f-name").bounding_box(), page.locator("#f-name-fault").bounding_box()
    assert field["y"] < fault["y"], "below"


def test_a_masked_value_is_shown_on_request_and_kept_as_dots(page: Any, desk: Desk, scripted: bool) -> None:
    page.goto(desk.put("pin", cases.every_field()))
    pin = page.get_by_label("Bank PIN")
    assert pin.get_attribute("type") == "password"
    pin.fill("4711")
    reveal = page.get_by_role("button", name="Show", exact=True)
    assert reveal.is_visible() == scripted
    if scripted:
        ready_now(page)
        reveal.click()
        assert (pin.get_attribute("type"), reveal.get_attribute("aria-pressed")) == ("text", "true")
        reveal.click()
        assert (pin.get_attribute("type"), reveal.get_attribute("aria-pressed")) == ("password", "false")
    press_now(page, "Save for later")
    page.get_by_text("Saved.").wait_for()
    assert not pin.is_visible()
    assert "4711" not in page.content()
    page.locator("summary", has_text="••••••").click()
    assert pin.input_value() == ""
    assert page.get_by_label("E-mail").get_attribute("autocomplete") == "email"


def test_a_wizard_says_where_one_is_and_leads_back(page: Any, desk: Desk) -> None:
    filled = {"city": "Rome", "by": "train", "card": "4111"}
    page.goto(desk.put("wizard", cases.wizard(draft=filled)))
    assert page.locator("#step").inner_text() == "Step 1 of 3: The trip"
    press_now(page, "Next")
    assert page.locator("#step").inner_text() == "Step 2 of 3: The payment"
    page.locator("summary", has_text="All steps").click()
    press_now(page, "The trip")
    page.get_by_label("City").fill("Milan")
    for _ in range(2):
        press_now(page, "Next")
    assert page.locator("#step").inner_text() == "Step 3 of 3: Check and send"
    assert page.get_by_text("Milan").is_visible(), "kept on the way back"
    press_now(page, "Change City")
    page.get_by_label("City").fill("Turin")
    for _ in range(2):
        press_now(page, "Next")
    press_now(page, "Send answer")
    page.get_by_role("heading", level=1).filter(has_text="Answered").wait_for()
    assert desk.result("wizard")["data"] == {**filled, "city": "Turin"}


def test_a_form_saves_itself_when_its_page_is_left(browser: Any, desk: Desk) -> None:
    page = browser.new_context(viewport={"width": 360, "height": 740}).new_page()
    page.goto(desk.put("left", cases.every_field()))
    page.get_by_label("Full name").fill("Ada")
    with page.expect_request(
        "**/respond?*"
    ) as saved:  # of a page that is gone the browser's driver tells nothing
        page.evaluate("dispatchEvent(new Event('pagehide'))")
    assert "intent=draft" in saved.value.post_data
    assert "f.name=Ada" in saved.value.post_data
    page.context.close()


def test_the_characters_are_counted_near_the_limit(browser: Any, desk: Desk) -> None:
    fields = [cases.field("note", "text", "Note", validation={"maxLength": 10})]
    case = cases.service_case("input", {"form": {"fields": fields}})
    page = browser.new_context().new_page()
    page.goto(desk.put("count", case))
    page.get_by_label("Note").fill("short")
    assert page.get_by_text("of 10 characters").count() == 0
    page.get_by_label("Note").fill("nine char")
    assert page.get_by_text("9 of 10 characters").is_visible()
    page.context.close()


# Sheets and the menu.


def test_the_sheets_begin_with_their_titles(page: Any, desk: Desk, scripted: bool) -> None:
    show(page, desk, Scene(refund(), sight={"quick_reasons": ("Too late", "<b>Too dear</b>")}))
    ready_now(page)
    assert page.evaluate(FOCUS) == "BODY"
    press_now(page, "Reject")
    assert page.evaluate(FOCUS) == "no-title"
    reasons = page.locator("#quick .option").all_inner_texts()
    assert reasons == ["Too late", "<b>Too dear</b>"], "the operator's own, as text"
    page.keyboard.press("Escape")
    assert not page.locator("#no").is_visible()
    press_now(page, "More")
    assert page.evaluate(FOCUS) == "menu-title"
    menu = page.locator("#menu")
    assert menu.get_by_role("link", name="Change something").is_visible()
    assert menu.get_by_role("button", name="Print").is_visible() == scripted
    languages = menu.get_by_role("group", name="Language").get_by_role("link")
    assert languages.all_inner_texts() == ["English", "简体中文"]
    assert "&lang=zh-Hans" in (languages.last.get_attribute("href") or "")
    click_now(menu.get_by_role("button", name="Ask for another try"))
    assert page.locator("#no").is_visible()


def test_the_menu_copies_the_link_and_prints(browser: Any, desk: Desk) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.add_init_script("window.print = () => { document.title = 'printed'; }")
    url = desk.put("copy", refund())
    page.goto(f"{url}&lang=en")
    press_now(page, "More")
    press_now(page, "Copy a link")
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == f"{url}"
    press_now(page, "Print")
    assert page.title() == "printed"
    page.goto(desk.put("doubt", doubt()))
    press_now(page, "Copy")
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "5f0c91aa-77d1", (
        "the key, to ask the bank for it"
    )
    context.close()


# The second step.


def test_the_second_step_lets_nothing_happen_by_accident(page: Any, desk: Desk, scripted: bool) -> None:
    if not scripted:
        show(page, desk, scenes()["approval-critical-second-page"])
        focused_now(page.locator("h1"))
        return
    sent: list[str] = []
    show(page, desk, Scene(shell()), sent)
    for leave in ("Escape", "scrim"):
        ready_now(page)
        page.locator("#go").click()
        dialog = page.locator("#second")
        assert dialog.is_visible()
        assert page.evaluate(FOCUS) == "second-title"
        box = dialog.bounding_box()
        page.mouse.click(box["x"] + 4, box["y"] + box["height"] / 2)
        assert dialog.is_visible(), "a press inside it is not beside it"
        if leave == "Escape":
            page.keyboard.press("Escape")
        else:
            page.mouse.click(5, 5)
        assert not dialog.is_visible()
    assert sent == []


def test_enter_in_the_reason_sends_nothing(page: Any, desk: Desk) -> None:
    sent: list[str] = []
    show(page, desk, scenes()["approval-critical-second-page"], sent)
    reason = page.locator("#second-reason")
    reason.fill("It is asked for")
    reason.press("Enter")
    assert reason.input_value() == "It is asked for\n"
    assert sent == []


# The code by e-mail.


def test_the_code_is_a_step_of_its_own_that_sends_itself(page: Any, desk: Desk, scripted: bool) -> None:
    sent: list[str] = []
    show(page, desk, scenes()["code"], sent)
    ready_now(page)
    assert "a***@example.com for:" in page.locator("#code-for").inner_text()
    assert page.get_by_text("Pay back 49.00 EUR for order A-1042").is_visible()
    code = page.locator("#email_code")
    focused_now(code)
    assert code.get_attribute("autocomplete") == "one-time-code"
    assert page.get_by_role("button", name="Use c***@example.com").is_visible()
    again = page.locator("button[value='0'][name=send_code]")
    if scripted:
        assert again.inner_text().startswith("Send again (in ")
        again.click(force=True)
        assert sent == []
        code.press_sequentially("123456")
    else:
        assert again.inner_text() == "Send again"
        code.fill("123456")
        page.locator("#go").click()
    page.get_by_text("kept").wait_for()
    assert "email_code=123456" in sent[0]
