"""Server-sent events: taken apart whatever the pieces, and followed whatever happens to the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.client_rig import Person, rig, until
from kit.scripted_server import Said, scripted

from askfirst.client import HitlClient
from askfirst.client import event_stream as client_events
from askfirst.client.event_stream import MOST_BYTES, EventParser, EventTooLong, ServerEvent
from askfirst.hitl.testing import FakeClock

pytestmark = pytest.mark.anyio


def parsed(*pieces: bytes) -> list[ServerEvent]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


# Taking a stream apart.


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_with_every_kind_of_line_end(end: bytes) -> None:
    lines = [b"id: 7", b"event: review.opened", b'data: {"a":', b"data: 1}", b"", b""]
    assert parsed(end.join(lines)) == [ServerEvent("review.opened", '{"a":\n1}', "7")]


def test_comments_unknown_fields_and_fields_without_a_value() -> None:
    said = b": beat\n\nfoo: bar\ndata\ndata:x\ndata:  y\n\n"
    assert parsed(said) == [ServerEvent("message", "\nx\n y", None)]


def test_an_event_without_data_is_none_and_its_id_counts_all_the_same() -> None:
    assert parsed(b"id: 3\nevent: review.opened\n\ndata: x\n\n") == [ServerEvent("message", "x", "3")]


def test_an_id_with_a_nul_is_ignored_and_an_empty_one_forgets() -> None:
    said = b"id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\nid\ndata: c\n\n"
    assert [event.id for event in parsed(said)] == ["1", "1", ""]


def test_a_byte_order_mark_is_skipped_once() -> None:
    assert parsed(b"\xef\xbb\xbfdata: x\n\n", b"\xef\xbb\xbfdata: y\n\n") == [
        ServerEvent("message", "x", None)
    ]


def test_what_is_cut_off_does_not_count() -> None:
    assert parsed(b"data: x\n") == []
    assert parsed(b"data: x\r") == []
    assert parsed(b"data: x\n\ndata: y") == [ServerEvent("message", "x", None)]


@pytest.mark.parametrize(
    ("value", "retry"), [(b"3000", 3.0), (b"-1", None), (b"1_000", None), (b"soon", None)]
)
def test_when_the_server_wants_to_be_asked_again(value: bytes, retry: float | None) -> None:
    parser = EventParser()
    assert list(parser.feed(b"retry: " + value + b"\n\n")) == []
    assert parser.retry == retry


def test_an_event_that_does_not_end_is_given_up() -> None:
    parser = EventParser()
    piece = b"x" * 1_000_000
    for _ in range(MOST_BYTES // len(piece)):
        assert list(parser.feed(piece)) == []
    with pytest.raises(EventTooLong):
        list(parser.feed(piece))


def test_a_long_life_of_small_events_is_not_one_long_event() -> None:
    parser = EventParser()
    piece = b"data: " + b"x" * 500_000 + b"\n\n"
    assert sum(len(list(parser.feed(piece))) for _ in range(40)) == 40


STREAM = (
    b"\xef\xbb\xbf: hello\r\rretry: 5\r\nid: 1\r\nevent: a\r\ndata: \xc3\xa9\xe2\x82\xac\r\n\r\n"
    b"data: 1\ndata: 2\n\nid: 9\rdata: z\r\r: bye\n\ndata: cut"
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_the_pieces_make_no_difference(cuts: list[int]) -> None:
    marks = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[begin:end] for begin, end in pairwise(marks)]
    assert parsed(*pieces) == parsed(STREAM)
    assert [event.data for event in parsed(STREAM)] == ["é€", "1\n2", "z"]


# Following one.

EVENTS = "/reviews/review_1/events"
PATH = "/reviews/review_1/status"
PENDING = {"status": "pending", "case_id": "review_1"}
END = (
    b"id: 3\nevent: review.completed\n"
    b'data: {"case_id": "review_1", "completed_at": "2026-01-01T00:00:00Z",'
    b' "result": {"action": "approve", "data": {}}}\n\n'
)
SSE = {"Content-Type": "text/event-stream"}


async def pieces(*said: bytes, then: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    for piece in said:
        yield piece
    if then is not None:
        await then.wait()


async def test_a_whole_final_event_ends_the_wait_without_a_poll() -> None:
    async with scripted() as server, HitlClient(deliver=Person()) as client:
        offer = server.offer(events_url=server.url + EVENTS)
        server.script["/orders"] = [Said(202, offer)]
        server.script[EVENTS] = [Said(200, headers=SSE, pieces=pieces(b": hi\n\n", END))]
        outcome = await client.request("POST", f"{server.url}/orders", json={})
        assert outcome.action == "approve"
        assert server.of(PATH) == []
        assert "last-event-id" not in server.of(EVENTS)[0].headers


async def test_the_stream_is_taken_up_where_it_was_and_polls_go_on_meanwhile() -> None:
    clock, person = FakeClock(), Person()
    async with scripted() as server, HitlClient(deliver=person, clock=clock) as client:
        offer = server.offer(events_url=server.url + EVENTS, expires_at="2099-01-01T00:00:00Z")
        server.script["/orders"] = [Said(202, offer)]
        server.script[PATH] = [Said(200, PENDING)]
        opened = b'id: 2\nevent: review.opened\ndata: {"case_id": "review_1"}\n\n'
        server.script[EVENTS] = [
            Said(200, headers=SSE, pieces=pieces(b"retry: 50000\n\n", opened, b"id: 3\nevent: review.comp")),
            Said(200, headers=SSE, pieces=pieces(END)),
        ]
        asking = asyncio.create_task(client.request("POST", f"{server.url}/orders", json={}))
        await person.got("progress")
        await until(lambda: _cut(client))
        await clock.advance(31)
        await until(lambda: len(server.of(PATH)) == 1)
        assert not asking.done()
        await clock.advance(30)
        assert (await asking).action == "approve"
        assert server.of(EVENTS)[1].headers["last-event-id"] == "2"


def _cut(client: HitlClient) -> bool:
    (live,) = client._desk.live.values()
    stream = live._waiting._stream
    return stream is not None and not stream.is_alive


@pytest.mark.parametrize(
    "said",
    [Said(503), Said(404), Said(204), Said(200, b"<p>hello</p>"), Said(302, headers={"Location": "/x"})],
    ids=lambda said: said.status,
)
async def test_without_a_stream_the_polls_bring_the_outcome(said: Said) -> None:
    quick: Any = {"poll_interval": 0.05, "min_poll_interval": 0.05}
    async with scripted() as server, HitlClient(deliver=Person(), **quick) as client:
        server.script["/orders"] = [Said(202, server.offer(events_url=server.url + EVENTS))]
        server.script[EVENTS] = [said]
        done = {"status": "cancelled", "case_id": "review_1", "cancelled_at": "2026-01-01T00:00:00Z"}
        server.script[PATH] = [Said(200, PENDING), Said(200, done)]
        assert (await client.request("POST", f"{server.url}/orders", json={})).cancelled


async def test_a_stream_on_which_nothing_comes_is_noticed_and_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_events, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(client_events, "_AGAIN", 0.05)
    never = asyncio.Event()
    async with scripted() as server, HitlClient(deliver=Person()) as client:
        server.script["/orders"] = [Said(202, server.offer(events_url=server.url + EVENTS))]
        server.script[EVENTS] = [
            Said(200, headers=SSE, pieces=pieces(b": hello\n\n", then=never)),
            Said(200, headers=SSE, pieces=pieces(END)),
        ]
        outcome = await client.request("POST", f"{server.url}/orders", json={})
        assert outcome.action == "approve"
        assert server.of(PATH) == []


async def test_streams_do_not_take_the_connections_of_polls(tmp_path: Path) -> None:
    """With more streams than an HTTP client of ours has connections for calls."""
    async with rig(tmp_path) as at:
        asking = [at.ask() for _ in range(130)]
        await at.person.got(number=130)
        streams = [live._waiting._stream for live in at.client._desk.live.values()]
        await until(lambda: all(stream is not None and stream.is_alive for stream in streams))
        found = await at.client.request("GET", f"{at.served.url}/healthz")
        assert found.status_code == 200
        for notice in [each for each in at.person.told if each.kind == "review"]:
            await at.answer(notice, "approve")
        outcomes = await asyncio.gather(*asking)
        assert {outcome.action for outcome in outcomes} == {"approve"}
