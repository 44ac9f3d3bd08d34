"""The store's part of an approve cycle: its calls of the checkpointer, made without an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

from askfirst.checkpointer.base import Step
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.ids import new_id

StoreCall = Callable[[SqlCheckpointer, str], Awaitable[object]]
"""A call of the checkpointer for a thread."""


async def recorded(cycle: Callable[[], Awaitable[object]]) -> list[StoreCall]:
    """A cycle's calls of the checkpointer, to be repeated on other threads."""
    calls: list[StoreCall] = []
    commit, begin_commit = SqlCheckpointer.commit, SqlCheckpointer.begin_commit
    settle, load = SqlCheckpointer.settle, SqlCheckpointer.load

    def committing(store: SqlCheckpointer, thread_id: str, step: Step, **at: Any) -> Awaitable[int]:
        calls.append(lambda store, thread_id: commit(store, thread_id, _on(thread_id, step), **at))
        return commit(store, thread_id, step, **at)

    def begun(store: SqlCheckpointer, thread_id: str, step: Step, **at: Any) -> Awaitable[int]:
        async def begin(store: SqlCheckpointer, thread_id: str) -> None:
            begin_commit(store, thread_id, _on(thread_id, step), **at)

        calls.append(begin)
        return begin_commit(store, thread_id, step, **at)

    def settling(store: SqlCheckpointer, thread_id: str, *answer: Any, **by: Any) -> Awaitable[object]:
        calls.append(lambda store, thread_id: settle(store, thread_id, *answer, **by))
        return settle(store, thread_id, *answer, **by)

    def loading(store: SqlCheckpointer, thread_id: str) -> Awaitable[object]:
        calls.append(load)
        return load(store, thread_id)

    recording = {"commit": committing, "begin_commit": begun, "settle": settling, "load": loading}
    with mock.patch.multiple(SqlCheckpointer, **recording):
        await cycle()
    return calls


async def cycle(store: SqlCheckpointer, calls: list[StoreCall]) -> None:
    """Make all calls on a new thread."""
    thread_id = new_id()
    for call in calls:
        await call(store, thread_id)


def _on(thread_id: str, step: Step) -> Step:
    """The step for another thread."""
    if not step.opened:
        return step
    return step._replace(
        opened=[request.model_copy(update={"thread_id": thread_id}) for request in step.opened]
    )
