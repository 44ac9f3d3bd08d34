"""An approve cycle written by hand, without Askfirst's guarantees, for comparison.

It sends the same statements as Askfirst's cycle in the same six commits, with group commit, and makes the same
messages, requests and validation. It renews no leases, and has no listeners, no policy, no time-outs and no further
checks.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any
from unittest import mock

from askfirst.ids import new_id
from askfirst.messages import Message, ToolResultMessage, UserMessage, call_digest, decode, encode
from askfirst.models import ModelRequest
from askfirst.requests import ApproveAnswer, ApproveRequest, HitlRequest
from askfirst.store import audit_chain, sqlite_engine

Sent = list[tuple[str, tuple[Any, ...], bool]]
"""A transaction: statements, their parameters, and whether each returns rows."""


async def recorded(cycle: Callable[[], Any]) -> tuple[list[Sent], str]:
    """The transactions that a cycle on SQLite sends, and the id of its thread."""
    agents: list[Any] = []

    async def noted() -> None:
        agents.append(await cycle())

    sent = await transactions(noted)
    return sent, agents[0].thread_id


async def transactions(work: Callable[[], Any]) -> list[Sent]:
    """The transactions that ``work`` sends to SQLite."""
    sent: list[Sent] = []
    run, execute = sqlite_engine._Job.run, sqlite_engine._execute

    def recording_run(job: Any, connection: sqlite3.Connection) -> None:
        sent.append([])
        run(job, connection)

    def recording_execute(connection: sqlite3.Connection, statement: Any, params: Any) -> Any:
        sql, arguments, reads = statement.form(sqlite_engine._DIALECT)
        sent[-1] += [
            (sql, arguments(row), reads) for row in (params if isinstance(params, list) else [params])
        ]
        return execute(connection, statement, params)

    with (
        mock.patch.object(
            audit_chain, "SECONDS", 3600.0
        ),  # the audit chain is linked after the cycles, not during one
        mock.patch.object(sqlite_engine._Job, "run", recording_run),
        mock.patch.object(sqlite_engine, "_execute", recording_execute),
    ):
        await work()
    return sent


class GroupCommit:
    """A thread that writes all waiting transactions in one commit (group commit)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: deque[tuple[asyncio.Future[Any], Sent]] = deque()
        self._done: deque[list[tuple[asyncio.Future[Any], Any]]] = deque()
        self._work_signal, self._done_signal = os.eventfd(0), os.eventfd(0, os.EFD_NONBLOCK)
        self._is_signalled = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._done_signal, self._resolve_futures)
        self._thread = Thread(target=self._run)
        self._thread.start()

    def commit(self, statements: Sent) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._waiting.append((future, statements))
        if not self._is_signalled:
            self._is_signalled = True
            os.eventfd_write(self._work_signal, 1)
        return future

    def close(self) -> None:
        self._waiting.append((self._loop.create_future(), []))
        os.eventfd_write(self._work_signal, 1)
        self._thread.join()
        self._loop.remove_reader(self._done_signal)

    def _resolve_futures(self) -> None:
        os.eventfd_read(self._done_signal)
        while self._done:
            for future, rows in self._done.popleft():
                future.set_result(rows)

    def _run(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute("PRAGMA synchronous=FULL")
        while True:
            os.eventfd_read(self._work_signal)
            self._is_signalled = False
            done: list[tuple[asyncio.Future[Any], Any]] = []
            connection.execute("BEGIN IMMEDIATE")
            while self._waiting:
                future, statements = self._waiting.popleft()
                if not statements:
                    connection.close()
                    return
                rows = None
                for sql, values, reads in statements:
                    cursor = connection.execute(sql, values)
                    if reads:
                        rows = cursor.fetchall()
                    else:
                        assert cursor.rowcount == 1, sql
                done.append((future, rows))
            connection.execute("COMMIT")
            self._done.append(done)
            os.eventfd_write(self._done_signal, 1)


async def cycle(store: GroupCommit, sent: list[Sent], thread_id: str, model: Any, tool: Any) -> None:
    """Prompt and pause, settle the answer, and continue from the stored messages."""
    new = new_id()
    prompt, pause, answer, load, start, result, end = [_for_thread(each, thread_id, new) for each in sent]

    messages: list[Message] = [UserMessage("go")]
    encode(messages[-1])
    store.commit(prompt)
    messages.append(await _ask(model, messages, tool))
    encode(messages[-1])
    call = messages[-1].tool_calls[0]
    tool.parameters.model_validate(call.args)
    digest = call_digest(call.name, call.args)
    payload = ApproveRequest(tool_name=call.name, tool_call_id=call.id, args=call.args, digest=digest)
    request = HitlRequest(question_id=call.id, thread_id=new, payload=payload, created_at=time.time())
    request.model_dump_json()
    await store.commit(pause)

    ApproveAnswer.model_validate({"decision": "approve"})
    await store.commit(answer)

    messages = [decode(body) for (body,) in await store.commit(load)]
    call = messages[-1].tool_calls[0]
    args = tool.parameters.model_validate(call.args)
    assert call_digest(call.name, call.args) == digest
    await store.commit(start)
    messages.append(ToolResultMessage(call.id, call.name, await tool(**dict(args))))
    encode(messages[-1])
    store.commit(result)
    messages.append(await _ask(model, messages, tool))
    encode(messages[-1])
    await store.commit(end)


async def _ask(model: Any, messages: list[Message], tool: Any) -> Any:
    async for item in model.stream(ModelRequest(tuple(messages), "", (tool.schema,))):
        final = item
    return final


def _for_thread(statements: Sent, old: str, new: str) -> Sent:
    """The statements for another thread; a row of the audit trail also gets a new id, its first column."""
    renamed: Sent = []
    for sql, values, reads in statements:
        named = [new if value == old else value for value in values]
        if sql.startswith("INSERT INTO askfirst_acts "):
            named[0] = new_id()[:32]
        renamed.append((sql, tuple(named), reads))
    return renamed
