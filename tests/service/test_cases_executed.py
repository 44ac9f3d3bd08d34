"""What was delivered and what was executed, in the audit trail: once each."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from kit.running_service import HandClock, Served, serving, until
from kit.stores import SHARED, Database

from askfirst import Agent, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.messages import ToolCall, call_digest
from askfirst.models import ScriptedModel
from askfirst.service.audit import export, verify
from askfirst.service.cases import NEAR, Cases, Respondent
from askfirst.service.embedding import review_link
from askfirst.store import case_queues
from askfirst.store import cases as case_store
from askfirst.store.case_rows import CaseRow
from askfirst.store.cases import INSERT
from askfirst.store.statement import Transaction

pytestmark = pytest.mark.anyio
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
WHO = Respondent(by="ann")


async def trail(store: SqlCheckpointer) -> list[dict[str, Any]]:
    return [json.loads(line) async for line in export(store.engine)]


async def acts(store: SqlCheckpointer, case_id: str, act: str) -> list[dict[str, Any]]:
    return [row for row in await trail(store) if row["subject"] == case_id and row["act"] == act]


@tool(requires_approval=True)
def refund(cents: int) -> str:
    """Pay a customer back."""
    return f"{cents} paid."


@tool(requires_approval=True, effect="none")
def look(cents: int) -> str:
    """Look at something."""
    return "Seen."


def agent_of(store: SqlCheckpointer, thread_id: str, name: str = "refund") -> Agent:
    model = ScriptedModel([ToolCall(f"c-{thread_id}", name, {"cents": 4900}), "Done."])
    return Agent(model=model, tools=[refund, look], checkpointer=store, thread_id=thread_id)


async def approved(store: SqlCheckpointer, cases: Cases, thread_id: str, name: str = "refund") -> Any:
    """An agent that a person has let go on; it and its case."""
    agent = agent_of(store, thread_id, name)
    assert (await agent.prompt("Go.")).status == "paused"
    [case] = await cases.adopt()
    return agent, case


@each_store
async def test_an_approved_call_that_has_run_is_noted_once(checkpointer: SqlCheckpointer) -> None:
    cases, others = Cases(checkpointer), Cases(checkpointer)
    agent, case = await approved(checkpointer, cases, "t")
    await cases.answer(case, "approve", {}, WHO)
    await cases.sweep()
    assert await acts(checkpointer, case.case_id, "case.executed") == []  # it has not run yet
    assert (await agent.resume()).text == "Done."
    await asyncio.gather(*(each.sweep() for each in (cases, others, cases, others)))
    [row] = await acts(checkpointer, case.case_id, "case.executed")
    assert row["actor"] == "agent"
    assert row["detail"]["digest"] == call_digest("refund", {"cents": 4900}) == case.digest
    assert row["detail"]["tool_name"] == "refund"
    assert row["at"] == row["detail"]["ended_at"] >= row["detail"]["started_at"]
    assert "4900" not in json.dumps(row["detail"])
    assert await cases.engine.read(partial(case_queues.executed, 0, 10)) == []
    assert (await verify(checkpointer.engine)).is_whole


@each_store
async def test_an_edited_call_is_noted_with_the_digest_of_what_ran(checkpointer: SqlCheckpointer) -> None:
    cases = Cases(checkpointer)
    agent, case = await approved(checkpointer, cases, "t")
    await cases.answer(case, "edit", {"edits": {"cents": 1}}, WHO)
    await agent.resume()
    await cases.sweep()
    [row] = await acts(checkpointer, case.case_id, "case.executed")
    assert row["detail"]["digest"] == call_digest("refund", {"cents": 1})


@each_store
@pytest.mark.parametrize(
    ("action", "data"), [("reject", {}), ("edit", {"feedback": "Less."})], ids=["reject", "feedback"]
)
async def test_what_was_denied_was_not_executed(
    checkpointer: SqlCheckpointer, action: str, data: dict[str, Any]
) -> None:
    cases = Cases(checkpointer)
    agent, case = await approved(checkpointer, cases, "t")
    done = await cases.answer(case, action, data, WHO)
    await agent.resume()
    await cases.sweep()
    assert done.status == "completed"
    assert await acts(checkpointer, case.case_id, "case.executed") == []


@on_sqlite
async def test_a_call_that_was_approved_elsewhere_is_noted_too(checkpointer: SqlCheckpointer) -> None:
    cases = Cases(checkpointer)
    agent, case = await approved(checkpointer, cases, "t")
    await checkpointer.settle("t", "c-t", {"decision": "approve"}, by="ann", via="terminal")
    await cases.sweep()
    await agent.resume()
    await cases.sweep()
    assert len(await acts(checkpointer, case.case_id, "case.executed")) == 1


@on_sqlite
async def test_a_tool_without_effects_leaves_no_row(checkpointer: SqlCheckpointer) -> None:
    cases = Cases(checkpointer)
    agent, case = await approved(checkpointer, cases, "t", "look")
    await cases.answer(case, "approve", {}, WHO)
    await agent.resume()
    await cases.sweep()
    assert await acts(checkpointer, case.case_id, "case.executed") == []


@on_sqlite
async def test_a_call_that_runs_much_later_is_noted_too(database: Database) -> None:
    clock = HandClock()
    async with database.checkpointer(clock=clock) as store:
        cases = Cases(store, clock=clock)
        agent, case = await approved(store, cases, "t")
        await cases.answer(case, "approve", {}, WHO)
        await cases.sweep()
        clock.turn(2 * NEAR / 1000)
        await agent.resume()
        await cases.sweep()
        assert len(await acts(store, case.case_id, "case.executed")) == 1


@each_store
async def test_a_call_that_was_asked_about_again_ran_by_the_last_answer(
    checkpointer: SqlCheckpointer,
) -> None:
    """The first round's approval did not let it run, so its case does not say so."""
    cases = Cases(checkpointer)
    agent, case = await approved(checkpointer, cases, "t")
    await cases.answer(case, "approve", {}, WHO)
    row = await cases.engine.read(partial(case_store.of_request, "t", "c-t", 1))
    assert row is not None
    later = row._replace(case_id="later", round=2, idempotency=None, awaits_effect=0, write_id=7)
    await checkpointer.engine.write(partial(_inserted, later))
    await agent.resume()
    await cases.sweep()
    assert await acts(checkpointer, case.case_id, "case.executed") == []


def _inserted(row: CaseRow) -> Transaction[None]:
    yield INSERT, row._asdict()


@each_store
async def test_the_service_notes_it_by_itself(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        agent = agent_of(checkpointer, "t")
        await agent.prompt("Go.")
        case_id = await until(lambda: _adopted(served))
        link = (await review_link(served.app, case_id)).replace("?", "/respond?")
        assert (await served.http.post(link, json={"action": "approve", "data": {}})).status_code == 200
        await agent.resume()
        [row] = await until(lambda: acts(checkpointer, case_id, "case.executed"))
        order = [each["act"] for each in await trail(checkpointer) if each["subject"] == case_id]
        assert order == ["case.created", "case.delivered", "case.answered", "case.executed"]
        assert row["detail"]["attempt"] == 1


async def _adopted(served: Served) -> str | None:
    row = await served.service.cases.engine.read(partial(case_store.of_request, "t", "c-t", 1))
    return None if row is None else row.case_id


@each_store
async def test_a_link_that_is_handed_out_is_delivered(checkpointer: SqlCheckpointer) -> None:
    async with serving(checkpointer) as served:
        agent = await served.agent()
        body = {"type": "approval", "prompt": "Please decide."}
        first = (await agent.post("/v1/reviews", body, **{"Idempotency-Key": "once"})).json()["hitl"]
        case_id = first["case_id"]
        [row] = await acts(checkpointer, case_id, "case.delivered")
        assert row["actor"] == agent.key_id
        assert row["detail"] == {"type": "approval", "via": "link"}
        # Whoever asks again gets the same one.
        await agent.post("/v1/reviews", body, **{"Idempotency-Key": "once"})
        assert len(await acts(checkpointer, case_id, "case.delivered")) == 1
        link = await review_link(served.app, case_id)
        await served.service.cases.issue(case_id, "submit")  # opens no page
        rows = await acts(checkpointer, case_id, "case.delivered")
        assert [row["actor"] for row in rows] == [agent.key_id, "service"]
        assert len(await acts(checkpointer, case_id, "case.created")) == 1
        assert link.partition("token=")[2] not in json.dumps(rows)
        assert (await verify(checkpointer.engine)).is_whole
