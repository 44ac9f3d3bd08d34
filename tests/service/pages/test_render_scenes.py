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
