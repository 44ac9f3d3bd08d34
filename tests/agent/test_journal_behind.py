"""What is written while the model is asked: in order, told in time, and harmless if it fails or the process dies."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kit.lives_agents import entries
from kit.patience import PATIENCE
from kit.store_urls import STORES, StoreUrls
from kit.stores import SHARED, Database, databases

from askfirst import Agent, AgentSpec, ToolContext, tool
from askfirst.checkpointer.base import Step
from askfirst.checkpointer.connect import checkpointer_from_url
from askfirst.checkpointer.sqlite import SQLiteCheckpointer
from askfirst.errors import StoreError
from askfirst.hitl.testing import RaceTrack
from askfirst.messages import AssistantMessage, TextPart, ToolCall, ToolResultMessage, UserMessage
from askfirst.models import ModelRequest, ScriptedModel
from askfirst.store import sqlite_engine

pytestmark = pytest.mark.anyio
database = databases(*SHARED)
LIVES = 6


class Asked:
    """A model that calls ``pay`` once; ``when_asked`` is called first, with how often it was asked before."""

    name = "asked"

    def __init__(self, when_asked: Callable[[int], Awaitable[None]]) -> None:
        self._when_asked = when_asked
        self._times = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[AssistantMessage]:
        times, self._times = self._times, self._times + 1
        await self._when_asked(times)
        if isinstance(request.messages[-1], UserMessage):
            yield AssistantMessage((ToolCall("c1", "pay", {}),), stop_reason="tool_use")
        else:
            yield AssistantMessage((TextPart("done"),))


def _spec(
    when_asked: Callable[[int], Awaitable[None]], body: Callable[[ToolContext], Awaitable[None]]
) -> AgentSpec:
    @tool
    async def pay(context: ToolContext) -> str:
        """Pay."""
        await body(context)
        return "paid"

    return AgentSpec("payer", Asked(when_asked), [pay])


async def _nothing(_: object) -> None:
    pass


async def test_the_transcript_is_whole_and_in_order(database: Database) -> None:
    async with database.checkpointer() as store:
        agent = Agent.from_spec(_spec(_nothing, _nothing), checkpointer=store)
        assert (await agent.prompt("go")).text == "done"
        stored = await store.load(agent.thread_id)
        assert stored is not None
        assert [message.role for message in stored.messages] == ["user", "assistant", "tool", "assistant"]
        assert stored.messages == list(agent.messages)
        assert stored.effects == {}
        assert stored.lease_owner is None
        assert (await agent.prompt("again")).text == "done"


async def test_a_result_that_could_not_be_written_ends_the_run_and_nothing_follows_it(
    database: Database,
) -> None:
    """Another worker moves the thread on while the body runs: the result fails, and so does what comes after."""
    async with database.checkpointer(owner="one") as store:

        async def overtake(_: ToolContext) -> None:
            stored = await store.load(agent.thread_id)
            assert stored is not None
            await store.commit(agent.thread_id, Step("other", release=True), fence=stored.fence)

        agent = Agent.from_spec(_spec(_nothing, overtake), checkpointer=store)
        result = await agent.prompt("go")
        assert result.status == "suspended"
        stored = await store.load(agent.thread_id)
        assert stored is not None
        assert [message.role for message in stored.messages] == ["user", "assistant"]
        assert list(stored.effects) == ["c1"], "what the body did is in doubt, not forgotten"


async def test_a_step_that_nobody_waits_for_shares_the_next_ones_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt goes with the start of the body, the result with the end, where the model takes no time."""
    batches: list[int] = []
    write = sqlite_engine._write_batch

    def counting(connection: sqlite3.Connection, batch: list[Any]) -> None:
        batches.append(len(batch))
        write(connection, batch)

    monkeypatch.setattr(sqlite_engine, "_write_batch", counting)
    async with SQLiteCheckpointer(tmp_path / "threads.db") as store:
        agent = Agent.from_spec(_spec(_nothing, _nothing), checkpointer=store)
        assert (await agent.prompt("go")).text == "done"
    assert batches == [2, 2]


async def test_it_is_written_while_the_model_takes_its_time(tmp_path: Path) -> None:
    async with SQLiteCheckpointer(tmp_path / "threads.db") as store, asyncio.timeout(PATIENCE):

        async def until_written(times: int) -> None:
            written = 0
            while written < 1 + 2 * times:
                stored = await store.load(agent.thread_id)
                written = 0 if stored is None else len(stored.messages)

        agent = Agent.from_spec(_spec(until_written, _nothing), checkpointer=store)
        assert (await agent.prompt("go")).text == "done"


async def test_nobody_hears_of_a_prompt_before_it_is_written(database: Database) -> None:
    async with database.checkpointer() as store:
        agent = Agent.from_spec(_spec(_nothing, _nothing), checkpointer=store)
        lengths: list[int] = []

        async def listen(event: Any) -> None:
            if event.type == "message_ended" and event.message.role == "user":
                stored = await store.load(agent.thread_id)
                lengths.append(0 if stored is None else len(stored.messages))

        agent.subscribe(listen)
        await agent.prompt("go")
        assert lengths == [1]


async def test_a_subagent_begins_when_its_call_is_on_record(database: Database) -> None:
    """Else its effects would be nobody's after a crash, and the model would ask for them again."""
    async with database.checkpointer() as store:
        seen: list[list[str]] = []

        @tool
        async def charge(context: ToolContext) -> str:
            """Charge."""
            (caller,) = [it.thread_id for it in await store.threads() if it.parent_thread_id is None]
            stored = await store.load(caller)
            assert stored is not None
            seen.append([message.role for message in stored.messages])
            return "charged"

        child = AgentSpec("billing", ScriptedModel([ToolCall("k1", "charge", {}), "billed"]), [charge])
        turns = [ToolCall("c1", "billing", {"prompt": "charge"}), "done"]
        agent = Agent(model=ScriptedModel(turns), subagents=[child], checkpointer=store)
        assert (await agent.prompt("go")).text == "done"
        assert seen == [["user", "assistant"]]


@pytest.mark.parametrize("calls", [0, 1, 2])
async def test_the_first_step_that_failed_says_why(tmp_path: Path, calls: int) -> None:
    """Those that were begun after it fail too, and only because of it."""

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    path = tmp_path / "full.db"
    async with SQLiteCheckpointer(path) as store:
        with sqlite3.connect(path) as connection:
            connection.execute(
                "CREATE TRIGGER full BEFORE INSERT ON askfirst_messages WHEN NEW.role = 'user' "
                "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
            )
        turns = [*(ToolCall(f"c{n}", "look", {}) for n in range(calls)), "done"]
        agent = Agent(model=ScriptedModel(turns), tools=[look], checkpointer=store)
        with pytest.raises(StoreError, match="the disk is full"):
            await agent.prompt("go")


async def live(job: dict[str, Any], start: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """A life that is killed as the model is asked for the ``die_at``-th time, or one that goes on to the end."""

    async def when_asked(times: int) -> None:
        if times == job["die_at"]:
            os.kill(os.getpid(), signal.SIGKILL)

    async def body(context: ToolContext) -> None:
        with Path(job["effects"]).open("a") as file:  # noqa: ASYNC230  (it is to be on disk before anything else)
            file.write(f'{{"attempt": {context.attempt}}}\n')
            file.flush()
            os.fsync(file.fileno())

    async with checkpointer_from_url(job["url"], lease_seconds=0.5) as store:
        agent = Agent.from_spec(_spec(when_asked, body), checkpointer=store, thread_id=job["thread_id"])
        known = await store.load(job["thread_id"])
        result = await (agent.prompt("go") if known is None else agent.resume())
        while result.status == "suspended":
            await asyncio.sleep(0.05)
            result = await agent.resume()
        return {"status": result.status, "in_doubt": [each.kind for each in result.pending_approvals]}


LIVE = f"{live.__module__}:{live.__name__}"


@pytest.mark.parametrize("store", STORES)
async def test_killed_while_the_result_is_written_the_body_is_not_run_again_unasked(
    store: str, store_urls: StoreUrls, race_track: RaceTrack, tmp_path: Path
) -> None:
    url = store_urls.get(store)
    jobs = [
        {"url": url, "thread_id": f"behind-{tmp_path.name}-{n}", "effects": str(tmp_path / str(n))}
        for n in range(LIVES)
    ]
    first = {"url": url, "thread_id": f"first-{tmp_path.name}", "effects": str(tmp_path / "first")}
    await race_track.race(LIVE, [], warm_up={**first, "die_at": None})
    deaths = await race_track.race(LIVE, [{**job, "die_at": 1} for job in jobs])
    assert [death.signal for death in deaths] == [signal.SIGKILL] * LIVES
    ends = await race_track.race(LIVE, [{**job, "die_at": None} for job in jobs])
    for job, end in zip(jobs, ends, strict=True):
        assert end.won, end
        assert len(entries(Path(job["effects"]))) == 1, "the body ran again, and nobody was asked"
        async with checkpointer_from_url(url) as checkpointer:
            stored = await checkpointer.load(job["thread_id"])
        assert stored is not None
        results = [message for message in stored.messages if isinstance(message, ToolResultMessage)]
        if end.value["status"] == "completed":  # the result was written in time
            assert [result.text for result in results] == ["paid"]
        else:
            assert end.value == {"status": "paused", "in_doubt": ["escalate"]}
            assert results == []
