"""High risk has a second step that the server demands; critical a reason and a fresh code, too."""

from __future__ import annotations

import html
import re
from functools import partial
from typing import Any

import httpx2
import pytest
from kit.logins import ANN, by_header, signed_in
from kit.running_service import BROWSER, Served, serving, until
from kit.smtp_mailbox import Mailbox, mailbox
from kit.stores import SHARED, asked

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.display import Display
from askfirst.messages import call_digest
from askfirst.requests import ApproveRequest, HitlRequest
from askfirst.service.adoption import case_id_of
from askfirst.service.case import Case
from askfirst.service.embedding import review_link
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
FORM = {**BROWSER, "Sec-Fetch-Site": "same-origin", "Origin": "null"}
CASE = case_id_of("t", "call-1", 1)


async def page_of(served: Served, store: SqlCheckpointer, args: dict[str, Any], **words: Any) -> str:
    """The address of the page for a call that its tool's author shows so."""
    payload = ApproveRequest(
        tool_name="send",
        tool_call_id="call-1",
        args=args,
        digest=call_digest("send", args),
        display=Display(**words).shown(args),
    )
    now = served.service.cases.now() / 1000
    await asked(store, "t", HitlRequest(question_id="call-1", payload=payload, created_at=now))

    async def known() -> bool:
        return await served.service.cases.engine.read(partial(case_store.shown, CASE)) is not None

    await until(known)
    return await review_link(served.app, CASE)


async def post(served: Served, page: str, fields: dict[str, str], **headers: str) -> httpx2.Response:
    return await served.http.post(page.replace("?", "/respond?"), data=fields, headers={**FORM, **headers})


def fields_of(page: httpx2.Response) -> dict[str, str]:
    """The hidden fields of the page's form."""
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', page.text)
    return {name: html.unescape(value) for name, value in found}


async def case_now(served: Served) -> Case:
    return await served.service.cases.get(CASE)


@each_store
async def test_high_risk_takes_two_posts(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="high")
        first = await post(served, page, {"action": "approve"})
        assert first.status_code == 200
        assert not (await case_now(served)).is_final
        second = fields_of(first)
        assert {"confirmed", "nonce", "action"} <= second.keys()
        done = await post(served, page, second)
        assert done.status_code == 303
        assert ((await case_now(served)).result or {})["action"] == "approve"


@pytest.mark.parametrize("words", [{}, {"risk": "low"}])
@on_sqlite
async def test_low_and_normal_risk_take_one(checkpointer: SqlCheckpointer, words: dict[str, Any]) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, **words)
        assert (await post(served, page, {"action": "approve"})).status_code == 303
        assert (await case_now(served)).is_final


@on_sqlite
async def test_rejecting_takes_one_whatever_the_risk(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="critical")
        assert (await post(served, page, {"action": "reject"})).status_code == 303
        assert ((await case_now(served)).result or {})["action"] == "reject"


@on_sqlite
async def test_a_confirmation_of_something_else_does_not_count(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="high")
        second = fields_of(await post(served, page, {"action": "approve"}))
        edited = {**second, "action": "edit", "intent": "answer", "edits": '{"n": 2}'}
        again = await post(served, page, edited)
        assert again.status_code == 200
        assert not (await case_now(served)).is_final
        changed = fields_of(again)
        assert changed["confirmed"] != second["confirmed"]
        assert (await post(served, page, {**changed, "confirmed": "yes"})).status_code == 200
        assert (await post(served, page, changed)).status_code == 303
        assert ((await case_now(served)).result or {})["data"]["edits"] == {"n": 2}


@on_sqlite
async def test_a_risk_pattern_asks_for_the_second_step(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"command": "rm -rf /srv"})
        assert (await post(served, page, {"action": "approve"})).status_code == 200
        assert not (await case_now(served)).is_final


@on_sqlite
async def test_an_edit_to_something_risky_asks_for_it_too(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"command": "ls"})
        sent = {"action": "edit", "intent": "answer", "edits": '{"command": "rm -rf /srv"}'}
        assert (await post(served, page, sent)).status_code == 200
        assert not (await case_now(served)).is_final


@on_sqlite
async def test_what_was_not_opened_has_to_be_ticked_at_high_risk(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        text = "\n".join(map(str, range(1000)))
        page = await page_of(served, checkpointer, {"text": text}, risk="high")
        second = fields_of(await post(served, page, {"action": "approve"}))
        refused = await post(served, page, second)
        assert refused.status_code == 422
        assert not (await case_now(served)).is_final
        assert (await post(served, page, {**second, "unread": "accepted"})).status_code == 303


# Critical: a reason and a fresh code.


@on_sqlite
async def test_critical_takes_a_reason_and_a_fresh_code(checkpointer: SqlCheckpointer) -> None:
    async with mailbox() as box, serving(checkpointer, smtp_url=box.url, identify=by_header) as served:
        ann = signed_in(ANN)
        page = await page_of(served, checkpointer, {"n": 1}, risk="critical")
        second = fields_of(await post(served, page, {"action": "approve"}, **ann))
        assert second["confirmed"]
        short = await post(served, page, {**second, "feedback": "fine"}, **ann)
        assert short.status_code == 422
        reasoned = {**second, "feedback": "checked with the bank"}
        no_code = await post(served, page, reasoned, **ann)
        assert no_code.status_code == 403
        assert not (await case_now(served)).is_final
        sent = await post(served, page, {**reasoned, "send_code": "0"}, **ann)
        assert sent.status_code == 200
        assert fields_of(sent)["confirmed"] == second["confirmed"]
        code = await _code(box)
        done = await post(served, page, {**reasoned, "email_code": code}, **ann)
        assert done.status_code == 303
        case = await case_now(served)
        assert (case.responded_by or {})["email"] == ANN["email"]
        assert (case.result or {})["data"]["feedback"] == "checked with the bank"


async def _code(box: Mailbox) -> str:
    async def arrived() -> list[str]:
        return box.codes

    return (await until(arrived))[-1]


@pytest.mark.parametrize("how", ["form", "json"])
@on_sqlite
async def test_critical_without_a_way_to_send_a_code_cannot_be_approved(
    checkpointer: SqlCheckpointer, how: str
) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="critical")
        if how == "form":
            second = fields_of(await post(served, page, {"action": "approve"}))
            refused = await post(served, page, {**second, "feedback": "checked with the bank"})
        else:
            body = {"action": "approve", "data": {"feedback": "checked with the bank"}}
            refused = await served.http.post(page.replace("?", "/respond?"), json=body)
        assert refused.status_code == 403
        assert not (await case_now(served)).is_final


@on_sqlite
async def test_critical_as_json_needs_its_reason(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        page = await page_of(served, checkpointer, {"n": 1}, risk="critical")
        refused = await served.http.post(page.replace("?", "/respond?"), json={"action": "approve"})
        assert refused.status_code == 422
        assert "data.feedback" in refused.json()["faults"]
        rejected = await served.http.post(page.replace("?", "/respond?"), json={"action": "reject"})
        assert rejected.status_code == 200


@pytest.mark.parametrize(("risk", "status"), [("normal", 200), ("high", 403), ("critical", 403)])
@on_sqlite
async def test_a_messengers_button_lets_nothing_of_high_risk_happen(
    checkpointer: SqlCheckpointer, risk: str, status: int
) -> None:
    async with serving(checkpointer, inline=True) as served:
        agent = await served.agent()
        case = await agent.open(risk=risk)
        assert (await case.press("approve")).status_code == status
        other = await agent.open(risk=risk)
        assert (await other.press("reject")).status_code == 200


# How a service says that its case is shown.


@on_sqlite
async def test_a_service_says_how_its_case_is_shown(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        agent = await served.agent()
        case = await agent.open(
            context={"cents": 4900},
            labels={"cents": "Amount"},
            formats={"cents": "money:EUR"},
            consequences=["money"],
            approve_label="Pay 49.00 EUR",
            reject_label="Keep it",
            links=[{"title": "Order", "url": "https://shop.example/A-1042"}],
        )
        shown = (await served.service.cases.get(case.case_id)).shown
        assert shown is not None
        assert (shown["approve"], shown["reject"]) == ("Pay 49.00 EUR", "Keep it")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"labels": {"x": "X"}}, "labels"),
        ({"formats": {"x": "number"}}, "formats"),
        ({"context": {"x": 1}, "formats": {"x": "moneys"}}, "formats"),
        ({"risk": "huge"}, "risk"),
        ({"consequences": ["doom"]}, "consequences"),
        ({"approve_label": "x" * 25}, "approve_label"),
        ({"links": [{"title": "a", "url": "http://a.example"}]}, "links"),
        ({"links": [{"title": "a", "url": "javascript:alert(1)"}]}, "links"),
    ],
)
@on_sqlite
async def test_what_cannot_be_shown_is_refused(
    checkpointer: SqlCheckpointer, fields: dict[str, Any], fault: str
) -> None:
    async with serving(checkpointer) as served:
        agent = await served.agent()
        refused = await agent.post("/v1/reviews", {"type": "approval", "prompt": "p", **fields})
        assert refused.status_code == 422
        assert any(name.startswith(fault) for name in refused.json()["faults"]), refused.text


@pytest.mark.parametrize(
    ("type_", "context", "action"),
    [
        ("selection", {"items": [{"id": "a", "title": "A"}]}, "select"),
        (
            "input",
            {"form": {"fields": [{"key": "n", "label": "N", "type": "text", "required": True}]}},
            "submit",
        ),
    ],
)
@on_sqlite
async def test_none_of_these_where_the_caller_allows_it(
    checkpointer: SqlCheckpointer, type_: str, context: dict[str, Any], action: str
) -> None:
    async with serving(checkpointer) as served:
        agent = await served.agent()
        strict, open_ = (
            await agent.open(type_, context=context),
            await agent.open(type_, context=context, decline=True),
        )
        assert (await strict.form(decline="1")).status_code == 422
        assert (await open_.form(decline="1", note="wrong list")).status_code == 303
        polled = await open_.poll()
        assert polled["result"] == {"action": action, "data": {"declined": True, "note": "wrong list"}}
