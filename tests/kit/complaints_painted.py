"""The complaints that are about what is painted where, as predicates on a window: see `kit.complaints`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kit.browser_actions import ready_now
from kit.complaints import Mended

Look = Callable[..., Any]
"""A window of a phone that shows a page of the standing set; ``large`` doubles its text, ``size`` is its size."""
PAINTED: list[Mended[Look]] = []
"""Every predicate on what is painted."""
APPROVE = "button[value=approve]"
REJECT = ".decide button:has-text('Reject')"


def mends(complaint: str) -> Callable[[Callable[[Look], bool]], Callable[[Look], bool]]:
    """Add a predicate."""

    def add(holds: Callable[[Look], bool]) -> Callable[[Look], bool]:
        PAINTED.append(Mended(complaint, holds))
        return holds

    return add


TEXTS = """within => {
  const found = [];
  const walk = document.createTreeWalker(document.querySelector(within), NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walk.nextNode()) {
    const node = walk.currentNode, box = node.parentElement;
    if (!node.data.trim() || !box.checkVisibility({contentVisibilityAuto: true, visibilityProperty: true})) continue;
    if (box.closest('.aside')) continue;
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()].filter(it => it.width > 1 && it.height > 1);
    if (rects.length) found.push({text: node.data, top: rects[0].top + scrollY, left: rects.map(it => it.left)});
  }
  return found;
}"""
"""Every text that is painted, with how far down it begins and where each of its lines does."""


def painted(page: Any, within: str = "body") -> list[dict[str, Any]]:
    return page.evaluate(TEXTS, within)


def box(page: Any, selector: str) -> dict[str, float]:
    """Where an element is, from the top of the page."""
    return page.locator(selector).first.evaluate(
        "it => { const box = it.getBoundingClientRect();"
        " return {top: box.top + scrollY, bottom: box.bottom + scrollY, left: box.left, right: box.right}; }"
    )


def is_red(page: Any, selector: str, *properties: str) -> bool:
    """Whether an element is red in one of these properties."""
    return page.locator(selector).first.evaluate(
        """(it, properties) => properties.some(name => {
          const [r, g, b, a = 1] = getComputedStyle(it)[name].match(/[\\d.]+/g).map(Number);
          return a > 0 && r > g + 50 && r > b + 50;
        })""",
        list(properties),
    )


def open_all(page: Any) -> None:
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")


# A. Dangerous.


@mends("A1")
def each_of_40_lines_is_painted_without_opening_anything(look: Look) -> bool:
    said = "\n".join(each["text"] for each in painted(look("shell")))
    return all(line in said for line in ("DELETE FROM", "rm -rf", "iptables -F", "docker image prune -af"))


@mends("A1")
def no_text_scrolls_in_a_box_of_its_own(look: Look) -> bool:
    page = look("shell")
    open_all(page)
    boxes = "[...document.querySelectorAll('main *')].filter(it => it.scrollHeight > it.clientHeight + 1"
    boxes += " && ['auto', 'scroll'].includes(getComputedStyle(it).overflowY)).length"
    return page.evaluate(boxes) == 0


@mends("A1")
def a_line_that_wraps_hangs(look: Look) -> bool:
    page = look("shell")
    open_all(page)
    starts = page.evaluate(
        """() => {
          const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
          const range = document.createRange();
          while (walk.nextNode()) {
            const at = walk.currentNode.data.indexOf('pip install --require-hashes');
            if (at < 0 || !walk.currentNode.parentElement.checkVisibility()) continue;
            range.setStart(walk.currentNode, at);
            range.setEnd(walk.currentNode, at + 'pip install --require-hashes -r requirements.txt'.length);
            return [...range.getClientRects()].map(it => it.left);
          }
        }"""
    )
    return len(starts) > 1 and starts[1] > starts[0]


@mends("A2")
def opposite_decisions_are_side_by_side_and_the_safe_one_is_left(look: Look) -> bool:
    page = look("refund")
    no, yes = box(page, REJECT), box(page, f".decide {APPROVE}")
    return abs(no["top"] - yes["top"]) < 2 and no["right"] + 12 <= yes["left"]


@mends("A3")
def what_cannot_be_undone_is_red_and_leaving_it_is_not(look: Look) -> bool:
    page = look("erase")
    seen = ("backgroundColor", "borderTopColor", "color")
    return is_red(page, f".decide {APPROVE}", "backgroundColor") and not is_red(page, REJECT, *seen)


@mends("A3")
def what_can_be_undone_is_not_red(look: Look) -> bool:
    page = look("refund")
    seen = ("backgroundColor", "borderTopColor", "color")
    return not any(is_red(page, each, *seen) for each in (f".decide {APPROVE}", REJECT))


@mends("A5")
def what_silence_means_stands_at_the_top_in_amber(look: Look) -> bool:
    page = look("silence-approves")
    said = [each for each in painted(page) if "approved" in each["text"]]
    amber = """() => [...document.querySelectorAll('header *')].some(it => {
      const [r, g, b, a = 1] = getComputedStyle(it).backgroundColor.match(/[\\d.]+/g).map(Number);
      return it.textContent.includes('approved') && a > 0 && r > 240 && g > 220 && b < 225;
    })"""
    return bool(said) and said[0]["top"] < 120 and page.evaluate(amber)


# B. Confusing.


@mends("B2")
def the_subject_begins_within_120_pixels(look: Look) -> bool:
    subjects = {
        "refund": ("4900", "49.00", "pay_refund"),
        "deployment": ("acme-web",),
        "shell": ("Run a script on", "web-1.prod"),
    }
    for name, words in subjects.items():
        first = min(it["top"] for it in painted(look(name)) if any(word in it["text"] for word in words))
        if first > 120:
            return False
    return True


@mends("B4")
def a_press_shows_at_once(look: Look) -> bool:
    page = look("refund")
    page.evaluate(
        "document.forms[0].addEventListener('submit', it => { if (!it.defaultPrevented) it.preventDefault(); })"
    )
    ready_now(page)
    page.locator(f".decide {APPROVE}").click()
    return "Sending …" in [each["text"] for each in painted(page, ".decide")]


@mends("B5")
def a_page_counts_down_by_itself(look: Look) -> bool:
    page = look("four-hours")
    before = page.locator("header").inner_text()
    page.clock.run_for(120_000)
    return page.locator("header").inner_text() != before


@mends("B9")
def a_fault_is_in_sight_with_its_field(look: Look) -> bool:
    for name, field in (
        ("form-faults", "#f-remote"),
        ("jobs-faults", "#selected"),
        ("code-faults", "#email_code"),
    ):
        page = look(name)
        fault, of = box(page, f"{field}-fault"), box(page, field)
        top = page.evaluate("scrollY")
        in_sight = top <= fault["top"] and fault["bottom"] <= top + page.viewport_size["height"]
        close = min(abs(fault["top"] - of["bottom"]), abs(of["top"] - fault["top"])) < 100
        if not (in_sight and close):
            return False
    return True


@mends("B10")
def code_is_edited_in_the_type_of_code(look: Look) -> bool:
    page = look("sql-edit")
    open_all(page)
    family = page.locator("textarea").first.evaluate("it => getComputedStyle(it).fontFamily")
    return "mono" in family


@mends("B10")
def an_e_mail_is_edited_on_two_screens(look: Look) -> bool:
    page = look("mail-edit")
    return page.evaluate("document.documentElement.scrollHeight") < 2.2 * page.viewport_size["height"]


# D. Ugly.


@mends("D1")
def nothing_is_set_in_a_serif(look: Look) -> bool:
    families = "[...document.querySelectorAll('body *')].map(it => getComputedStyle(it).fontFamily)"
    serif = ("Georgia", "Palatino", "Liberation Serif")
    return not any(
        word in family
        for name in ("refund", "chinese", "approved")
        for family in look(name).evaluate(families)
        for word in serif
    )


@mends("D2")
def three_arguments_leave_room_on_a_phone(look: Look) -> bool:
    return box(look("refund"), ".act")["bottom"] < 560


@mends("D3")
def no_rule_stands_under_a_heading_or_above_the_first_row(look: Look) -> bool:
    under = """() => {
      const heads = [...document.querySelectorAll('h1, h2, h3, .tool')].filter(it => it.checkVisibility())
        .map(it => it.getBoundingClientRect()).filter(it => it.width > 1);
      return [...document.querySelectorAll('main *')].filter(it => {
        const look = getComputedStyle(it), box = it.getBoundingClientRect();
        const isRule = parseFloat(look.borderTopWidth) > 0 && parseFloat(look.borderLeftWidth) === 0;
        const isUnder = heads.some(head => head.bottom <= box.top + 1 && box.top - head.bottom < 28);
        return isRule && isUnder && box.width > 200 && it.checkVisibility();
      }).length;
    }"""
    return look("refund").evaluate(under) == 0


@mends("D4")
def nothing_has_to_be_written_before_a_decision(look: Look) -> bool:
    return look("refund").evaluate(
        "[...document.querySelectorAll('textarea')].every(it => !it.checkVisibility())"
    )


@mends("D5")
def ids_and_digests_are_not_painted(look: Look) -> bool:
    said = " ".join(each["text"] for each in painted(look("refund")))
    return "case_1" not in said and not any(len(word) == 64 for word in said.split())


@mends("D7")
def at_twice_the_text_no_name_breaks(look: Look) -> bool:
    page = look("refund", large=True)
    return all(len(each["left"]) == 1 for each in painted(page, ".brand"))


@mends("D7")
def at_twice_the_text_the_first_screen_tells_the_decision(look: Look) -> bool:
    page = look("refund", large=True)
    screen = page.viewport_size["height"]
    subjects = ("A-1042", "pay_refund")
    return any(each["top"] < screen and any(it in each["text"] for it in subjects) for each in painted(page))


@mends("D8")
def no_edge_is_a_private_code(look: Look) -> bool:
    coded = """() => [...document.querySelectorAll('main section, main details')].filter(it => {
      const look = getComputedStyle(it);
      const edges = ['Top', 'Right', 'Bottom', 'Left'].map(side => parseFloat(look[`border${side}Width`]));
      return it.checkVisibility() && Math.max(...edges) > 2;
    }).length"""
    return look("refund").evaluate(coded) == 0
