"""Agents that share a checkpointer are one owner to the store: which of them wrote a step, only that one knows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.channel_rigs import asked
from kit.deeds import Deeds, call
from kit.stores import SHARED, databases, effect, said
from kit.stores import asked as waiting
from kit.transcripts import assert_sound, results

from askfirst import Agent
from askfirst.agent.journal import Journal
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import LeaseHeld
from askfirst.events import HitlAnswerEvent
from askfirst.hitl import CheckpointedChannel
from askfirst.messages import ToolResultMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
database = databases(*SHARED)


class Gate:
    """Somebody comes up to it, and goes on when it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def __call__(self, *_: Any) -> str:
        self.reached.set()
        await self.opened.wait()
        return "Hello again."


async def test_a_result_that_was_not_written_is_not_followed_by_a_message(
    checkpointer: SqlCheckpointer,
) -> None:
    """One hears a no. Before it has written that, another prompts, and holds the thread while its model thinks."""
    deeds, heard, thinking = Deeds(), Gate(), Gate()
    channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="t")
    one = Agent(
        model=ScriptedModel([call("c1", "send"), "Denied."]), tools=[deeds.asks("send")], channel=channel
    )

    async def listen(event: Any) -> None:
        if isinstance(event, HitlAnswerEvent):
            await heard()

    one.subscribe(listen)
    running = asyncio.create_task(one.prompt("Send it."))
    await asked(channel)
    await checkpointer.settle("t", "c1", {"decision": "deny"})
    await heard.reached.wait()

    other = Agent(
        model=ScriptedModel([thinking]), tools=[deeds.asks("send")], checkpointer=checkpointer, thread_id="t"
    )
    prompting = asyncio.create_task(other.prompt("And?"))
    await thinking.reached.wait()
    heard.opened.set()
    late = await running
    thinking.opened.set()
    result = await prompting

    assert (late.status, result.status) == ("suspended", "completed")
    stored = await checkpointer.load("t")
    assert stored is not None
    assert [message.text for message in stored.messages[-2:]] == ["And?", "Hello again."]
    assert list(results(stored.messages)) == ["c1"]
    assert_sound(stored.messages)


async def test_whoever_is_cancelled_before_it_has_the_thread_gives_nobody_elses_back(
    checkpointer: SqlCheckpointer,
) -> None:
    fence, _ = await waiting(checkpointer, "t")
    one, other = Journal(checkpointer, "t", fence), Journal(checkpointer, "t", fence)
    await other.write(said(started=[effect()]))
    taking = asyncio.create_task(one.write(said()))
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait([taking])
    assert taking.cancelled()
    assert not one.lease.holds
    with pytest.raises(LeaseHeld):
        await one.write(said(release=True))
    await other.write(said(ToolResultMessage("call-1", "send", "sent"), ended=["call-1"]))


async def test_whoever_is_cancelled_with_the_thread_in_hand_can_give_it_back(
    checkpointer: SqlCheckpointer,
) -> None:
    fence, _ = await waiting(checkpointer, "t")
    one = Journal(checkpointer, "t", fence)
    taking = asyncio.create_task(one.write(said()))
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait([taking])
    assert one.lease.holds
    await one.write(said(release=True))
    stored = await checkpointer.load("t")
    assert stored is not None
    assert stored.lease_owner is None
