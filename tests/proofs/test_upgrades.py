"""Threads that earlier versions wrote, stored in tests/data, are resumed by this version."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kit.lives_agents import faults
from kit.paths import DATA

from askfirst import Agent, ApprovalResponse, ToolContext, tool
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import WrongAgent
from askfirst.hitl import CheckpointedChannel, ask_user_tool
from askfirst.messages import ToolResultMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

WRITTEN = sorted(DATA.glob("threads_*.sql"))
THREADS = {
    "answered",
    "asking",
    "denied",
    "edited",
    "finished",
    "in-doubt",
    "paused",
    "paused-parallel",
    "paused-unknown-tool",
}


@pytest.fixture(params=WRITTEN, ids=lambda path: path.stem)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SQLiteCheckpointer]:
    """An earlier version's database, opened by this version."""
    connection = sqlite3.connect(tmp_path / "threads.db")
    connection.executescript(request.param.read_text())
    connection.close()
    async with SQLiteCheckpointer(tmp_path / "threads.db") as checkpointer:
        yield checkpointer


class Till:
    """A tool that remembers its calls."""

    def __init__(self) -> None:
        self.paid: list[tuple[int, str, int]] = []

    def tool(self, default_currency: str = "EUR") -> Any:
        async def pay(amount: int, ctx: ToolContext, currency: str = default_currency) -> str:
            self.paid.append((amount, currency, ctx.attempt))
            return f"paid {amount} {currency}"

        return tool(requires_approval=True)(pay)


@pytest.fixture
def till() -> Till:
    return Till()


def _agent(store: SQLiteCheckpointer, thread_id: str, pay: Any) -> Agent:
    return Agent(model=ScriptedModel(["done"]), tools=[pay], checkpointer=store, thread_id=thread_id)


def _results(agent: Agent) -> list[ToolResultMessage]:
    assert faults(agent.messages) == []
    return [message for message in agent.messages if isinstance(message, ToolResultMessage)]


def _decision(result: ToolResultMessage) -> Any:
    return (result.details or {})["hitl"]["decision"]


def test_there_is_something_to_test() -> None:
    assert "threads_0_1_0" in {path.stem for path in WRITTEN}


async def test_every_thread_is_there(store: SQLiteCheckpointer) -> None:
    assert {thread.thread_id for thread in await store.threads()} >= THREADS
    pending = sorted((request.thread_id, request.request.payload.kind) for request in await store.pending())
    assert pending == [
        ("asking", "ask"),
        ("paused", "approve"),
        ("paused-parallel", "approve"),
        ("paused-parallel", "approve"),
        ("paused-unknown-tool", "approve"),
    ]


async def test_a_finished_thread_goes_on_with_the_next_prompt(store: SQLiteCheckpointer, till: Till) -> None:
    agent = _agent(store, "finished", till.tool())
    assert (await agent.prompt("and now?")).text == "done"
    assert [message.role for message in agent.messages] == ["user", "assistant", "user", "assistant"]


async def test_a_paused_thread_is_answered(store: SQLiteCheckpointer, till: Till) -> None:
    agent = _agent(store, "paused", till.tool())
    paused = await agent.resume()
    assert paused.status == "paused"
    assert [each.tool_call.args for each in paused.pending_approvals] == [{"amount": 5, "currency": "EUR"}]
    assert till.paid == []
    result = await agent.respond(answer={"decision": "approve"}, by="bob")
    assert result is not None
    assert result.status == "completed"
    assert till.paid == [(5, "EUR", 1)]
    assert _decision(_results(agent)[0]) == "human_approve"


async def test_parallel_calls_are_answered_one_by_one(store: SQLiteCheckpointer, till: Till) -> None:
    agent = _agent(store, "paused-parallel", till.tool())
    first = await agent.respond(question_id="call-2", answer={"decision": "deny"})
    assert first is not None
    assert first.status == "paused"
    assert [each.id for each in first.pending_approvals] == ["call-1"]
    assert till.paid == []
    second = await agent.respond(question_id="call-1", answer={"decision": "approve"})
    assert second is not None
    assert second.status == "completed"
    assert [_decision(result) for result in _results(agent)] == ["human_approve", "human_deny"]
    assert len(till.paid) == 1


async def test_parallel_calls_are_answered_at_once(store: SQLiteCheckpointer, till: Till) -> None:
    agent = _agent(store, "paused-parallel", till.tool())
    paused = await agent.resume()
    assert paused.status == "paused"
    assert [each.id for each in paused.pending_approvals] == ["call-1", "call-2"]
    responses = [
        ApprovalResponse(id="call-2", decision="approve"),
        ApprovalResponse(id="call-1", decision="deny"),
    ]
    assert (await agent.resume_with(responses)).status == "completed"
    assert [_decision(result) for result in _results(agent)] == ["human_deny", "human_approve"]
    assert len(till.paid) == 1


@pytest.mark.parametrize(
    ("thread_id", "paid", "decision"),
    [
        ("answered", [(5, "EUR", 1)], "human_approve"),
        ("edited", [(3, "CHF", 1)], "human_edit"),
        ("denied", [], "human_deny"),
    ],
)
async def test_an_answer_given_before_the_upgrade_counts(
    store: SQLiteCheckpointer, till: Till, thread_id: str, paid: list[Any], decision: str
) -> None:
    agent = _agent(store, thread_id, till.tool())
    assert (await agent.resume()).status == "completed"
    assert till.paid == paid
    (result,) = _results(agent)
    assert _decision(result) == decision
    assert (result.details or {})["hitl"]["answered_by"] == "ann"


async def test_an_approval_is_void_where_the_tool_would_do_something_else_now(
    store: SQLiteCheckpointer, till: Till
) -> None:
    agent = _agent(store, "answered", till.tool(default_currency="USD"))
    assert (await agent.resume()).status == "paused"
    assert till.paid == []
    request = await agent.load_pending_hitl_request()
    assert request is not None
    assert request.payload.args == {"amount": 5, "currency": "USD"}


@pytest.mark.parametrize(("action", "paid"), [("retry", [(5, "EUR", 2)]), ("skip", [])])
async def test_an_effect_in_doubt_is_asked_about(
    store: SQLiteCheckpointer, till: Till, action: str, paid: list[Any]
) -> None:
    agent = _agent(store, "in-doubt", till.tool())
    paused = await agent.resume()
    assert paused.status == "paused"
    assert [each.kind for each in paused.pending_approvals] == ["escalate"]
    assert till.paid == []
    result = await agent.respond(answer=action)
    assert result is not None
    assert result.status == "completed"
    assert till.paid == paid


async def test_a_tool_that_is_gone_leaves_the_question_open(store: SQLiteCheckpointer, till: Till) -> None:
    agent = _agent(store, "paused-unknown-tool", till.tool())
    with pytest.raises(WrongAgent) as refused:
        await agent.respond(answer={"decision": "approve"})
    assert refused.value.tool_name == "fax"
    assert (await agent.prompt("never mind", on_pending="supersede")).status == "completed"
    assert _results(agent)[0].is_error


async def test_a_question_is_answered(store: SQLiteCheckpointer) -> None:
    channel = CheckpointedChannel(checkpointer=store, thread_id="asking")
    agent = Agent(model=ScriptedModel(["done"]), tools=[ask_user_tool(channel)], channel=channel)
    result = await agent.respond(answer={"colour": "red"})
    assert result is not None
    assert result.status == "completed"
    assert (_results(agent)[0].details or {})["hitl"]["answers"] == {"colour": "red"}
