"""The store's corners: threads deleted under a fork, other event loops, odd arguments, rows that cannot be read."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import pytest
from kit.lost_commits import SESSIONS, break_once
from kit.patience import PATIENCE
from kit.stores import SERVERS, SHARED, Database, asked, confirmation, on_server, prompt, said

from askfirst import Agent, tool
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import StoreError, ThreadNotFound
from askfirst.hitl.testing import FakeClock
from askfirst.messages import ToolCall, UserMessage
from askfirst.models import ScriptedModel
from askfirst.store import threads
from askfirst.store.mysql_engine import MySQLServer
from askfirst.store.server_engine import Fault

pytestmark = pytest.mark.anyio


# Fork against delete.


@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_thread_deleted_under_a_fork_leaves_no_thread_that_lacks_its_messages(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, deleting = SESSIONS[database.kind], []
    run = session.run

    async def delete_before_copy(self: Any, statement: Any, params: Any) -> Any:
        if statement is threads.COPY:
            deleting.append(asyncio.create_task(there.delete("t")))
            await asyncio.wait(
                deleting, timeout=0.5
            )  # it is either done by then, or kept waiting by the fork
        return await run(self, statement, params)

    async with database.checkpointer() as here, database.checkpointer() as there, asyncio.timeout(PATIENCE):
        texts = [UserMessage(str(number)) for number in range(5)]
        await here.commit("t", said(*texts, release=True), fence=0, acquire=True)
        monkeypatch.setattr(session, "run", delete_before_copy)
        await here.fork("t", "fork")
        await deleting[0]
        fork = await here.load("fork")
        assert fork is not None
        assert fork.messages == texts
        assert await here.load("t") is None
        with pytest.raises(ThreadNotFound):
            await here.fork("t", "another")
        assert await here.load("another") is None


# Another event loop.


def elsewhere(call: Callable[[], Awaitable[Any]]) -> Any:
    """What a call returns, or raises, on a loop of its own."""

    async def guarded() -> Any:
        async with asyncio.timeout(PATIENCE):
            return await call()

    try:
        return asyncio.run(guarded())
    except Exception as error:
        return error


async def test_a_call_from_another_event_loop_is_refused_and_harms_nothing(
    checkpointer: SqlCheckpointer,
) -> None:
    fence, _ = await asked(checkpointer)
    step = prompt(run_id="run-2")

    async def begin() -> None:
        await checkpointer.begin_commit("t", step, fence=fence, acquire=True)

    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: checkpointer.load("t"),
        lambda: checkpointer.commit("t", step, fence=fence, acquire=True),
        begin,
        lambda: checkpointer.threads(),
        lambda: checkpointer.fork("t", "fork"),
        lambda: checkpointer.delete("t"),
        lambda: checkpointer.settle("t", "call-1", {"decision": "approve"}),
        lambda: checkpointer.cancel("t", "call-1"),
        lambda: checkpointer.expire("t", "call-1"),
        lambda: checkpointer.expire_due(),
        lambda: checkpointer.settled("t", "call-1"),
        lambda: checkpointer.request("t", "call-1"),
        lambda: checkpointer.pending(),
        lambda: checkpointer.save_pending_request("t", None),
        lambda: checkpointer.load_pending_request("t"),
        lambda: checkpointer.save_checkpoint("c", "agent", {}),
        lambda: checkpointer.list_checkpoints("agent"),
        lambda: checkpointer.list_grants("session", 0),
        lambda: checkpointer.__aexit__(None, None, None),
    ]
    for call in calls:
        refused = await asyncio.to_thread(elsewhere, call)
        assert isinstance(refused, StoreError), refused
        assert "was opened on another event loop" in str(refused)
    refusals: list[BaseException] = []

    def without_a_loop() -> None:
        try:
            checkpointer.begin_commit("t", step, fence=fence, acquire=True)
        except BaseException as error:
            refusals.append(error)

    thread = threading.Thread(target=without_a_loop)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert [type(refusal) for refusal in refusals] == [StoreError]

    settled = await checkpointer.settle("t", "call-1", {"decision": "approve"})
    assert await checkpointer.request("t", "call-1") == settled
    assert await checkpointer.commit("t", step, fence=fence, acquire=True) == fence + 1
    assert [info.thread_id for info in await checkpointer.threads()] == ["t"]


@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_a_connection_on_which_something_foreign_failed_is_used_no_more(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, failed = SESSIONS[database.kind], []

    def breaking_once(work: Any) -> Any:
        async def breaks_once(self: Any, *args: Any) -> Any:
            assert self not in failed, "a connection in a state that nobody knows"
            if not failed:
                failed.append(self)
                raise RuntimeError("attached to a different loop")
            return await work(self, *args)

        return breaks_once

    async with database.checkpointer() as checkpointer:
        for name in ("run", "at_once"):
            if getattr(session, name) is not None:
                monkeypatch.setattr(session, name, breaking_once(getattr(session, name)))
        with pytest.raises(StoreError, match="attached to a different loop"):
            await checkpointer.commit("t", prompt(), fence=0, acquire=True)
        failed.append(object())
        fence = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
        thread = await checkpointer.load("t")
        assert thread is not None
        assert thread.fence == fence


# Connections that are lost.


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("database", SERVERS, indirect=True)
async def test_what_expired_is_told_even_if_the_connection_was_lost_in_its_commit(
    database: Database, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        opened = [confirmation(f"q{n}", clock.now() + n / 100, timeout_seconds=5) for n in range(3)]
        await asked(checkpointer, "t", *opened)
        await clock.advance(6)
        break_once(monkeypatch, database.kind, committed=committed)
        expired = await checkpointer.expire_due()
        assert [each.question_id for each in expired] == ["q0", "q1", "q2"]
        assert {each.status for each in expired} == {"timed_out"}
        assert [await checkpointer.request("t", each.question_id) for each in expired] == expired
        assert await checkpointer.expire_due() == []


def test_a_client_that_mysql_cut_off_for_idleness_has_lost_its_connection() -> None:
    idle = asyncmy.errors.OperationalError(
        4031, "The client was disconnected by the server because of inactivity"
    )
    assert MySQLServer("mysql://root@host/name").fault(idle) is Fault.LOST


# Odd arguments.


@pytest.mark.parametrize(
    "limit", [0, -1, 2**31, 10**5000, True, 1.0, "5", None], ids=lambda it: type(it).__name__
)
async def test_a_limit_is_a_number_of_rows(checkpointer: SqlCheckpointer, limit: Any) -> None:
    for call in (checkpointer.pending, checkpointer.threads, checkpointer.expire_due):
        with pytest.raises(StoreError, match="limit is not a whole number from 1 to 2147483647"):
            await call(limit=limit)
    with pytest.raises(StoreError, match="limit is not a whole number from 1 to 2147483647"):
        await checkpointer.list_checkpoints("agent", limit=limit)


async def test_the_largest_limit_is_taken(checkpointer: SqlCheckpointer) -> None:
    await asked(checkpointer)
    assert len(await checkpointer.pending(limit=2**31 - 1)) == 1
    assert len(await checkpointer.threads(limit=2**31 - 1)) == 1
    assert await checkpointer.expire_due(limit=2**31 - 1) == []


@pytest.mark.parametrize(
    "cursor", [f"{2**63}:1:tq", f"{-(2**63) - 1}:1:tq", "1:1:t", "1:0:tq", "1:1:t\0", "1:1:t\ud800", "", 5]
)
async def test_what_is_no_cursor_is_called_so(checkpointer: SqlCheckpointer, cursor: Any) -> None:
    with pytest.raises(StoreError, match="is not a cursor of a request"):
        await checkpointer.pending(after=cursor)


@pytest.mark.parametrize("value", [5, b"ann", ["ann"], {"name": "ann"}], ids=lambda it: type(it).__name__)
async def test_who_settles_is_named_by_a_text(checkpointer: SqlCheckpointer, value: Any) -> None:
    await asked(checkpointer)
    for name in ("by", "via"):
        with pytest.raises(StoreError, match=f"{name} is a text, not {type(value).__name__}"):
            await checkpointer.settle("t", "call-1", {"decision": "approve"}, **{name: value})
        with pytest.raises(StoreError, match=f"{name} is a text, not {type(value).__name__}"):
            await checkpointer.cancel("t", "call-1", **{name: value})
    assert len(await checkpointer.pending()) == 1


# Rows that cannot be read.


async def spoil(database: Database, thread_id: str, **columns: str) -> None:
    """Overwrite what is asked on a thread, by hand."""
    values = ", ".join(f"{name} = '{value}'" for name, value in columns.items())
    statement = f"UPDATE askfirst_requests SET {values} WHERE thread_id = '{thread_id}'"  # noqa: S608
    if database.kind in SERVERS:
        await on_server(database.kind, statement, database=urlsplit(database.address).path.lstrip("/"))
        return

    def in_file() -> None:
        connection = sqlite3.connect(database.address)
        with connection:
            connection.execute(statement)
        connection.close()

    await asyncio.to_thread(in_file)


@tool(requires_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


UNREADABLE = ["{", "[]", "{}", '{"payload":{"kind":"vote"},"created_at":1.0}']


@pytest.mark.parametrize("payload", UNREADABLE)
@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_request_that_cannot_be_read_is_named_and_hides_no_other(
    database: Database, payload: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        for number in range(5):
            request = confirmation("q", clock.now() + number / 100, timeout_seconds=5)
            await asked(checkpointer, f"t{number}", request)
        for number in (1, 2, 3):
            await spoil(database, f"t{number}", payload=payload)
        with caplog.at_level(logging.WARNING, "askfirst.checkpointer"):
            found = await checkpointer.pending(limit=2)
            assert [each.thread_id for each in found] == ["t0", "t4"]
            (first,) = await checkpointer.pending(limit=1)
            (last,) = await checkpointer.pending(limit=1, after=first.cursor)
            assert (first.thread_id, last.thread_id) == ("t0", "t4")
            assert await checkpointer.pending(after=last.cursor) == []
        assert "request 'q' of thread 't1' cannot be read" in caplog.text
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: checkpointer.request("t1", "q"),
            lambda: checkpointer.settled("t1", "q"),
            lambda: checkpointer.settle("t1", "q", True),
            lambda: checkpointer.load("t1"),
            lambda: checkpointer.load_pending_request("t1"),
        ]
        for call in calls:
            with pytest.raises(StoreError, match="request 'q' of thread 't1' cannot be read: ") as raised:
                await call()
            assert "\n" not in str(raised.value)
        await clock.advance(6)
        assert sorted(each.thread_id for each in await checkpointer.expire_due()) == ["t0", "t4"]
        assert await checkpointer.expire_due() == []


@pytest.mark.parametrize("columns", [{}, {"answer": "null"}], ids=["without one", "null"])
@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_a_request_that_was_made_answered_by_hand_and_has_no_answer_is_named(
    database: Database, columns: dict[str, str]
) -> None:
    agent: dict[str, Any] = {"model": ScriptedModel([ToolCall("c1", "pay", {}), "done"]), "tools": [pay]}
    async with database.checkpointer() as checkpointer:
        assert (
            await Agent(**agent, checkpointer=checkpointer, thread_id="t").prompt("go")
        ).status == "paused"
        await spoil(database, "t", status="answered", **columns)
        with pytest.raises(StoreError, match="request 'c1' of thread 't' cannot be read: "):
            await Agent(**agent, checkpointer=checkpointer, thread_id="t").resume()
