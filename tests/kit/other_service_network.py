"""A simulated network between a client and `OtherService`: it loses, cuts, delays and duplicates messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal, get_args
from urllib.parse import parse_qsl

import httpx2

from askfirst.clock import Clock
from kit.other_service import Asked, Cut, OtherService, Reply

URL = "http://127.0.0.1:1"
Weather = Literal[
    "fine",
    "lost",  # a request never arrives
    "answer lost",  # the request arrives, and its answer is lost
    "half",  # half of an answer arrives; of a stream, half of its next event
    "slow",  # an answer comes long after it was given
    "doubled",  # a request arrives twice; each event of a stream comes twice
    "swapped",  # an event comes after the next one
    "bad gateway",
    "silent",  # nothing ever comes
]
WEATHERS: tuple[Weather, ...] = get_args(Weather)


class Network(httpx2.AsyncBaseTransport):
    """A transport to a service; one kind of fault (weather) is set for polls, and one for streams."""

    def __init__(self, service: OtherService, clock: Clock) -> None:
        self.service = service
        service.url = URL
        self.polls: Weather = "fine"
        self.streams: Weather = "fine"
        self.down = False
        self._clock = clock
        self._cut = asyncio.Event()

    def cut_streams(self) -> None:
        """Cut every open stream in the middle."""
        cut, self._cut = self._cut, asyncio.Event()
        cut.set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        asked = Asked(
            request.method,
            request.url.path,
            dict(parse_qsl(request.url.query.decode())),
            {name.lower(): value for name, value in request.headers.items()},
            await request.aread(),
        )
        follows = asked.path.endswith("/events")
        weather = self.streams if follows else self.polls if asked.path.startswith("/cases/") else "fine"
        if self.down or weather == "lost":
            raise httpx2.ConnectError("no route", request=request)
        if weather == "bad gateway":
            return httpx2.Response(502, content=b"bad gateway")
        if weather == "silent":
            await asyncio.Event().wait()
        reply = await self.service.answer(asked)
        if weather == "doubled" and not follows:
            reply = await self.service.answer(asked)
        if weather == "answer lost":
            raise httpx2.ReadError("connection reset", request=request)
        if weather == "slow":
            await self._clock.sleep(45)
        return httpx2.Response(
            reply.status, headers=reply.headers, stream=_Body(reply, weather, self._cut), request=request
        )


class _Body(httpx2.AsyncByteStream):
    """The bytes of an answer, with the fault applied to them."""

    def __init__(self, reply: Reply, weather: Weather, cut: asyncio.Event) -> None:
        self._reply = reply
        self._weather = weather
        self._cut = cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = self._reply.body
        if not isinstance(body, bytes):
            async for piece in self._blown(self._until_cut(body)):
                yield piece
        elif self._weather == "half":
            yield body[: len(body) // 2]
            raise httpx2.ReadError("connection reset")
        else:
            yield body

    async def _blown(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        held: bytes | None = None
        async for piece in pieces:
            if piece.startswith(b":"):
                yield piece
            elif self._weather == "half":
                yield piece[: len(piece) // 2]
                raise httpx2.ReadError("connection reset")
            elif self._weather == "swapped" and held is None:
                held = piece
            else:
                yield piece
                if self._weather == "doubled":
                    yield piece
                if held is not None:
                    yield held
                held = None
        if held is not None:
            yield held

    async def _until_cut(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        cut = asyncio.create_task(self._cut.wait())
        try:
            while True:
                following = asyncio.create_task(_next(pieces))
                try:
                    await asyncio.wait([following, cut], return_when=asyncio.FIRST_COMPLETED)
                    if not following.done():
                        raise httpx2.ReadError("connection reset")
                    piece = following.result()
                finally:
                    following.cancel()
                if piece is None:
                    return
                yield piece
        finally:
            cut.cancel()


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    try:
        return await anext(pieces)
    except StopAsyncIteration:
        return None
    except Cut:
        raise httpx2.ReadError("connection reset") from None
