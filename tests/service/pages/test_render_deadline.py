"""How long a page says that it is open: a request without a time-out does not expire."""

from __future__ import annotations

import dataclasses
import re
import time
from functools import partial
from pathlib import Path

import pytest
from kit import page_cases as cases
from kit.page_cases import ASKED, DAY, NOW, TOKEN
from kit.page_text import Page
from kit.running_service import BROWSER, fits, serving, until
from kit.stores import asked

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.protocol import PollResponse
from askfirst.requests import ConfirmRequest, HitlRequest
from askfirst.service.adoption import case_id_of
from askfirst.service.case import Case, poll_answer
from askfirst.service.embedding import review_link
from askfirst.service.pages import render_case
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio


def page_of(case: Case, now: float = NOW) -> Page:
    return Page(render_case(case, token=TOKEN, base_path="", now=now))


async def test_a_request_without_a_time_out_shows_no_deadline(tmp_path: Path) -> None:
    async with (
        checkpointer_from_url(f"sqlite:///{tmp_path}/t.db") as store,
        serving(store) as served,
    ):
        request = HitlRequest(question_id="q", payload=ConfirmRequest(prompt="Sure?"), created_at=time.time())
        await asked(store, "t", request)
        case_id = case_id_of("t", "q", 1)
        engine, shown = served.service.cases.engine, partial(case_store.get, case_id)
        await until(lambda: engine.read(shown))
        answer = await served.http.get(await review_link(served.app, case_id), headers=BROWSER)
        page = Page(answer.text)
        assert page.all("p", id="state")[0].text == "no time limit"
        (details,) = page.all("details", class_="details")
        assert "It waits until somebody answers." in details.text
        assert "If nobody answers" not in details.text
        this_year = time.gmtime().tm_year
        years = {int(each) for each in re.findall(r"\b20\d\d\b", page.all("body")[0].text)}
        assert years <= {this_year, this_year + 1}
        case = await served.service.cases.get(case_id)
        assert "expires_at" not in fits(PollResponse, poll_answer(case))
        [(_, _, told)] = await served.service.cases.events(case_id, 0)
        assert "expires_at" not in told


def test_a_request_with_a_time_out_shows_what_is_left() -> None:
    case = cases.agent_confirmation()
    page = page_of(case)
    assert page.all("p", id="state")[0].text == "23 h 59 min left"
    (details,) = page.all("details", class_="details")
    assert "23 February 2026, 10:00 UTC" in details.text
    assert "If nobody answers by then, it is skipped." in details.text
    assert page_of(case, ASKED + DAY).all("h1")[0].text.startswith("Nobody answered: ")
    assert "expires_at" in poll_answer(case)


def test_a_service_s_case_always_has_a_deadline() -> None:
    page = page_of(cases.selection())
    assert page.all("p", id="state")[0].text == "23 h 59 min left"


@pytest.mark.parametrize(
    ("seconds", "left"),
    [
        (3 * 86_400, "3 days left"),
        (86_400, "1 day left"),
        (86_400 + 7_260, "1 d 2 h left"),
        (14_340, "3 h 59 min left"),
        (7_200, "2 h left"),
        (90, "1 min left, then skipped"),
        (9, "< 1 min left, then skipped"),
    ],
)
def test_what_is_left_is_told_in_two_units(seconds: int, left: str) -> None:
    case = dataclasses.replace(cases.selection(), expires_at=NOW + seconds)
    assert page_of(case).all("p", id="state")[0].text == left
