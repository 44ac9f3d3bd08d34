"""While a tool's body is under way its thread is given to nobody else, whoever asks a person meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kit.channel_rigs import asked
from kit.deeds import Deeds, call, delegate, script
from kit.patience import PATIENCE
from kit.transcripts import Held, results

from askfirst import Agent, AgentResult, AgentSpec, Middleware, tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import HitlDurabilityNotGuaranteed
from askfirst.hitl import CheckpointedChannel, ConfirmToolCallMiddleware
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel

pytestmark = pytest.mark.anyio
AROUND = ("tool_started", "tool_ended")
EFFECTS = ("once", "idempotent", "none")


@pytest.fixture
async def store() -> AsyncIterator[MemoryCheckpointer]:
    async with asyncio.timeout(PATIENCE), MemoryCheckpointer() as store:
        yield store


def channel_of(store: MemoryCheckpointer, **options: Any) -> CheckpointedChannel:
    return CheckpointedChannel(checkpointer=store, thread_id="t", **options)


def asks_on(channel: CheckpointedChannel, *types: str, tool_name: str = "charge") -> Any:
    """A listener that asks when it hears of this."""

    async def listen(event: Any) -> None:
        if event.type in types and getattr(event, "tool_name", tool_name) == tool_name:
            await channel.confirm(f"{event.type}: go on?")

    return listen


async def owner(store: MemoryCheckpointer, thread_id: str = "t") -> str | None:
    stored = await store.load(thread_id)
    assert stored is not None
    return stored.lease_owner


async def another(store: MemoryCheckpointer, *tools: Any) -> AgentResult:
    """What another worker gets that goes on with the thread."""
    model = ScriptedModel(["Done by another."])
    return await Agent(model=model, tools=list(tools), checkpointer=store, thread_id="t").resume()


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("hook", [True, False])
async def test_a_listener_that_asks_around_a_body_lets_nobody_in(
    store: MemoryCheckpointer, around: str, effect: str, hook: bool
) -> None:
    deeds, channel = Deeds(), channel_of(store, allow_inside_custom_tool=True)
    charge, listen = deeds.tool("charge", effect=effect), asks_on(channel, around)

    class Listens(Middleware):
        async def on_event(self, event: Any) -> None:
            await listen(event)

    model = script([call("c1", "charge")], "Done.")
    agent = Agent(model=model, tools=[charge], channel=channel, middleware=[Listens()] if hook else [])
    if not hook:
        agent.subscribe(listen)
    run = asyncio.create_task(agent.prompt("go"))
    request = await asked(channel)
    assert request.question_id == "c1:body:confirm:1"
    assert await owner(store) is not None
    done = list(deeds.done)
    assert (await another(store, charge)).status == "suspended"
    assert deeds.done == done
    await channel.answer(request.question_id, True)
    assert (await run).status == "completed"
    assert deeds.done == ["charge"]
    assert await owner(store) is None


@pytest.mark.parametrize(
    ("around", "names"), [("tool_started", ["charge"]), ("tool_ended", ["charge", "gone"])]
)
async def test_without_the_flag_such_a_listener_is_told_that_this_is_no_place_to_ask(
    store: MemoryCheckpointer, around: str, names: list[str]
) -> None:
    deeds, channel, told = Deeds(), channel_of(store), list[str]()
    agent = Agent(
        model=script([call("c1", "charge"), call("c2", "gone")], "Done."),
        tools=[deeds.tool("charge")],
        channel=channel,
    )

    async def listen(event: Any) -> None:
        if event.type == around:
            with pytest.raises(HitlDurabilityNotGuaranteed) as refused:
                await channel.confirm("go on?")
            told.append(refused.value.tool_name)

    agent.subscribe(listen)
    assert (await agent.prompt("go")).status == "completed"
    assert (deeds.done, sorted(told)) == (["charge"], names)
    assert await store.pending() == []


async def test_a_listener_and_the_body_ask_one_after_the_other(store: MemoryCheckpointer) -> None:
    channel = channel_of(store, allow_inside_custom_tool=True)

    async def body() -> str:
        return f"the person said {await channel.confirm('really?')}"

    agent = Agent(
        model=ScriptedModel([ToolCall("c1", "charge", {}), "Done."]),
        tools=[tool(name="charge")(body)],
        channel=channel,
    )
    agent.subscribe(asks_on(channel, *AROUND))
    run = asyncio.create_task(agent.prompt("go"))
    requests = aiter(channel.subscribe())
    for number, answer in ((1, True), (2, False), (3, True)):
        request = await anext(requests)
        assert request.question_id == f"c1:body:confirm:{number}"
        await channel.answer(request.question_id, answer)
    assert results((await run).messages)["c1"].text == "the person said False"


async def test_a_refused_call_is_told_of_while_another_runs(store: MemoryCheckpointer) -> None:
    channel, held = channel_of(store, allow_inside_custom_tool=True), Held("charge")
    agent = Agent(
        model=script([call("c1", "charge"), call("c2", "gone")], "Done."), tools=[held.tool], channel=channel
    )
    agent.subscribe(asks_on(channel, "tool_ended", tool_name="gone"))
    run = asyncio.create_task(agent.prompt("go"))
    request = await asked(channel)
    await held.started.wait()
    assert await owner(store) is not None
    await channel.answer(request.question_id, True)
    held.release.set()
    assert (await run).status == "completed"


async def test_an_agent_within_a_body_asks_for_the_one_that_runs_it(store: MemoryCheckpointer) -> None:
    deeds, channel = Deeds(), channel_of(store, allow_inside_custom_tool=True)

    async def ask_colleague() -> str:
        model = script([call("c1", "pay")], "Paid.")
        middleware = [ConfirmToolCallMiddleware(channel)]
        result = await Agent(model=model, tools=[deeds.tool("pay")], middleware=middleware).prompt("pay")
        return result.text

    model = ScriptedModel([ToolCall("c1", "charge", {}), "Done."])
    agent = Agent(model=model, tools=[tool(name="charge")(ask_colleague)], channel=channel)
    run = asyncio.create_task(agent.prompt("go"))
    request = await asked(channel)
    assert await owner(store) is not None
    assert (await another(store, *agent.spec.tools)).status == "suspended"
    await channel.answer(request.question_id, {"decision": "approve"})
    assert (await run).status == "completed"
    assert deeds.done == ["pay"]


async def test_whoever_else_asks_on_the_thread_leaves_the_lease_with_the_body(
    store: MemoryCheckpointer,
) -> None:
    channel, held = channel_of(store), Held("charge")
    agent = Agent(model=script([call("c1", "charge")], "Done."), tools=[held.tool], channel=channel)
    run = asyncio.create_task(agent.prompt("go"))
    await held.started.wait()
    other = asyncio.create_task(channel.confirm("Lunch?"))
    request = await asked(channel)
    assert await owner(store) is not None
    await channel.answer(request.question_id, True)
    assert await other
    held.release.set()
    assert (await run).status == "completed"


async def test_around_a_subagent_the_tree_is_leased_to_nobody(store: MemoryCheckpointer) -> None:
    deeds, channel = Deeds(), channel_of(store)
    helper = AgentSpec("helper", script([call("h1", "pay")], "Paid."), tools=[deeds.tool("pay")])
    agent = Agent(model=script([delegate("c1", "helper")], "Done."), subagents=[helper], channel=channel)
    agent.subscribe(asks_on(channel, *AROUND, tool_name="helper"))
    run = asyncio.create_task(agent.prompt("go"))
    requests = aiter(channel.subscribe())
    for done in ([], ["pay"]):
        request = await anext(requests)
        assert await owner(store) is None
        assert deeds.done == done
        await channel.answer(request.question_id, True)
    assert (await run).status == "completed"
    assert deeds.done == ["pay"]


async def test_once_its_result_is_there_the_thread_may_be_given_back(store: MemoryCheckpointer) -> None:
    deeds, channel = Deeds(), channel_of(store)
    charge = deeds.tool("charge")
    agent = Agent(model=script([call("c1", "charge")], "Done."), tools=[charge], channel=channel)

    async def listen(event: Any) -> None:
        if event.type == "message_ended" and event.message.role == "tool":
            await channel.confirm("go on?")

    agent.subscribe(listen)
    run = asyncio.create_task(agent.prompt("go"))
    request = await asked(channel)
    assert await owner(store) is None
    assert (await another(store, charge)).status == "completed"
    await channel.answer(request.question_id, True)
    assert (await run).status == "suspended"
    assert deeds.done == ["charge"]
