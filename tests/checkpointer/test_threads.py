"""Threads on every store: steps, loading, lists, forks, deletion, opening and closing."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.stores import (
    CALL,
    RUN,
    SHARED,
    Database,
    approval,
    asked,
    confirmation,
    effect,
    prompt,
    said,
    whole_cycle,
)

from askfirst.checkpointer import base
from askfirst.checkpointer.base import RunRecord, Settlement, Step, StoredEffect, StoredRun
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import (
    HitlNoPendingRequest,
    HitlStaleAnswer,
    LeaseHeld,
    LeaseLost,
    StoreError,
    ThreadNotFound,
)
from askfirst.messages import AssistantMessage, ImagePart, Message, ToolResultMessage, Usage, UserMessage

pytestmark = pytest.mark.anyio
EVIL = "Zoë ☃ 👩‍👩‍👧 \u202e'\"\\%s$1:?{}"
"""Fine as an id: direction marks, quotes, placeholders and characters of four bytes."""


async def test_an_unknown_thread_is_none(checkpointer: SqlCheckpointer) -> None:
    assert await checkpointer.load("nobody") is None


async def test_a_whole_cycle_is_loaded_as_it_was_written(checkpointer: SqlCheckpointer) -> None:
    fence = await whole_cycle(checkpointer, "t")
    thread = await checkpointer.load("t")
    assert thread is not None
    assert thread.messages == [
        UserMessage("Hello"),
        AssistantMessage(CALL),
        ToolResultMessage("call-1", "send", "sent"),
        AssistantMessage("Done."),
    ]
    assert (thread.thread_id, thread.fence, thread.lease_owner) == ("t", fence, None)
    assert thread.run == StoredRun(RUN, "agent", "completed")
    assert thread.effects == {}
    assert thread.requests["call-1"].status == "answered"
    assert thread.extra == {}


async def test_any_message_comes_back_equal(checkpointer: SqlCheckpointer) -> None:
    messages: list[Message] = [
        UserMessage([ImagePart(media_type="image/png", data=bytes(range(256)))]),
        UserMessage("NUL \0, é, 👍🏽, \u2028, a lone quote ' and %s"),
        AssistantMessage(CALL, usage=Usage(input_tokens=2**40)),
        ToolResultMessage(
            "call-1", "send", "x" * 1_000_000, details={"deep": [1, {"a": None}], "NaN": "NaN"}
        ),
    ]
    fence = await checkpointer.commit(EVIL, said(*messages), fence=0, acquire=True)
    await checkpointer.commit(EVIL, said(*messages), fence=fence)
    thread = await checkpointer.load(EVIL)
    assert thread is not None
    assert thread.messages == messages * 2


async def test_messages_keep_their_order_over_many_steps(checkpointer: SqlCheckpointer) -> None:
    fence, texts = 0, [str(number) for number in range(60)]
    for start in range(0, 60, 3):
        step = said(*(UserMessage(text) for text in texts[start : start + 3]))
        fence = await checkpointer.commit("t", step, fence=fence, acquire=start == 0)
    thread = await checkpointer.load("t")
    assert thread is not None
    assert [message.text for message in thread.messages] == texts


# Steps.


async def test_effects_begin_and_end(checkpointer: SqlCheckpointer) -> None:
    step = said(started=[effect("a"), effect("b")])
    fence = await checkpointer.commit("t", step, fence=0, acquire=True)
    fence = await checkpointer.commit("t", said(ended=["a"]), fence=fence)
    thread = await checkpointer.load("t")
    assert thread is not None
    assert thread.effects == {"b": effect("b")}
    again = StoredEffect("b", "send", "e" * 64, "once", 2)
    fence = await checkpointer.commit("t", said(started=[again]), fence=fence)
    thread = await checkpointer.load("t")
    assert thread is not None
    assert thread.effects == {"b": again}
    fence = await checkpointer.commit("t", said(ended=["b"]), fence=fence)
    await checkpointer.commit("t", said(started=[effect("a", 2)]), fence=fence)
    thread = await checkpointer.load("t")
    assert thread is not None
    assert thread.effects == {"a": effect("a", 2)}


async def test_the_latest_run_is_known(checkpointer: SqlCheckpointer) -> None:
    fence = await checkpointer.commit("t", prompt(run_id="z"), fence=0, acquire=True)
    fence = await checkpointer.commit("t", said(run_id="z", run=RunRecord("agent", "completed")), fence=fence)
    fence = await checkpointer.commit("t", prompt(run_id="a"), fence=fence)
    await checkpointer.commit("t", said(run_id="a", release=True), fence=fence)
    thread = await checkpointer.load("t")
    assert thread is not None
    assert thread.run == StoredRun("a", "agent", None)


async def test_the_requests_of_the_latest_run_and_all_pending_ones_are_loaded(
    checkpointer: SqlCheckpointer,
) -> None:
    opened = [confirmation("old pending"), confirmation("old settled")]
    fence = await checkpointer.commit("t", prompt(run_id="one", opened=opened), fence=0, acquire=True)
    await checkpointer.cancel("t", "old settled")
    await checkpointer.commit("t", prompt(run_id="two", opened=[confirmation("new")]), fence=fence)
    await checkpointer.settle("t", "new", True)
    thread = await checkpointer.load("t")
    assert thread is not None
    assert {id_: it.status for id_, it in thread.requests.items()} == {
        "old pending": "pending",
        "new": "answered",
    }
    assert {it.run_id for it in thread.requests.values()} == {"one", "two"}


@pytest.mark.parametrize("status", ["aborted", "superseded", "cancelled"])
async def test_a_step_settles_requests_itself(checkpointer: SqlCheckpointer, status: str) -> None:
    fence, _ = await asked(checkpointer)
    step = said(UserMessage("new"), settled=[Settlement("call-1", status, "why \0 not")])  # type: ignore[arg-type]
    await checkpointer.commit("t", step, fence=fence, acquire=True)
    request = await checkpointer.request("t", "call-1")
    assert request is not None
    assert (request.status, request.reason, request.answer) == (status, "why \0 not", None)
    assert request.settled_at is not None


async def test_a_step_that_settles_what_is_settled_is_not_written(checkpointer: SqlCheckpointer) -> None:
    fence, _ = await asked(checkpointer)
    await checkpointer.settle("t", "call-1", {"decision": "deny"})
    step = said(UserMessage("no"), settled=[Settlement("call-1", "aborted")])
    with pytest.raises(HitlStaleAnswer) as stale:
        await checkpointer.commit("t", step, fence=fence, acquire=True)
    assert stale.value.status == "answered"
    with pytest.raises(HitlNoPendingRequest):
        await checkpointer.commit("t", said(settled=[Settlement("?", "aborted")]), fence=fence, acquire=True)
    thread = await checkpointer.load("t")
    assert thread is not None
    assert (len(thread.messages), thread.fence, thread.lease_owner) == (2, fence, None)


async def test_ids_that_a_database_could_mistake_are_refused(checkpointer: SqlCheckpointer) -> None:
    for bad in ("", "x" * 256, "a\0b", "trailing ", "\ud800"):
        with pytest.raises(StoreError, match="thread_id"):
            await checkpointer.commit(bad, prompt(), fence=0, acquire=True)
        with pytest.raises(StoreError, match="thread_id"):
            await checkpointer.load(bad)
        with pytest.raises(StoreError, match="question_id"):
            await checkpointer.request("t", bad)
        with pytest.raises(StoreError, match="question_id"):
            await checkpointer.commit("t", said(opened=[approval(bad)]), fence=0, acquire=True)
        with pytest.raises(StoreError, match="run_id"):
            await checkpointer.commit("t", Step(bad), fence=0, acquire=True)
    with pytest.raises(StoreError, match="has 300 characters; the store takes up to 255"):
        await checkpointer.load("x" * 300)
    assert await checkpointer.threads() == []


async def test_ids_of_every_kind_are_kept_apart(checkpointer: SqlCheckpointer) -> None:
    ids = [
        "a",
        "A",
        "á",
        "a\u0301",
        "ä",
        "ß",
        "ss",
        "x" * 255,
        "👍" * 255,
        EVIL,
        "a:b",
        "a b",
        "\t",
        "0",
        "00",
    ]
    for thread_id in ids:
        request = confirmation(thread_id)
        step = said(UserMessage(thread_id), opened=[request], release=True)
        await checkpointer.commit(thread_id, step, fence=0, acquire=True)
    for thread_id in ids:
        thread = await checkpointer.load(thread_id)
        assert thread is not None
        assert [message.text for message in thread.messages] == [thread_id]
        assert list(thread.requests) == [thread_id]
        settled = await checkpointer.settle(thread_id, thread_id, True, by=thread_id, via=thread_id)
        assert (settled.thread_id, settled.question_id, settled.answered_by) == (
            thread_id,
            thread_id,
            thread_id,
        )
    assert [info.thread_id for info in await checkpointer.threads()] == sorted(ids)


# Lists, forks, deletion.


async def test_threads_are_listed_in_pages(checkpointer: SqlCheckpointer) -> None:
    for number in range(7):
        await checkpointer.commit(f"t{number}", prompt(), fence=0, acquire=True)
    first = await checkpointer.threads(limit=3)
    rest = await checkpointer.threads(limit=10, after=first[-1].thread_id)
    assert [info.thread_id for info in first + rest] == [f"t{number}" for number in range(7)]
    assert all(info.messages == 1 and info.parent_thread_id is None for info in first)
    assert 0 < first[0].created_at <= first[0].updated_at


async def test_a_fork_has_the_first_messages_and_nothing_else(checkpointer: SqlCheckpointer) -> None:
    await asked(checkpointer)
    await checkpointer.fork("t", "some", upto=1)
    await checkpointer.fork("t", "all")
    await checkpointer.fork("t", "none", upto=0)
    await checkpointer.fork("t", "more", upto=99)
    for thread_id, count in (("some", 1), ("all", 2), ("none", 0), ("more", 2)):
        thread = await checkpointer.load(thread_id)
        assert thread is not None
        assert (len(thread.messages), thread.requests, thread.run) == (count, {}, None)
        fence = await checkpointer.commit(thread_id, prompt("on"), fence=thread.fence, acquire=True)
        assert fence == thread.fence + 1
        await assert_messages(checkpointer, count + 1, thread_id)
        with pytest.raises((LeaseLost, LeaseHeld)):
            await checkpointer.commit(thread_id, prompt("unseen"), fence=0, acquire=True)
    await assert_messages(checkpointer, 2)
    parents = {info.thread_id: info.parent_thread_id for info in await checkpointer.threads()}
    assert parents == {"t": None, "some": "t", "all": "t", "none": "t", "more": "t"}


async def test_what_was_started_and_has_no_result_on_a_fork_is_in_doubt_there(
    checkpointer: SqlCheckpointer,
) -> None:
    fence, _ = await asked(checkpointer)
    fence = await checkpointer.commit("t", said(started=[effect()]), fence=fence, acquire=True)
    await checkpointer.fork("t", "under-way")
    await checkpointer.commit("t", said(ended=["call-1"], release=True), fence=fence)
    await checkpointer.fork("t", "ended")
    await checkpointer.fork("t", "before", upto=1)
    for thread_id, begun in (
        ("under-way", {"call-1": effect()}),
        ("ended", {"call-1": effect()}),
        ("before", {}),
    ):
        thread = await checkpointer.load(thread_id)
        assert thread is not None
        assert thread.effects == begun


async def test_a_fork_needs_a_source_and_a_free_name(checkpointer: SqlCheckpointer) -> None:
    await asked(checkpointer)
    with pytest.raises(ThreadNotFound):
        await checkpointer.fork("nobody", "new")
    with pytest.raises(StoreError, match="'t' already"):
        await checkpointer.fork("t", "t")
    upto: Any
    for upto in (-1, 1.5, "2", True, False):
        with pytest.raises(StoreError, match=f"^upto is a number of messages, not {upto!r}$"):
            await checkpointer.fork("t", "new", upto=upto)
    assert await checkpointer.load("new") is None


async def test_a_deleted_thread_leaves_nothing(checkpointer: SqlCheckpointer) -> None:
    fence, _ = await asked(checkpointer)
    await asked(checkpointer, "other")
    await checkpointer.commit("t", said(started=[effect()], release=True), fence=fence, acquire=True)
    waiter = asyncio.create_task(checkpointer.settled("t", "call-1"))
    await asyncio.sleep(0)
    await checkpointer.delete("t")
    with pytest.raises(HitlNoPendingRequest):
        await asyncio.wait_for(waiter, PATIENCE)
    assert await checkpointer.load("t") is None
    assert await checkpointer.request("t", "call-1") is None
    assert [it.thread_id for it in await checkpointer.pending()] == ["other"]
    with pytest.raises(LeaseLost):
        await checkpointer.commit("t", said(), fence=fence + 1, acquire=True)
    await checkpointer.delete("t")
    await asked(checkpointer)
    thread = await checkpointer.load("t")
    assert thread is not None
    assert thread.effects == {}


async def test_a_thread_at_work_is_not_deleted(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.commit("t", prompt(), fence=0, acquire=True)
    with pytest.raises(LeaseHeld):
        await checkpointer.delete("t")
    await assert_messages(checkpointer, 1)


# Opening and closing.


async def test_one_that_is_not_open_says_so(database: Database) -> None:
    checkpointer = database.checkpointer()
    for _ in range(2):
        with pytest.raises(StoreError, match="not open"):
            await checkpointer.load("t")
        with pytest.raises(StoreError, match="not open"):
            await checkpointer.commit("t", prompt(), fence=0, acquire=True)
        async with checkpointer as opened:
            assert opened is checkpointer
            with pytest.raises(StoreError, match="open already"):
                await checkpointer.__aenter__()
            assert await checkpointer.threads() == []


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_what_was_written_is_there_after_reopening(database: Database) -> None:
    async with database.checkpointer() as checkpointer:
        fence, _ = await asked(checkpointer)
    async with database.checkpointer() as checkpointer:
        thread = await checkpointer.load("t")
        assert thread is not None
        assert (thread.fence, len(thread.messages)) == (fence, 2)


async def test_closing_wakes_who_waits(database: Database) -> None:
    async with database.checkpointer() as checkpointer:
        await asked(checkpointer)
        waiter = asyncio.create_task(checkpointer.settled("t", "call-1"))
        await asyncio.sleep(0)
    with pytest.raises(StoreError, match="not open"):
        await asyncio.wait_for(waiter, PATIENCE)


# Cancellation and points.


async def test_a_cancelled_commit_happened_whole_or_not_at_all(checkpointer: SqlCheckpointer) -> None:
    chance = random.Random(7)
    happened = 0
    for number in range(60):
        thread_id = f"t{number}"
        opened = [approval("a"), approval("b")]
        step = said(UserMessage("1"), UserMessage("2"), opened=opened, started=[effect()])
        writing = asyncio.create_task(checkpointer.commit(thread_id, step, fence=0, acquire=True))
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(chance.choice([0, 0, 0.0005]))
        writing.cancel()
        if chance.random() < 0.3:
            await asyncio.sleep(0)
            writing.cancel()
        await asyncio.wait({writing})
        thread = await checkpointer.load(thread_id)
        if thread is not None:
            happened += 1
            assert (len(thread.messages), len(thread.requests), len(thread.effects)) == (2, 2, 1)
            fence = thread.fence
            assert await checkpointer.commit(thread_id, said(release=True), fence=fence) == fence + 1
    await whole_cycle(checkpointer, "still usable")
    assert happened


async def test_each_commit_passes_its_points(
    checkpointer: SqlCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[str] = []
    monkeypatch.setattr(base, "hook", passed.append)
    fence = await whole_cycle(checkpointer, "t")
    fence = await checkpointer.commit("t", said(AssistantMessage("hm")), fence=fence, acquire=True)
    await checkpointer.commit("t", said(release=True), fence=fence)
    names = ["prompt", "request.opened", "request.settled", "effect.started", "effect.ended", "run.ended"]
    expected = [*names, "message", "step"]
    assert passed == [point for name in expected for point in (f"before:{name}", name)]


async def assert_messages(checkpointer: SqlCheckpointer, count: int, thread_id: str = "t") -> None:
    thread = await checkpointer.load(thread_id)
    assert thread is not None
    assert len(thread.messages) == count
