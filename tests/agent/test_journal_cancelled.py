"""A step that is called off while another is being written: it was not sent, and the next one has it all."""

from __future__ import annotations

import asyncio

import pytest
from kit.stores import SHARED, databases

from askfirst import Agent
from askfirst.checkpointer.base import RunRecord
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.messages import AssistantMessage, UserMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
database = databases(*SHARED)


async def test_what_was_not_sent_is_written_with_the_next_step(checkpointer: SqlCheckpointer) -> None:
    session = Agent(model=ScriptedModel([]), checkpointer=checkpointer, thread_id="t")._session
    await session.load()
    run = session.new_run("run-1")

    run._add([UserMessage("Hello.")])
    first = asyncio.create_task(run.commit(run=RunRecord("agent-1")))
    await asyncio.sleep(0)  # it is on its way now
    run._add([AssistantMessage("Hello to you.")])
    second = asyncio.create_task(run.commit())
    await asyncio.sleep(0)  # it waits for the first
    second.cancel()
    await asyncio.wait([first, second])
    assert second.cancelled()
    assert [message.text for message in run.unwritten.messages] == ["Hello to you."]

    await run.commit(release=True)
    stored = await checkpointer.load("t")
    assert stored is not None
    assert [message.text for message in stored.messages] == ["Hello.", "Hello to you."]
    assert not stored.is_leased
