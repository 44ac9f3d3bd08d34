"""A page follows its case: held, undone, answered elsewhere, going on, done; and what the store knows of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

import httpx2
import pytest
from kit.patience import PATIENCE
from kit.running_service import BROWSER, HandClock, Served, serving, until
from kit.stores import SHARED, approval, asked, effect, said

from askfirst.checkpointer.base import RunRecord
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.display import steps_before
from askfirst.messages import AssistantMessage, JsonObject, TextPart, ToolCall, ToolResultMessage, Usage
from askfirst.requests import AskRequest, EscalateRequest, HitlRequest, Option, Question
from askfirst.service.adoption import case_id_of
from askfirst.service.case import Case
from askfirst.service.embedding import review_link
from askfirst.service.page_data import sight_of
from askfirst.service.pages.sight import Sight
from askfirst.service.person import Person
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
FORM = {**BROWSER, "Sec-Fetch-Site": "same-origin", "Origin": "null"}
CASE = case_id_of("t", "call-1", 1)


async def page_of(served: Served, store: SqlCheckpointer, *requests: HitlRequest, case_id: str = CASE) -> str:
    now = served.service.cases.now() / 1000
    given = requests or (approval(created_at=now),)
    await asked(store, "t", *given)

    async def known() -> bool:
        return await served.service.cases.engine.read(partial(case_store.shown, case_id)) is not None

    await until(known)
    return await review_link(served.app, case_id)


async def begun(store: SqlCheckpointer) -> int:
    """A worker has begun the call; its fence."""
    thread = await store.load("t")
    assert thread is not None
    return await store.commit("t", said(started=[effect()]), fence=thread.fence, acquire=True)


async def sight(served: Served, case_id: str = CASE) -> Sight:
    return await sight_of(served.service, await served.service.cases.get(case_id))


async def states(http: httpx2.AsyncClient, page: str, **headers: str) -> AsyncIterator[dict[str, Any]]:
    async with http.stream("GET", page.replace("?", "/live?"), headers=headers) as stream:
        assert stream.status_code == 200, await stream.aread()
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def following(stream: AsyncIterator[dict[str, Any]], state: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        async for told in stream:
            if told["state"] == state:
                return told
    raise AssertionError(state)


@each_store
async def test_a_page_hears_of_everything_that_happens(checkpointer: SqlCheckpointer) -> None:
    clock = HandClock()
    async with serving(checkpointer, hold_seconds=5, clock=clock) as served:
        page = await page_of(served, checkpointer)
        stream = states(served.http, page)
        assert (await following(stream, "open"))["version"] >= 1
        await served.http.post(
            page.replace("?", "/respond?"), data={"action": "approve", "nonce": "n"}, headers=FORM
        )
        assert "held_until" in await following(stream, "held")
        await served.http.post(page.replace("?", "/undo?"), headers=FORM)
        await following(stream, "open")
        await served.http.post(
            page.replace("?", "/respond?"), data={"action": "approve", "nonce": "m"}, headers=FORM
        )
        await following(stream, "held")
        clock.turn(5)
        await following(stream, "sent")
        fence = await begun(checkpointer)
        await following(stream, "running")
        result = said(ToolResultMessage("call-1", "send", "Paid 49.00 EUR"), ended=["call-1"])
        await checkpointer.commit("t", result, fence=fence)
        await following(stream, "done")
        outcome = (await sight(served)).standing.outcome
        assert outcome is not None
        assert (outcome.state, outcome.text) == ("done", "Paid 49.00 EUR")


@each_store
async def test_a_page_about_a_call_in_doubt_follows_the_next_attempt(checkpointer: SqlCheckpointer) -> None:
    about: JsonObject = {"tool_name": "send", "tool_call_id": "call-1", "args": {"n": 1}, "attempt": 1}
    payload = EscalateRequest(prompt="?", choices=["retry", "skip"], details=about)
    clock = HandClock()
    async with serving(checkpointer, clock=clock) as served:
        request = HitlRequest(question_id="call-1:escalate:1", payload=payload, created_at=clock.time)
        fence, _ = await asked(checkpointer, "t", approval(created_at=clock.time))
        await checkpointer.settle("t", "call-1", {"decision": "approve"}, by="ann", via="test")
        fence = await checkpointer.commit("t", said(started=[effect()]), fence=fence, acquire=True)
        fence = await checkpointer.commit("t", said(opened=[request], release=True), fence=fence)
        doubt = case_id_of("t", request.question_id, 1)

        async def known() -> bool:
            return await served.service.cases.engine.read(partial(case_store.shown, doubt)) is not None

        await until(known)
        stream = states(served.http, await review_link(served.app, doubt))
        await following(stream, "open")
        await checkpointer.settle("t", request.question_id, {"action": "retry"}, by="ann", via="test")
        await following(stream, "sent")
        fence = await checkpointer.commit("t", said(started=[effect(attempt=2)]), fence=fence, acquire=True)
        await following(stream, "running")
        result = said(ToolResultMessage("call-1", "send", "Paid 49.00 EUR"), ended=["call-1"])
        await checkpointer.commit("t", result, fence=fence)
        await following(stream, "done")


@on_sqlite
async def test_the_browser_that_held_is_told_that_somebody_was_first(checkpointer: SqlCheckpointer) -> None:
    async with (
        serving(checkpointer, hold_seconds=60) as served,
        httpx2.AsyncClient(timeout=PATIENCE) as other,
    ):
        case = await (await served.agent()).open()
        page = case.hitl["review_url"]
        await case.visit()
        assert (await case.form(action="approve", nonce="n")).status_code == 303
        mine, others = states(served.http, page), states(other, page)
        assert (await following(mine, "held"))["is_yours"]
        assert not (await following(others, "held"))["is_yours"]
        await case.say("reject")
        assert (await following(mine, "rejected"))["lost"] == "approve"
        assert "lost" not in await following(others, "rejected")


@on_sqlite
async def test_the_pages_cookie_opens_the_stream_and_nothing_else(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served, httpx2.AsyncClient(timeout=PATIENCE) as browser:
        page = await page_of(served, checkpointer)
        address = page.partition("?")[0]
        assert (await browser.get(f"{address}/live")).status_code == 404
        opened = await browser.get(page, headers=BROWSER)
        cookie = next(it for it in opened.headers.get_list("set-cookie") if it.startswith("askfirst_link="))
        for flag in ("HttpOnly", "SameSite=strict", f"Path=/review/{CASE}/live"):
            assert flag in cookie
        stream = states(browser, f"{address}?")
        await following(stream, "open")
        assert (await browser.get(address, headers=BROWSER)).status_code == 404


@on_sqlite
async def test_a_browser_that_has_heard_all_is_told_not_to_come_back(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        case = await (await served.agent()).open()
        await case.say("reject")
        page = case.hitl["review_url"]
        told = [state async for state in states(served.http, page)]
        assert [state["state"] for state in told] == ["rejected"]
        seen = {"Last-Event-ID": str(told[-1]["version"])}
        assert (await served.http.get(page.replace("?", "/live?"), headers=seen)).status_code == 204
        await (case.agent).open(previous_case_id=case.case_id)
        again = [state async for state in states(served.http, page, **seen)]
        assert [state["has_next"] for state in again] == [True]


@on_sqlite
async def test_a_preview_gets_no_cookie(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served, httpx2.AsyncClient(timeout=PATIENCE) as bot:
        page = await page_of(served, checkpointer)
        assert "set-cookie" not in (await bot.get(page)).headers


# What came of it.


@on_sqlite
async def test_a_call_that_failed(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        await page_of(served, checkpointer)
        await checkpointer.settle("t", "call-1", {"decision": "approve"}, by="ann", via="test")
        fence = await begun(checkpointer)
        failed = ToolResultMessage("call-1", "send", "the bank said no " + "x" * 9_000, is_error=True)
        await checkpointer.commit("t", said(failed, ended=["call-1"]), fence=fence)

        async def ended() -> bool:
            return (await served.service.cases.get(CASE)).is_final

        await until(ended)
        standing = (await sight(served)).standing
        assert standing.state == "failed"
        assert standing.outcome is not None
        assert (standing.outcome.text or "").startswith("the bank said no")
        assert (len(standing.outcome.text or ""), standing.outcome.is_cut) == (4_000, True)


@on_sqlite
async def test_what_the_agent_did_before(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        fence = 0
        messages: list[Any] = []
        for number in range(15):
            call = ToolCall(f"c{number}", "look", {"n": number})
            messages += [AssistantMessage([call]), ToolResultMessage(f"c{number}", "look", f"seen {number}")]
        fence = await checkpointer.commit("t", said(*messages), fence=fence, acquire=True)
        ask = AssistantMessage([ToolCall("call-1", "send", {"n": 1})])
        request = approval(created_at=served.service.cases.now() / 1000)
        await checkpointer.commit("t", said(ask, opened=[request], release=True), fence=fence)

        async def known() -> bool:
            return await served.service.cases.engine.read(partial(case_store.shown, CASE)) is not None

        await until(known)
        before = (await sight(served)).before
        assert len(before) == 20
        assert (before[-1].who, before[-1].at_call, before[-1].text) == ("tool", "look", "seen 14")
        assert (before[-2].who, before[-2].text) == ("agent", "n: 14")


@each_store
async def test_a_question_names_its_agent_and_has_the_steps_before_it(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        looked = ToolCall("c1", "look", {"n": 1})
        messages = [
            AssistantMessage([looked]),
            ToolResultMessage("c1", "look", "no such city", is_error=True),
        ]
        run = RunRecord("travel-desk", None, 1, Usage())
        fence = await checkpointer.commit("t", said(*messages, run=run), fence=0, acquire=True)
        asks = AssistantMessage([TextPart("Only you know."), ToolCall("q", "ask_user", {"city": "?"})])
        question = AskRequest(questions=[Question(key="city", prompt="Which city?")])
        now = served.service.cases.now() / 1000
        request = HitlRequest(question_id="q1", thread_id="t", payload=question, created_at=now)
        await checkpointer.commit("t", said(asks, opened=[request], release=True), fence=fence)
        case_id = case_id_of("t", "q1", 1)

        async def known() -> bool:
            return await served.service.cases.engine.read(partial(case_store.shown, case_id)) is not None

        await until(known)
        seen = await sight(served, case_id)
        assert seen.decision.asker.name == "travel-desk"
        assert [(it.who, it.text, it.is_error) for it in seen.before] == [
            ("agent", "n: 1", False),
            ("tool", "no such city", True),
            ("agent", "Only you know.", False),
        ]
        page = (await served.http.get(await review_link(served.app, case_id), headers=BROWSER)).text
        assert "The tool · <bdi>look</bdi> · failed" in page


@on_sqlite
async def test_an_adapter_hands_the_steps_of_its_framework(checkpointer: SqlCheckpointer) -> None:
    handed = [
        {"who": "person", "text": "Pay <b>Ada</b>."},
        {"who": "tool", "text": "no such account", "tool": "look", "failed": True},
    ]
    async with serving(checkpointer) as served:
        now = served.service.cases.now() / 1000
        request = approval(created_at=now)
        display: JsonObject = {"before": cast("list[Any]", steps_before(handed))}
        shown = request.payload.model_copy(update={"display": display})
        page = await page_of(served, checkpointer, request.model_copy(update={"payload": shown}))
        html = (await served.http.get(page, headers=BROWSER)).text
        assert "<span>What the agent did before</span><span>2 steps</span>" in html
        assert "Pay &lt;b&gt;Ada&lt;/b&gt;." in html
        assert "The tool · <bdi>look</bdi> · failed" in html


# Rounds.


@each_store
async def test_an_old_link_leads_to_the_newest_round(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        agent = await served.agent()
        first = await agent.open()
        await first.form(action="edit", feedback="Say that the price stays the same.")
        second = await agent.open(previous_case_id=first.case_id)
        await second.say("edit", {"feedback": "Once more."})
        third = await agent.open(previous_case_id=second.case_id)
        assert (await sight(served, first.case_id)).standing.state == "changes_asked"
        assert (await sight(served, first.case_id)).standing.has_next
        link = first.hitl["review_url"].replace("?", "/next?")
        led = await served.http.get(link, headers=BROWSER)
        assert led.status_code == 303
        assert f"/review/{third.case_id}?token=" in led.headers["location"]
        opened = await served.http.get(led.headers["location"], headers=BROWSER)
        assert opened.status_code == 200
        previous = (await sight(served, third.case_id)).previous
        assert previous is not None
        assert (previous.case_id, previous.note) == (second.case_id, "Once more.")
        back = await served.http.get(third.hitl["review_url"].replace("?", "/previous?"), headers=BROWSER)
        assert f"/review/{second.case_id}?token=" in back.headers["location"]
        assert (await served.http.get(back.headers["location"], headers=BROWSER)).status_code == 200
        none = await served.http.get(first.hitl["review_url"].replace("?", "/previous?"), headers=BROWSER)
        assert first.case_id in none.headers["location"]
        unread = await served.http.get(third.hitl["review_url"].replace("?", "/previous?"))
        assert third.case_id in unread.headers["location"], "a link preview gets no new link"
        stays = await served.http.get(third.hitl["review_url"].replace("?", "/next?"), headers=BROWSER)
        assert third.case_id in stays.headers["location"]
        for way in ("next", "previous"):
            wrong = await served.http.get(f"/review/{first.case_id}/{way}?token=wrong", headers=BROWSER)
            assert wrong.status_code == 404


@on_sqlite
async def test_a_question_that_cannot_be_answered_is_cancelled_with_the_reason(
    checkpointer: SqlCheckpointer,
) -> None:
    async with serving(checkpointer) as served:
        question = Question(key="which", prompt="Which?", options=[Option(label="A", value="a")])
        now = served.service.cases.now() / 1000
        request = HitlRequest(question_id="q1", payload=AskRequest(questions=[question]), created_at=now)
        page = await page_of(served, checkpointer, request, case_id=case_id_of("t", "q1", 1))
        fields = {"decline": "1", "note": "not my area"}
        done = await served.http.post(page.replace("?", "/respond?"), data=fields, headers=FORM)
        assert done.status_code == 303
        stored = await checkpointer.request("t", "q1")
        assert stored is not None
        assert (stored.status, stored.reason) == ("cancelled", "the person cannot answer this: not my area")
        seen = (await served.http.get(page, headers=BROWSER)).text
        assert "not my area" in seen
        assert "the person cannot answer this" not in seen, "that sentence is for the agent"
        assert "Declined by you" in seen


@on_sqlite
async def test_who_may_not_decide_may_not_decline(checkpointer: SqlCheckpointer) -> None:
    asked_about: list[str] = []

    async def authorize(person: Person, case: Case, action: str) -> str:
        asked_about.append(action)
        return "Only finance decides this."

    async with serving(checkpointer, authorize=authorize) as served:
        question = await (await served.agent()).open("input", prompt="Which account?")
        refused = await question.form(decline="1")
        assert refused.status_code == 403
        assert "Only finance decides this." in refused.text
        assert (await question.poll())["status"] == "pending"
        assert asked_about == ["decline"]


@on_sqlite
async def test_a_case_tells_who_withdrew_it(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        case = await (await served.agent("billing")).open()
        await case.cancel(reason="Too late.")
        other = await (await served.agent("billing")).open()
        await served.service.cases.cancel(await served.service.cases.get(other.case_id), "No.", "ops@web-1")
        page = (await case.visit()).text
        assert "Withdrawn by <bdi>billing</bdi>" in page, page.partition("What happened")[2][:600]
        assert "Withdrawn by <bdi>ops@web-1</bdi>" in (await other.visit()).text
