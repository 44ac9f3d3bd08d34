"""What a person is told when nothing can be taken: an empty answer, or a store that is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from kit import page_cases as cases
from kit.page_forms import page_of
from kit.page_text import Page
from kit.running_service import not_answering, serving

from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.errors import InvalidReview
from askfirst.service.answers import clean_answer

HTML = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize("kind", ["input", "x-poll"])
@pytest.mark.parametrize("data", [None, {}, {"response": ""}, {"response": " \n"}, {"response": None}])
def test_an_empty_answer_is_none(kind: str, data: dict[str, Any] | None) -> None:
    with pytest.raises(InvalidReview) as refused:
        clean_answer(cases.service_case(kind), "submit", data)
    assert refused.value.faults == {"data.response": "Write your answer."}


@pytest.mark.parametrize("data", [{"response": "42"}, {"a": 0}, {"a": False}])
def test_anything_else_is_an_answer(data: dict[str, Any]) -> None:
    assert clean_answer(cases.service_case("input"), "submit", data) == data


def test_the_field_of_the_answer_is_required() -> None:
    page = page_of(cases.service_case("input"))
    assert "required" in page.all("textarea", id="response")[0].attrs


@pytest.mark.anyio
async def test_an_empty_answer_comes_back_with_its_fault(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/cases.db", quick=False) as served:
        case = await (await served.agent()).open("input")
        empty = await case.form(intent="answer", response="  ")
        assert empty.status_code == 422
        page = Page(empty.text)
        assert [each.text for each in page.all("p", id="response-fault")] == ["Write your answer."]
        assert page.all("textarea")[0].attrs["aria-describedby"] == "response-fault"
        assert (await case.poll())["status"] == "pending"
        assert (await case.form(intent="answer", response="42")).status_code == 303
        assert (await case.poll())["result"]["data"] == {"response": "42"}


@pytest.mark.anyio
async def test_a_browser_gets_a_page_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        checkpointer_from_url(f"sqlite:///{tmp_path}/cases.db") as checkpointer,
        serving(checkpointer, quick=False) as served,
    ):
        case = await (await served.agent()).open()

        monkeypatch.setattr(checkpointer.engine, "read", not_answering)
        seen = await case.visit(Accept=HTML)
        address = f"/review/{case.case_id}/respond?token={case.token}"
        sent = await served.http.post(address, data={"action": "approve"}, headers={"Accept": HTML})
        for answer in (seen, sent):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert answer.headers["content-type"].startswith("text/html")
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert Page(answer.text).all("h1")[0].text == "This is not possible just now"
            assert "db.internal" not in answer.text
        assert "Nothing was changed. Try again in a moment." in seen.text
        assert "Nothing was changed" not in sent.text, "nobody knows that of an answer"
        assert [it.attrs["href"] for it in Page(seen.text).all("a")] == [""], "it loads the page again"
        (again,) = [str(it.attrs["href"]) for it in Page(sent.text).all("a")]
        assert urljoin(f"{served.url}{address}", again) == case.hitl["review_url"], "and posts nothing twice"
        program = await case.visit(Accept="*/*")
        assert (program.status_code, program.json()["error"]) == (503, "unavailable")
        monkeypatch.undo()
        assert (await case.poll())["status"] == "pending"
