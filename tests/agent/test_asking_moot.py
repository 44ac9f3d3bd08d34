"""A question whose asker has given up is over when its call is: nobody can answer what nobody will read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import pytest
from kit.channel_rigs import STORED, Rig, asked
from kit.deeds import Deeds
from kit.transcripts import Held, results

from askfirst import Agent, Middleware, tool
from askfirst.agent.spec import BeforeToolCallResult, ToolCallContext
from askfirst.errors import HitlDetached, HitlStaleAnswer
from askfirst.hitl import HitlChannel, HitlRequest
from askfirst.messages import ToolCall, ToolResultMessage
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio


async def given_up(channel: HitlChannel, ask: Callable[[], Awaitable[Any]]) -> HitlRequest:
    """Ask, and give up as soon as somebody could answer, as ``asyncio.timeout`` does."""
    task = asyncio.ensure_future(ask())
    request = await asked(channel)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    return request


def shy(channel: HitlChannel, name: str = "shy") -> Any:
    """A tool whose body asks and gives up."""

    async def body() -> str:
        request = await given_up(channel, lambda: channel.confirm("Sure?"))
        return f"nobody answered {request.question_id}"

    return tool(name=name)(body)


class Shy(Middleware):
    """A hook that asks before a call, gives up, and refuses the call or lets it pass."""

    def __init__(self, channel: HitlChannel, block: bool) -> None:
        self._channel, self._block = channel, block

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult | None:
        await given_up(self._channel, lambda: self._channel.confirm("Sure?"))
        return BeforeToolCallResult(block=True, reason="nobody") if self._block else None


async def assert_over(rig: Rig, agent: Agent, *question_ids: str) -> None:
    """Nothing is asked any more, no answer is taken, and the conversation goes on."""
    assert await agent.load_pending_hitl_request() is None
    if rig.kind in STORED:
        assert await rig.checkpointer.pending() == []
        for question_id in question_ids:
            with pytest.raises(HitlStaleAnswer):
                await rig.checkpointer.settle("t", question_id, True)
    assert (await agent.prompt("and now?")).status == "completed"


async def test_in_a_body(rig: Rig) -> None:
    channel = rig.channel(allow_inside_custom_tool=True)
    model = ScriptedModel([ToolCall("c1", "shy", {}), "Done.", "Hello."])
    agent = rig.agent(channel, model=model, tools=[shy(channel)])
    result = await agent.prompt("go")
    assert results(result.messages)["c1"].text == "nobody answered c1:body:confirm:1"
    await assert_over(rig, agent, "c1:body:confirm:1")


@pytest.mark.parametrize("block", [True, False])
async def test_at_the_gate(rig: Rig, block: bool) -> None:
    channel, deeds = rig.channel(), Deeds()
    model = ScriptedModel([ToolCall("c1", "pay", {}), "Done.", "Hello."])
    middleware = [Shy(channel, block)]
    agent = rig.agent(channel, model=model, tools=[deeds.tool("pay")], middleware=middleware)
    assert (await agent.prompt("go")).status == "completed"
    assert deeds.done == ([] if block else ["pay"])
    await assert_over(rig, agent, "c1:confirm:1")


async def test_by_a_listener(rig: Rig) -> None:
    channel, ids = rig.channel(), list[str]()
    agent = rig.agent(channel, model=ScriptedModel(["Done.", "Hello."]))

    async def listen(event: Any) -> None:
        if event.type == "turn_ended" and not ids:
            ids.append((await given_up(channel, lambda: channel.confirm("Sure?"))).question_id)

    agent.subscribe(listen)
    assert (await agent.prompt("go")).status == "completed"
    await assert_over(rig, agent, *ids)


async def test_under_an_id_of_ones_own(rig: Rig) -> None:
    channel = rig.channel(allow_inside_custom_tool=True)

    async def deploy() -> str:
        await given_up(channel, lambda: channel.approve("deploy", "deploy-7", {"to": "prod"}))
        return "nobody there"

    model = ScriptedModel([ToolCall("c1", "deploy", {}), "Done.", "Hello."])
    agent = rig.agent(channel, model=model, tools=[deploy])
    assert (await agent.prompt("go")).status == "completed"
    await assert_over(rig, agent, "deploy-7")


async def test_it_is_over_before_the_next_question(rig: Rig) -> None:
    channel, deeds = rig.channel(allow_inside_custom_tool=True), Deeds()
    model = ScriptedModel([ToolCall("c1", "shy", {}), ToolCall("c2", "pay", {}), "Done.", "Hello."])
    agent = rig.agent(channel, model=model, tools=[shy(channel), deeds.asks("pay")])
    run = rig.start(agent.prompt("go"))
    async for request in channel.subscribe():
        if request.question_id == "c2":
            break
    await agent.detach()
    assert (await run).status == "suspended"
    pending = await agent.load_pending_hitl_request()
    assert pending is not None
    assert pending.question_id == "c2"
    result = await agent.respond(question_id="c2", answer={"decision": "approve"})
    assert result is not None
    assert result.status == "completed"
    assert deeds.done == ["pay"]


async def test_what_another_call_still_asks_stays_open(rig: Rig) -> None:
    channel, gave_up = rig.channel(allow_inside_custom_tool=True), asyncio.Event()

    async def waits() -> str:
        await gave_up.wait()
        return str(await channel.confirm("And you?"))

    async def stops() -> str:
        await given_up(channel, lambda: channel.confirm("Sure?"))
        gave_up.set()
        return "nobody there"

    model = ScriptedModel([[ToolCall("c1", "stops", {}), ToolCall("c2", "waits", {})], "Done.", "Hello."])
    agent = rig.agent(channel, model=model, tools=[stops, waits])
    run = rig.start(agent.prompt("go"))
    async for request in channel.subscribe():
        if request.question_id.startswith("c2"):
            break
    await agent.detach()
    result = await run
    assert result.status == "suspended"
    pending = await agent.load_pending_hitl_request()
    assert pending is not None
    assert pending.question_id == "c2:body:confirm:1"
    if rig.kind in STORED:
        assert [it.question_id for it in await rig.checkpointer.pending()] == ["c2:body:confirm:1"]


async def test_a_body_that_takes_a_detach_for_an_answer(rig: Rig) -> None:
    channel = rig.channel(allow_inside_custom_tool=True)

    async def stubborn() -> str:
        try:
            await channel.confirm("Sure?")
        except HitlDetached:
            return "went on alone"
        return "heard"

    model = ScriptedModel([ToolCall("c1", "stubborn", {}), "Done.", "Hello."])
    agent = rig.agent(channel, model=model, tools=[stubborn])
    run = rig.start(agent.prompt("go"))
    await asked(channel)
    await agent.detach()
    assert (await run).status == "completed"
    await assert_over(rig, agent, "c1:body:confirm:1")


async def test_a_stored_one_ends_after_the_result_is_written(stored_rig: Rig) -> None:
    """A body that is run again after a crash asks again; it must not find that it gave up."""
    channel = stored_rig.channel(allow_inside_custom_tool=True)
    store, seen = stored_rig.checkpointer, list[list[str]]()
    cancel = store.cancel

    async def look_and_cancel(*args: Any, **options: Any) -> Any:
        seen.append([message.role for message in (await store.load("t")).messages])
        return await cancel(*args, **options)

    model = ScriptedModel([ToolCall("c1", "shy", {}), "Done."])
    agent = stored_rig.agent(channel, model=model, tools=[shy(channel)])
    with mock.patch.object(store, "cancel", look_and_cancel):
        assert (await agent.prompt("go")).status == "completed"
    assert seen == [["user", "assistant", "tool"]]


async def test_where_others_still_run_it_waits_for_them(stored_rig: Rig) -> None:
    """The results of a group are written together, so none of its questions ends before."""
    channel, held = stored_rig.channel(allow_inside_custom_tool=True), Held()
    gave_up = asyncio.Event()

    async def stops() -> str:
        await given_up(channel, lambda: channel.confirm("Sure?"))
        gave_up.set()
        return "nobody there"

    model = ScriptedModel([[ToolCall("c1", "stops", {}), ToolCall("c2", "held", {})], "Done.", "Hello."])
    agent = stored_rig.agent(channel, model=model, tools=[stops, held.tool])
    run = stored_rig.start(agent.prompt("go"))
    await gave_up.wait()
    await held.started.wait()
    assert [it.question_id for it in await stored_rig.checkpointer.pending()] == ["c1:body:confirm:1"]
    held.release.set()
    assert (await run).status == "completed"
    await assert_over(stored_rig, agent, "c1:body:confirm:1")


async def test_what_somebody_else_waits_for_is_left_alone(rig: Rig) -> None:
    channel = rig.channel()
    other: list[asyncio.Task[bool]] = []

    agent = rig.agent(channel, model=ScriptedModel(["Done."]))

    async def listen(event: Any) -> None:
        if event.type == "turn_ended":
            other.append(rig.start(channel.confirm("Lunch?")))
            await asked(channel)

    agent.subscribe(listen)
    assert (await agent.prompt("go")).status == "completed"
    assert channel.pending is not None
    await channel.answer(channel.pending.question_id, True)
    assert await other[0]


async def test_nothing_is_looked_up_where_nothing_was_asked(stored_rig: Rig) -> None:
    channel, deeds = stored_rig.channel(), Deeds()
    model = ScriptedModel([ToolCall("c1", "pay", {}), "Done."])
    agent = stored_rig.agent(channel, model=model, tools=[deeds.tool("pay")])
    with (
        mock.patch.object(stored_rig.checkpointer, "cancel") as cancel,
        mock.patch.object(channel, "open_request") as look,
    ):
        result = await agent.prompt("go")
    assert isinstance(result.messages[2], ToolResultMessage)
    assert (cancel.called, look.called) == (False, False)
