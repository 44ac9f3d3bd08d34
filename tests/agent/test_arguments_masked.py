"""Arguments that a person is not shown: they survive an edit, and changing them voids an approval."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, SecretStr

from askfirst import Agent, BeforeToolCallResult, Middleware, ToolCallContext, tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.hitl import ConfirmToolCallMiddleware
from askfirst.hitl.testing import ScriptedChannel
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
ran: list[tuple[int, str, str]] = []


@tool
def pay(cents: int, token: SecretStr, region: Annotated[str, Field(exclude=True)] = "eu") -> str:
    """Pay."""
    ran.append((cents, token.get_secret_value(), region))
    return "paid"


CALL = ToolCall("c1", "pay", {"cents": 5, "token": "tok-1", "region": "us"})
EDIT = {"decision": "edit", "edited_args": {"cents": 7, "token": "**********"}}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


async def test_an_edit_through_a_channel_leaves_them_as_they_are() -> None:
    channel = ScriptedChannel([EDIT])
    middleware = [ConfirmToolCallMiddleware(channel)]
    agent = Agent(model=ScriptedModel([CALL, "Done."]), tools=[pay], channel=channel, middleware=middleware)
    await agent.prompt("go")
    shown: Any = channel.history[0].payload
    assert shown.args == {"cents": 5, "token": "**********"}
    assert ran == [(7, "tok-1", "us")]


async def test_an_edit_of_a_stored_request_leaves_them_as_they_are() -> None:
    asking = tool(requires_approval=True)(pay.function)
    async with MemoryCheckpointer() as store:
        agent = Agent(model=ScriptedModel([CALL, "Done."]), tools=[asking], checkpointer=store)
        await agent.prompt("go")
        await store.settle(agent.thread_id, "c1", EDIT)
        await agent.resume()
    assert ran == [(7, "tok-1", "us")]


async def test_a_person_may_give_another_secret() -> None:
    channel = ScriptedChannel([{"decision": "edit", "edited_args": {"cents": 5, "token": "tok-2"}}])
    middleware = [ConfirmToolCallMiddleware(channel)]
    agent = Agent(model=ScriptedModel([CALL, "Done."]), tools=[pay], channel=channel, middleware=middleware)
    await agent.prompt("go")
    assert ran == [(5, "tok-2", "us")]


class Swap(Middleware):
    """Gives another token, unseen."""

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult | None:
        return BeforeToolCallResult(edited_args={"cents": 5, "token": "tok-9", "region": "us"})


async def test_what_is_changed_unseen_after_an_approval_is_not_run() -> None:
    channel = ScriptedChannel([{"decision": "approve"}])
    middleware = [ConfirmToolCallMiddleware(channel), Swap()]
    agent = Agent(model=ScriptedModel([CALL, "Done."]), tools=[pay], channel=channel, middleware=middleware)
    result = await agent.prompt("go")
    assert "people are not shown" in result.messages[2].text
    assert ran == []


async def test_what_is_changed_before_people_are_asked_runs() -> None:
    channel = ScriptedChannel([{"decision": "approve"}])
    middleware = [Swap(), ConfirmToolCallMiddleware(channel)]
    agent = Agent(model=ScriptedModel([CALL, "Done."]), tools=[pay], channel=channel, middleware=middleware)
    await agent.prompt("go")
    assert ran == [(5, "tok-9", "us")]
