"""Addresses on a page: one that others wrote is never a link by itself; a page shows all of it first."""

from __future__ import annotations

from typing import Any

import pytest
from kit import page_cases as cases
from kit.page_cases import NOW, TOKEN
from kit.page_text import Page

from askfirst.display import Display
from askfirst.requests import ApproveRequest
from askfirst.service.case import Case
from askfirst.service.case_state import case_state_of
from askfirst.service.pages import render_case
from askfirst.service.pages.decision import decision_of
from askfirst.service.pages.row import View, address_of
from askfirst.service.pages.sight import Sight

DIFF = "https://git.example/pull/7?x=1&y=%20#files"


def page_of(case: Case, view: View) -> Page:
    sight = Sight(
        decision=decision_of(case, view=view),
        standing=case_state_of(case, NOW, None),
        organisation="Desk",
        reader=None,
        nonce="",
        hold_seconds=0,
        path="/review/case_1",
        view=view,
    )
    return Page(render_case(case, token=TOKEN, base_path="", now=NOW, sight=sight))


def deploying(**args: Any) -> Case:
    words = Display(formats={"diff": "url"}, help_url="https://wiki.example/deploy").shown(args)
    payload = ApproveRequest(tool_name="deploy", tool_call_id="c1", args=args, digest="d" * 64, display=words)
    return cases.agent_case(payload)


def links(page: Page) -> dict[str, str]:
    return {each.text.strip(): str(each.attrs["href"]) for each in page.all("a") if "href" in each.attrs}


def leaving(page: Page) -> list[str]:
    return [href for href in links(page).values() if not href.startswith(("/review/", "#"))]


def test_an_address_among_the_values_opens_a_page_that_shows_it_whole() -> None:
    case = deploying(service="web", diff=DIFF)
    page = page_of(case, View())
    assert leaving(page) == ["https://wiki.example/deploy"]  # the tool author's own
    way = links(page)["Open …"]
    assert way.endswith("&out=row-1")
    shown = page_of(case, View(out="row-1"))
    assert [each.text for each in shown.all("strong") if each.text == "git.example"] == ["git.example"]
    assert DIFF in "".join(each.text for each in shown.all("section"))
    assert leaving(shown) == [DIFF]
    [link] = [each for each in shown.all("a") if each.attrs.get("href") == DIFF]
    assert link.attrs["rel"] == "noreferrer noopener"
    assert not shown.all("form")


def test_a_services_links_lead_there_by_the_same_page() -> None:
    shown = {"links": [{"title": "The order", "url": "https://shop.example/orders/7"}]}
    case = cases.service_case("approval", {"order": 7}, shown=shown)
    page = page_of(case, View())
    assert leaving(page) == []
    assert links(page)["The order"].endswith("&out=link-0")
    assert leaving(page_of(case, View(out="link-0"))) == ["https://shop.example/orders/7"]


@pytest.mark.parametrize("out", ["link-0", "row-0", "row-9", "row-", "help", "row-1-1", "x"])
def test_a_name_of_no_address_shows_the_case_itself(out: str) -> None:
    case = deploying(service="web", diff=DIFF)
    assert [each.text for each in page_of(case, View(out=out)).all("h1")] == ["Deploy"]


@pytest.mark.parametrize(
    "text",
    ["http://a.example/", "javascript:alert(1)", "https://ada:pw@a.example/", "https://а.example/", "no"],
)
def test_an_address_that_is_not_plain_https_cannot_be_opened(text: str) -> None:
    page = page_of(deploying(service="web", diff=text), View())
    assert "Open …" not in links(page)
    assert page_of(deploying(service="web", diff=text), View(out="row-1")).all("form")


def test_the_host_is_what_a_browser_would_ask() -> None:
    found = address_of("https://bank.example@evil.example:8443/bank.example")
    assert found is not None
    assert (found.before, found.host) == ("https://bank.example@", "evil.example")
    assert found.href is None
    assert address_of("no address") is None


def test_how_to_decide_is_shown_without_a_reason_too() -> None:
    case = deploying(service="web", diff=DIFF)
    assert case.payload is not None
    assert not decision_of(case).why
    assert "How to decide this, at wiki.example" in links(page_of(case, View()))
