"""A request whose deadline has passed while nobody waited for it holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from kit.channel_rigs import Rig, asked
from kit.stores import Database
from kit.transcripts import results

from askfirst import Agent, AgentSpec, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.hitl import CheckpointedChannel, HitlNoPendingRequest, HitlRequestPending, HitlStaleAnswer
from askfirst.hitl.testing import FakeClock
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


@tool(requires_approval=True)
async def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


def parts() -> dict[str, Any]:
    return {
        "model": ScriptedModel([ToolCall("c1", "send", {"to": "Ada"}), "Go on.", "And on."]),
        "tools": [send],
    }


async def _suspended(agent: Agent) -> None:
    running = asyncio.create_task(agent.prompt("go"))
    assert agent.channel is not None
    await asked(agent.channel)
    await agent.detach()
    assert (await running).status == "suspended"


async def test_a_prompt_goes_on_past_it(rig: Rig) -> None:
    agent = rig.agent(rig.channel(default_timeout=10), **parts())
    await _suspended(agent)
    with pytest.raises(HitlRequestPending):
        await agent.prompt("next")
    await rig.clock.advance(11)
    assert await agent.load_pending_hitl_request() is None
    result = await agent.prompt("next")
    assert (result.status, result.text) == ("completed", "Go on.")
    assert results(result.messages)["c1"].is_error


async def test_a_resumed_run_denies_its_call(rig: Rig) -> None:
    channel = rig.channel(default_timeout=10)
    agent = rig.agent(channel, **parts())
    await _suspended(agent)
    await rig.clock.advance(11)
    assert await channel.open_request() is None
    result = await agent.resume()
    assert result.text == "Go on."
    assert results(result.messages)["c1"].details["hitl"]["decision"] == "timed_out"


async def test_it_cannot_be_closed_or_answered(rig: Rig) -> None:
    agent = rig.agent(rig.channel(default_timeout=10), **parts())
    await _suspended(agent)
    await rig.clock.advance(11)
    for attempt in (agent.abort_pending(), agent.respond(question_id="c1", answer={"decision": "approve"})):
        with pytest.raises((HitlStaleAnswer, HitlNoPendingRequest)):
            await attempt


@dataclass
class Stored:
    """A store whose clock is turned by hand."""

    checkpointer: SqlCheckpointer
    clock: FakeClock

    def agent(self, **options: Any) -> Agent:
        channel = CheckpointedChannel(
            checkpointer=self.checkpointer, thread_id="t", default_timeout=10, clock=self.clock
        )
        return Agent(channel=channel, **options)


@pytest.fixture
async def stored(database: Database) -> AsyncIterator[Stored]:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        yield Stored(checkpointer, clock)


async def test_the_store_has_it_as_timed_out(stored: Stored) -> None:
    agent = stored.agent(**parts())
    await _suspended(agent)
    await stored.clock.advance(11)
    fresh = stored.agent(**parts())
    assert await fresh.load_pending_hitl_request() is None
    found = await stored.checkpointer.request("t", "c1")
    assert found is not None
    assert found.status == "timed_out"
    assert (await agent.prompt("next")).text == "Go on."


async def test_one_that_can_be_answered_still_is_found_behind_it(stored: Stored) -> None:
    agent = stored.agent(**parts())
    await _suspended(agent)
    await stored.clock.advance(11)
    channel = CheckpointedChannel(checkpointer=stored.checkpointer, thread_id="t", clock=stored.clock)
    asking = asyncio.create_task(channel.confirm("Sure?"))
    later = await asked(channel)
    assert await agent.load_pending_hitl_request() == later
    assert await channel.open_request() == later
    with pytest.raises(HitlRequestPending, match=later.question_id):
        await agent.prompt("next")
    await channel.answer(later.question_id, True)
    assert await asking is True


async def test_a_subagents_holds_its_caller_up_no_more(stored: Stored) -> None:
    child = AgentSpec("child", ScriptedModel([ToolCall("k1", "send", {"to": "Bo"}), "Sent."]), [send], "")
    model = ScriptedModel([ToolCall("c1", "child", {"prompt": "Send it."}), "Done."])
    agent = stored.agent(model=model, subagents=[child])
    await _suspended(agent)
    with pytest.raises(HitlRequestPending, match="'k1'"):
        await agent.prompt("next")
    await stored.clock.advance(11)
    assert await agent.load_pending_hitl_request() is None
    assert (await agent.prompt("next")).text == "Done."
