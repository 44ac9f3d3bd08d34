"""Following a case's events for as long as it takes, through as many connections as it takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import httpx2

from assent.client.caller import Caller
from assent.client.connections import Connections
from assent.client.event_parser import EventParser, EventTooLong, ServerEvent
from assent.clock import Clock

IDLE_SECONDS = 60.0
"""A stream on which nothing came for so long, not even a comment, counts as broken."""
_AGAIN = 3.0
_GOOD_LIFE = 30.0
"""A connection that lived so long was no failure when it ended."""
_SLOWEST = 300.0


class EventStream:
    """The stream of a case. It reconnects by itself, patiently, and goes on where it was."""

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
        """Whether the service was heard on it lately."""
        return self._heard_at is not None and self._clock.now() - self._heard_at <= IDLE_SECONDS

    async def follow(self) -> None:
        """Hand on each event as it comes; ends only by being cancelled."""
        while True:
            begun = self._clock.now()
            with suppress(httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, EventTooLong):
                await self._listen()  # whatever goes wrong, the polls go on meanwhile
            if self._heard_at is not None and self._heard_at - begun >= _GOOD_LIFE:
                self._failures = 0
            if self._heard_at is not None:
                self._heard_at = None
                self._lost()
            self._failures += 1
            await self._clock.sleep(self._pause())

    def _pause(self) -> float:
        """At first as the server wishes; longer, and at random, when it does not get better."""
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
