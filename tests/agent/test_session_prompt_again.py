"""A prompt goes by what is open now, not by what was open when this process last looked at the thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from kit.deeds import Deeds, call, script

from askfirst import Agent
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlRequestPending
from askfirst.hitl import CheckpointedChannel, HitlChannel

pytestmark = pytest.mark.anyio
YES = {"decision": "approve"}


def agent(deeds: Deeds, checkpointer: SqlCheckpointer, channel: HitlChannel | None = None) -> Agent:
    model = script(call("c1", "send"), "Sent.", "Hello again.")
    tools = [deeds.asks("send")]
    return Agent(model=model, tools=tools, checkpointer=checkpointer, channel=channel, thread_id="t")


async def looked_at(mine: Agent) -> None:
    await mine.prompt("Send it.")
    await mine.load()


async def detached(mine: Agent) -> None:
    running = asyncio.create_task(mine.prompt("Send it."))
    assert mine.channel is not None
    async for _ in mine.channel.subscribe():
        break
    await mine.detach()
    assert (await running).status == "suspended"
    await mine.load()


@pytest.mark.parametrize("wait", [looked_at, detached])
async def test_what_another_worker_has_answered_and_done_is_not_in_the_way(
    checkpointer: SqlCheckpointer, wait: Callable[[Agent], Awaitable[None]]
) -> None:
    deeds = Deeds()
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t") if wait is detached else None
    mine = agent(deeds, checkpointer, channel)
    await wait(mine)
    with pytest.raises(HitlRequestPending):
        await mine.prompt("And?")

    other = await agent(deeds, checkpointer).respond(question_id="c1", answer=YES)
    assert other is not None
    assert other.status == "completed"

    result = await mine.prompt("And?")
    assert result.status == "completed"
    assert result.text == "Hello again."
    assert deeds.done == ["send"]
