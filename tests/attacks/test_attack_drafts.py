"""A draft that somebody else planted: it is shown as theirs, and what it does not show is not sent for anybody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kit.running_service import BROWSER, Opened, Served, serving

from askfirst.service.links import page_pass
from askfirst.service.visitor import COOKIE, LINK_COOKIE

pytestmark = pytest.mark.anyio
KIND = "planted drafts"
NO_FORM = "Somebody with this link has filled in some of this form"
KEPT = "You have filled this in"
FORM: dict[str, Any] = {
    "session_id": "s1",
    "steps": [
        {
            "title": "Account",
            "fields": [
                {"key": "iban", "label": "IBAN", "type": "text", "required": True, "sensitive": True},
                {"key": "name", "label": "Name", "type": "text"},
            ],
        },
        {"title": "More", "fields": [{"key": "note", "label": "Note", "type": "text"}]},
    ],
}
ONE_PAGE = {"session_id": "s1", "fields": FORM["steps"][0]["fields"]}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(f"sqlite:///{tmp_path}/cases.db") as service:
        yield service


@pytest.fixture
async def visitor() -> AsyncIterator[Callable[[Opened], Visitor]]:
    async with AsyncExitStack() as stack:

        def come(case: Opened) -> Visitor:
            come_by = Visitor(case)
            stack.push_async_callback(come_by.http.aclose)
            return come_by

        yield come


Visitors = Callable[[Opened], "Visitor"]


class Visitor:
    """A browser with cookies of its own, without any script."""

    def __init__(self, case: Opened) -> None:
        self.case = case
        self.http = httpx2.AsyncClient(base_url=case.agent.served.url)
        self.answer: httpx2.Response | None = None

    async def see(self) -> str:
        self.answer = await self.http.get(self.case.hitl["review_url"], headers=BROWSER)
        return self.answer.text

    async def press(self, intent: str, step: int = 1, **fields: str) -> str:
        headers = {**BROWSER, "Sec-Fetch-Site": "same-origin"}
        shown = [["iban", "name"], ["note"]][step - 1]
        data = {"step": str(step), "intent": intent, "shown": shown}
        url = f"/review/{self.case.case_id}/respond?token={self.case.token}"
        posted = data | {f"f.{key}": value for key, value in fields.items()}
        self.answer = await self.http.post(url, data=posted, headers=headers)
        return self.answer.text

    @property
    def status(self) -> int:
        assert self.answer is not None
        return self.answer.status_code


@pytest.mark.attack("M9", KIND)
async def test_a_planted_value_is_not_sent_in_the_persons_name(served: Served, visitor: Visitors) -> None:
    case = await (await served.agent()).open("input", context={"form": ONE_PAGE})
    asker, person = visitor(case), visitor(case)
    await asker.press("draft", iban="DE-MALLORY", name="Mallory")
    page = await person.see()
    assert NO_FORM in page
    assert KEPT not in page
    assert "Mallory" in page  # what is seen may be looked at
    await person.press("answer", name="Ann")
    assert person.status == 422
    await person.press("answer", iban="DE-ANN", name="Ann")
    assert person.status == 303
    assert (await case.poll())["result"]["data"] == {"iban": "DE-ANN", "name": "Ann"}


@pytest.mark.attack("M9", KIND)
async def test_nothing_can_be_planted_while_the_person_is_at_work(served: Served, visitor: Visitors) -> None:
    case = await (await served.agent()).open("input", context={"form": FORM})
    asker, person = visitor(case), visitor(case)
    await person.press("next", iban="DE-ANN")
    await asker.press("next", iban="DE-MALLORY")
    await person.press("answer", step=2, note="please")
    assert person.status == 422  # it is not sent with the asker's, and their own is asked for again
    assert KEPT not in await person.see()
    await person.press("next", iban="DE-ANN")
    await person.press("answer", step=2, note="please")
    assert person.status == 303
    assert (await case.poll())["result"]["data"] == {"iban": "DE-ANN", "note": "please"}


async def test_a_person_goes_on_with_their_own_draft(served: Served, visitor: Visitors) -> None:
    case = await (await served.agent()).open("input", context={"form": FORM})
    person = visitor(case)
    assert KEPT in await person.press("draft", iban="DE-ANN", name="Ann")
    page = await person.see()
    assert KEPT in page
    assert NO_FORM not in page
    assert "DE-ANN" not in page
    await person.press("next", name="Ann")
    await person.press("answer", step=2)
    assert (await case.poll())["result"]["data"] == {"iban": "DE-ANN", "name": "Ann"}


@pytest.mark.attack("M9", KIND)
async def test_another_browsers_cookie_cannot_be_guessed_or_made_up(
    served: Served, visitor: Visitors
) -> None:
    case = await (await served.agent()).open("input", context={"form": ONE_PAGE})
    person = visitor(case)
    await person.press("draft", iban="DE-ANN")
    [row] = [await served.service.cases.with_token(case.case_id, case.token, "review")]
    for secret in ("", "x" * 32, "x", row.drafted_by or "", "ü"):
        other = visitor(case)
        other.http.headers["cookie"] = f"{COOKIE}={secret}".encode().decode("latin-1")
        await other.press("answer")
        assert other.status == 422


async def test_the_cookie_is_for_this_case_and_no_script(served: Served, visitor: Visitors) -> None:
    case = await (await served.agent()).open("input", context={"form": ONE_PAGE})
    person = visitor(case)
    await person.see()
    assert person.answer is not None
    kept = {each.name: each for each in person.http.cookies.jar}
    assert set(kept) == {COOKIE, LINK_COOKIE}
    assert kept[LINK_COOKIE].path == f"/review/{case.case_id}/live"
    assert kept[LINK_COOKIE].value == page_pass(case.token)
    (said,) = [each for each in person.answer.headers.get_list("set-cookie") if each.startswith(f"{COOKIE}=")]
    for part in ("HttpOnly", "SameSite=lax", f"Path=/review/{case.case_id}", "Max-Age="):
        assert part in said
    await person.press("draft", iban="DE-ANN")
    assert "set-cookie" not in person.answer.headers
    await person.press("draft", iban="DE-ANN", name="Ann")
    assert "set-cookie" not in person.answer.headers
    approval = await (await served.agent()).open("approval")
    decided = (await approval.form(action="approve")).headers["set-cookie"]  # who decided may undo it
    assert decided.startswith(f"{COOKIE}=")
    assert f"Path=/review/{approval.case_id};" in decided
