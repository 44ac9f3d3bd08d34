"""A run that would wait for itself is told so, however many tasks lie in between; others take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.transcripts import calls

from askfirst import Agent, ToolContext, tool
from askfirst.errors import WaitsForItself
from askfirst.events import AgentEvent
from askfirst.hitl import InMemoryChannel
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def in_time() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE):
        yield


@tool
async def other() -> str:
    """Something else."""
    return "ok"


async def _streamed(agent: Agent) -> None:
    async for _ in agent.stream("more"):
        pass


@pytest.mark.parametrize("beside", [[], ["other"], ["other", "other"]])
@pytest.mark.parametrize(
    "run",
    [lambda agent: agent.prompt("more"), lambda agent: agent.resume(), _streamed],
    ids=["prompt", "resume", "stream"],
)
async def test_one_of_several_tools(beside: list[str], run: Callable[[Agent], Any]) -> None:
    @tool
    async def again() -> str:
        """Go on."""
        with pytest.raises(WaitsForItself):
            await run(agent)
        return "told"

    agent = Agent(model=ScriptedModel([calls("again", *beside), "done"]), tools=[again, other])
    result = await agent.prompt("go")
    assert (result.text, result.messages[2].text) == ("done", "told")


@pytest.mark.parametrize("others", [0, 1, 2])
async def test_one_of_several_listeners(others: int) -> None:
    channel, told = InMemoryChannel(), list[str]()

    @tool(requires_approval=True)
    async def send() -> str:
        """Send."""
        return "sent"

    agent = Agent(model=ScriptedModel([calls("send"), "done"]), tools=[send], channel=channel)

    async def aborting(event: AgentEvent) -> None:
        if event.type == "hitl_request":
            try:
                await agent.abort_pending("no")
            except WaitsForItself as error:
                told.append(error.thread_id)
                await channel.answer(event.request.question_id, {"decision": "approve"})

    async def listening(event: AgentEvent) -> None:
        await asyncio.sleep(0)

    agent.subscribe(aborting)
    for _ in range(others):
        agent.subscribe(listening)
    assert (await agent.prompt("go")).text == "done"
    assert told == [agent.thread_id]


async def test_a_listener_to_what_a_tool_posts() -> None:
    told: list[str] = []

    @tool
    async def report(context: ToolContext) -> str:
        """Report."""
        context.report("half")
        return "ok"

    agent = Agent(model=ScriptedModel([calls("report"), "done"]), tools=[report])

    async def again(event: AgentEvent) -> None:
        if event.type == "tool_progress":
            try:
                await agent.prompt("more")
            except WaitsForItself as error:
                told.append(error.thread_id)

    agent.subscribe(again)
    assert (await agent.prompt("go")).text == "done"
    assert told == [agent.thread_id]


async def test_two_tools_take_turns_at_another_agent() -> None:
    """Both work for the same run, and neither waits for the other's sake."""
    helper = Agent(model=ScriptedModel(["first", "second"]))

    @tool
    async def ask() -> str:
        """Ask another agent."""
        return (await helper.prompt("?")).text

    agent = Agent(model=ScriptedModel([calls("ask", "ask"), "done"]), tools=[ask])
    result = await agent.prompt("go")
    assert [message.text for message in result.messages[2:4]] == ["first", "second"]


async def test_a_task_that_nobody_waits_for_has_its_turn() -> None:
    later: list[asyncio.Task[Any]] = []

    @tool
    async def queue() -> str:
        """Do more, later."""
        later.append(asyncio.create_task(agent.prompt("more")))
        return "queued"

    agent = Agent(model=ScriptedModel([calls("queue", "other"), "done", "more done"]), tools=[queue, other])
    assert (await agent.prompt("go")).text == "done"
    assert (await later[0]).text == "more done"
