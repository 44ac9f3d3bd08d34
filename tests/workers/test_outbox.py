"""The outbox: signed webhooks for what is due, and receivers that go on with it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from kit.callback_receivers import OK, Receiver, receiving
from kit.patience import PATIENCE

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import InvalidSecret, InvalidSignature, ResumeLater
from askfirst.gate.action import Action
from askfirst.gate.gate import Gate
from askfirst.protocol import new_callback_secret, webhook_headers
from askfirst.workers import Continuation, Continuations, Outbox, Worker, read_due_event, run_continuation

pytestmark = pytest.mark.anyio
SECRET = new_callback_secret()
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


async def answered(store: SqlCheckpointer, thread_id: str, number: int = 1) -> None:
    async with Gate(store) as gate:
        key = f"{thread_id}:c{number}"
        await gate.open(key, Action(tool="pay", args={}, resumer="desk", resumes=thread_id))
        await gate.answer(key, {"decision": "approve"})


@asynccontextmanager
async def posting(store: SqlCheckpointer, receiver: Receiver, **options: Any) -> AsyncIterator[Outbox]:
    outbox = Outbox(store, f"http://127.0.0.1:{receiver.port}/due?token=secret", SECRET, **options)
    async with asyncio.TaskGroup() as group:
        group.create_task(outbox.run())
        try:
            yield outbox
        finally:
            outbox.stop()


async def come(receiver: Receiver, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(receiver.requests) < count:  # noqa: ASYNC110  (it has no event)
            await asyncio.sleep(0.01)


async def test_what_is_due_is_posted_as_a_signed_cloudevent(checkpointer: SqlCheckpointer) -> None:
    async with receiving() as receiver, posting(checkpointer, receiver):
        await answered(checkpointer, "t")
        await come(receiver, 1)
    line, headers, body = receiver.last
    assert line == "POST /due?token=secret HTTP/1.1"
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    event = json.loads(body)
    assert (event["specversion"], event["type"], event["subject"]) == (
        "1.0",
        "org.askfirst.continuation.due",
        "t",
    )
    assert event["source"] == "urn:askfirst"
    assert datetime.fromisoformat(event["time"]).timestamp() == pytest.approx(time.time(), abs=60)
    due = read_due_event(body, headers, SECRET)
    assert (due.thread_id, due.resumer, due.attempts) == ("t", "desk", 0)
    assert due.id == event["id"] == headers["webhook-id"]
    known = await Continuations(checkpointer).of("t")
    assert known is not None
    assert (known.state, known.error) == ("due", None)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("how", ["body", "secret", "old", "early", "id", "missing", "other type"])
async def test_what_is_not_ours_is_refused(how: str) -> None:
    event = {
        "id": "e1",
        "type": "another" if how == "other type" else "org.askfirst.continuation.due",
        "data": {"thread_id": "t", "resumer": "desk", "attempts": 0, "settled_at": 1.0},
    }
    body, now = json.dumps(event).encode(), 1_000_000.0
    secret = new_callback_secret() if how == "secret" else SECRET
    headers = webhook_headers(body, secret, message_id="e2" if how == "id" else "e1", timestamp=int(now))
    if how == "missing":
        del headers["webhook-signature"]
    later = {"old": 301.0, "early": -301.0}.get(how, 0.0)
    given = body.replace(b'"t"', b'"u"') if how == "body" else body
    with pytest.raises(InvalidSignature):
        read_due_event(given, headers, SECRET, now=now + later)
    if how in ("old", "early"):
        assert read_due_event(body, headers, SECRET, now=now + later * 0.99).thread_id == "t"


async def test_a_signed_body_that_is_no_event_is_refused() -> None:
    for body in (b"", b"7", b"[]", b'{"id": "e1"}', b"\xff"):
        headers = webhook_headers(body, SECRET, message_id="e1", timestamp=int(time.time()))
        with pytest.raises(InvalidSignature, match="not an event"):
            read_due_event(body, headers, SECRET)


async def test_a_receiver_goes_on_and_a_second_delivery_does_nothing(checkpointer: SqlCheckpointer) -> None:
    ran: list[int] = []

    async def resume(continuation: Continuation) -> None:
        ran.append(continuation.attempts)

    async with receiving() as receiver, posting(checkpointer, receiver):
        await answered(checkpointer, "t")
        await come(receiver, 1)
    due = read_due_event(receiver.last[2], receiver.last[1], SECRET)
    both = await asyncio.gather(
        *[run_continuation(checkpointer, due.thread_id, {"desk": resume}) for _ in range(2)]
    )
    assert sorted(each.state for each in both if each is not None) == ["done"]
    assert await run_continuation(checkpointer, "t", {"desk": resume}) is None
    assert await run_continuation(checkpointer, "unknown", {"desk": resume}) is None
    assert ran == [1]
    assert await Worker(checkpointer, {"desk": resume}).run_due() == 0


async def test_a_refusal_is_seen_and_tried_again_under_the_same_id(checkpointer: SqlCheckpointer) -> None:
    async with receiving(answer=BUSY) as receiver, posting(checkpointer, receiver):
        await answered(checkpointer, "t")
        await come(receiver, 1)
        async with asyncio.timeout(PATIENCE):
            known = await Continuations(checkpointer).of("t")
            while known is None or known.state != "failed":
                await asyncio.sleep(0.01)
                known = await Continuations(checkpointer).of("t")
        assert known.error == "127.0.0.1 answered with 503"
        assert known.attempts == 0
        receiver.answer = OK
        await come(receiver, 2)
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 1
    assert len({body for _, _, body in receiver.requests}) == 1


async def test_what_nobody_takes_up_is_posted_again_as_a_new_event(checkpointer: SqlCheckpointer) -> None:
    async with receiving() as receiver, posting(checkpointer, receiver, take_seconds=0.2):
        await answered(checkpointer, "t")
        await come(receiver, 2)
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests[:2]}) == 2


async def test_a_receiver_that_fails_is_told_again_and_later_is_no_failure(
    checkpointer: SqlCheckpointer, monkeypatch: Any
) -> None:
    monkeypatch.setattr("askfirst.workers.attempt.back_off", lambda attempts: 0.01)
    seen: list[int] = []

    async def flaky(continuation: Continuation) -> None:
        seen.append(continuation.attempts)
        if len(seen) == 1:
            raise RuntimeError("the model is down")
        if len(seen) == 2:
            raise ResumeLater("busy", 0.01)

    async with receiving() as receiver, posting(checkpointer, receiver):
        await answered(checkpointer, "t")
        states: list[str] = []
        for number in range(1, 4):
            await come(receiver, number)
            known = await run_continuation(checkpointer, "t", {"desk": flaky})
            assert known is not None
            states.append(known.state)
    assert states == ["failed", "due", "done"]
    assert seen == [1, 2, 2]
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 3


async def test_only_the_resumers_that_are_named_are_posted(checkpointer: SqlCheckpointer) -> None:
    await answered(checkpointer, "t")
    async with receiving() as receiver:
        address = f"http://127.0.0.1:{receiver.port}/"
        assert await Outbox(checkpointer, address, SECRET, resumers=["other"]).run_due() == 0
        assert await Outbox(checkpointer, address, SECRET, resumers=["desk"]).run_due() == 1
        assert await Outbox(checkpointer, address, SECRET).run_due() == 0, "it was handed over just now"
    assert len(receiver.requests) == 1


async def test_run_continuation_opens_a_database_by_its_url(tmp_path: Any) -> None:
    from askfirst.checkpointer.connect import checkpointer_from_url

    async def resume(continuation: Continuation) -> None:
        return None

    url = f"sqlite:///{tmp_path}/a.db"
    async with checkpointer_from_url(url) as store:
        await answered(store, "t")
    known = await run_continuation(url, "t", {"desk": resume})
    assert known is not None
    assert known.state == "done"


async def test_what_it_is_given_is_checked(checkpointer: SqlCheckpointer) -> None:
    with pytest.raises(InvalidSecret, match="whsec_"):
        Outbox(checkpointer, "https://example.org/", "plain")
    for url in ("ftp://example.org/", "example.org", "https://"):
        with pytest.raises(ValueError, match="address"):
            Outbox(checkpointer, url, SECRET)
