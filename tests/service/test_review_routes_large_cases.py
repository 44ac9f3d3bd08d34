"""Large cases over the wire: lists in parts, split forms, long answers and notes, and downloads of long values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit.page_text import Page
from kit.running_service import BROWSER, Opened, Served, serving

pytestmark = pytest.mark.anyio
ITEMS = [{"id": f"i{place}", "title": f"Item number {place}"} for place in range(200)]
LONG = "hidden\u200bhere\r\n\tend " + "漢" * 50_000


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as service:
        yield service


async def opened(served: Served, type_: str, **fields: Any) -> Opened:
    return await (await served.agent()).open(type_, **fields)


def shown(answer: httpx2.Response) -> dict[str, Any]:
    """The fields that a browser posts from a page, without a button."""
    assert answer.status_code == 200, answer.text
    return dict(Page(answer.text).fields())


async def text(case: Opened, token: str | None = None, **query: Any) -> httpx2.Response:
    """The download of a value."""
    asked = {"token": case.token if token is None else token, **query}
    return await case.http.get(f"/review/{case.case_id}/text", params=asked, headers=BROWSER)


# Back from a further step.


@pytest.mark.parametrize(
    ("type_", "key", "field", "press"),
    [
        ("selection", "items", "selected", {"action": "select"}),
        ("confirmation", "items_to_confirm", "confirmed_items", {"action": "confirm"}),
        ("confirmation", "items_to_confirm", "confirmed_items", {"every": "1"}),
    ],
)
async def test_back_from_the_second_step_keeps_what_was_chosen(
    served: Served, type_: str, key: str, field: str, press: dict[str, str]
) -> None:
    case = await opened(served, type_, context={key: ITEMS}, risk="high")
    page = shown(await case.form(**shown(await case.visit()) | {field: ["3"]}, part="5"))
    second = await case.form(**page | {field: ["120", "121"]}, **press)
    assert Page(second.text).all("input", name="confirmed"), "this is no second step"
    again = shown(
        await case.form(**shown(second), part=Page(second.text).all("button", name="part")[0].attrs["value"])
    )
    assert (again[field], again["at"]) == (["120", "121"], ["5"])
    assert (await case.poll())["status"] == "opened"
    last = shown(await case.form(**again, action=press.get("action", "confirm")))
    assert (await case.form(**last, unread="accepted")).status_code == 303
    assert (await case.poll())["result"]["data"][field] == ["i3", "i120", "i121"]


async def test_back_from_the_second_step_keeps_what_was_filled_in(served: Served) -> None:
    fields = [
        {"key": "name", "label": "Name", "type": "text"},
        {"key": "why", "label": "Why", "type": "textarea"},
    ]
    case = await opened(served, "input", context={"form": {"fields": fields}}, risk="high")
    long = "because " * 100
    filled = {"step": "1", "shown": ["name", "why"], "f.name": "Ada", "f.why": long}
    second = shown(await case.form(**filled, intent="answer"))
    again = shown(await case.form(**second, part="1"))
    assert again["f.name"] == ["Ada"]
    last = shown(await case.form(**again, intent="answer"))
    assert (await case.form(**last)).status_code == 303
    assert (await case.poll())["result"]["data"] == {"name": "Ada", "why": long}


# Forms and answers.


async def test_a_form_in_parts_is_one_answer(served: Served) -> None:
    options = [{"value": f"c{place}", "label": f"City {place}"} for place in range(400)]
    fields: list[dict[str, Any]] = [
        {"key": f"q{place}", "label": f"Question {place}", "type": "text"} for place in range(150)
    ]
    fields.append({"key": "city", "label": "City", "type": "select", "options": options, "required": True})
    case = await opened(served, "input", context={"form": {"fields": fields}})
    answer = await case.visit()
    for _ in range(10):
        page = shown(answer)
        page |= {name: [name.removeprefix("f.").upper()] for name in page if name.startswith("f.q")}
        if Page(answer.text).all("button", name="intent", value="answer"):
            break
        answer = await case.form(**page, intent="next")
    else:
        pytest.fail("the form has no last part")
    found = shown(await case.form(**page | {"find": ["City 399"]}, search="1"))
    assert (await case.form(**found | {"selected": ["399"]}, intent="answer")).status_code == 303
    expected = {f"q{place}": f"Q{place}" for place in range(150)} | {"city": "c399"}
    assert (await case.poll())["result"]["data"] == expected


async def test_a_long_answer_is_kept_and_sent_whole(served: Served) -> None:
    case = await opened(served, "input", risk="high")
    long = "a line of an answer\n" * 1_000
    second = await case.form(response=long)
    assert len(second.text) < 30_000
    assert (await case.form(**shown(second))).status_code == 303
    assert (await case.poll())["result"]["data"]["response"] == long


async def test_a_note_that_is_too_long_for_the_second_step_is_refused(served: Served) -> None:
    case = await opened(served, "approval", risk="high")
    refused = await case.form(action="approve", note="n" * 5_001)
    assert refused.status_code == 422
    assert "5000 characters" in refused.text.replace(",", "")
    second = shown(await case.form(action="approve", note="n" * 5_000))
    assert (await case.form(**second)).status_code == 303
    assert (await case.poll())["result"]["data"]["feedback"] == "n" * 5_000


# Very many arguments.

PARAMS = {f"a{place}": place for place in range(250)}


async def test_changes_on_several_parts_of_the_arguments_are_sent_together(served: Served) -> None:
    case = await opened(served, "escalation", context={"params": PARAMS})
    page = shown(await case.http.get(f"{case.hitl['review_url']}&edit=1", headers=BROWSER))
    assert page["rows"][0].startswith("0-")
    assert "arg.120" not in page
    page = shown(await case.form(**page | {"arg.3": ["33"]}, intent="rows.100"))
    page = shown(await case.form(**page | {"arg.120": ["1200"]}, intent="rows.200"))
    assert page["rows"] == ["200-250"]
    page = shown(await case.form(**page | {"arg.249": ["0"]}, intent="rows.0"))
    assert (page["arg.3"], "arg.249" in page) == (["33"], False)
    page = shown(await case.form(**page | {"arg.4": ["44"]}, intent="preview"))
    assert (await case.form(**page | {"action": "retry", "intent": "answer"})).status_code == 303
    expected = PARAMS | {"a3": 33, "a4": 44, "a120": 1200, "a249": 0}
    assert (await case.poll())["result"]["data"] == {"modified_params": expected}


async def test_a_fault_on_another_part_of_the_arguments_leads_there(served: Served) -> None:
    case = await opened(served, "escalation", context={"params": PARAMS})
    page = shown(await case.http.get(f"{case.hitl['review_url']}&edit=1", headers=BROWSER))
    page = shown(await case.form(**page | {"arg.3": ["many"]}, intent="rows.100"))
    refused = await case.form(**page | {"arg.120": ["1200"]}, intent="preview")
    assert refused.status_code == 422
    again = Page(refused.text).fields()
    assert again["arg.3"] == ["many"]
    page = shown(await case.form(**again | {"arg.3": ["33"]}, intent="preview"))
    assert (await case.form(**page | {"action": "retry", "intent": "answer"})).status_code == 303
    assert (await case.poll())["result"]["data"]["modified_params"] == PARAMS | {"a3": 33, "a120": 1200}


# Downloads.


async def test_a_download_has_every_character_and_nothing_runs_in_it(served: Served) -> None:
    case = await opened(served, "approval", context={"small": 1, "text": LONG})
    answer = await text(case, row=1)
    assert answer.content == LONG.encode()
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="value.txt"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "no-store" in answer.headers["cache-control"]


async def test_the_page_of_a_long_value_links_to_its_download(served: Served) -> None:
    case = await opened(served, "approval", context={"small": 1, "text": LONG})
    page = await case.http.get(f"{case.hitl['review_url']}&row=1", headers=BROWSER)
    link = next(it for it in Page(page.text).all("a") if "download" in it.attrs)
    answer = await case.http.get(str(link.attrs["href"]), headers=BROWSER)
    assert answer.content == LONG.encode()


@pytest.mark.parametrize("query", [{}, {"row": 2}, {"row": -1}, {"row": "x"}, {"row": 0, "of": "more"}])
async def test_an_unknown_row_is_not_found(served: Served, query: dict[str, Any]) -> None:
    case = await opened(served, "approval", context={"small": "known-value", "text": "b"})
    answer = await text(case, **query)
    assert answer.status_code == 404
    assert "known-value" not in answer.text


async def test_a_wrong_token_gets_no_text(served: Served) -> None:
    case = await opened(served, "approval", context={"text": "known-value"})
    for token in ("", "x" * 43):
        answer = await text(case, token, row=0)
        assert answer.status_code == 404
        assert "known-value" not in answer.text
    assert (await text(case, row=0)).text == "known-value"


async def test_secret_values_are_never_downloaded(served: Served) -> None:
    case = await opened(served, "approval", context={"pin": "s3cr3t-pin"}, formats={"pin": "secret"})
    answer = await text(case, row=0)
    assert answer.status_code == 404
    assert "s3cr3t-pin" not in answer.text
    fields = [{"key": "pin", "label": "PIN", "type": "text", "sensitive": True}]
    form = await opened(served, "input", context={"form": {"fields": fields}})
    await form.form(**{"step": "1", "shown": "pin", "f.pin": "s3cr3t-pin", "intent": "draft"})
    assert "s3cr3t-pin" not in (await text(form, row=0, of="draft")).text
    assert (await form.form(step="1", shown="pin", intent="answer")).status_code == 303
    assert (await form.poll())["result"]["data"] == {"pin": "s3cr3t-pin"}
    for of in ("answer", "more", "draft"):
        assert "s3cr3t-pin" not in (await text(form, row=0, of=of)).text
