"""A decision made on a page is held for a few seconds, in which it can be undone; then it goes out, once."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import httpx2
import pytest
from kit.logins import ANN, by_header, signed_in
from kit.patience import PATIENCE
from kit.running_service import BROWSER, HandClock, Opened, Served, serving, until
from kit.stores import SHARED, approval, asked

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import CaseHeld
from askfirst.protocol import SigningKey
from askfirst.service.adoption import case_id_of
from askfirst.service.audit import export
from askfirst.service.case import Case
from askfirst.service.embedding import review_link
from askfirst.service.person import Respondent
from askfirst.service.review_routes import nonce_digest
from askfirst.service.transitions import Pressed
from askfirst.store import cases as case_store

pytestmark = pytest.mark.anyio
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
FORM = {**BROWSER, "Sec-Fetch-Site": "same-origin", "Origin": "null"}


async def acts(store: SqlCheckpointer, case_id: str) -> list[str]:
    """What the audit trail says of a case, but for its opening."""
    rows = [json.loads(line) async for line in export(store.engine)]
    found = [row["act"].removeprefix("case.") for row in rows if row["subject"] == case_id]
    return [act for act in found if act not in ("created", "delivered", "opened")]


async def adopted(served: Served, store: SqlCheckpointer, **fields: Any) -> str:
    """The address of the page of an agent's request."""
    await asked(store, "t", approval(created_at=served.service.cases.now() / 1000, **fields))
    case_id = case_id_of("t", "call-1", 1)

    async def known() -> bool:
        return await served.service.cases.engine.read(partial(case_store.shown, case_id)) is not None

    await until(known)
    return await review_link(served.app, case_id)


async def pressed(
    http: httpx2.AsyncClient, page: str, path: str = "respond", **fields: str
) -> httpx2.Response:
    return await http.post(page.replace("?", f"/{path}?"), data=fields, headers=FORM)


async def settled(served: Served, case_id: str) -> Case:
    async def ended() -> Case | None:
        case = await served.service.cases.get(case_id)
        return case if case.is_final else None

    return await until(ended)


@each_store
async def test_the_request_is_pending_until_the_decision_goes_out(checkpointer: SqlCheckpointer) -> None:
    clock = HandClock()
    async with serving(checkpointer, hold_seconds=5, clock=clock) as served:
        page = await adopted(served, checkpointer)
        answer = await pressed(served.http, page, action="approve", nonce="n")
        assert answer.status_code == 303
        case_id = case_id_of("t", "call-1", 1)
        held = await served.service.cases.get(case_id)
        assert held.held is not None
        assert (held.held.action, held.held.until) == ("approve", clock.time + 5)
        stored = await checkpointer.request("t", "call-1")
        assert stored is not None
        assert stored.status == "pending"
        clock.turn(4.9)
        await served.service.cases.sweep()
        assert not (await served.service.cases.get(case_id)).is_final
        clock.turn(0.2)
        done = await settled(served, case_id)
        assert done.held is None
        assert (await checkpointer.settled("t", "call-1")).answered_by is None
        assert (await checkpointer.settled("t", "call-1")).via == "web"
        assert await acts(checkpointer, case_id) == ["held", "released", "answered"]


@pytest.mark.parametrize(("of_rule", "held"), [(20, 20), (0, None), ("20", 5), (None, 5)])
@on_sqlite
async def test_a_rule_says_for_how_long_its_decisions_are_held(
    checkpointer: SqlCheckpointer, of_rule: Any, held: float | None
) -> None:
    clock = HandClock()
    async with serving(checkpointer, hold_seconds=5, clock=clock) as served:
        details = {"agent_path": ["desk"]} | ({} if of_rule is None else {"hold_seconds": of_rule})
        page = await adopted(served, checkpointer, details=details)
        shown = (await served.http.get(page, headers=BROWSER)).text
        assert ("hold_seconds" in shown) == isinstance(of_rule, str)  # what a gate does not give is a detail
        await pressed(served.http, page, action="approve", nonce="n")
        case = await served.service.cases.get(case_id_of("t", "call-1", 1))
        assert (case.held.until - clock.time if case.held else None) == held


@each_store
async def test_what_was_undone_does_not_go_out(checkpointer: SqlCheckpointer) -> None:
    clock = HandClock()
    async with serving(checkpointer, hold_seconds=5, clock=clock) as served:
        page = await adopted(served, checkpointer)
        await pressed(served.http, page, action="approve", nonce="n")
        undone = await pressed(served.http, page, "undo")
        assert undone.status_code == 303
        clock.turn(60)
        await served.service.cases.sweep()
        case_id = case_id_of("t", "call-1", 1)
        case = await served.service.cases.get(case_id)
        assert not case.is_final
        assert case.held is None
        await pressed(served.http, page, action="reject", nonce="m")
        clock.turn(5)
        assert ((await settled(served, case_id)).result or {})["action"] == "reject"
        assert await acts(checkpointer, case_id) == ["held", "undone", "held", "released", "answered"]


@on_sqlite
async def test_a_second_tap_that_arrives_after_the_undo_does_not_count(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer, hold_seconds=60) as served:
        page = await adopted(served, checkpointer)
        case_id = case_id_of("t", "call-1", 1)
        await pressed(served.http, page, action="approve", nonce="n")
        assert (await pressed(served.http, page, "undo")).status_code == 303
        assert (await pressed(served.http, page, action="approve", nonce="n")).status_code == 303
        cases = served.service.cases
        case = await cases.get(case_id)
        late = Pressed(
            nonce_digest("n"), "another mark"
        )  # it was read before the undo, and is written after it
        await cases.answer(case, "approve", {}, Respondent(), late, 60)
        await cases.answer(case, "approve", {}, Respondent(), late)
        assert (await cases.get(case_id)).held is None
        assert await acts(checkpointer, case_id) == ["held", "undone"]
        await pressed(served.http, page, action="approve", nonce="m")
        assert (await cases.get(case_id)).held is not None


@pytest.mark.parametrize("hold", [0, 5])
@each_store
async def test_a_form_sent_twice_is_one_decision(checkpointer: SqlCheckpointer, hold: float) -> None:
    clock = HandClock()
    async with serving(checkpointer, hold_seconds=hold, clock=clock) as served:
        case = await (await served.agent()).open()
        both = await asyncio.gather(*(case.form(action="approve", nonce="same") for _ in range(4)))
        assert [answer.status_code for answer in both] == [303] * 4
        after = await case.form(action="approve", nonce="same")
        assert after.status_code == 303
        shown = await case.visit()
        assert shown.status_code == 200
        assert "came second" not in shown.text
        clock.turn(hold)
        await settled(served, case.case_id)
        assert (await acts(checkpointer, case.case_id)).count("answered") == 1
        again = await case.form(action="approve", nonce="same")
        assert again.status_code == 303
        other = await case.form(action="approve", nonce="another")
        assert other.status_code == 409


@on_sqlite
async def test_another_browser_can_neither_decide_nor_undo_meanwhile(checkpointer: SqlCheckpointer) -> None:
    clock = HandClock()
    async with serving(checkpointer, hold_seconds=5, clock=clock) as served:
        page = await adopted(served, checkpointer)
        await pressed(served.http, page, action="approve", nonce="n")
        async with httpx2.AsyncClient(timeout=PATIENCE) as other:
            assert (await pressed(other, page, action="reject", nonce="m")).status_code == 409
            assert (await pressed(other, page, "undo")).status_code == 409
            assert "Undo" not in (await other.get(page, headers=BROWSER)).text
        assert "Undo" in (await served.http.get(page, headers=BROWSER)).text
        clock.turn(5)
        done = await settled(served, case_id_of("t", "call-1", 1))
        assert (done.result or {})["action"] == "approve"


@on_sqlite
async def test_a_login_undoes_on_another_device_what_it_decided_and_nobody_else_does(
    checkpointer: SqlCheckpointer,
) -> None:
    namesake = {**ANN, "email": "another@shop.example"}
    async with serving(checkpointer, hold_seconds=60, identify=by_header) as served:
        page = await adopted(served, checkpointer)
        sent = {"data": {"action": "approve", "nonce": "n"}, "headers": {**FORM, **signed_in(ANN)}}
        assert (await served.http.post(page.replace("?", "/respond?"), **sent)).status_code == 303
        undo = page.replace("?", "/undo?")
        async with httpx2.AsyncClient(timeout=PATIENCE) as other:
            for stranger in ({}, signed_in(namesake)):
                assert (await other.post(undo, headers={**FORM, **stranger})).status_code == 409
                assert "Undo" not in (await other.get(page, headers={**BROWSER, **stranger})).text
            own = await other.get(page, headers={**BROWSER, **signed_in(ANN)})
            assert "You approved: " in own.text
            by_script = await other.get(page, headers={**signed_in(ANN), "Sec-Fetch-Mode": "cors"})
            assert "Undo" in by_script.text
            assert (await other.post(undo, headers={**FORM, **signed_in(ANN)})).status_code == 303
        assert (await served.service.cases.get(case_id_of("t", "call-1", 1))).held is None
        assert await acts(checkpointer, case_id_of("t", "call-1", 1)) == ["held", "undone"]


async def as_json(case: Opened, _: SqlCheckpointer) -> None:
    assert (await case.say("reject")).status_code == 200


async def cancelled(case: Opened, _: SqlCheckpointer) -> None:
    assert (await case.cancel()).status_code == 200


@pytest.mark.parametrize(("elsewhere", "status"), [(as_json, "completed"), (cancelled, "cancelled")])
@each_store
async def test_what_comes_first_from_elsewhere_wins_and_the_person_is_told(
    checkpointer: SqlCheckpointer, elsewhere: Any, status: str
) -> None:
    clock = HandClock()
    async with serving(checkpointer, hold_seconds=5, clock=clock) as served:
        case = await (await served.agent()).open()
        assert (await case.form(action="approve", nonce="n")).status_code == 303
        await elsewhere(case, checkpointer)
        clock.turn(60)
        await served.service.cases.sweep()
        polled = await case.poll()
        assert polled["status"] == status
        assert polled.get("result", {}).get("action") in (None, "reject")
        lost = (await served.service.cases.get(case.case_id)).lost
        assert lost is not None
        assert lost.action == "approve"
        assert "overtaken" in await acts(checkpointer, case.case_id)


async def denied(store: SqlCheckpointer) -> None:
    await store.settle("t", "call-1", {"decision": "deny"}, by="terminal", via="cli")


async def withdrawn(store: SqlCheckpointer) -> None:
    await store.cancel("t", "call-1", reason="not needed any more")


@pytest.mark.parametrize(
    ("elsewhere", "sentence"),
    [
        (denied, "Your answer came second and was not counted."),
        (withdrawn, "Your answer came too late and was not counted."),
    ],
)
@on_sqlite
async def test_the_page_tells_whose_held_decision_was_overtaken_and_nobody_else(
    checkpointer: SqlCheckpointer, elsewhere: Any, sentence: str
) -> None:
    async with serving(checkpointer, hold_seconds=60) as served:
        page = await adopted(served, checkpointer)
        await served.http.get(page, headers=BROWSER)
        assert (await pressed(served.http, page, action="approve", nonce="n")).status_code == 303
        await elsewhere(checkpointer)
        await settled(served, case_id_of("t", "call-1", 1))
        assert sentence in (await served.http.get(page, headers=BROWSER)).text
        async with httpx2.AsyncClient(timeout=PATIENCE) as other:
            assert sentence not in (await other.get(page, headers=BROWSER)).text


@each_store
async def test_an_answer_in_the_store_comes_first(checkpointer: SqlCheckpointer) -> None:
    clock = HandClock()
    async with serving(checkpointer, hold_seconds=5, clock=clock) as served:
        page = await adopted(served, checkpointer)
        await pressed(served.http, page, action="approve", nonce="n")
        await checkpointer.settle("t", "call-1", {"decision": "deny"}, by="terminal", via="cli")
        clock.turn(5)
        done = await settled(served, case_id_of("t", "call-1", 1))
        assert (done.result or {})["action"] == "reject"
        assert done.lost is not None


@each_store
async def test_a_decision_made_in_time_counts_although_the_deadline_falls_meanwhile(
    checkpointer: SqlCheckpointer,
) -> None:
    clock = HandClock()
    async with serving(checkpointer, hold_seconds=5, clock=clock) as served:
        case = await (await served.agent()).open(timeout="10s")
        clock.turn(7)
        assert (await case.form(action="approve", nonce="n")).status_code == 303
        held = (await served.service.cases.get(case.case_id)).held
        assert held is not None
        assert held.until == clock.time + 2  # a second before the deadline
        clock.turn(60)  # and nobody was there to release it in time
        assert (await settled(served, case.case_id)).status == "completed"


@on_sqlite
async def test_in_the_last_second_nothing_is_held(checkpointer: SqlCheckpointer) -> None:
    clock = HandClock()
    async with serving(checkpointer, hold_seconds=5, clock=clock) as served:
        case = await (await served.agent()).open(timeout="10s")
        clock.turn(9.5)
        assert (await case.form(action="approve", nonce="n")).status_code == 303
        assert (await case.poll())["status"] == "completed"


@on_sqlite
async def test_what_was_not_made_on_the_page_settles_at_once(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer, hold_seconds=5, inline=True) as served:
        agent = await served.agent()
        by_json, by_button = await agent.open(), await agent.open()
        assert (await by_json.say("approve")).status_code == 200
        assert (await by_button.press("approve")).status_code == 200
        assert [(await case.poll())["status"] for case in (by_json, by_button)] == ["completed"] * 2


@each_store
async def test_undo_and_release_in_two_processes_never_both_happen(checkpointer: SqlCheckpointer) -> None:
    """Two services on one database: one releases while the other undoes; whichever comes first counts."""
    clock = HandClock()
    outcomes: set[bool] = set()
    async with (
        serving(checkpointer, hold_seconds=5, clock=clock, quick=False) as one,
        serving(checkpointer, hold_seconds=5, clock=clock, quick=False) as two,
    ):
        agent = await one.agent()
        for turn in range(12):
            case = await agent.open()
            await case.form(action="approve", nonce="n")
            found = await two.service.cases.get(case.case_id)
            mark = found.held.mark if found.held else None
            assert mark is not None
            clock.turn(5)
            both = [one.service.cases.sweep(), two.service.cases.undo(found, mark)]
            await asyncio.gather(*(both if turn % 2 else reversed(both)), return_exceptions=True)
            after = await one.service.cases.get(case.case_id)
            said = await acts(checkpointer, case.case_id)
            assert ("answered" in said) != ("undone" in said), said
            assert after.is_final == ("answered" in said)
            outcomes.add(after.is_final)
    assert outcomes


@on_sqlite
async def test_the_result_is_signed_when_it_is_decided(checkpointer: SqlCheckpointer) -> None:
    clock = HandClock()
    async with serving(
        checkpointer, hold_seconds=5, clock=clock, signing_key=SigningKey.generate()
    ) as served:
        case = await (await served.agent()).open()
        await case.form(action="approve", nonce="n", feedback="fine")
        clock.turn(5)
        done = await settled(served, case.case_id)
        assert (done.result or {})["data"] == {"feedback": "fine"}
        assert (await case.poll())["result"]["signature"]


@on_sqlite
async def test_nobody_undoes_what_another_browser_holds(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer, hold_seconds=5) as served:
        case = await (await served.agent()).open()
        await case.form(action="approve", nonce="n")
        with pytest.raises(CaseHeld):
            await served.service.cases.undo(await served.service.cases.get(case.case_id), "another mark")
