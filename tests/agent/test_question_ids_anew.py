"""An id names one question: what is asked in its place gets another, and a late answer to the first is stale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.channel_rigs import KINDS, Rig, asked
from kit.deeds import Deeds, call, delegate, script
from kit.patience import PATIENCE
from kit.stores import Database
from kit.transcripts import results

from askfirst import Agent, AgentSpec, BeforeToolCallResult, Middleware, ToolCallContext, ToolContext, tool
from askfirst.checkpointer.base import Step
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlStaleAnswer
from askfirst.hitl import CheckpointedChannel, HitlChannel, Question
from askfirst.hitl.testing import FakeClock
from askfirst.messages import ToolCall
from askfirst.requests import EscalateAnswer, EscalateRequest

pytestmark = pytest.mark.anyio
CALL = [call("c1", "pay")]


@pytest.fixture
async def store(checkpointer: SqlCheckpointer) -> AsyncIterator[SqlCheckpointer]:
    async with asyncio.timeout(PATIENCE):
        yield checkpointer


class Sure(Middleware):
    """A hook that asks a person before every call, in these words."""

    def __init__(self, channel: HitlChannel, words: str) -> None:
        self._channel, self._words = channel, words

    async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult | None:
        sure = await self._channel.confirm(self._words)
        return None if sure else BeforeToolCallResult(block=True, reason="no")


class Desk:
    """Agents of one thread, one process after the other, whose hook asks in words of its own each time."""

    def __init__(self, store: SqlCheckpointer, call_id: str = "c1") -> None:
        self.store, self.deeds, self.call_id = store, Deeds(), call_id

    def agent(self, words: str, *before: Middleware) -> Agent:
        channel = CheckpointedChannel(checkpointer=self.store, thread_id="t")
        model, hooks = script([call(self.call_id, "pay")], "Done."), [*before, Sure(channel, words)]
        return Agent(model=model, tools=[self.deeds.tool("pay")], channel=channel, middleware=hooks)

    async def asking(self, words: str) -> tuple[Agent, asyncio.Task[Any], str]:
        """An agent that asks this, be it the first or the next; its run, and the id of the question."""
        agent = self.agent(words)
        is_begun = await self.store.load("t") is not None
        run = asyncio.create_task(agent.resume() if is_begun else agent.prompt("go"))
        return agent, run, (await asked(channel_of(agent))).question_id

    async def asked_once(self, words: str) -> str:
        """Ask this in a process that ends while it waits."""
        _, run, question_id = await self.asking(words)
        await ended(run)
        return question_id

    async def status(self, question_id: str) -> str:
        found = await self.store.request("t", question_id)
        assert found is not None
        return found.status


def channel_of(agent: Agent) -> HitlChannel:
    assert agent.channel is not None
    return agent.channel


async def ended(run: asyncio.Task[Any]) -> None:
    """As if the process had died, but for what it holds."""
    run.cancel()
    await asyncio.wait([run])


Late = Callable[[SqlCheckpointer, Agent], Awaitable[Any]]
LATE: dict[str, Late] = {
    "the store": lambda store, _: store.settle("t", "c1:confirm:1", True),
    "its cancel": lambda store, _: store.cancel("t", "c1:confirm:1"),
    "the agent": lambda _, agent: agent.respond(question_id="c1:confirm:1", answer=True),
    "the channel": lambda _, agent: channel_of(agent).answer("c1:confirm:1", True),
}


@pytest.mark.parametrize("through", LATE)
async def test_a_late_answer_does_not_count_for_what_is_asked_instead(
    store: SqlCheckpointer, through: str
) -> None:
    desk = Desk(store)
    assert await desk.asked_once("Pay 1 EUR?") == "c1:confirm:1"
    agent, run, question_id = await desk.asking("Pay 1000000 EUR?")
    assert question_id == "c1:confirm:1~2"
    with pytest.raises(HitlStaleAnswer) as stale:
        await LATE[through](store, agent)
    assert (stale.value.question_id, stale.value.status) == ("c1:confirm:1", "superseded")
    assert [it.question_id for it in await store.pending()] == ["c1:confirm:1~2"]
    assert desk.deeds.done == []
    await store.settle("t", "c1:confirm:1~2", False)
    assert results((await run).messages)["c1"].text == "no"
    assert desk.deeds.done == []


async def test_the_earlier_one_ends_in_the_step_that_asks_the_new_one(
    store: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, commit, steps = Desk(store), store.commit, list[Step]()

    async def noted(thread_id: str, step: Step, **options: Any) -> int:
        steps.append(step)
        return await commit(thread_id, step, **options)

    await desk.asked_once("Pay 1 EUR?")
    monkeypatch.setattr(store, "commit", noted)
    await desk.asked_once("Pay 2 EUR?")
    (step,) = [it for it in steps if it.opened]
    assert [it.question_id for it in step.opened] == ["c1:confirm:1~2"]
    assert [(it.question_id, it.status) for it in step.settled] == [("c1:confirm:1", "superseded")]


async def test_a_resumed_run_finds_its_own_question_again(store: SqlCheckpointer) -> None:
    desk = Desk(store)
    await desk.asked_once("Pay 1 EUR?")
    assert await desk.asked_once("Pay 2 EUR?") == "c1:confirm:1~2"
    assert await desk.asked_once("Pay 2 EUR?") == "c1:confirm:1~2"
    await store.settle("t", "c1:confirm:1~2", True)
    assert (await desk.agent("Pay 2 EUR?").resume()).status == "completed"
    assert desk.deeds.done == ["pay"]


async def test_words_that_come_back_are_asked_anew_too(store: SqlCheckpointer) -> None:
    """The first time they gave way to others; whoever saw them then has been told that they are over."""
    desk = Desk(store)
    ids = [await desk.asked_once(f"Pay {euros} EUR?") for euros in (1, 2, 1)]
    assert ids == ["c1:confirm:1", "c1:confirm:1~2", "c1:confirm:1~3"]
    assert [await desk.status(it) for it in ids] == ["superseded", "superseded", "pending"]


async def test_what_was_answered_stays_on_record_and_counts_for_its_own_words(store: SqlCheckpointer) -> None:
    desk = Desk(store)
    await desk.asked_once("Pay 1 EUR?")
    await store.settle("t", "c1:confirm:1", True, by="ann")
    assert await desk.asked_once("Pay 2 EUR?") == "c1:confirm:1~2"
    with pytest.raises(HitlStaleAnswer) as stale:
        await store.settle("t", "c1:confirm:1", True, by="bob")
    assert stale.value.status == "answered"
    first = await store.request("t", "c1:confirm:1")
    assert first is not None
    assert (first.answer, first.answered_by) == (True, "ann")
    assert (await desk.agent("Pay 1 EUR?").resume()).status == "completed"
    assert desk.deeds.done == ["pay"]
    assert await store.pending() == []  # what was asked last is moot


async def test_the_longest_id_of_a_call_leaves_room(store: SqlCheckpointer) -> None:
    desk = Desk(store, "c" * 200)
    await desk.asked_once("Pay 1 EUR?")
    assert await desk.asked_once("Pay 2 EUR?") == f"{'c' * 200}:confirm:1~2"
    assert await desk.status(f"{'c' * 200}:confirm:1") == "superseded"


async def test_whoever_answers_at_the_last_moment_is_heard_first(
    store: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, commit = Desk(store), store.commit

    async def late(thread_id: str, step: Step, **options: Any) -> int:
        if step.settled:
            monkeypatch.undo()
            await store.settle("t", "c1:confirm:1", True, by="ann")
        return await commit(thread_id, step, **options)

    await desk.asked_once("Pay 1 EUR?")
    monkeypatch.setattr(store, "commit", late)
    result = await desk.agent("Pay 2 EUR?").resume()
    assert (result.status, desk.deeds.done) == ("suspended", [])
    assert await desk.status("c1:confirm:1") == "answered"
    assert await desk.asked_once("Pay 2 EUR?") == "c1:confirm:1~2"


async def test_an_answer_that_came_since_the_thread_was_read_is_seen(store: SqlCheckpointer) -> None:
    class Slow(Middleware):
        """A hook that takes its time, in which somebody answers."""

        async def before_tool_call(self, ctx: ToolCallContext) -> BeforeToolCallResult | None:
            await store.settle("t", "c1:confirm:1", True)
            return None

    desk = Desk(store)
    await desk.asked_once("Pay 1 EUR?")
    agent = desk.agent("Pay 2 EUR?", Slow())
    run = asyncio.create_task(agent.resume())
    assert (await asked(channel_of(agent))).question_id == "c1:confirm:1~2"
    assert await desk.status("c1:confirm:1") == "answered"
    await channel_of(agent).answer("c1:confirm:1~2", True)
    assert (await run).status == "completed"


# Calls in doubt.


class Payments:
    """A tool whose body comes to no end before its third attempt."""

    def __init__(self, store: SqlCheckpointer, *, with_channel: bool) -> None:
        self.store, self._with_channel = store, with_channel
        self.ran: list[tuple[int, int]] = []
        self._begun = asyncio.Event()

        @tool
        async def pay(cents: int, ctx: ToolContext) -> str:
            """Pay."""
            self.ran.append((ctx.attempt, cents))
            self._begun.set()
            if ctx.attempt < 3:
                await asyncio.Event().wait()
            return "paid"

        self._tool = pay

    def agent(self) -> Agent:
        model = script([ToolCall("c1", "pay", {"cents": 5})], "Done.")
        if self._with_channel:
            channel = CheckpointedChannel(checkpointer=self.store, thread_id="t")
            return Agent(model=model, tools=[self._tool], channel=channel)
        return Agent(model=model, tools=[self._tool], checkpointer=self.store, thread_id="t")

    async def dies(self, work: Awaitable[Any]) -> None:
        """The process ends while the body runs."""
        self._begun.clear()
        run = asyncio.ensure_future(work)
        await self._begun.wait()
        await ended(run)  # pyright: ignore[reportArgumentType]

    async def asks(self) -> str:
        """What a process that finds the call in doubt asks, and then ends."""
        agent = self.agent()
        if agent.channel is None:
            assert (await agent.resume()).status == "paused"
        else:
            run = asyncio.create_task(agent.resume())
            await asked(agent.channel)
            await ended(run)
        (pending,) = await self.store.pending()
        return pending.question_id


@pytest.mark.parametrize("with_channel", [False, True])
async def test_each_attempt_in_doubt_is_a_question_of_its_own(
    store: SqlCheckpointer, with_channel: bool
) -> None:
    desk = Payments(store, with_channel=with_channel)
    await desk.dies(desk.agent().prompt("go"))
    assert await desk.asks() == "c1:escalate:1"
    retry = {"action": "retry", "modified_params": {"cents": 7}}
    await store.settle("t", "c1:escalate:1", retry, by="ann")
    await desk.dies(desk.agent().resume())
    assert await desk.asks() == "c1:escalate:1~2"
    assert await desk.asks() == "c1:escalate:1~2"  # it is found again
    with pytest.raises(HitlStaleAnswer) as stale:
        await store.settle("t", "c1:escalate:1", "retry", by="bob")
    assert stale.value.status == "answered"
    first, second = [await store.request("t", it) for it in ("c1:escalate:1", "c1:escalate:1~2")]
    assert first is not None
    assert isinstance(first.answer, EscalateAnswer)
    assert (first.answer.modified_params, first.answered_by) == ({"cents": 7}, "ann")
    assert second is not None
    assert isinstance(second.request.payload, EscalateRequest)
    details = second.request.payload.details or {}
    # What the second attempt was started with is known from the answer to the first question.
    assert (details["attempt"], details["args"]) == (2, {"cents": 7})
    assert "changed" not in second.request.payload.prompt
    await store.settle("t", "c1:escalate:1~2", "retry")
    assert (await desk.agent().resume()).status == "completed"
    assert desk.ran == [(1, 5), (2, 7), (3, 7)]


@pytest.mark.parametrize("with_channel", [False, True])
async def test_a_doubt_that_nobody_has_resolved_gives_way_to_a_newer_one(
    store: SqlCheckpointer, with_channel: bool
) -> None:
    desk = Payments(store, with_channel=with_channel)
    await desk.dies(desk.agent().prompt("go"))
    await desk.asks()
    stored = await store.load("t")
    assert stored is not None
    assert stored.run is not None
    begun = replace(stored.effects["c1"], attempt=2)  # by a worker that knew what to do without asking
    step = Step(stored.run.run_id, started=[begun], release=True)
    await store.commit("t", step, fence=stored.fence, acquire=True)
    assert await desk.asks() == "c1:escalate:1~2"
    with pytest.raises(HitlStaleAnswer) as stale:
        await store.settle("t", "c1:escalate:1", "retry")
    assert stale.value.status == "superseded"


# Within bodies, and for subagents.


async def test_what_a_body_asks(store: SqlCheckpointer) -> None:
    async def ask(prompt: str) -> tuple[asyncio.Task[Any], HitlChannel, str]:
        channel = CheckpointedChannel(checkpointer=store, thread_id="t", allow_inside_custom_tool=True)

        @tool(effect="none")
        async def pay() -> str:
            """Pay."""
            return str(await channel.ask([Question(key="to", prompt=prompt)]))

        agent = Agent(model=script(CALL, "Done."), tools=[pay], channel=channel)
        is_begun = await store.load("t") is not None
        run = asyncio.create_task(agent.resume() if is_begun else agent.prompt("go"))
        return run, channel, (await asked(channel)).question_id

    run, _, first = await ask("1 EUR to whom?")
    await ended(run)
    run, channel, second = await ask("2 EUR to whom?")
    assert (first, second) == ("c1:body:ask:1", "c1:body:ask:1~2")
    with pytest.raises(HitlStaleAnswer) as stale:
        await store.settle("t", first, {"to": "Bob"})
    assert stale.value.status == "superseded"
    await channel.answer(second, {"to": "Ann"})
    result = await run
    assert results(result.messages)["c1"].text == "{'to': 'Ann'}"
    assert await store.pending() == []


async def test_what_a_subagents_hook_asks(store: SqlCheckpointer) -> None:
    deeds = Deeds()

    async def ask(words: str) -> tuple[Agent, asyncio.Task[Any], str]:
        channel = CheckpointedChannel(checkpointer=store, thread_id="t")
        child = AgentSpec(
            "cashier",
            script(CALL, "paid"),
            tools=[deeds.tool("pay")],
            middleware=[Sure(channel, words)],
        )
        agent = Agent(model=script([delegate("d1", "cashier")], "Done."), subagents=[child], channel=channel)
        is_begun = await store.load("t") is not None
        run = asyncio.create_task(agent.resume() if is_begun else agent.prompt("go"))
        return agent, run, (await asked(channel)).question_id

    _, run, first = await ask("Pay 1 EUR?")
    await ended(run)
    (shown,) = await store.pending()
    agent, run, second = await ask("Pay 2 EUR?")
    assert (first, second) == ("c1:confirm:1", "c1:confirm:1~2")
    for act in (
        store.settle(shown.thread_id, first, True),
        channel_of(agent).answer(first, True),
        agent.respond(question_id=first, answer=True),
    ):
        with pytest.raises(HitlStaleAnswer):
            await act
    assert deeds.done == []
    await channel_of(agent).answer(second, True)
    assert (await run).status == "completed"
    assert deeds.done == ["pay"]


async def test_a_channel_on_a_thread_that_is_not_the_runs(store: SqlCheckpointer) -> None:
    """Its requests are no part of the run's steps; what was asked there before is cancelled."""
    deeds = Deeds()

    async def ask(words: str) -> tuple[asyncio.Task[Any], HitlChannel, str]:
        channel = CheckpointedChannel(checkpointer=store, thread_id="desk")
        agent = Agent(
            model=script(CALL, "Done."),
            tools=[deeds.tool("pay")],
            middleware=[Sure(channel, words)],
            checkpointer=store,
            thread_id="t",
        )
        is_begun = await store.load("t") is not None
        run = asyncio.create_task(agent.resume() if is_begun else agent.prompt("go"))
        return run, channel, (await asked(channel)).question_id

    ids: list[str] = []
    for euros in (1, 2, 1):
        run, _, question_id = await ask(f"Pay {euros} EUR?")
        await ended(run)
        ids.append(question_id)
    assert ids == ["c1:confirm:1", "c1:confirm:1~2", "c1:confirm:1~3"]
    for late in ids[:2]:
        with pytest.raises(HitlStaleAnswer):
            await store.settle("desk", late, True)
    run, channel, question_id = await ask("Pay 1 EUR?")
    assert question_id == ids[2]
    await channel.answer(question_id, True)
    assert (await run).status == "completed"
    assert deeds.done == ["pay"]


# Whatever keeps the requests.


@pytest.mark.parametrize("rig", KINDS, indirect=True)
async def test_on_every_kind_of_channel(rig: Rig) -> None:
    deeds, channel = Deeds(), rig.channel()

    def parts(channel: HitlChannel, words: str) -> dict[str, Any]:
        hooks = [Sure(channel, words)]
        return {"model": script(CALL, "Done."), "tools": [deeds.tool("pay")], "middleware": hooks}

    agent = rig.agent(channel, **parts(channel, "Pay 1 EUR?"))
    run = rig.start(agent.prompt("go"))
    assert (await asked(channel)).question_id == "c1:confirm:1"
    await agent.detach()
    await run
    channel = channel if rig.kind == "in_memory" else rig.channel()
    later = rig.later(agent, channel, **parts(channel, "Pay 2 EUR?"))
    run = rig.start(later.resume())
    assert (await asked(channel)).question_id == "c1:confirm:1~2"
    with pytest.raises(HitlStaleAnswer) as stale:
        await channel.answer("c1:confirm:1", True)
    assert stale.value.status == "superseded"
    assert deeds.done == []
    await later.detach()
    await run
    request = await channel.open_request()
    assert request is not None
    assert request.question_id == "c1:confirm:1~2"
    channel = channel if rig.kind == "in_memory" else rig.channel()
    last = rig.later(later, channel, **parts(channel, "Pay 2 EUR?"))
    run = rig.start(last.resume())
    assert (await asked(channel)).question_id == "c1:confirm:1~2"
    with pytest.raises(HitlStaleAnswer):
        await channel.answer("c1:confirm:1", True)
    await channel.answer("c1:confirm:1~2", True)
    assert (await run).status == "completed"
    assert deeds.done == ["pay"]


# What is overdue when it is found again.


class Heard:
    """All that an agent and its channel say of requests."""

    def __init__(self, agent: Agent) -> None:
        self.events: list[str] = []
        self._told = aiter(channel_of(agent).subscribe())
        agent.subscribe(lambda event: self.events.append(event.type) if "hitl" in event.type else None)

    @property
    def shown(self) -> int:
        """How many requests hosts have been shown."""
        return self._told.queue.qsize()  # type: ignore[attr-defined]


async def test_what_is_overdue_is_timed_out_and_nobody_is_asked(database: Database) -> None:
    clock, deeds = FakeClock(), Deeds()
    async with asyncio.timeout(PATIENCE), database.checkpointer(clock=clock) as store:

        def agent() -> Agent:
            channel = CheckpointedChannel(checkpointer=store, thread_id="t", default_timeout=60, clock=clock)
            return Agent(model=script(CALL, "Done."), tools=[deeds.asks("pay")], channel=channel)

        first = agent()
        run = asyncio.create_task(first.prompt("go"))
        await asked(channel_of(first))
        await ended(run)
        await clock.advance(3600)
        second = agent()
        heard = Heard(second)
        result = await second.resume()
        assert (heard.events, heard.shown) == (["hitl_answer"], 0)
        assert "nobody answered within 60 s" in results(result.messages)["c1"].text
        found = await store.request("t", "c1")
        assert found is not None
        assert found.status == "timed_out"
        assert deeds.done == []


@pytest.mark.parametrize("rig", KINDS, indirect=True)
async def test_what_is_overdue_on_every_kind_of_channel(rig: Rig) -> None:
    deeds, channel = Deeds(), rig.channel(default_timeout=60)
    parts: dict[str, Any] = {"model": script(CALL, "Done."), "tools": [deeds.asks("pay")]}
    agent = rig.agent(channel, **parts)
    run = rig.start(agent.prompt("go"))
    await asked(channel)
    await agent.detach()
    await run
    await rig.clock.advance(3600)
    later = rig.later(agent, rig.channel(default_timeout=60), **parts)
    heard = Heard(later)
    result = await later.resume()
    assert (heard.events, heard.shown) == (["hitl_answer"], 0)
    assert "nobody answered" in results(result.messages)["c1"].text
    assert deeds.done == []
