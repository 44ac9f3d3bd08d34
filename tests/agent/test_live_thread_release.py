"""However a run ends, its thread is leased to nobody afterwards: a client that hangs up locks nobody out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import pytest
from kit.stores import SHARED, Database, confirmation, databases, prompt, said

from askfirst import Agent, Middleware, ToolCallContext, tool
from askfirst.agent.context import current
from askfirst.agent.thread import Thread
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import HitlDetached, InvalidStep, StoreError
from askfirst.messages import AssistantMessage, ToolCall
from askfirst.models import ScriptedModel
from askfirst.requests import ConfirmRequest, HitlRequest

pytestmark = pytest.mark.anyio
database = databases(*SHARED)


@tool(effect="none")
def look() -> str:
    """Look."""
    return "seen"


def _agent(store: SqlCheckpointer, thread_id: str) -> Agent:
    turns = [ToolCall("c1", "look", {}), "Done.", "And done again."]
    return Agent(model=ScriptedModel(turns), tools=[look], checkpointer=store, thread_id=thread_id)


async def _left(store: SqlCheckpointer, thread_id: str) -> str | None:
    stored = await store.load(thread_id)
    assert stored is not None
    return stored.lease_owner


def _cancelling(store: SqlCheckpointer, task: Callable[[], asyncio.Task[Any]], at: int, times: int) -> Any:
    """A store that is called off, ``times`` times, while its so-manieth step is being written."""
    commit, count = store.commit, 0

    async def commit_and_cancel(*args: Any, **options: Any) -> int:
        nonlocal count
        count += 1
        for number in range(times if count >= at else 0):
            asyncio.get_running_loop().call_later(number * 0.001, task().cancel)
        return await commit(*args, **options)

    return mock.patch.object(store, "commit", commit_and_cancel)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("times", [1, 2])
async def test_a_run_that_is_cancelled_while_it_writes(database: Database, at: int, times: int) -> None:
    async with database.checkpointer() as store:
        agent = _agent(store, "t")
        task: list[asyncio.Task[Any]] = []

        async def prompt() -> None:
            await agent.prompt("go")

        with _cancelling(store, lambda: task[0], at, times):
            task.append(asyncio.create_task(prompt()))
            await asyncio.wait(task)
        assert task[0].cancelled()
        assert await _left(store, "t") is None
        assert (await _agent(store, "t").resume()).status == "completed"


async def _by_abort(agent: Agent, cut: Callable[[], Awaitable[None]]) -> None:
    async def listen(event: Any) -> None:
        if event.type == "tool_ended":
            agent.abort()
        elif event.type == "message_ended" and getattr(event.message, "stop_reason", None) == "aborted":
            await cut()

    agent.subscribe(listen)


async def test_a_run_that_is_cancelled_while_listeners_hear_of_its_end(database: Database) -> None:
    async with database.checkpointer() as store:
        agent = _agent(store, "t")
        task: list[asyncio.Task[Any]] = []

        async def cut() -> None:
            task[0].cancel()
            await asyncio.Event().wait()

        await _by_abort(agent, cut)
        task.append(asyncio.create_task(agent.prompt("go")))
        await asyncio.wait(task)
        assert task[0].cancelled()
        assert await _left(store, "t") is None


# Steps that no store could keep.


class _Unwritable:
    """What has no JSON form."""


def _odd(**fields: Any) -> AssistantMessage:
    """A message with a field that is not JSON, such as a model's adapter may leave in it."""
    return AssistantMessage("Hm.", raw=_Unwritable(), **fields)


async def test_a_step_that_cannot_be_written_is_not_sent(checkpointer: SqlCheckpointer) -> None:
    fence = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
    for step in (
        said(_odd()),
        said(AssistantMessage("Hm."), opened=[confirmation("ends with a space ")]),
        said(AssistantMessage("Hm."), opened=[_half_a_character()]),
    ):
        with pytest.raises(InvalidStep, match=r"^nothing was written: ") as refused:
            await checkpointer.commit("t", step, fence=fence)
        assert refused.value.thread_id == "t"
        with pytest.raises(InvalidStep):
            checkpointer.begin_commit("t", step, fence=fence)
    await checkpointer.commit("t", said(release=True), fence=fence)
    stored = await checkpointer.load("t")
    assert stored is not None
    assert (len(stored.messages), stored.requests, stored.lease_owner) == (1, {}, None)


def _half_a_character() -> HitlRequest:
    return HitlRequest(question_id="q", payload=ConfirmRequest(prompt="caf\udce9"), created_at=1.0)


async def test_a_request_that_cannot_be_written_is_refused_in_a_sentence(
    checkpointer: SqlCheckpointer,
) -> None:
    with pytest.raises(StoreError, match=r"^something in request 'q' cannot be written as JSON$"):
        await checkpointer.save_pending_request("t", _half_a_character())
    assert await checkpointer.pending() == []


async def test_a_run_whose_message_cannot_be_written_gives_the_thread_back(
    checkpointer: SqlCheckpointer,
) -> None:
    model = ScriptedModel([_odd(), "Well."])
    agent = Agent(model=model, checkpointer=checkpointer, thread_id="t")
    with pytest.raises(InvalidStep):
        await agent.prompt("go")
    assert await _left(checkpointer, "t") is None
    assert [message.role for message in await agent.load()] == ["user"]
    assert (await agent.resume()).text == "Well."


class _Asks(Middleware):
    """Opens a request that no store takes, past the channel, which would refuse it."""

    def __init__(self, swallow: bool) -> None:
        self._swallow = swallow

    async def before_tool_call(self, ctx: ToolCallContext) -> None:
        asking = current.get().session
        assert asking is not None
        try:
            await asking.host.record(_half_a_character())
        except InvalidStep as refused:
            if not self._swallow:
                raise HitlDetached from refused


@pytest.mark.parametrize("swallow", [True, False])
async def test_what_was_said_before_a_request_that_cannot_be_written_is_kept(
    checkpointer: SqlCheckpointer, swallow: bool
) -> None:
    model = ScriptedModel([ToolCall("c1", "look", {}), "Done."])
    agent = Agent(
        model=model, tools=[look], middleware=[_Asks(swallow)], checkpointer=checkpointer, thread_id="t"
    )
    result = await agent.prompt("go")
    assert result.status == ("completed" if swallow else "suspended")
    assert await _left(checkpointer, "t") is None
    kept = [message.role for message in await agent.load()]
    assert kept == (["user", "assistant", "tool", "assistant"] if swallow else ["user", "assistant"])


@pytest.mark.parametrize(
    ("given", "kept"),
    [("c1 ", "c1"), ("c\0 1", "c 1"), ("\0 ", "call"), ("", "call"), ("x" * 34 + " " + "y" * 200, "x" * 34)],
)
async def test_a_call_id_that_no_store_takes_is_mended(
    checkpointer: SqlCheckpointer, given: str, kept: str
) -> None:
    model = ScriptedModel([[ToolCall(given, "look", {}), ToolCall(given, "look", {})], "Done."])
    agent = Agent(model=model, tools=[look], checkpointer=checkpointer, thread_id="t")
    assert (await agent.prompt("go")).status == "completed"
    said_ = (await agent.load())[1]
    assert isinstance(said_, AssistantMessage)
    assert [call.id for call in said_.tool_calls] == [kept, f"{kept}-2"]
    assert await _left(checkpointer, "t") is None


def test_half_a_character_in_a_call_id_is_left_out() -> None:
    call = ToolCall("c1", "look", {}).model_copy(update={"id": "caf\udce9\0 "})
    message = AssistantMessage(()).model_copy(update={"content": (call,)})
    added = Thread("t").add(message)
    assert isinstance(added, AssistantMessage)
    assert added.tool_calls[0].id == "caf"


# Threads that are deleted.


async def test_a_thread_that_was_held_and_is_deleted_is_held_no_more(checkpointer: SqlCheckpointer) -> None:
    fence = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
    agent = _agent(checkpointer, "t")
    assert (await agent.resume()).status == "suspended"
    await checkpointer.commit("t", said(release=True), fence=fence)
    await checkpointer.delete("t")
    assert (await agent.resume()).status == "completed"
    assert (await agent.prompt("go")).text == "Done."


@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled"])
@pytest.mark.parametrize("fails", [False, True], ids=["", "the store fails"])
async def test_a_person_who_is_first_while_a_run_is_aborted_locks_nobody_out(
    checkpointer: SqlCheckpointer, caplog: pytest.LogCaptureFixture, fails: bool, cancelled: bool
) -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "waited"

    calls = [ToolCall("c1", "wait", {}), ToolCall("c2", "ask", {})]
    ask = tool(name="ask", requires_approval=True)(look.function)
    agent = Agent(
        model=ScriptedModel([calls]),
        tools=[wait, ask],
        tool_gate="each",
        checkpointer=checkpointer,
        thread_id="t",
    )
    commit = checkpointer.commit

    async def commit_too_late(thread_id: str, step: Any, **options: Any) -> int:
        for ended in step.settled:
            await checkpointer.settle(thread_id, ended.question_id, {"decision": "approve"})
        if fails and not step.settled:
            raise StoreError("the disk is full")
        if cancelled and step.settled:
            running.cancel()
        return await commit(thread_id, step, **options)

    running = asyncio.create_task(agent.prompt("Go."))
    await begun.wait()
    with mock.patch.object(checkpointer, "commit", commit_too_late):
        agent.abort()
        await asyncio.wait([running])
    assert running.cancelled() if cancelled else running.result().status == "suspended"
    assert (await _left(checkpointer, "t") is not None) == fails
    assert ("could not be released; it will lapse" in caplog.text) == fails
