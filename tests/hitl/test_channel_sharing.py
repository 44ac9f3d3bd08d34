"""Several who ask, or answer, at one channel or on one thread: one request at a time, and each its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.channel_rigs import Rig, asked
from kit.patience import PATIENCE
from kit.stores import SHARED, Database

from askfirst import Agent, AgentSpec, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.hitl import (
    CheckpointedChannel,
    HitlConcurrencyError,
    HitlNoPendingRequest,
    HitlRequestPending,
    HitlStaleAnswer,
    InMemoryChannel,
)
from askfirst.hitl.testing import FakeClock
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio

APPROVE = {"decision": "approve"}


@tool(requires_approval=True)
async def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


def sender(*more: str) -> dict[str, Any]:
    """An agent's parts: it sends one letter, and has more to say."""
    return {"model": ScriptedModel([ToolCall("c1", "send", {"to": "Ada"}), *more]), "tools": [send]}


# An answered request is pending no more, also before whoever asked has heard of it.


@pytest.mark.parametrize("by", ["channel", "agent"])
async def test_what_is_answered_is_not_pending(rig: Rig, by: str) -> None:
    agent = rig.agent(**sender("Done.", "Next."))
    channel = agent.channel
    assert channel is not None
    running = rig.start(agent.prompt("go"))
    request = await asked(channel)
    if by == "channel":
        await channel.answer(request.question_id, APPROVE)
    else:
        assert await agent.respond(answer=APPROVE) is None
    assert channel.pending is None
    assert agent.in_flight_hitl_request is None
    later = rig.start(asked(channel))
    assert (await agent.prompt("next")).text == "Next."
    assert (await running).text == "Done."
    assert not later.done(), "it was answered when somebody came to look"


async def test_what_is_answered_cannot_be_answered_again(rig: Rig) -> None:
    agent = rig.agent(**sender("Done."))
    running = rig.start(agent.prompt("go"))
    assert agent.channel is not None
    await asked(agent.channel)
    await agent.respond(question_id="c1", answer=APPROVE)
    with pytest.raises(HitlStaleAnswer):
        await agent.respond(question_id="c1", answer=APPROVE)
    assert (await running).text == "Done."


async def test_a_channel_asks_the_next_thing_as_soon_as_the_last_is_answered(rig: Rig) -> None:
    channel = rig.channel()
    first = rig.start(channel.confirm("first?"))
    request = await asked(channel)
    await channel.answer(request.question_id, True)
    second = rig.start(channel.confirm("second?"))
    subscription = aiter(channel.subscribe())
    assert await first is True
    request = await anext(subscription)
    assert request.payload.prompt == "second?"
    assert channel.pending == request
    await channel.answer(request.question_id, False)
    assert await second is False


async def test_what_is_detached_from_is_not_in_flight(rig: Rig) -> None:
    agent = rig.agent(**sender("Done."))
    running = rig.start(agent.prompt("go"))
    assert agent.channel is not None
    await asked(agent.channel)
    await agent.detach()
    assert agent.in_flight_hitl_request is None
    with pytest.raises(HitlNoPendingRequest):
        await agent.detach()
    assert (await running).status == "suspended"
    result = await agent.respond(answer=APPROVE)
    assert result is not None
    assert result.text == "Done."


# One request on a thread, whatever asks it.


def _channel(checkpointer: SqlCheckpointer, **options: Any) -> CheckpointedChannel:
    return CheckpointedChannel(checkpointer=checkpointer, thread_id="t", **options)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_second_channel_does_not_ask_while_the_first_waits(checkpointer: SqlCheckpointer) -> None:
    one, two = _channel(checkpointer), _channel(checkpointer)
    first = asyncio.create_task(one.confirm("first?"))
    request = await asked(one)
    with pytest.raises(HitlConcurrencyError) as refused:
        await two.confirm("second?")
    assert refused.value.question_id == request.question_id
    assert two.pending is None
    assert [it.question_id for it in await checkpointer.pending()] == [request.question_id]
    await one.answer(request.question_id, True)
    assert await first is True
    second = asyncio.create_task(two.confirm("second?"))
    assert (await asked(two)).payload.prompt == "second?"
    await _end(second)


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_of_many_that_ask_at_once_one_does(database: Database) -> None:
    async with database.checkpointer() as here, database.checkpointer() as there:
        channels = [_channel(here if number % 2 else there) for number in range(10)]
        tasks = [asyncio.create_task(it.confirm(f"number {n}?")) for n, it in enumerate(channels)]
        async with asyncio.timeout(PATIENCE):
            while sum(task.done() for task in tasks) < len(tasks) - 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        (waiting,) = [task for task in tasks if not task.done()]
        refused = {type(task.exception()) for task in tasks if task is not waiting}
        assert refused == {HitlConcurrencyError}
        assert len(await here.pending()) == 1
        await _end(waiting)


async def test_a_waiting_agent_is_not_asked_over(checkpointer: SqlCheckpointer) -> None:
    agent = Agent(**sender("Done."), channel=_channel(checkpointer))
    running = asyncio.create_task(agent.prompt("go"))
    assert agent.channel is not None
    await asked(agent.channel)
    with pytest.raises(HitlConcurrencyError):
        await _channel(checkpointer).confirm("May I, too?")
    await agent.respond(answer=APPROVE)
    assert (await running).text == "Done."


async def test_what_is_overdue_is_in_nobodys_way(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        waiting = asyncio.create_task(_channel(checkpointer, clock=clock).confirm("first?", timeout=5))
        while not await checkpointer.pending():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await _end(waiting)
        with pytest.raises(HitlConcurrencyError):
            await _channel(checkpointer, clock=clock).confirm("second?")
        await clock.advance(6)
        two = _channel(checkpointer, clock=clock)
        waiting = asyncio.create_task(two.confirm("second?"))
        assert (await asked(two)).payload.prompt == "second?"
        await _end(waiting)


# Two agents at one channel.


class Pair:
    """Agent ``a`` waits for a person at a channel that is also that of agent ``b``."""

    def __init__(self) -> None:
        self.channel = InMemoryChannel()
        self.a = Agent(**sender("Done."), channel=self.channel, thread_id="A")
        self.b = Agent(model=ScriptedModel(["Hello from B."]), channel=self.channel, thread_id="B")
        self.waiting = asyncio.create_task(self.a.prompt("go"))

    async def check_a_waits(self) -> None:
        await asyncio.sleep(0.01)
        assert not self.waiting.done()
        await self.a.respond(answer=APPROVE)
        assert (await self.waiting).text == "Done."


@pytest.fixture
async def pair() -> Pair:
    pair = Pair()
    await asked(pair.channel)
    return pair


@pytest.mark.parametrize("on_pending", ["raise", "supersede"])
async def test_anothers_request_is_in_nobodys_way(pair: Pair, on_pending: Any) -> None:
    assert (await pair.b.prompt("hi", on_pending=on_pending)).text == "Hello from B."
    await pair.check_a_waits()


@pytest.mark.parametrize("end", ["detach", "abort_pending", "respond"])
async def test_nobody_ends_anothers_request(pair: Pair, end: str) -> None:
    options = {"answer": APPROVE} if end == "respond" else {}
    with pytest.raises(HitlNoPendingRequest, match="on thread 'B'"):
        await getattr(pair.b, end)(**options)
    await pair.check_a_waits()


async def test_a_subagents_request_is_its_callers() -> None:
    channel = InMemoryChannel()
    child = AgentSpec("child", ScriptedModel([ToolCall("k1", "send", {"to": "Bo"}), "Sent."]), [send], "")
    model = ScriptedModel([ToolCall("c1", "child", {"prompt": "Send it."}), "Done."])
    agent = Agent(model=model, subagents=[child], channel=channel)
    other = Agent(model=ScriptedModel(["Hello."]), channel=channel)
    running = asyncio.create_task(agent.prompt("go"))
    assert (await asked(channel)).question_id == "k1"
    with pytest.raises(HitlRequestPending, match="'k1'"):
        await agent.prompt("and?")
    with pytest.raises(HitlNoPendingRequest):
        await other.detach()
    await agent.detach()
    assert (await running).status == "suspended"
