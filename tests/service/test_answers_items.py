"""The items of a selection or a confirmation: what may be chosen from, and what is refused when a case is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kit import page_cases as cases
from kit.page_forms import page_of, post, settled
from kit.page_text import Page
from kit.running_service import Served, serving

from askfirst.service.answers import item_faults, item_id


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(f"sqlite:///{tmp_path}/cases.db", quick=False) as service:
        yield service


@pytest.mark.parametrize(
    ("item", "id_"),
    [
        ({"id": "a", "value": "b"}, "a"),
        ({"id": 7, "title": "Seven"}, "7"),
        ({"id": None, "value": "b", "label": "B"}, "b"),
        ("a", "a"),
        (7, "7"),
        ("", None),
        (None, None),
        (True, None),
        (1.5, None),
        (["a"], None),
        ({"title": "A"}, None),
        ({"id": True}, None),
        ({"id": {"a": 1}}, None),
    ],
)
def test_what_an_item_is_chosen_by(item: Any, id_: str | None) -> None:
    assert item_id(item) == id_


ITEMS = ["red", {"value": "green", "label": "Green as grass", "hex": "#0f0"}, {"id": 3, "title": "The third"}]


@pytest.mark.parametrize(("kind", "name"), [("selection", "items"), ("confirmation", "items_to_confirm")])
def test_texts_and_values_are_shown_to_choose_from(kind: str, name: str) -> None:
    page = page_of(cases.service_case(kind, {name: ITEMS}))
    boxes = [each for each in page.all("input") if each.attrs.get("type") == "checkbox"]
    assert len(boxes) == 3
    assert {"red", "Green as grass", "#0f0", "The third"} <= set(page.texts())
    assert "green" not in page.texts(), "a value is no fact about the item"


def test_what_is_chosen_comes_back_by_its_id() -> None:
    case = cases.service_case("selection", {"items": ITEMS})
    assert settled(post(case, selected=["0", "1", "2"]), case) == (
        "select",
        {"selected": ["red", "green", "3"]},
    )


@pytest.mark.anyio
async def test_only_what_is_offered_can_be_chosen(service: Served) -> None:
    case = await (await service.agent()).open("selection", context={"items": ITEMS})
    strange = await case.say("select", {"selected": ["blue"]})
    assert strange.status_code == 422
    assert "not offered" in strange.json()["message"]
    assert (await case.say("select", {"selected": ["green"]})).status_code == 200


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("kind", "context", "path", "said"),
    [
        ("selection", {"items": [{"id": "a"}, {"title": "B"}]}, "context.items.1", "give it one"),
        ("selection", {"items": ["a", None]}, "context.items.1", "give it one"),
        ("selection", {"items": ["a", {"id": "a"}]}, "context.items.1", "which another item has, too"),
        ("selection", {"items": {"a": "A"}}, "context.items", "must be a list"),
        ("selection", {"items": []}, "context.items", "at least one item to choose from"),
        ("confirmation", {"items_to_confirm": [{}]}, "context.items_to_confirm.0", "give it one"),
    ],
)
async def test_a_list_that_nobody_could_choose_from_opens_no_case(
    service: Served, kind: str, context: dict[str, Any], path: str, said: str
) -> None:
    agent = await service.agent()
    body = {"type": kind, "prompt": "Which?", "context": context}
    refused = await agent.post("/v1/reviews", body)
    assert (refused.status_code, list(refused.json()["faults"])) == (422, [path])
    assert said in refused.json()["message"]


def test_no_items_and_those_of_other_types_are_no_fault() -> None:
    assert item_faults("selection", {}) == {}
    assert item_faults("approval", {"items": [{}]}) == {}
    assert item_faults("confirmation", {"items_to_confirm": []}) == {}


def test_an_agents_selection_offers_no_note_that_would_be_lost() -> None:
    case = cases.agent_selection()
    page: Page = page_of(case)
    assert [each.attrs["id"] for each in page.all("textarea")] == ["decline_reason"], (
        "only why one cannot answer"
    )
    assert settled(post(case, selected="1", note="why"), case) == ("select", {"selected": ["green"]})
    assert [each.attrs["name"] for each in page_of(cases.selection()).all("textarea")] == [
        "note",
        "decline_reason",
    ]
