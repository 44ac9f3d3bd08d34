"""The HTTP connections of a client: a few that all polls share, and one for each stream of events."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

import httpx2

MOST_POLLS = 20
"""At once, to one service: the rest wait their turn, on connections that are kept open."""
_MOST_CALLS = 100
_LENT_STREAMS = 50
"""How many streams may be open through an HTTP client that was handed in: by default it has 100 connections."""
_POOLED_STREAMS = 32
"""How many streams share a pool: whoever opens or closes one looks at all connections of its pool."""
_CALLS = httpx2.Limits(
    max_connections=_MOST_CALLS, max_keepalive_connections=MOST_POLLS, keepalive_expiry=60.0
)
_STREAMS = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
_TIMEOUT = httpx2.Timeout(30.0, connect=10.0, pool=60.0)


class _StreamPool:
    """An HTTP client for streams, and how many it has."""

    __slots__ = ("http", "streams")

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.streams = 0


class Connections:
    """Where requests go out. Streams cannot starve polls, and a service that hangs cannot starve the others."""

    def __init__(self, http: httpx2.AsyncClient | None) -> None:
        self._lent = http
        self._calls = http
        self._lent_streams = asyncio.Semaphore(_LENT_STREAMS)
        self._pools: list[_StreamPool] = []
        self._polls: dict[str, asyncio.Semaphore] = {}
        self._going: set[asyncio.Task[None]] = set()
        self._trusted: ssl.SSLContext | bool = True
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._lent is None:
            self._trusted = await asyncio.to_thread(httpx2.create_ssl_context)  # it reads files
            self._calls = self._opened(_CALLS)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._calls = self._lent
        self._pools.clear()
        await asyncio.gather(*self._going, return_exceptions=True)
        await self._stack.aclose()

    @property
    def calls(self) -> httpx2.AsyncClient:
        """For requests and polls."""
        if self._calls is None:
            raise RuntimeError("the client is not open: use `async with HitlClient(...) as client`")
        return self._calls

    def polling(self, service: str) -> asyncio.Semaphore:
        """Held during a poll of this service."""
        return self._polls.setdefault(service, asyncio.Semaphore(MOST_POLLS))

    @asynccontextmanager
    async def streaming(self) -> AsyncGenerator[httpx2.AsyncClient | None]:
        """What to open a stream with, for as long as it is open; None if there is no place for it just now."""
        if self._lent is None:
            pool = self._pool()
            pool.streams += 1
            try:
                yield pool.http
            finally:
                pool.streams -= 1
        elif self._lent_streams.locked():
            yield None
        else:
            async with self._lent_streams:
                yield self._lent

    def let_go(self, following: asyncio.Task[None]) -> None:
        """End a stream that nobody needs any more; nobody waits for that."""
        following.cancel()
        self._going.add(following)
        following.add_done_callback(self._gone)

    def _gone(self, following: asyncio.Task[None]) -> None:
        self._going.discard(following)
        if not following.cancelled():
            following.exception()

    def _pool(self) -> _StreamPool:
        """One with a place left."""
        for pool in self._pools:
            if pool.streams < _POOLED_STREAMS:
                return pool
        pool = _StreamPool(self._opened(_STREAMS))
        self._pools.append(pool)
        return pool

    def _opened(self, limits: httpx2.Limits) -> httpx2.AsyncClient:
        http = httpx2.AsyncClient(verify=self._trusted, limits=limits, timeout=_TIMEOUT)
        self._stack.push_async_callback(http.aclose)
        return http
