"""Receivers that never answer, fail or come back after days hold nobody up, and no callback is lost (M6)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from kit.callback_receivers import OK, Receiver, receiving
from kit.running_service import HandClock, Served, serving, until
from kit.stores import SHARED, Database
from sqlalchemy import select

from askfirst.service.callbacks import (
    FAILURES,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PATIENCE_SECONDS,
    PROBE,
    Breakers,
    Outcome,
    next_attempt,
)
from askfirst.store.case_queues import PER_KEY
from askfirst.store.case_rows import CallbackRow
from askfirst.store.case_tables import callbacks
from askfirst.store.statement import Statement

pytestmark = pytest.mark.anyio
each_store = pytest.mark.parametrize("database", SHARED, indirect=True)
silent_receivers = pytest.mark.attack("M6", "receivers that hold others up")
ERROR = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
TAKEN = 123_457
ROW = CallbackRow("cb", "case", "key", "https://a.example/", "{}", 1, None, None, 0, since=0)


def hook(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.port}/hook"


async def end(agent: Any, url: str, count: int = 1) -> list[str]:
    """Open cases and end them, so that they are to be called back."""
    ids: list[str] = []
    for _ in range(count):
        case = await agent.open(hitl_callback_url=url)
        assert (await case.cancel()).status_code == 200
        ids.append(case.case_id)
    return ids


async def rows(served: Served) -> list[CallbackRow]:
    def read() -> Any:
        columns = [callbacks.c[name] for name in CallbackRow._fields]
        return (yield Statement(select(*columns)), {})

    return [CallbackRow(*row) for row in await served.service.cases.engine.read(read)]


@asynccontextmanager
async def waited_for_an_hour() -> AsyncIterator[None]:
    """No silent receiver is given up, and no other is tried in its place, however slow this machine is."""
    with (
        mock.patch("askfirst.service.callbacks.SECONDS", 3600.0),
        mock.patch("askfirst.service.callbacks.TAKEN_MILLISECONDS", 3_600_000),
    ):
        yield


@silent_receivers
@each_store
async def test_sixty_callbacks_that_nobody_answers_delay_no_other_keys(
    database: Database, attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(60)
    async with (
        waited_for_an_hour(),
        receiving(answer=None) as silent,
        receiving() as good,
        database.checkpointer() as store,
        serving(store) as served,
    ):
        greedy, other = await served.agent("greedy"), await served.agent("other")
        await end(greedy, hook(silent), 60)

        async def as_many_as_may() -> bool:
            return len(silent.requests) == PER_KEY

        await until(as_many_as_may)
        await end(other, hook(good))

        async def called() -> bool:
            return len(good.requests) == 1

        await until(called)
        # The silent ones are waited for still, and are no more than their key's share.
        assert len(silent.requests) == silent.connections == PER_KEY


@asynccontextmanager
async def failing(folder: Path, clock: HandClock, **options: Any) -> AsyncIterator[tuple[Served, Receiver]]:
    with mock.patch("askfirst.service.callbacks.TAKEN_MILLISECONDS", TAKEN):
        async with (
            receiving(answer=ERROR) as receiver,
            serving(f"sqlite:///{folder}/cases.db", clock=clock, **options) as served,
        ):
            yield served, receiver


async def settled(served: Served) -> list[CallbackRow]:
    """The callbacks, once all that are due were tried or put off."""

    async def none_due() -> list[CallbackRow]:
        now, known = served.service.cases.now(), await rows(served)
        busy = any(row.due_at is not None and row.due_at <= now for row in known)
        # One that a worker has taken is due again after exactly its lease, which is no other pause's length.
        taken = any(row.due_at == now + TAKEN for row in known)
        return [] if busy or taken else known

    return await until(none_due)


@silent_receivers
async def test_a_callback_is_tried_for_days_over_restarts_and_then_given_up(tmp_path: Path) -> None:
    clock = HandClock()
    began, tries, restarts = clock.time, [], 0
    outcome = None
    async with AsyncExitStack() as stack:
        served, receiver = await stack.enter_async_context(failing(tmp_path, clock))
        await end(await served.agent(), hook(receiver))
        while outcome in (None, "retry"):
            [row] = await settled(served)
            outcome = row.outcome
            if len(receiver.requests) > len(tries):
                tries.append(clock.time - began)
            if len(tries) == 6 and not restarts:  # a new process goes on where the old one ended
                restarts = 1
                before = receiver.requests
                await stack.aclose()
                served, receiver = await stack.enter_async_context(failing(tmp_path, clock))
                receiver.requests = before
                await _sent_to(served, hook(receiver))
            if row.due_at is not None:
                clock.turn(max(1, row.due_at / 1000 - clock.time))
        assert outcome == "gave_up"
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert tries[0] == 0
    assert 2 * 86_400 < tries[-1] <= PATIENCE_SECONDS
    assert len(tries) > 10
    assert max(pauses) <= 6 * 3600 + 1
    assert pauses[:2] == [10, 60]


async def _sent_to(served: Served, url: str) -> None:
    """The receiver is at another port now."""
    from sqlalchemy import update

    def write() -> Any:
        yield Statement(update(callbacks).values(url=url)), {}

    await served.service.cases.engine.write(write)


@silent_receivers
async def test_a_host_that_fails_is_left_alone_and_tried_with_one_callback(
    tmp_path: Path, attacks_tried: Callable[[int], None]
) -> None:
    attacks_tried(12)
    clock = HandClock()
    async with failing(tmp_path, clock) as (served, receiver):
        greedy, other = await served.agent("greedy"), await served.agent("other")
        await end(greedy, hook(receiver), 12)
        known = await settled(served)
        # Of those at once each may be under way before the breaker knows; the rest is put off untried.
        assert FAILURES <= len(receiver.requests) <= FAILURES + PER_KEY - 1
        untried = [row for row in known if row.attempts == 0]
        assert len(untried) == 12 - len(receiver.requests)
        assert {row.outcome for row in known} == {"retry", None}
        await end(other, hook(receiver))  # what a host answers to one key keeps no other key's from it
        await settled(served)
        tried = len(receiver.requests)
        receiver.answer = OK
        clock.turn(LONGEST_PAUSE / 1000)
        while any(row.due_at is not None for row in await settled(served)):
            clock.turn(PROBE / 1000)
        assert len(receiver.requests) == tried + 13
        assert {row.outcome for row in await rows(served)} == {"sent"}


# Back-off and breakers as such.


def test_attempts_are_ever_further_apart_up_to_six_hours_and_end_after_three_days() -> None:
    retry, now, row, attempts = Outcome("retry", "x"), 0, ROW, 0
    while (due := next_attempt(row, retry, now)) is not None:
        assert now < due <= now + 6 * 3_600_000
        now, attempts = due, attempts + 1
        row = row._replace(attempts=row.attempts + 1)
    assert 2 * 86_400_000 < now <= PATIENCE_SECONDS * 1000
    assert attempts < 20
    assert next_attempt(ROW, Outcome("sent", "x"), 0) is None
    assert next_attempt(ROW, Outcome("refused", "x"), 0) is None


def test_a_breaker_opens_lets_one_through_and_closes() -> None:
    breakers = Breakers()
    for _ in range(FAILURES):
        assert breakers.wait(("a",), 0) is None
        breakers.failed("a", 0)
    assert breakers.wait(("a",), 0) == FIRST_PAUSE
    assert breakers.wait(("b",), 0) is None
    assert breakers.wait(("b", "a"), 0) == FIRST_PAUSE
    assert breakers.wait(("a",), FIRST_PAUSE) is None  # one
    assert breakers.wait(("a",), FIRST_PAUSE) == FIRST_PAUSE + PROBE  # and no other meanwhile
    breakers.failed("a", FIRST_PAUSE)
    assert breakers.wait(("a",), FIRST_PAUSE) == 3 * FIRST_PAUSE
    for _ in range(50):
        breakers.failed("a", 0)
    assert breakers.wait(("a",), 0) == LONGEST_PAUSE
    breakers.worked(("a",))
    assert breakers.wait(("a",), 0) is None


def test_breakers_take_bounded_memory() -> None:
    breakers = Breakers(hosts=10)
    for number in range(1000):
        breakers.failed(f"host-{number}", 0)
    assert len(breakers._known) == 10
