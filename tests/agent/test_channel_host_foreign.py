"""A channel that keeps its requests outside of the agent's store: its thread is leased to nobody either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest import mock

import pytest
from kit.channel_rigs import Keeper, asked
from kit.deeds import Deeds, call, delegate, script
from kit.patience import PATIENCE
from kit.transcripts import Held, results

from askfirst import Agent, AgentSpec, tool
from askfirst.checkpointer.memory import MemoryCheckpointer
from askfirst.errors import LeaseLost
from askfirst.hitl import (
    CheckpointedChannel,
    ConfirmToolCallMiddleware,
    HitlChannel,
    InMemoryChannel,
    ask_user_tool,
)
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.permissions import Decision, answer_guardrail

pytestmark = pytest.mark.anyio
APPROVE = {"decision": "approve"}
CALLED = ["user", "assistant"]


class Plain:
    """A channel of somebody's own: it keeps the protocol, and tells the agent nothing."""

    def __init__(self) -> None:
        self._inner = InMemoryChannel()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def bind(self, host: Any) -> None:
        """It has no use for the agent."""


CHANNELS: dict[str, Callable[[], Any]] = {
    "in memory": InMemoryChannel,
    "plain": Plain,
    "on a keeper": lambda: CheckpointedChannel(checkpointer=Keeper(), thread_id="t"),
}


@pytest.fixture(params=CHANNELS)
def channel(request: pytest.FixtureRequest) -> Any:
    return CHANNELS[request.param]()


@pytest.fixture
async def store() -> AsyncIterator[MemoryCheckpointer]:
    async with asyncio.timeout(PATIENCE), MemoryCheckpointer() as store:
        yield store


async def standing(store: MemoryCheckpointer, thread_id: str = "t") -> tuple[str | None, list[str]]:
    """Who holds the thread, and what is in it."""
    stored = await store.load(thread_id)
    assert stored is not None
    return stored.lease_owner, [message.role for message in stored.messages]


def agent_on(store: MemoryCheckpointer, channel: HitlChannel | None, **options: Any) -> Agent:
    return Agent(checkpointer=store, thread_id="t", channel=channel, **options)


async def waiting(agent: Agent, channel: HitlChannel) -> asyncio.Task[Any]:
    """A run that waits for a person."""
    run = asyncio.create_task(agent.prompt("go"))
    await asked(channel)
    return run


async def test_at_the_gate(store: MemoryCheckpointer, channel: Any) -> None:
    deeds = Deeds()
    model = script([call("c1", "pay")], "Done.")
    agent = agent_on(store, channel, model=model, tools=[deeds.asks("pay")])
    run = await waiting(agent, channel)
    assert await standing(store) == (None, CALLED)
    await channel.answer("c1", APPROVE)
    assert (await run).status == "completed"
    assert await standing(store) == (None, [*CALLED, "tool", "assistant"])
    assert deeds.done == ["pay"]


async def test_in_a_hook(store: MemoryCheckpointer) -> None:
    deeds, channel = Deeds(), InMemoryChannel()
    agent = agent_on(
        store,
        None,
        model=script([call("c1", "pay")], "Done."),
        tools=[deeds.tool("pay")],
        middleware=[ConfirmToolCallMiddleware(channel)],
    )
    run = await waiting(agent, channel)
    assert await standing(store) == (None, CALLED)
    await channel.answer("c1", APPROVE)
    assert (await run).status == "completed"
    assert deeds.done == ["pay"]


async def test_by_the_model(store: MemoryCheckpointer) -> None:
    channel = InMemoryChannel()
    questions = {"questions": [{"key": "k", "prompt": "What?"}]}
    model = ScriptedModel([ToolCall("c1", "ask_user", questions), "Done."])
    agent = agent_on(store, channel, model=model, tools=[ask_user_tool(channel)])
    run = await waiting(agent, channel)
    assert await standing(store) == (None, CALLED)
    await channel.answer("c1:body:ask:1", {"k": "this"})
    assert "this" in results((await run).messages)["c1"].text


async def test_about_an_answer_of_the_model(store: MemoryCheckpointer, channel: Any) -> None:
    @answer_guardrail
    def careful(answer: Any) -> Decision:
        return Decision.ask("careful")

    agent = agent_on(store, channel, model=ScriptedModel(["Done."]), guardrails=[careful])
    run = await waiting(agent, channel)
    assert (await standing(store))[0] is None
    await channel.answer(channel.pending.question_id, True)
    assert (await run).text == "Done."


async def test_about_an_effect_in_doubt(store: MemoryCheckpointer, channel: Any) -> None:
    held = Held("pay")
    model = script([call("c1", "pay")], "Done.")
    begun = asyncio.create_task(agent_on(store, None, model=model, tools=[held.tool]).prompt("go"))
    await held.started.wait()
    begun.cancel()
    await asyncio.wait([begun])
    held.started.clear()
    agent = agent_on(store, channel, model=model, tools=[held.tool])
    run = asyncio.create_task(agent.resume())
    request = await asked(channel)
    assert request.payload.kind == "escalate"
    assert await standing(store) == (None, CALLED)
    await channel.answer(request.question_id, "skip")
    assert (await run).status == "completed"
    assert not held.started.is_set()


@pytest.mark.parametrize("answer", ["approve", "deny"])
@pytest.mark.parametrize("effect", ["once", "idempotent", "none"])
async def test_if_another_worker_goes_on_meanwhile_nothing_is_run(
    store: MemoryCheckpointer, channel: Any, effect: str, answer: str
) -> None:
    deeds = Deeds()
    pay = deeds.asks("pay", effect=effect)
    agent = agent_on(store, channel, model=script([call("c1", "pay")], "Done."), tools=[pay])
    run = await waiting(agent, channel)
    other = agent_on(store, None, model=ScriptedModel(["Something else."]), tools=[pay])
    assert (await other.prompt("never mind")).text == "Something else."
    await channel.answer("c1", {"decision": answer})
    result = await run
    assert (result.status, result.text) == ("suspended", "Something else.")
    assert deeds.done == []
    assert await standing(store) == (None, [*CALLED, "tool", "user", "assistant"])


async def test_two_workers_that_both_get_a_yes(store: MemoryCheckpointer) -> None:
    deeds, channels = Deeds(), (InMemoryChannel(), InMemoryChannel())
    model = script([call("c1", "pay")], "Done.")
    first, second = (agent_on(store, it, model=model, tools=[deeds.asks("pay")]) for it in channels)
    runs = [await waiting(first, channels[0]), asyncio.create_task(second.resume())]
    await asked(channels[1])
    for channel in channels:
        await channel.answer("c1", APPROVE)
    assert sorted([(await run).status for run in runs]) == ["completed", "suspended"]
    assert deeds.done == ["pay"]


async def test_inside_a_body_the_lease_is_held(store: MemoryCheckpointer) -> None:
    channel = InMemoryChannel()

    @tool
    async def charge() -> str:
        return str(await channel.confirm("Sure?"))

    model = ScriptedModel([ToolCall("c1", "charge", {}), "Done."])
    run = await waiting(agent_on(store, channel, model=model, tools=[charge]), channel)
    assert (await standing(store))[0] is not None
    await channel.answer("c1:body:confirm:1", True)
    assert (await run).status == "completed"


async def test_a_tree_that_waits(store: MemoryCheckpointer) -> None:
    deeds, channel = Deeds(), InMemoryChannel()
    specs = [
        AgentSpec(name, script([call("h1", "pay", name)], f"{name} paid"), tools=[deeds.asks("pay")])
        for name in ("ann", "ben")
    ]
    model = script([delegate("c1", "ann"), delegate("c2", "ben")], "Done.")
    agent = agent_on(store, channel, model=model, subagents=specs)
    run = asyncio.create_task(agent.prompt("go"))
    requests = aiter(channel.subscribe())
    request = await anext(requests)
    await _until_free(store)
    await channel.answer(request.question_id, APPROVE)
    request = await anext(requests)
    await _until_free(store)
    await channel.answer(request.question_id, APPROVE)
    assert (await run).status == "completed"
    assert sorted(deeds.done) == ["pay ann", "pay ben"]


async def _until_free(store: MemoryCheckpointer) -> None:
    """Until no thread is leased: the others of the tree come to rest a little later."""
    while any([(await standing(store, it.thread_id))[0] for it in await store.threads()]):  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_what_cannot_be_written_is_not_asked(store: MemoryCheckpointer) -> None:
    deeds, channel = Deeds(), InMemoryChannel()
    agent = agent_on(store, channel, model=script([call("c1", "pay")], "Done."), tools=[deeds.asks("pay")])
    commit = store.commit

    async def fail(thread_id: str, step: Any, **options: Any) -> int:
        if step.release:
            raise LeaseLost(thread_id, 1)
        return await commit(thread_id, step, **options)

    heard: list[str] = []
    agent.subscribe(lambda event: heard.append(event.type))
    with mock.patch.object(store, "commit", fail):
        assert (await agent.prompt("go")).status == "suspended"
    assert "hitl_request" not in heard
    assert (deeds.done, channel.pending, await channel.open_request()) == ([], None, None)
