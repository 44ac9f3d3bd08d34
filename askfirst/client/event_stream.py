"""Server-sent events: parsed, and followed with reconnects."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import httpx2

from askfirst.client.connections import Caller, Connections
from askfirst.clock import Clock

# Parsing.


MOST_BYTES = 8_000_000
"""The largest event, or anything else between two empty lines."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """An event that exceeds the limit."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. ``id`` is the last that was given, by this event or an earlier one."""

    name: str
    data: str
    id: str | None


class EventParser:
    """Parses pieces of bytes into complete events. An incomplete event is dropped."""

    __slots__ = ("_after_cr", "_data", "_id", "_name", "_partial", "_size", "_started", "retry")

    def __init__(self) -> None:
        self.retry: float | None = None
        """The server's ``retry`` in seconds, once it was given."""
        self._partial: list[bytes] = []
        self._after_cr = False
        self._started = False
        self._id: str | None = None
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """The events that this piece completes. Raises `EventTooLong`."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the other half of a line's end
        if not chunk:
            return
        self._after_cr = chunk.endswith(b"\r")
        *lines, rest = _LINE_END.split(chunk)
        if lines:
            lines[0] = b"".join(self._partial) + lines[0]
            self._partial.clear()
        if rest:
            self._partial.append(rest)
        self._grow(len(chunk))
        for line in lines:
            if not self._started:
                self._started, line = True, line.removeprefix(_BOM)
            if line:
                self._field(line)
            else:
                self._size = len(rest)
                yield from self._complete()

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MOST_BYTES:
            raise EventTooLong

    def _field(self, line: bytes) -> None:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value[:12]) / 1000

    def _complete(self) -> Iterator[ServerEvent]:
        name, data = self._name, self._data
        self._name, self._data = "", []
        if data:
            yield ServerEvent(name or "message", "\n".join(data), self._id)


IDLE_SECONDS = 60.0
"""A stream without any bytes, comments included, for so long counts as broken."""
_AGAIN = 3.0
_GOOD_LIFE = 30.0
"""The end of a connection that lived so many seconds is no failure."""
_SLOWEST = 300.0


class EventStream:
    """The event stream of a case; reconnects with back-off, and resumes after the last event."""

    def __init__(
        self,
        connections: Connections,
        url: str,
        hear: Callable[[ServerEvent], None],
        lost: Callable[[], None],
        clock: Clock,
        *,
        last_event_id: str | None = None,
        caller: Caller,
    ) -> None:
        self._connections = connections
        self._url = url
        self._hear = hear
        self._lost = lost
        self._clock = clock
        self._last_event_id = last_event_id
        self._caller = caller
        self._retry = _AGAIN
        self._failures = 0
        self._heard_at: float | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the stream has sent anything within `IDLE_SECONDS`."""
        return self._heard_at is not None and self._clock.now() - self._heard_at <= IDLE_SECONDS

    async def follow(self) -> None:
        """Hand on each event as it comes; ends only by being cancelled."""
        while True:
            begun = self._clock.now()
            with suppress(httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, EventTooLong):
                await self._listen()  # polls go on whatever goes wrong here
            if self._heard_at is not None and self._heard_at - begun >= _GOOD_LIFE:
                self._failures = 0
            if self._heard_at is not None:
                self._heard_at = None
                self._lost()
            self._failures += 1
            await self._clock.sleep(self._pause())

    def _pause(self) -> float:
        """The back-off: the server's ``retry`` at first, then growing, with jitter."""
        longest = min(self._retry * 2 ** min(self._failures - 1, 16), _SLOWEST)
        if self._failures <= 1:
            return longest
        return max(random.uniform(0, longest), min(self._retry, _AGAIN))  # noqa: S311

    async def _listen(self) -> None:
        """Read one connection to its end."""
        headers = {
            "Accept": "text/event-stream",
            "Cache-Control": "no-store",
            **self._caller.headers_for(self._url),
        }
        if self._last_event_id:
            headers["Last-Event-ID"] = self._last_event_id
        async with self._connections.streaming() as http:
            if http is None:
                return
            async with http.stream(
                "GET",
                self._url,
                headers=headers,
                auth=self._caller.auth,
                follow_redirects=False,
                timeout=httpx2.Timeout(10.0, read=IDLE_SECONDS),
            ) as response:
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if response.status_code == 200 and kind == "text/event-stream":
                    await self._read(response)

    async def _read(self, response: httpx2.Response) -> None:
        parser = EventParser()
        async for chunk in response.aiter_bytes():
            self._heard_at = self._clock.now()
            for event in parser.feed(chunk):
                self._failures = 0
                self._hear(event)
                self._last_event_id = event.id or self._last_event_id
            if parser.retry is not None:
                self._retry = min(max(parser.retry, 0.1), _SLOWEST)
