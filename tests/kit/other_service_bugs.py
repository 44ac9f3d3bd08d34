"""Services with faults: each is an `OtherService` with one bug."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, ClassVar

from kit.other_service import Asked, Cut, OtherCase, OtherService, Reply


class Polls(OtherService):
    """A service without streams whose polls are faulty: the ``first`` ones, or all for None."""

    follows = False
    first: int | None = 3

    async def poll(self, case: OtherCase, asked: Asked) -> Reply:
        good = await super().poll(case, asked)
        if self.first is not None and case.polls > self.first:
            return good
        return await self.bad_poll(case, good)

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        return good


class PollsAreCut(Polls):
    """The connection ends in the middle of an answer."""

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        whole = self.text(case)
        promised = {"Content-Type": "application/json", "Content-Length": str(len(whole))}
        return Reply(200, whole[: len(whole) // 2], promised, cut=True)

    def text(self, case: OtherCase) -> bytes:
        return json.dumps(self.state(case)).encode()


class PollsEndEarly(PollsAreCut):
    """An answer is cut off, and its Content-Length matches the part that was sent."""

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        whole = self.text(case)
        return Reply(200, whole[: len(whole) // 2], {"Content-Type": "application/json"})


class PollsAreDropped(Polls):
    """The connection is closed before an answer is sent."""

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        return Reply(200, b"", {"Content-Length": "10"}, cut=True)


class PollsFail(Polls):
    """Polls are answered with 5xx statuses, several different ones."""

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        status = (500, 502, 503, 504, 599)[case.polls % 5]
        return Reply(status, b"<h1>Bad gateway</h1>", {"Content-Type": "text/html"})


class PollsHang(Polls):
    """It accepts a poll and never answers."""

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        await asyncio.Event().wait()
        return good


class PollsDrip(Polls):
    """Its answer never ends."""

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        async def drip() -> AsyncIterator[bytes]:
            yield b'{"status": "completed", "reason": "'
            while True:
                yield b"x" * 65_536

        return Reply(200, drip(), {"Content-Type": "application/json"})


class PollsAreHuge(Polls):
    """A valid answer of twenty megabytes."""

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        return Reply.of({**self.state(case), "reason": "x" * 20_000_000})


class PollsSay(Polls):
    """An invalid answer to a poll; ``says`` is added to the correct answer, or is the whole body."""

    says: ClassVar[dict[str, Any] | bytes] = {}

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        if isinstance(self.says, bytes):
            return Reply(200, self.says, {"Content-Type": "application/json"})
        told = {**self.state(case), **self.says}
        return Reply.of({name: value for name, value in told.items() if value is not None})


class PollsRefuse(Polls):
    """Another status than 200, every time."""

    first = None
    status = 404
    headers: ClassVar[dict[str, str]] = {}

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        return Reply(self.status, b'{"error": "no", "message": "no"}', dict(self.headers))


class PollsAreRateLimited(PollsRefuse):
    """429, every time."""

    status = 429
    headers: ClassVar[dict[str, str]] = {"Retry-After": "120"}


class PollsRedirect(PollsRefuse):
    """Every poll is redirected to another host."""

    status = 307
    target = ""

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        return Reply(self.status, b"", {"Location": f"{self.target}/cases/{case.case_id}"})


class RetryAfter(Polls):
    """Answers with a Retry-After header."""

    first = None
    says = "30"

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        return replace(good, headers={**good.headers, "Retry-After": self.says})

    def in_a_minute(self) -> str:
        return format_datetime(datetime.fromtimestamp(self.now() + 60, UTC), usegmt=True)


class RetryAfterDate(RetryAfter):
    """Answers with Retry-After as an HTTP date."""

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        return replace(good, headers={**good.headers, "Retry-After": self.in_a_minute()})


class TagsLie(Polls):
    """Every poll with an ETag gets 304, even if the case has changed."""

    first = None

    async def poll(self, case: OtherCase, asked: Asked) -> Reply:
        if "if-none-match" in asked.headers:
            return Reply(304, headers={"ETag": asked.headers["if-none-match"]})
        return await super().poll(case, asked)


class NotModifiedAtFirst(Polls):
    """Answers 304 to a first poll, which has no ETag."""

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        return Reply(304)


class TakesItBack(OtherService):
    """An event says completed, without a result; every later poll says pending."""

    def event(self, number: int, name: str, data: Any) -> bytes:
        return super().event(number, name, {"case_id": data["case_id"]})

    def state(self, case: OtherCase) -> dict[str, Any]:
        return {"status": "pending", "case_id": case.case_id}


class TakesItBackWhenAsked(Polls):
    """A poll says completed, without a result; the next poll says pending."""

    first = None

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        return Reply.of({"status": "completed" if case.polls == 1 else "pending", "case_id": case.case_id})


class GoesBack(Polls):
    """In progress at first, then pending for a while."""

    first = 4

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        return Reply.of({"status": "in_progress" if case.polls == 1 else "pending", "case_id": case.case_id})


# Streams. The person decides after the stream has failed, so that only polls can report the outcome.


class Streams(OtherService):
    """The first streams are faulty."""

    first: int | None = 2
    content_type = "text/event-stream"

    async def events(self, case: OtherCase, asked: Asked) -> Reply:
        if self.first is not None and case.streams > self.first:
            return await super().events(case, asked)
        return Reply(200, self.bad_stream(case), {"Content-Type": self.content_type})

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        yield b""


class StreamsAreCut(Streams):
    """The connection is closed in the middle of the final event."""

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        self.open_page(case)
        yield self.event(1, *case.events[0])
        await asyncio.sleep(0.02)
        yield b'id: 2\nevent: review.completed\ndata: {"case_id": "' + case.case_id[:5].encode()
        raise Cut


class StreamsEndInAnEvent(Streams):
    """The last event lacks its closing blank line, so it must not count. Nobody has decided anything."""

    first = None

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        told = {**self.state(case), "status": "completed", "completed_at": self.stamp()}
        told["result"] = {"action": "approve", "data": {}}
        yield f"id: 9\nevent: review.completed\ndata: {json.dumps(told)}\n".encode()


class StreamsAreSilent(Streams):
    """The stream is open, and sends neither events nor heartbeats."""

    first = None

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        yield b": welcome\n\n"
        await asyncio.Event().wait()


class StreamsStopHalfway(Streams):
    """The stream sends half an event, and then nothing."""

    first = None

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        yield b"id: 1\nevent: review.comp"
        await asyncio.Event().wait()


class StreamsNeverBegin(OtherService):
    """The request for a stream is accepted, and no status is ever sent."""

    async def events(self, case: OtherCase, asked: Asked) -> Reply:
        await asyncio.Event().wait()
        return Reply()


class StreamsOnlyBeat(Streams):
    """The stream sends heartbeats, and never an event."""

    first = None

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        while True:
            yield b": beat\n\n"
            await asyncio.sleep(0.02)


class StreamsNeverEndALine(Streams):
    """The stream sends megabytes without an end of line."""

    first = None

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        yield b"data: "
        while True:
            yield b"x" * 65_536


class StreamsAskForPatience(Streams):
    """The stream ends at once, with a ``retry`` of a thousand years."""

    first = None

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        yield b"retry: 31536000000000\n\n"


class StreamsFail(OtherService):
    """Every request for a stream fails with ``status``."""

    status = 503

    async def events(self, case: OtherCase, asked: Asked) -> Reply:
        return Reply(self.status, b"no", {"Content-Type": "text/plain"})


class StreamsArePages(StreamsFail):
    """A request for a stream gets 200 and an HTML page, as from a proxy."""

    status = 200


class StreamsRedirect(OtherService):
    """Every stream is redirected to another host."""

    target = ""

    async def events(self, case: OtherCase, asked: Asked) -> Reply:
        return Reply(302, b"", {"Location": f"{self.target}/cases/{case.case_id}/events"})


class EventsAreMuddled(Streams):
    """Events out of order, twice, unknown, empty, not JSON, or without an id; then the correct final event."""

    first = 1

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        me = {"case_id": case.case_id}
        yield self.event(5, "review.in_progress", {**me, "progress": {"current_step": 1, "total_steps": 2}})
        yield self.event(4, "review.opened", {**me, "opened_at": self.stamp()})
        yield self.event(4, "review.opened", {**me, "opened_at": self.stamp()})
        yield self.event(6, "review.applauded", me)
        yield self.event(7, "review.reminder", {**me, "reminder_sent_at": self.stamp()})
        yield self.event(7, "review.reminder", {**me, "reminder_sent_at": self.stamp()})
        yield b"event: review.completed\ndata: this is not JSON\n\n"
        yield b"event: review.completed\ndata\n\n"
        yield b"event: review.completed\n\n"
        yield b"data: {}\n\n"
        yield self.event(8, "review.opened", ["a", "list"])
        yield b"id: 1\x002\nevent: review.opened\n\n"
        async for piece in self.stream(case, 0):
            yield piece


class EventsAreOfAnother(Streams):
    """A valid final event of another case."""

    first = None

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        told = {**self.state(case), "case_id": "case-of-another", "status": "completed"}
        told |= {"completed_at": self.stamp(), "result": {"action": "approve", "data": {}}}
        yield self.event(1, "review.completed", told)
        await asyncio.Event().wait()


class EventsMisnameTheirState(Streams):
    """The event's name says completed, its data say pending, and it has a result that nobody gave."""

    first = None

    async def bad_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        told = {**self.state(case), "completed_at": self.stamp(), "result": {"action": "approve", "data": {}}}
        yield self.event(1, "review.completed", told)
        await asyncio.Event().wait()


class EventsRepeatThemselves(OtherService):
    """A client that reconnects gets all events again from the first one."""

    async def events(self, case: OtherCase, asked: Asked) -> Reply:
        return Reply(200, self.cut_stream(case), {"Content-Type": "text/event-stream"})

    async def cut_stream(self, case: OtherCase) -> AsyncIterator[bytes]:
        for number, (name, data) in enumerate(case.events, start=1):
            yield self.event(number, name, data)
        await asyncio.sleep(0.01)


# Rounds.


class RoundsGoInCircles(Polls):
    """The second case leads back to the first."""

    first = None

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        while len(self.cases) < 2:
            self.open(previous_case_id=case.case_id)
        other = next(each for each in self.cases.values() if each is not case)
        self.decide(case, "edit", {"feedback": "once more"}, next_case_id=other.case_id)
        return Reply.of(self.state(case))


class RoundsBiteTheirTail(Polls):
    """A case that is followed by itself."""

    first = None

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        self.decide(case, "edit", {"feedback": "once more"}, next_case_id=case.case_id)
        return Reply.of(self.state(case))


class RoundsNeverEnd(Polls):
    """Each case is followed by another one."""

    first = None

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        if not case.is_over:
            following = self.open(previous_case_id=case.case_id)
            self.decide(case, "edit", {"feedback": "once more"}, next_case_id=following.case_id)
        return Reply.of(self.state(case))


class RoundsLeadNowhere(Polls):
    """The next case does not exist."""

    first = None

    async def bad_poll(self, case: OtherCase, good: Reply) -> Reply:
        self.decide(case, "edit", {"feedback": "once more"}, next_case_id="case-that-is-not-there")
        return Reply.of(self.state(case))


# Callbacks.


class CallsAreForged(Polls):
    """Callbacks signed with a wrong secret."""

    first = None

    def signature(self, body: bytes) -> str:
        return "sha256=" + "0" * 64


class CallsAreUnsigned(CallsAreForged):
    """Callbacks with an empty signature."""

    def signature(self, body: bytes) -> str:
        return ""
