"""The page on a bad line, with another scheme, and when its request changes while somebody looks at it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kit.page_browser import Desk
from kit.page_cases import NOW
from kit.page_scenes import Scene, refund, scenes, shell
from kit.standing_cases import call

from askfirst.display import Display
from askfirst.service.pages import Reader, languages

pytest.importorskip("playwright.sync_api", reason="pages in a browser: playwright is not installed")
pytest_plugins = ("kit.page_fixtures",)

PHONE = {"width": 360, "height": 740}
BERLIN = "Europe/Berlin"
PRESS = """button => {
  // The page does all that it does for a press, and the browser is kept from leaving it: a line without an answer.
  addEventListener('submit', event => event.preventDefault());
  document.querySelector(button).click();
}"""
Show = Callable[..., Any]


@pytest.fixture
def show(browser: Any, desk: Desk) -> Iterator[Show]:
    """Opens a scene in a window of its own, at the scene's own time."""
    contexts: list[Any] = []

    def opened(
        scene: Scene, tag: str = "en", *, at: float = NOW, scheme: str | None = None, **window: Any
    ) -> Any:
        context = browser.new_context(
            **{"viewport": PHONE, "timezone_id": BERLIN, "locale": "en-GB", **window}
        )
        contexts.append(context)
        page = context.new_page()
        page.clock.install(time=datetime.fromtimestamp(at, UTC))
        html = scene.html(Reader(languages()[tag], scheme=scheme))
        page.route("**/scene", lambda route: route.fulfill(body=html, content_type="text/html"))
        page.route("**/live?*", lambda route: route.abort())
        page.goto(f"{desk.url}/scene")
        page.clock.run_for(500)
        return page

    yield opened
    for context in contexts:
        context.close()


def colour(page: Any, selector: str, name: str = "backgroundColor") -> str:
    return page.locator(selector).first.evaluate(f"it => getComputedStyle(it).{name}")


# Without a line.


def test_offline_is_said_at_once_and_nothing_is_sent(show: Show) -> None:
    page = show(Scene(refund()))
    sent: list[str] = []
    page.on("request", lambda it: sent.append(it.url) if it.method == "POST" else None)
    page.context.set_offline(True)
    note = page.locator(".who p").last
    page.locator(".decide.off").wait_for()
    assert note.inner_text() == "You are offline. Nothing was sent."
    assert "rgb(116, 70, 0)" in colour(page, ".off", "borderImageSource"), "the bar is amber"
    page.locator("#go").click()
    assert note.inner_text() == "You are offline. Nothing was sent."
    page.context.set_offline(False)
    page.locator(".decide:not(.off)").wait_for()
    assert note.inner_text() == "You are online again, and nothing was sent. Press once more."
    assert sent == [], "being online again sends nothing by itself"


def test_who_pressed_nothing_while_offline_is_asked_for_nothing(show: Show) -> None:
    page = show(Scene(refund()))
    page.context.set_offline(True)
    page.locator(".decide.off").wait_for()
    page.context.set_offline(False)
    page.locator(".decide:not(.off)").wait_for()
    assert page.locator(".who p").last.inner_text() == "First answer counts"


def test_a_slow_line_shows_that_it_is_sent_and_says_so_after_eight_seconds(show: Show) -> None:
    page = show(Scene(refund()))
    page.evaluate(PRESS, "#go")
    assert page.locator("#go").inner_text() == "Sending …"
    assert page.locator("#go").get_attribute("aria-busy") == "true"
    spinner = page.locator("#go").evaluate("it => getComputedStyle(it, '::before').animationDelay")
    assert spinner == "0.15s"
    assert page.locator(".who p").last.inner_text() == "First answer counts"
    page.clock.run_for(8_001)
    assert (
        page.locator(".who p").last.inner_text()
        == "Still sending. Your answer counts once, however often you press."
    )


# What changed meanwhile.


def changed_to(page: Any, scene: Scene) -> None:
    """The server has another page now, and the window is looked at again."""
    page.unroute("**/scene")
    page.route("**/scene", lambda route: route.fulfill(body=scene.html(), content_type="text/html"))
    page.clock.run_for(1_000)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_changed_request_has_to_be_looked_at_before_it_is_approved(show: Show) -> None:
    page = show(Scene(refund()))
    changed_to(page, Scene(shell()))
    page.locator("h1").get_by_text("Run a script").wait_for()
    page.clock.run_for(500)
    said = page.locator("#decide [role=alert]")
    assert said.inner_text() == "The agent changed its request. Look again."
    assert page.locator("#go").count() == 0
    page.reload()
    page.clock.run_for(500)
    assert said.count() == 1, "loading it again is not looking"
    page.get_by_role("button", name="I have looked").click()
    page.clock.run_for(500)
    assert said.count() == 0
    page.locator("#go").click()
    page.locator("dialog#second").wait_for()


def test_what_was_typed_stays_to_be_copied(show: Show) -> None:
    scene = Scene(refund(), given={"stage": "edit"})
    page = show(scene)
    page.get_by_label("Reason").fill("Only the lid was broken.")
    ended = scenes()["decided-by-another"]
    changed_to(page, ended)
    page.locator("#decide [role=alert]").get_by_text("What you wrote was not sent").wait_for()
    assert page.get_by_label("Reason").input_value() == "Only the lid was broken."
    assert page.locator("#state").inner_text() == "Rejected"
    page.clock.run_for(500)
    page.get_by_role("button", name="Look at it").click()
    page.locator("h1").get_by_text("Bo Lee rejected this").wait_for()


# News of the case, where the stream of events brings none, or brings much at once.


@pytest.mark.parametrize("status", [429, 502])
def test_a_page_whose_stream_of_events_is_refused_looks_by_itself(show: Show, status: int) -> None:
    page = show(Scene(refund()))
    page.unroute("**/live?*")
    page.route("**/live?*", lambda route: route.fulfill(status=status))
    page.reload()
    page.clock.run_for(500)
    page.unroute("**/scene")
    asked: list[str] = []

    def answer(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(body=scenes()["decided-by-another"].html(), content_type="text/html")

    page.route("**/scene", answer)
    page.clock.run_for(10_000)
    assert asked == [], "a page does not ask the whole time"
    page.clock.run_for(6_000)
    page.locator("h1").get_by_text("Bo Lee rejected this").wait_for()


def test_the_last_of_much_news_is_shown(show: Show) -> None:
    """An approved call may begin and end within the same second."""
    all_of = scenes()
    page = show(all_of["sent"])
    page.unroute("**/live?*")
    page.unroute("**/scene")
    shown = [all_of["sent"].html(), all_of["running"].html(), all_of["done"].html()]

    def answer(route: Any) -> None:
        route.fulfill(body=shown.pop(0) if len(shown) > 1 else shown[0], content_type="text/html")

    def news(route: Any) -> None:
        states = "".join(
            f'event: state\ndata: {{"state": "{it}", "version": 1}}\n\n' for it in ("sent", "running", "done")
        )
        route.fulfill(body=f"retry: 9999999\n\n{states}", content_type="text/event-stream")

    page.route("**/scene", answer)
    page.route("**/live?*", news)
    page.reload()
    page.locator("#state").get_by_text("Running").wait_for()
    page.clock.run_for(2_000)
    page.locator("#state").get_by_text("Done").wait_for()


# Time.


def test_what_is_left_tells_its_exact_time_on_a_press(show: Show) -> None:
    page = show(Scene(shell()))
    assert page.locator("#state").inner_text() == "23 min left, then rejected"
    page.locator("#state button").click()
    until = page.locator("#until")
    until.wait_for()
    end = datetime.fromtimestamp(shell().expires_at, UTC) + timedelta(hours=1)  # Berlin, in winter
    assert until.locator("time").inner_text() == f"today {end:%H:%M} (Berlin)"
    assert "counts as rejected" in until.inner_text()


def test_without_script_too(show: Show, browser: Any, desk: Desk) -> None:
    context = browser.new_context(viewport=PHONE, java_script_enabled=False)
    page = context.new_page()
    page.route("**/scene", lambda route: route.fulfill(body=Scene(shell()).html(), content_type="text/html"))
    page.goto(f"{desk.url}/scene")
    page.locator("#state button").click()
    end = datetime.fromtimestamp(shell().expires_at, UTC)
    assert page.locator("#until time").inner_text() == f"{end.day} February 2026, {end:%H:%M} UTC"
    context.close()


def test_the_pill_counts_and_is_told_at_ten_five_and_one_minute_only(show: Show) -> None:
    case = dataclasses.replace(refund(), expires_at=NOW + 12 * 60, default_action="reject")
    page = show(Scene(case))
    heard: list[str] = []
    page.expose_function("hear", lambda text: heard.append(text))
    page.evaluate(
        "new MutationObserver(() => hear(document.getElementById('tell').textContent))"
        ".observe(document.body, {childList: true, subtree: true, characterData: true})"
    )
    for _ in range(12 * 6):
        page.clock.run_for(10_000)
    told = [text for place, text in enumerate(heard) if text and text not in heard[:place]]
    assert [text.split(" left")[0] for text in told] == ["9 min", "4 min", "59 s"]


def test_a_day_is_one_day_and_silence_that_approves_is_amber_however_long(show: Show) -> None:
    page = show(Scene(dataclasses.replace(refund(), expires_at=NOW + 86_400 + 30, default_action="approve")))
    assert page.locator("#state").inner_text() == "1 day left, then approved"
    assert "soon" in str(page.locator("#state").get_attribute("class"))


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (20, "just now"),
        (150, "2 min ago"),
        (3 * 3600, "3 h ago"),
        (30 * 3600, "yesterday 05:01"),
        (72 * 3600, "19 Feb 2026"),
    ],
)
def test_a_time_is_relative_within_a_day(show: Show, later: float, said: str) -> None:
    page = show(Scene(dataclasses.replace(refund(), created_at=NOW - later)))
    assert page.locator(".asker time").inner_text() == said
    assert page.locator(".asker time").get_attribute("datetime")


@pytest.mark.parametrize("wrong_by", [-86_400, -3_600, 3_600, 86_400 * 300])
def test_a_reader_s_wrong_clock_changes_no_time(show: Show, wrong_by: float) -> None:
    case = dataclasses.replace(refund(), created_at=NOW - 5.5 * 3600, expires_at=NOW + 2.5 * 3600)
    page = show(Scene(case), at=NOW + wrong_by)
    assert page.locator("#state").inner_text().startswith("2 h ")
    assert page.locator(".asker time").inner_text().startswith("5 h ")


def test_a_page_left_open_keeps_its_times_true(show: Show) -> None:
    page = show(Scene(dataclasses.replace(refund(), created_at=NOW)))
    assert page.locator(".asker time").inner_text() == "just now"
    page.clock.run_for(125_000)
    assert page.locator(".asker time").inner_text() == "2 min ago"


def test_a_time_among_the_values_says_how_far_away_it_is(show: Show) -> None:
    """The page's own times lie in the past: one ahead is a clock that is wrong, and "just now"."""
    at = {
        "soon": NOW + 3 * 3600 + 30,
        "lately": NOW - 120,
        "long_ago": NOW - 10 * 86_400,
        "day": "2026-02-19",
    }
    formats = {**dict.fromkeys(at, "datetime"), "day": "date"}
    case = call("remind", at, Display(formats=formats), "desk")
    page = show(Scene(dataclasses.replace(case, created_at=NOW + 300)))
    times = page.locator(".act time")
    assert times.all_inner_texts() == ["in 3 h", "2 min ago"]
    assert page.locator(".asker time").inner_text() == "just now"
    page.clock.run_for(125_000)
    assert times.all_inner_texts() == ["in 2 h 58 min", "4 min ago"]


def test_chinese_times_are_chinese(show: Show) -> None:
    page = show(Scene(shell()), "zh-Hans")
    page.locator("#state button").click()
    end = datetime.fromtimestamp(shell().expires_at, UTC) + timedelta(hours=1)
    assert page.locator("#until time").inner_text() == f"今天 {end:%H:%M}（Berlin）"


# Schemes.


@pytest.mark.parametrize(
    ("system", "chosen", "background"),
    [
        ("light", None, "rgb(246, 247, 244)"),
        ("dark", None, "rgb(15, 19, 17)"),
        ("dark", "light", "rgb(246, 247, 244)"),
        ("light", "dark", "rgb(15, 19, 17)"),
    ],
)
def test_a_chosen_scheme_goes_before_the_system_s(
    show: Show, system: str, chosen: str | None, background: str
) -> None:
    page = show(Scene(refund()), scheme=chosen, color_scheme=system)
    assert colour(page, "body") == background
    page.emulate_media(media="print", color_scheme=system)
    assert colour(page, "body", "color") == "rgb(22, 32, 27)", "dark ink on paper"


def test_colours_of_the_two_dark_schemes_are_the_same(show: Show) -> None:
    every = """() => {
      const [first] = document.styleSheets[0].cssRules, now = getComputedStyle(document.documentElement);
      return [...first.style].filter(it => it.startsWith('--')).map(it => it + now.getPropertyValue(it).trim());
    }"""
    by_system = show(Scene(refund()), color_scheme="dark").evaluate(every)
    assert by_system == show(Scene(refund()), scheme="dark", color_scheme="light").evaluate(every)
    assert len(by_system) > 25


def test_more_contrast_gives_controls_an_edge_of_ink(show: Show) -> None:
    page = show(Scene(refund()), contrast="more")
    assert colour(page, ".decide button", "borderTopColor") == "rgb(22, 32, 27)"


def test_nothing_moves_for_who_wants_that(show: Show) -> None:
    page = show(Scene(refund()), reduced_motion="reduce")
    page.locator("[popovertarget=no]").first.click()
    assert page.locator("#no").evaluate("it => it.getAnimations().length") == 0


def test_a_long_result_shows_twelve_lines_and_folds_the_rest(show: Show) -> None:
    done = scenes()["done"]
    assert done.standing is not None
    assert done.standing.outcome is not None
    text = "\n".join(f"line {number}" for number in range(1, 31))
    outcome = dataclasses.replace(done.standing.outcome, text=text, is_cut=True)
    page = show(dataclasses.replace(done, standing=dataclasses.replace(done.standing, outcome=outcome)))
    card = page.locator(".result")
    assert card.get_by_text("line 12").is_visible()
    assert not card.get_by_text("line 13").is_visible()
    card.get_by_text("18 more lines").click()
    assert card.get_by_text("line 30").is_visible()
    assert "The agent got all of it" in card.inner_text()


def test_a_press_keeps_its_place_in_the_form_of_another_kind(show: Show) -> None:
    """The undo form has no line for news, and keeps its button."""
    held = scenes()["held"]
    assert held.standing is not None
    page = show(dataclasses.replace(held, standing=dataclasses.replace(held.standing, held_until=NOW + 60)))
    page.evaluate(PRESS, ".undo button")
    page.clock.run_for(8_001)
    assert page.locator(".undo button").count() == 1
    assert "Still sending" in page.locator("#tell").inner_text()
