"""Following a thread over HTTP while another handle on the store runs it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, NamedTuple

import httpx2
import pytest
from kit.patience import PATIENCE
from kit.running_service import serving
from kit.stores import SHARED, Database
from pydantic import SecretStr

from askfirst import Agent, tool
from askfirst.checkpointer.base import Checkpointer
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.messages import ToolCall
from askfirst.models import ScriptedModel
from askfirst.service import thread_events
from askfirst.service.thread_events import Position, ThreadFollower, following
from askfirst.store import thread_changes
from askfirst.workers import Worker, agent_resumer

pytestmark = pytest.mark.anyio


class Told(NamedTuple):
    """One event as a client gets it."""

    id: str | None
    name: str
    data: dict[str, Any]


@tool(requires_approval=True)
def pay(cents: int, password: SecretStr) -> str:
    """Pay."""
    return f"paid {cents}"


PAYS = ToolCall("c1", "pay", {"cents": 9, "password": "hunter2"})


async def everybody(_caller: str, thread_id: str) -> bool:
    return thread_id.startswith("order")


def agent_on(store: Checkpointer, *turns: Any, thread_id: str = "order-7") -> Agent:
    model = ScriptedModel(list(turns))
    return Agent(model=model, tools=[pay], checkpointer=store, thread_id=thread_id, resumer="desk")


def worker_on(store: SqlCheckpointer, *turns: Any) -> Worker:
    def make(thread_id: str, checkpointer: Checkpointer) -> Agent:
        return agent_on(checkpointer, *turns, thread_id=thread_id)

    return Worker(store, {"desk": agent_resumer(make)})


async def follow(
    http: httpx2.AsyncClient, url: str, headers: dict[str, str], after: str | None = None
) -> AsyncGenerator[Told]:
    sent = headers if after is None else {**headers, "Last-Event-ID": after}
    async with http.stream("GET", url, headers=sent) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in stream.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                yield Told(fields.get("id"), fields["event"], json.loads(fields["data"]))
                fields = {}


async def until_run(stream: AsyncIterator[Told], status: str) -> list[Told]:
    """The events up to a run's status."""
    seen: list[Told] = []
    async with asyncio.timeout(PATIENCE):
        async for event in stream:
            seen.append(event)
            if event.name == "run" and event.data["status"] == status:
                return seen
    raise AssertionError("the stream has ended")


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_whoever_chats_sees_a_worker_elsewhere_go_on(database: Database) -> None:
    async with (
        database.checkpointer() as here,
        database.checkpointer() as there,
        serving(here, may_follow=everybody) as served,
    ):
        caller = await served.agent()
        assert (await agent_on(there, [PAYS]).prompt("Pay Ada.")).status == "paused"
        url = f"{served.url}/v1/threads/order-7/events?from=beginning"
        async with aclosing(follow(served.http, url, caller.headers)) as stream:
            before = await until_run(stream, "paused")
            assert [each.name for each in before] == ["message", "message", "request.opened", "run"]
            assert before[1].data["tool_calls"] == [{"id": "c1", "name": "pay"}]
            asked = before[2].data
            assert (asked["status"], asked["tool_name"], asked["args"]["cents"]) == ("pending", "pay", 9)
            await there.settle("order-7", "c1", {"decision": "approve"}, by="ada")
            assert await worker_on(there, "Done.").run_due() == 1
            after = await until_run(stream, "completed")
            while not [each for each in after if each.data.get("state") == "done"]:
                after.append(await asyncio.wait_for(anext(stream), PATIENCE))
    told = [each for each in [*before, *after] if each.name != "run"]
    messages = [each.data for each in told if each.name == "message"]
    assert [(it["role"], it["text"]) for it in messages] == [
        ("user", "Pay Ada."),
        ("assistant", ""),
        ("tool", "paid 9"),
        ("assistant", "Done."),
    ]
    [settled] = [each.data for each in told if each.name == "request.settled"]
    assert (settled["status"], settled["decision"]) == ("answered", "approve")
    assert "hunter2" not in repr([*before, *after])  # no argument of a call, and those of the request masked


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_reconnect_loses_and_repeats_nothing(database: Database) -> None:
    """The client reconnects, to one service and the other, after each event."""
    async with (
        database.checkpointer() as here,
        database.checkpointer() as there,
        serving(here, may_follow=everybody) as first,
        serving(there, may_follow=everybody) as second,
    ):
        caller = await first.agent()
        await agent_on(there, [PAYS]).prompt("Pay Ada.")

        async def live() -> None:
            await there.settle("order-7", "c1", {"decision": "deny"}, by="ada")
            await worker_on(there, [PAYS.model_copy(update={"id": "c2"})]).run_due()
            await there.settle("order-7", "c2", {"decision": "approve"}, by="ada")
            await worker_on(there, "Done.").run_due()

        seen: list[Told] = []
        living: asyncio.Task[None] | None = None
        after: str | None = None
        async with asyncio.timeout(PATIENCE):
            while not seen or seen[-1].data.get("status") != "completed":
                served = [first, second][len(seen) % 2]
                url = f"{served.url}/v1/threads/order-7/events?from=beginning"
                async with aclosing(follow(served.http, url, caller.headers, after)) as stream:
                    event = await anext(stream)
                assert event.id is not None
                after = event.id
                seen.append(event)
                living = living or asyncio.create_task(live())
        assert living is not None
        await living
        loaded = await there.load("order-7")
        assert loaded is not None
        messages = [each.data["seq"] for each in seen if each.name == "message"]
        assert messages == list(range(len(loaded.messages)))
        requests = [(each.name, each.data["question_id"]) for each in seen if "request" in each.name]
        assert requests.index(("request.opened", "c1")) < requests.index(("request.settled", "c1"))
        assert requests.index(("request.opened", "c2")) < requests.index(("request.settled", "c2"))
        assert len(requests) == 4


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_who_begins_now_is_told_how_it_stands_and_then_what_is_new(database: Database) -> None:
    async with database.checkpointer() as store, serving(store, may_follow=everybody) as served:
        caller = await served.agent()
        await agent_on(store, [PAYS]).prompt("Pay Ada.")
        url = f"{served.url}/v1/threads/order-7/events"
        async with aclosing(follow(served.http, url, caller.headers)) as stream:
            first = await until_run(stream, "paused")
            assert [each.name for each in first] == ["request.opened", "run"]
            assert [each.id is None for each in first] == [True, False]
            await store.settle("order-7", "c1", {"decision": "approve"})
            await worker_on(store, "Done.").run_due()
            rest = await until_run(stream, "completed")
        assert [each.data["role"] for each in rest if each.name == "message"] == ["tool", "assistant"]
        # Who comes later hears nothing of what is over.
        async with aclosing(follow(served.http, url, caller.headers)) as stream:
            assert [each.name for each in await until_run(stream, "completed")] == ["continuation", "run"]


async def test_only_callers_who_may_see_a_thread_do(database: Database) -> None:
    async with database.checkpointer() as store:
        await agent_on(store, "hi").prompt("go")
        await agent_on(store, "hi", thread_id="secret").prompt("go")

        async def broken(_caller: str, _thread_id: str) -> bool:
            raise RuntimeError("no directory")

        for may_follow, status in ((None, 404), (broken, 404), (following(["key_x=order-7"]), 404)):
            async with serving(store, may_follow=may_follow) as served:
                caller = await served.agent()
                answer = await caller.get("/v1/threads/order-7/events")
                assert (answer.status_code, answer.json()["error"]) == (status, "not_found")
        async with serving(store, may_follow=everybody) as served:
            caller = await served.agent()
            unknown = await caller.get("/v1/threads/order-8/events")
            hidden = await caller.get("/v1/threads/secret/events")
            assert unknown.status_code == hidden.status_code == 404
            assert unknown.json() == hidden.json()  # nobody finds out which threads there are
            for headers in ({}, {"Authorization": "Bearer askfirst_" + "x" * 43}):
                answer = await served.http.get("/v1/threads/order-7/events", headers=headers)
                assert answer.status_code == 401
            assert (await caller.get("/v1/threads/order-7/events?from=yesterday")).status_code == 422
            assert (await caller.get(f"/v1/threads/order{'x' * 300}/events")).status_code == 422


async def test_rules_name_a_key_and_its_threads() -> None:
    may_follow = following(["key_1=order-*", "key_1=a", "key_2=*"])
    assert [await may_follow("key_1", it) for it in ("order-7", "a", "ab", "order")] == [
        True,
        True,
        False,
        False,
    ]
    assert await may_follow("key_2", "anything")
    assert not await may_follow("key_3", "order-7")
    for rule in ("key_1", "=order", "key_1=", ""):
        with pytest.raises(ValueError, match="KEY_ID=THREAD"):
            following([rule])


async def test_a_stream_ends_with_its_key_and_with_its_thread(database: Database) -> None:
    async with database.checkpointer() as store, serving(store, may_follow=everybody) as served:
        for ends in ("key", "thread"):
            caller = await served.agent()
            await agent_on(store, "hi", "again").prompt("go")
            url = f"{served.url}/v1/threads/order-7/events"
            async with aclosing(follow(served.http, url, caller.headers)) as stream:
                await until_run(stream, "completed")
                if ends == "key":
                    await served.service.keys.revoke(caller.key_id)
                    await agent_on(store, "more").prompt("go")
                else:
                    await store.delete("order-7")
                async with asyncio.timeout(PATIENCE):
                    assert [event async for event in stream] == []


async def test_streams_of_threads_count_against_the_budget(database: Database) -> None:
    from askfirst.service.budgets import Budgets

    async with (
        database.checkpointer() as store,
        serving(store, may_follow=everybody, budgets=Budgets(streams_per_key=1)) as served,
    ):
        caller = await served.agent()
        await agent_on(store, "hi").prompt("go")
        url = f"{served.url}/v1/threads/order-7/events"
        async with aclosing(follow(served.http, url, caller.headers)) as stream:
            await until_run(stream, "completed")
            assert (await caller.get("/v1/threads/order-7/events")).status_code == 429


async def test_a_long_thread_is_read_in_pages_and_from_where_the_client_is(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_changes, "PAGE", 4)
    async with database.checkpointer() as store:
        agent = agent_on(store, *["hi"] * 10)
        for _ in range(5):
            await agent.prompt("go")
        reads: list[int] = []

        def news(thread_id: str, seq: int | None, *rest: Any) -> Any:
            found = yield from plain(thread_id, seq, *rest)
            reads.append(0 if found is None else len(found.messages))
            return found

        plain = thread_changes.news
        monkeypatch.setattr(thread_events.thread_changes, "news", news)
        follower = ThreadFollower(store.engine, "order-7", lambda: 2_000_000_000_000)

        async def read(at: Position, count: int) -> list[int]:
            seen: list[int] = []
            async with asyncio.timeout(PATIENCE), aclosing(follower.stream(at)) as stream:
                async for piece in stream:
                    if b"event: message" in piece:
                        seen.append(json.loads(piece.partition(b"data: ")[2])["seq"])
                    if len(seen) == count:
                        return seen
            return seen

        assert await read(Position(), 10) == list(range(10))
        assert reads == [4, 4, 2]
        reads.clear()
        assert await read(Position(seq=8), 2) == [8, 9]
        assert reads == [2]


async def test_a_quiet_stream_is_kept_open_by_comments(database: Database) -> None:
    async with database.checkpointer() as store:
        await agent_on(store, "hi").prompt("go")
        follower = ThreadFollower(store.engine, "order-7", lambda: 2_000_000_000_000)
        async with asyncio.timeout(PATIENCE), aclosing(follower.stream(None, heartbeat=0.01)) as stream:
            async for piece in stream:
                if piece == b": still here\n\n":
                    return
    raise AssertionError("no comment came")


@pytest.mark.parametrize(
    "text", ["", "7", "1.2.3.4.5", "1.2...zz", "1.2..." + "0" * 4008, "-1.2...", "١.2..."]
)
def test_a_position_that_is_none_is_not_taken(text: str) -> None:
    assert Position.of(text) is None


def test_a_position_is_written_and_read() -> None:
    at = Position(3, 5, "0123abcd", "").with_request("89abcdef", 9)
    assert Position.of(at.id) == at
    full = at
    for number in range(600):
        full = full.with_request(f"{number:08x}", 9)
    assert Position.of(full.id) == full
    assert len(full.id) < 8_000  # it comes back in a header
