"""The scenes, of which `scripts/screenshots` takes pictures: every page, every state, and every sentence."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from kit.page_cases import NOW
from kit.page_scenes import Scene
from kit.page_states import all_scenes
from kit.standing_cases import ended
from kit.standing_pages import standing_scenes

from askfirst.service.case_state import CaseState, State
from askfirst.service.pages import Reader, languages
from askfirst.service.pages.language import Language
from askfirst.service.pages.render import Notice

NOT_ON_A_PAGE = {
    "again.default": "is sent to the agent",
    "name": "stands in its own language, whatever the reader's is",
    **{f"month.{place}": "is in the date of another month" for place in range(1, 13)},
}
"""Sentences that no scene has to show, and why."""
KEYED = Language(
    "en",
    {
        key: f"⟦{key}⟧{said}"
        if isinstance(said, str)
        else {form: f"⟦{key}⟧{it}" for form, it in said.items()}
        for key, said in languages()["en"].sentences.items()
    },
)
"""A language in which each sentence begins with its key."""


def test_every_sentence_of_the_catalogue_is_in_a_picture() -> None:
    shown = {
        key for scene in all_scenes().values() for key in re.findall(r"⟦([^⟦⟧]+)⟧", scene.html(Reader(KEYED)))
    }
    wanted = set(languages()["en"].sentences) - set(NOT_ON_A_PAGE)
    assert sorted(wanted - shown) == [], "either a scene is missing, or no page says this any more"


def test_every_picture_s_page_is_below_200_kb() -> None:
    sizes = {name: len(scene.html().encode()) for name, scene in all_scenes().items()}
    assert {name: size for name, size in sizes.items() if size > 200_000} == {}


def test_every_state_and_every_notice_is_in_a_picture() -> None:
    pages = [it for it in all_scenes().values() if isinstance(it, Scene)]
    assert {it.standing.state if it.standing else "open" for it in pages} >= set(get_args(State)) - {
        "expired",
        "cancelled",
    }
    assert {it.case.status for it in pages} >= {"opened", "completed", "expired", "cancelled"}
    assert {it.given.get("notice") for it in pages} >= set(get_args(Notice)) - {"code_entered", "changed"}


def test_every_case_of_the_standing_set_is_in_a_picture() -> None:
    shown = {it.case.type for it in all_scenes().values() if isinstance(it, Scene)}
    assert {it.case.type for it in standing_scenes().values()} <= shown


def test_what_was_found_about_a_call_in_doubt_is_no_rejection() -> None:
    scene = all_scenes()["doubt-found"]
    html = scene.html(Reader(languages()["en"]))
    assert "<h1>It happened: Transfer" in html
    assert "may or may not have happened</h1>" not in html
    assert 'id="state">Decided</p>' in html
    held = CaseState("held", 2, action="skip", by="Ada Ngo", at=NOW, held_until=NOW + 5, is_yours=True)
    html = Scene(all_scenes()["doubt-transfer"].case, held).html(Reader(languages()["en"]))
    assert "<h1>It happened: Transfer" in html
    assert 'id="state">Decided</p>' in html


@pytest.mark.parametrize(
    ("state", "heading"),
    [
        ("held", "You had it tried again: Transfer"),
        ("sent", "You had it tried again: Transfer"),
        ("done", "It ran: Transfer"),
        ("failed", "It was approved and failed: Transfer"),
    ],
)
def test_who_had_it_tried_again_reads_no_more_that_it_is_in_doubt(state: Any, heading: str) -> None:
    case = ended(all_scenes()["doubt-transfer"].case, "retry", {})
    standing = CaseState(state, 2, action="retry", at=NOW, held_until=NOW + 5, is_yours=True)
    html = Scene(case, standing).html(Reader(languages()["en"]))
    assert f"<h1>{heading}" in html
    assert "may or may not have happened</h1>" not in html


def html_of(name: str) -> str:
    return all_scenes()[name].html(Reader(languages()["en"]))


def test_a_heading_of_our_own_is_not_announced_as_the_asker_s_words() -> None:
    for name in ("code-approval", "approval-out", "approval-long-words"):
        assert "in its own words:" not in html_of(name), name
    assert "in its own words:" in html_of("approval-service")


def test_a_decision_that_could_not_go_on_ends_in_a_failure_and_says_once_that_it_is_kept() -> None:
    for name in ("went-stuck", "went-given-up"):
        html = html_of(name)
        assert '<li class="failed"><div>Could not go on' in html
        assert html.count("has to be decided again") == 1


def test_nobody_waits_for_a_next_try_that_is_there() -> None:
    html = html_of("next-round-named")
    assert "Waiting for a new try" not in html
    assert "You will be asked again" not in html


def test_an_agent_s_own_choice_is_quoted() -> None:
    html = html_of("ended-call-the-bank-yours")
    assert "<h1>Answered with “<bdi>call the bank</bdi>”: " in html
    assert "“<bdi>call the bank</bdi>” by " in html


def test_lines_that_were_not_judged_are_named_only_if_there_are_some() -> None:
    html = html_of("approval-risky")
    assert "All 21 lines match a risk pattern" in html
    assert "The others were not judged." not in html
    assert "The others were not judged." in html_of("approval-high")


def test_a_single_line_of_code_has_no_number() -> None:
    assert '<ol class="text lines one"' in html_of("escalation")
    assert '<ol class="text lines"' in html_of("approval-high")
    assert '<ol class="text lines far"' in html_of("approval-long-text")


def test_who_asked_for_another_try_is_said_once() -> None:
    said = html_of("approval-round").partition('class="round card"')[2].partition("</section>")[0]
    assert said.count("Ada") == 1
    assert "Say what is broken." in said


def test_an_amount_is_not_parted_from_its_currency() -> None:
    for name in ("approval", "withdrawn-by-somebody", "done-long"):
        heading = html_of(name).partition("<h1")[2].partition("</h1>")[0]
        assert '<span class="keep">49.00 EUR</span>' in heading, name


def test_a_text_that_is_cut_does_not_look_like_the_sentence_that_says_so() -> None:
    html = html_of("approval-round-many")
    assert '<p class="cut">' in html
    assert 'class="text cut"' not in html
