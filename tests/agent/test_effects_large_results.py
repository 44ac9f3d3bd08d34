"""A result that is larger than a server takes: what has happened is on record all the same."""

from __future__ import annotations

from typing import Any

import pytest

from askfirst import Agent, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import InvalidStep
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("database", ["mysql"], indirect=True)]
MEGABYTE = 1024 * 1024


@pytest.mark.parametrize("text", ["x" * 20, '"\\' * 5, "\N{SNOWMAN}" * 7])
@pytest.mark.parametrize("effect", ["once", "none"])
async def test_a_result_that_is_too_large_is_said_to_be(
    checkpointer: SqlCheckpointer, text: str, effect: Any
) -> None:
    ran: list[int] = []

    @tool(requires_approval=True, effect=effect)
    async def dump(amount: int) -> str:
        ran.append(amount)
        return text * MEGABYTE

    def agent(*script: Any) -> Agent:
        return Agent(model=ScriptedModel(script), tools=[dump], checkpointer=checkpointer, thread_id="t")

    await agent(ToolCall("c1", "dump", {"amount": 5})).prompt("go")
    await checkpointer.settle("t", "c1", {"decision": "approve"}, by="ann")
    result = await agent("done").resume()
    assert (result.status, ran) == ("completed", [5])
    said = result.messages[2]
    assert said.is_error
    assert "too large to be stored" in said.text
    assert said.details["hitl"]["answered_by"] == "ann"
    stored = await checkpointer.load("t")
    assert stored is not None
    assert (stored.effects, stored.lease_owner) == ({}, None)
    assert stored.messages == list(result.messages)


async def test_what_fits_is_kept_whole(checkpointer: SqlCheckpointer) -> None:
    @tool
    async def dump() -> str:
        return "x" * 10 * MEGABYTE

    model = ScriptedModel([ToolCall("c1", "dump", {}), "done"])
    result = await Agent(model=model, tools=[dump], checkpointer=checkpointer, thread_id="t").prompt("go")
    assert len(result.messages[2].text) == 10 * MEGABYTE
    stored = await checkpointer.load("t")
    assert stored is not None
    assert stored.messages == list(result.messages)


async def test_a_prompt_that_is_too_large_is_refused_and_the_thread_goes_on(
    checkpointer: SqlCheckpointer,
) -> None:
    agent = Agent(model=ScriptedModel(["hello"]), checkpointer=checkpointer, thread_id="t")
    with pytest.raises(InvalidStep, match="bytes are more than the server's limit"):
        await agent.prompt("x" * 20 * MEGABYTE)
    assert (await agent.prompt("hi")).text == "hello"
