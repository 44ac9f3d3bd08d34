"""Fifty requests at once: the first one decides, the others are told so, and the effect happens once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from functools import partial
from itertools import cycle
from typing import Any

import pytest
from kit.callback_receivers import receiving
from kit.running_service import Opened, Served, events, serving, until
from kit.stores import SHARED, Database, approval, asked
from sqlalchemy import select

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import CaseClosed, HitlStaleAnswer
from askfirst.ids import case_id_of
from askfirst.service.audit import export, verify
from askfirst.service.cases import Respondent
from askfirst.store import cases as case_store
from askfirst.store.case_tables import callbacks
from askfirst.store.statement import Statement

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database", SHARED, indirect=True)]
CLIENTS = 50


async def acts_of(checkpointer: SqlCheckpointer, case_id: str) -> list[str]:
    """The rows of the audit trail about a case; asserts that the chain is intact."""
    assert (await verify(checkpointer.engine)).is_whole
    rows = [json.loads(line) async for line in export(checkpointer.engine)]
    told = [row["act"] for row in rows if row["subject"] == case_id]
    return [act for act in told if act != "case.delivered"]  # one row for each link that was made


async def test_fifty_clients_answer_and_cancel_one_case(database: Database) -> None:
    async with (
        database.checkpointer() as checkpointer,
        serving(checkpointer, inline=True) as served,
        receiving() as receiver,
    ):
        agent = await served.agent()
        case = await agent.open("approval", hitl_callback_url=f"http://127.0.0.1:{receiver.port}/hook")
        ways = cycle(
            [
                lambda: case.form(action="approve"),
                lambda: case.press("reject"),
                lambda: case.say("approve"),
                lambda: case.cancel(),
            ]
        )
        answers = await asyncio.gather(*(next(ways)() for _ in range(CLIENTS)))
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses[0] in (200, 303)
        assert statuses[1:] == [409] * (CLIENTS - 1)
        await _happened_once(served, checkpointer, case)

        async def called() -> bool:
            return bool(receiver.requests)

        await until(called)
        kept = await checkpointer.engine.read(_callbacks)
        assert len(kept) == len(receiver.requests) == 1


def _callbacks() -> Any:
    return (yield Statement(select(callbacks.c.callback_id)), {})


async def _happened_once(served: Served, checkpointer: SqlCheckpointer, case: Opened) -> None:
    told = [event async for event in events(served.http, case.hitl["events_url"], case.agent.headers)]
    assert len(told) == 1
    end = await case.poll()
    assert told[0].data == end
    act = {"completed": "case.answered", "cancelled": "case.cancelled"}[end["status"]]
    assert await acts_of(checkpointer, case.case_id) == ["case.created", act]


async def test_fifty_settle_an_agents_request_by_case_and_directly(database: Database) -> None:
    async with database.checkpointer() as checkpointer, serving(checkpointer, inline=True) as served:
        request = approval()
        await asked(checkpointer, "t", request)
        cases, case_id = served.service.cases, case_id_of("t", "call-1", 1)

        async def adopted() -> bool:
            return await cases.engine.read(partial(case_store.shown, case_id)) is not None

        await until(adopted)
        review, submit = await cases.issue(case_id, "review"), await cases.issue(case_id, "submit")
        case = await cases.get(case_id)

        async def by_form() -> bool:
            url = f"/review/{case_id}/respond?token={review}"
            answer = await served.http.post(url, data={"action": "approve"})
            return _first(answer.status_code)

        async def by_button() -> bool:
            body = {
                "action": "reject",
                "submitted_via": "slack_block_action",
                "submitted_by": {"platform": "slack", "platform_user_id": "U1"},
            }
            url, headers = f"/v1/reviews/{case_id}/respond", {"Authorization": f"Bearer {submit}"}
            return _first((await served.http.post(url, json=body, headers=headers)).status_code)

        async def directly() -> bool:
            return await _won(
                checkpointer.settle("t", "call-1", {"decision": "approve"}, by="ann", via="test")
            )

        async def by_cancelling() -> bool:
            return await _won(cases.cancel(case, "enough", "ops"))

        async def by_cancelling_directly() -> bool:
            return await _won(checkpointer.cancel("t", "call-1", "enough", by="ops"))

        ways = cycle([by_form, by_button, directly, by_cancelling, by_cancelling_directly])
        won = await asyncio.gather(*(next(ways)() for _ in range(CLIENTS)))
        assert won.count(True) == 1

        async def ended() -> bool:
            return (await cases.get(case_id)).is_final

        await until(ended)
        stored, after = await checkpointer.request("t", "call-1"), await cases.get(case_id)
        assert stored is not None
        assert {"answered": "completed", "cancelled": "cancelled"}[stored.status] == after.status
        if after.result is not None:
            action = {"approve": "approve", "deny": "reject"}[stored.answer.decision]  # type: ignore[union-attr]
            assert after.result["action"] == action
        assert len(await cases.events(case_id, 0)) == 1
        assert len(await acts_of(checkpointer, case_id)) == 2


def _first(status: int) -> bool:
    assert status in (200, 303, 409)
    return status != 409


async def _won(attempt: Awaitable[object]) -> bool:
    try:
        await attempt
    except (HitlStaleAnswer, CaseClosed):
        return False
    return True


async def test_two_processes_answer_and_adopt_as_one(database: Database) -> None:
    """Two services on one database: each request becomes one case, `on_case` is called once, and one answer
    counts."""
    heard: list[str] = []

    async def on_case(case: Any) -> None:
        heard.append(case.case_id)

    async with (
        database.checkpointer() as one,
        database.checkpointer() as other,
        serving(one, on_case=on_case) as first,
        serving(other, on_case=on_case) as second,
    ):
        for number in range(10):
            await asked(one, f"t{number}", approval())
        expected = {case_id_of(f"t{number}", "call-1", 1) for number in range(10)}

        async def all_heard() -> bool:
            return len(heard) >= 10

        await until(all_heard)
        assert sorted(heard) == sorted(expected)

        async def answer(served: Served, case_id: str) -> bool:
            cases = served.service.cases
            return await _won(cases.answer(await cases.get(case_id), "approve", {}, Respondent(by="ann")))

        pairs = [(served, case_id) for case_id in expected for served in (first, second)]
        outcomes = await asyncio.gather(*(answer(*pair) for pair in pairs))
        assert outcomes.count(True) == 10


async def test_an_idempotency_key_opens_one_case_however_many_race(database: Database) -> None:
    async with database.checkpointer() as checkpointer, serving(checkpointer, quick=False) as served:
        agent = await served.agent()
        body = {"type": "approval", "prompt": "Once?"}
        answers = await asyncio.gather(
            *(agent.post("/v1/reviews", body, **{"Idempotency-Key": "race"}) for _ in range(20))
        )
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["hitl"]["case_id"] for answer in answers}) == 1


async def test_a_case_is_followed_by_one_however_many_try(database: Database) -> None:
    async with database.checkpointer() as checkpointer, serving(checkpointer, quick=False) as served:
        agent = await served.agent()
        first = await agent.open()
        body = {"type": "approval", "prompt": "Again?", "previous_case_id": first.case_id}
        answers = await asyncio.gather(*(agent.post("/v1/reviews", body) for _ in range(10)))
        assert sorted(answer.status_code for answer in answers) == [202] + [422] * 9
        [won] = [answer.json()["hitl"]["case_id"] for answer in answers if answer.status_code == 202]
        assert (await first.poll())["next_case_id"] == won
