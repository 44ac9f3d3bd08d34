"""Requests on every store: settled once, expired in time, paged through, waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.patience import PATIENCE
from kit.stores import SHARED, Database, approval, asked, confirmation, prompt, said

from askfirst.checkpointer.base import Settlement
from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import (
    HitlConcurrencyError,
    HitlInvalidAnswer,
    HitlNoPendingRequest,
    HitlStaleAnswer,
    StoreError,
)
from askfirst.hitl.testing import FakeClock
from askfirst.requests import (
    ApproveAnswer,
    AskRequest,
    EscalateAnswer,
    EscalateRequest,
    HitlRequest,
    Question,
    StoredRequest,
)

pytestmark = pytest.mark.anyio


# Settling.


async def test_an_answer_is_stored_with_who_gave_it(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        await asked(checkpointer)
        answer = {"decision": "edit", "edited_args": {"n": [1, "\0", "👍"]}, "reason": "because"}
        settled = await checkpointer.settle("t", "call-1", answer, by="Ann 👩", via="web")
        assert settled.answer == ApproveAnswer(**answer)
        assert (settled.status, settled.answered_by, settled.via) == ("answered", "Ann 👩", "web")
        assert (settled.thread_id, settled.run_id, settled.reason) == ("t", "run-1", None)
        assert settled.settled_at == round(clock.now(), 3)
        assert await checkpointer.request("t", "call-1") == settled
        thread = await checkpointer.load("t")
        assert thread is not None
        assert thread.requests == {"call-1": settled}


ASK = AskRequest(questions=[Question(key="a", prompt="?"), Question(key="b", prompt="?", required=False)])
ESCALATE = EscalateRequest(prompt="?", choices=["retry", "skip"])


@pytest.mark.parametrize(
    ("payload", "given", "stored"),
    [
        (
            approval().payload,
            ApproveAnswer(decision="deny", reason="no"),
            ApproveAnswer(decision="deny", reason="no"),
        ),
        (confirmation("x").payload, False, False),
        (ASK, {"a": "1"}, {"a": "1"}),
        (ESCALATE, "skip", EscalateAnswer(action="skip")),
        (ESCALATE, EscalateAnswer(action="retry"), EscalateAnswer(action="retry")),
    ],
)
async def test_every_kind_of_answer_comes_back_as_its_model(
    checkpointer: SqlCheckpointer, payload: Any, given: Any, stored: Any
) -> None:
    await asked(checkpointer, "t", HitlRequest(question_id="q", payload=payload, created_at=1.0))
    assert (await checkpointer.settle("t", "q", given)).answer == stored
    request = await checkpointer.request("t", "q")
    assert request is not None
    assert request.answer == stored
    assert request.request.payload == payload


async def test_an_answer_that_does_not_fit_leaves_the_request_open(checkpointer: SqlCheckpointer) -> None:
    await asked(checkpointer)
    for bad in (True, {"decision": "perhaps"}, {"decision": "edit"}, None, "approve"):
        with pytest.raises(HitlInvalidAnswer):
            await checkpointer.settle("t", "call-1", bad)
    request = await checkpointer.request("t", "call-1")
    assert request is not None
    assert (request.status, request.settled_at) == ("pending", None)
    await checkpointer.settle("t", "call-1", {"decision": "approve"})


async def test_only_the_first_settlement_counts(checkpointer: SqlCheckpointer) -> None:
    await asked(checkpointer)
    first = await checkpointer.settle("t", "call-1", {"decision": "approve"}, by="ann")
    for late in (
        checkpointer.settle("t", "call-1", {"decision": "approve"}, by="ann"),
        checkpointer.settle("t", "call-1", {"decision": "deny"}, by="bob"),
        checkpointer.cancel("t", "call-1"),
    ):
        with pytest.raises(HitlStaleAnswer) as stale:
            await late
        assert stale.value.status == "answered"
    assert await checkpointer.expire("t", "call-1") == first
    assert await checkpointer.request("t", "call-1") == first


async def test_an_unknown_request_is_told_apart(checkpointer: SqlCheckpointer) -> None:
    await asked(checkpointer)
    for thread_id, question_id, refused in (
        ("t", "?", HitlStaleAnswer),
        ("?", "call-1", HitlNoPendingRequest),
    ):
        for attempt, error in (
            (checkpointer.settle(thread_id, question_id, True), refused),
            (checkpointer.cancel(thread_id, question_id), refused),
            (checkpointer.expire(thread_id, question_id), HitlNoPendingRequest),
            (checkpointer.settled(thread_id, question_id), HitlNoPendingRequest),
        ):
            with pytest.raises(error) as told:
                await attempt
            assert told.value.question_id == question_id
        assert await checkpointer.request(thread_id, question_id) is None
    await checkpointer.cancel("t", "call-1")
    with pytest.raises(HitlNoPendingRequest):
        await checkpointer.settle("t", "?", True)


async def test_a_cancel_keeps_its_reason(checkpointer: SqlCheckpointer) -> None:
    await asked(checkpointer)
    settled = await checkpointer.cancel("t", "call-1", "not \0 now 👎", by="bob", via="cli")
    assert (settled.status, settled.reason, settled.answer) == ("cancelled", "not \0 now 👎", None)
    assert (settled.answered_by, settled.via) == ("bob", "cli")
    with pytest.raises(StoreError, match="by"):
        await checkpointer.cancel("t", "call-1", by="x" * 300)


async def test_fifty_tasks_race_and_one_wins(checkpointer: SqlCheckpointer) -> None:
    for thread_id in ("t1", "t2", "t3"):
        await asked(checkpointer, thread_id)
        attempts = [
            checkpointer.settle(thread_id, "call-1", {"decision": "approve"}, by=str(number))
            if number % 3
            else checkpointer.cancel(thread_id, "call-1", str(number))
            for number in range(50)
        ]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        won = [outcome for outcome in outcomes if isinstance(outcome, StoredRequest)]
        assert len(won) == 1
        assert sum(isinstance(outcome, HitlStaleAnswer) for outcome in outcomes) == 49
        assert await checkpointer.request(thread_id, "call-1") == won[0]


# Rounds.


async def test_asking_again_begins_a_new_round(checkpointer: SqlCheckpointer) -> None:
    fence, _ = await asked(checkpointer)
    await checkpointer.settle("t", "call-1", {"decision": "approve"})
    step = said(opened=[approval(created_at=2.0)], release=True)
    fence = await checkpointer.commit("t", step, fence=fence, acquire=True)
    request = await checkpointer.request("t", "call-1")
    assert request is not None
    assert (request.status, request.answer, request.request.created_at) == ("pending", None, 2.0)
    assert len(await checkpointer.pending()) == 1
    step = said(opened=[approval(created_at=3.0)], release=True)  # while the second is open
    await checkpointer.commit("t", step, fence=fence, acquire=True)
    (only,) = await checkpointer.pending()
    assert only.request.created_at == 3.0
    assert only.round == 3
    with pytest.raises(HitlStaleAnswer) as stale:  # it may be for one of the rounds before
        await checkpointer.settle("t", "call-1", {"decision": "approve"})
    assert stale.value.is_unnamed
    with pytest.raises(HitlStaleAnswer):
        await checkpointer.settle("t", "call-1", {"decision": "approve"}, round=2)
    await checkpointer.settle("t", "call-1", {"decision": "deny"}, round=3)
    thread = await checkpointer.load("t")
    assert thread is not None
    assert thread.requests["call-1"].answer == ApproveAnswer(decision="deny")
    assert await checkpointer.pending() == []


# Deadlines.


async def test_an_answer_after_the_deadline_is_refused_and_the_request_timed_out(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        in_time, late = (confirmation(name, clock.now(), timeout_seconds=10) for name in ("in time", "late"))
        await asked(checkpointer, "t", in_time, late)
        await clock.advance(9.999)
        assert (await checkpointer.expire("t", "late")).status == "pending"
        await checkpointer.settle("t", "in time", True)
        await clock.advance(0.001)
        with pytest.raises(HitlStaleAnswer) as stale:
            await checkpointer.settle("t", "late", True, by="ann")
        assert stale.value.status == "timed_out"
        request = await checkpointer.request("t", "late")
        assert request is not None
        assert (request.status, request.answer, request.answered_by) == ("timed_out", None, None)
        with pytest.raises(HitlStaleAnswer):
            await checkpointer.cancel("t", "late")


async def test_expire_due_settles_what_is_overdue_and_nothing_else(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        requests = [
            confirmation(f"q{number}", clock.now(), timeout_seconds=None if number % 2 else number + 1)
            for number in range(250)
        ]
        await asked(checkpointer, "t", *requests)
        assert await checkpointer.expire_due() == []
        await clock.advance(200)
        first = await checkpointer.expire_due(limit=5)
        assert [request.question_id for request in first] == ["q0", "q2", "q4", "q6", "q8"]
        rest = await checkpointer.expire_due()
        expired = {request.question_id for request in first + rest}
        assert expired == {f"q{number}" for number in range(0, 200, 2)}
        assert {request.status for request in first + rest} == {"timed_out"}
        assert await checkpointer.expire_due() == []
        assert len(await checkpointer.pending(limit=1000)) == 250 - len(expired)
        assert (await checkpointer.expire("t", "q0")).status == "timed_out"


async def test_two_that_expire_at_once_share_the_work(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        requests = [confirmation(f"q{number}", clock.now(), timeout_seconds=1) for number in range(40)]
        await asked(checkpointer, "t", *requests)
        await clock.advance(2)
        lists = await asyncio.gather(*(checkpointer.expire_due() for _ in range(4)))
        ids = [request.question_id for expired in lists for request in expired]
        assert sorted(ids) == sorted(request.question_id for request in requests)


# Finding open requests.


async def test_open_requests_are_paged_oldest_first_even_with_equal_times(
    checkpointer: SqlCheckpointer,
) -> None:
    ids = ["a", "a:b", "b", "ä", "👍"]
    for thread_id in ids:
        requests = [
            confirmation(question_id, 5.0 if number else 4.0) for number, question_id in enumerate(ids)
        ]
        await asked(checkpointer, thread_id, *requests)
    await checkpointer.cancel("b", "b")
    found: list[StoredRequest] = []
    while page := await checkpointer.pending(limit=3, after=found[-1].cursor if found else None):
        assert len(page) <= 3
        found += page
    places = [(request.request.created_at, request.thread_id, request.question_id) for request in found]
    expected = sorted(
        (5.0 if number else 4.0, thread_id, question_id)
        for thread_id in ids
        for number, question_id in enumerate(ids)
        if (thread_id, question_id) != ("b", "b")
    )
    assert places == expected
    with pytest.raises(StoreError, match="cursor"):
        await checkpointer.pending(after="nonsense")


async def test_a_page_goes_on_where_its_last_request_was_settled_meanwhile(
    checkpointer: SqlCheckpointer,
) -> None:
    await asked(checkpointer, "t", *(confirmation(f"q{number}", number) for number in range(4)))
    first = await checkpointer.pending(limit=2)
    await checkpointer.settle("t", "q1", True)
    rest = await checkpointer.pending(after=first[-1].cursor)
    assert [request.question_id for request in rest] == ["q2", "q3"]


async def test_the_seeds_two_methods(checkpointer: SqlCheckpointer) -> None:
    assert await checkpointer.load_pending_request("t") is None
    await checkpointer.save_pending_request("t", None)
    newer, older = (
        confirmation("newer", 2.5, timeout_seconds=9.0, thread_id="t"),
        confirmation("older", 1.25, thread_id="t"),
    )
    await checkpointer.save_pending_request("t", newer)
    assert await checkpointer.load_pending_request("t") == newer
    await checkpointer.save_pending_request("t", older)
    await checkpointer.save_pending_request("t", older)
    assert await checkpointer.load_pending_request("t") == older
    assert [request.question_id for request in await checkpointer.pending()] == ["older", "newer"]
    await checkpointer.save_pending_request("t", None)
    assert await checkpointer.load_pending_request("t") is None
    request = await checkpointer.request("t", "older")
    assert request is not None
    assert (request.status, request.run_id) == ("cancelled", None)


async def test_a_request_may_be_saved_alone(checkpointer: SqlCheckpointer) -> None:
    await checkpointer.save_pending_request("t", confirmation("one", timeout_seconds=1.0))  # overdue
    await checkpointer.save_pending_request("t", confirmation("two"), alone=True)
    with pytest.raises(HitlConcurrencyError) as refused:
        await checkpointer.save_pending_request("t", confirmation("three"), alone=True)
    assert refused.value.question_id == "two"
    await checkpointer.save_pending_request("t", confirmation("two"), alone=True)
    await checkpointer.save_pending_request("t", confirmation("two", 1_700_000_001.0), alone=True)
    await checkpointer.save_pending_request("other", confirmation("three"), alone=True)
    assert sorted(it.question_id for it in await checkpointer.pending()) == ["one", "three", "two"]


async def test_a_request_may_be_saved_before_its_thread_and_while_it_is_leased(
    checkpointer: SqlCheckpointer,
) -> None:
    await checkpointer.save_pending_request("t", confirmation("before"))
    thread = await checkpointer.load("t")
    assert thread is not None
    assert (thread.messages, list(thread.requests)) == ([], ["before"])
    fence = await checkpointer.commit("t", prompt(), fence=thread.fence, acquire=True)
    assert fence == thread.fence + 1
    await checkpointer.save_pending_request("t", confirmation("meanwhile"))
    assert await checkpointer.commit("t", said(), fence=fence) == fence + 1


# Waiting.


async def test_waiting_for_what_is_settled_returns_at_once(checkpointer: SqlCheckpointer) -> None:
    await asked(checkpointer)
    settled = await checkpointer.cancel("t", "call-1")
    assert await checkpointer.settled("t", "call-1") == settled


async def test_who_begins_to_wait_for_what_was_asked_anew_hears_so_at_once(
    checkpointer: SqlCheckpointer,
) -> None:
    """However late the wait begins: it is not for the question that has taken the place of the first one."""
    fence, [first] = await asked(checkpointer)
    anew = approval(created_at=first.created_at + 1)
    await checkpointer.commit("t", said(opened=[anew], release=True), fence=fence, acquire=True)
    async with asyncio.timeout(PATIENCE):
        found = await checkpointer.settled("t", "call-1", asked=first)
    assert (found.status, found.request) == ("superseded", first)


async def test_whoever_settles_wakes_those_who_wait(database: Database) -> None:
    clock = FakeClock()
    async with database.checkpointer(clock=clock) as checkpointer:
        ids = ["answered", "cancelled", "timed out", "aborted", "forgotten", "overdue"]
        requests = [
            confirmation(name, clock.now(), timeout_seconds=5 if name in ("timed out", "overdue") else None)
            for name in ids
        ]
        fence, _ = await asked(checkpointer, "t", *requests)
        async with asyncio.timeout(PATIENCE):
            waiters = [asyncio.create_task(checkpointer.settled("t", name)) for name in ids for _ in range(2)]
            for _ in range(5):
                await asyncio.sleep(0)
            await checkpointer.settle("t", "answered", True)
            await checkpointer.cancel("t", "cancelled")
            step = said(settled=[Settlement("aborted", "aborted")])
            await checkpointer.commit("t", step, fence=fence, acquire=True)
            await clock.advance(5)
            await checkpointer.expire("t", "timed out")
            await checkpointer.expire_due()
            await checkpointer.save_pending_request("t", None)
            statuses = [waiter.status for waiter in await asyncio.gather(*waiters)]
        expected = ["answered", "cancelled", "timed_out", "aborted", "cancelled", "timed_out"]
        assert statuses == [status for status in expected for _ in range(2)]


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_an_answer_elsewhere_wakes_a_waiter_here(database: Database) -> None:
    async with database.checkpointer() as here, database.checkpointer() as there, asyncio.timeout(PATIENCE):
        for number in range(3):
            thread_id = f't{number}\'s: "👍"'
            await asked(here, thread_id)
            waiter = asyncio.create_task(here.settled(thread_id, "call-1"))
            if number:
                await asyncio.sleep(0.05 * number)  # the watcher is in place by now, or not: either will do
            settled = await there.settle(thread_id, "call-1", {"decision": "approve"}, by="there")
            assert await waiter == settled


@pytest.mark.parametrize("database", SHARED, indirect=True)
async def test_many_wait_at_once(database: Database) -> None:
    async with database.checkpointer() as here, database.checkpointer() as there, asyncio.timeout(PATIENCE):
        requests = [confirmation(f"q{number}") for number in range(130)]
        await asked(here, "t", *requests)
        waiters = [asyncio.create_task(here.settled("t", request.question_id)) for request in requests]
        await asyncio.sleep(0)
        await asyncio.gather(*(there.settle("t", request.question_id, True) for request in requests))
        assert {waiter.status for waiter in await asyncio.gather(*waiters)} == {"answered"}


async def test_a_waiter_that_is_cancelled_changes_nothing(checkpointer: SqlCheckpointer) -> None:
    await asked(checkpointer)
    waiter = asyncio.create_task(checkpointer.settled("t", "call-1"))
    await asyncio.sleep(0.01)
    waiter.cancel()
    await asyncio.wait({waiter})
    assert waiter.cancelled()
    assert (await checkpointer.settle("t", "call-1", {"decision": "approve"})).status == "answered"


async def test_a_cancelled_settle_happened_or_did_not(checkpointer: SqlCheckpointer) -> None:
    for number in range(30):
        thread_id = f"t{number}"
        await asked(checkpointer, thread_id)
        settling = asyncio.create_task(checkpointer.settle(thread_id, "call-1", {"decision": "approve"}))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        settling.cancel()
        await asyncio.wait({settling})
        request = await checkpointer.request(thread_id, "call-1")
        assert request is not None
        assert (request.status == "answered") == (request.answer is not None)
        if request.status == "pending":
            await checkpointer.settle(thread_id, "call-1", {"decision": "deny"})


async def test_an_answer_to_what_was_shown_before_does_not_count_for_what_is_asked_now(
    checkpointer: SqlCheckpointer,
) -> None:
    fence, (first,) = await asked(checkpointer)
    payload = first.payload.model_copy(update={"args": {"n": 9999}, "digest": "e" * 64})
    again = first.model_copy(update={"payload": payload})
    await checkpointer.commit("t", said(opened=[again], release=True), fence=fence, acquire=True)
    with pytest.raises(HitlStaleAnswer):
        await checkpointer.settle("t", "call-1", {"decision": "approve"}, digest="d" * 64)
    (pending,) = await checkpointer.pending()
    assert pending.request.payload == payload
    settled = await checkpointer.settle("t", "call-1", {"decision": "approve"}, digest="e" * 64)
    assert settled.status == "answered"


async def test_a_thread_says_whether_somebody_is_at_it(checkpointer: SqlCheckpointer) -> None:
    fence = await checkpointer.commit("t", prompt(), fence=0, acquire=True)
    held = await checkpointer.load("t")
    await checkpointer.commit("t", said(release=True), fence=fence)
    free = await checkpointer.load("t")
    assert held is not None
    assert free is not None
    assert (held.is_leased, free.is_leased) == (True, False)
