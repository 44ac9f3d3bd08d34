"""PostgreSQL runs a step as one statement; where it does not go as foreseen, nothing of it has happened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.stores import Database, asked, confirmation, said

from askfirst import Agent, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlStaleAnswer, LeaseHeld, LeaseLost
from askfirst.messages import ToolCall, UserMessage
from askfirst.models import ScriptedModel
from askfirst.store.postgres_engine import PostgresSession, joined

APPROVE = {"decision": "approve"}
on_postgres = pytest.mark.parametrize("database", ["postgres"], indirect=True)


def test_each_part_keeps_its_own_parameters() -> None:
    sql = joined(("UPDATE a SET b = $2 WHERE c = $1", "INSERT INTO d VALUES ($1::TEXT)"), 2)
    assert "p0 AS (UPDATE a SET b = $2 WHERE c = $1 RETURNING 1)" in sql
    assert "p1 AS (INSERT INTO d VALUES ($3::TEXT) RETURNING 1)" in sql
    assert sql.endswith("pg_notify('askfirst_settled', $4::text), pg_notify('askfirst_settled', $5::text)")


class Trips:
    """The round trips that go to the server, by what they are for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        for name in ("begin", "run", "at_once", "commit"):
            monkeypatch.setattr(PostgresSession, name, self._counting(name, getattr(PostgresSession, name)))

    def _counting(self, name: str, method: Any) -> Any:
        async def counted(session: Any, *args: Any) -> Any:
            self.made.append(name)
            return await method(session, *args)

        return counted

    def taken(self) -> list[str]:
        made, self.made = self.made, []
        return made


@on_postgres
@pytest.mark.anyio
async def test_what_an_approved_call_costs(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool(requires_approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    trips = Trips(monkeypatch)
    model = ScriptedModel([ToolCall("c1", "pay", {"cents": 5}), "Done."])
    agent = Agent(model=model, tools=[pay], checkpointer=checkpointer)
    await agent.prompt("go")
    assert trips.taken() == ["at_once", "at_once"], "prompt, pause"
    await checkpointer.settle(agent.thread_id, "c1", APPROVE)
    assert trips.taken() == ["run", "at_once"], "what was asked, and the answer"
    assert (await agent.resume()).text == "Done."
    assert trips.taken() == ["run", "at_once", "at_once", "at_once"], "load, start, result, end"


@on_postgres
@pytest.mark.anyio
async def test_a_step_that_comes_too_late_leaves_nothing(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.commit("t", said(UserMessage("one")), fence=0, acquire=True)
    for late, error in [({"fence": 7}, LeaseLost), ({"fence": 1, "acquire": True}, LeaseHeld)]:
        with pytest.raises(error):
            await checkpointer.commit("t", said(UserMessage("late"), opened=[confirmation("q")]), **late)
    stored = await checkpointer.load("t")
    assert stored is not None
    assert [message.text for message in stored.messages] == ["one"]  # type: ignore[union-attr]
    assert stored.requests == {}


@on_postgres
@pytest.mark.anyio
async def test_a_question_that_is_asked_anew_takes_the_long_way(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, _ = await asked(checkpointer)
    trips = Trips(monkeypatch)
    anew = confirmation("call-1")
    await checkpointer.commit("t", said(opened=[anew], release=True), fence=fence, acquire=True)
    assert trips.taken()[:2] == ["at_once", "begin"]
    found = await checkpointer.request("t", "call-1")
    assert found is not None
    assert (found.status, found.request.payload.kind) == ("pending", "confirm")


@on_postgres
@pytest.mark.anyio
async def test_many_messages_in_one_step_stand_in_order(checkpointer: SqlCheckpointer) -> None:
    fence, texts = 0, []
    for count in (1, 3, 8, 20, 2):
        new = [str(len(texts) + number) for number in range(count)]
        texts += new
        step = said(*[UserMessage(text) for text in new])
        fence = await checkpointer.commit("t", step, fence=fence, acquire=fence == 0)
    stored = await checkpointer.load("t")
    assert stored is not None
    assert [message.text for message in stored.messages] == texts  # type: ignore[union-attr]


@on_postgres
@pytest.mark.anyio
async def test_answers_race_and_one_is_first(database: Database) -> None:
    async with database.checkpointer() as here, database.checkpointer() as there, asyncio.timeout(PATIENCE):
        for number in range(20):
            await asked(here, f"t{number}")
            settling = [each.settle(f"t{number}", "call-1", APPROVE) for each in (here, there) * 3]
            ended = await asyncio.gather(*settling, return_exceptions=True)
            assert sum(not isinstance(each, BaseException) for each in ended) == 1
            assert {type(each) for each in ended if isinstance(each, BaseException)} == {HitlStaleAnswer}
