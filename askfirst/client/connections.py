"""HTTP connections of a client, and the credentials of polls and streams."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, cast

import httpx2

from askfirst.client.offer import place_of

if TYPE_CHECKING:
    from askfirst.client.offer import Offer


MOST_POLLS = 20
"""Concurrent polls of one service; further ones wait for a kept-alive connection."""
_MOST_CALLS = 100
_LENT_STREAMS = 50
"""How many streams may be open through an HTTP client that was handed in: by default it has 100 connections."""
_POOLED_STREAMS = 32
"""How many streams share a pool: opening or closing one scans all connections of its pool."""
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
    """The connection pools. Streams cannot starve polls, and a service that hangs cannot starve the others."""

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
        """The semaphore that limits concurrent polls of a service."""
        return self._polls.setdefault(service, asyncio.Semaphore(MOST_POLLS))

    @asynccontextmanager
    async def streaming(self) -> AsyncGenerator[httpx2.AsyncClient | None]:
        """An HTTP client for one stream; None if there are too many streams at the moment."""
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

    def end_stream(self, following: asyncio.Task[None]) -> None:
        """Cancel the task of a stream, without waiting for its end."""
        following.cancel()
        self._going.add(following)
        following.add_done_callback(self._gone)

    def _gone(self, following: asyncio.Task[None]) -> None:
        self._going.discard(following)
        if not following.cancelled():
            following.exception()

    def _pool(self) -> _StreamPool:
        """A pool with room for one more stream."""
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


# Credentials: polls and streams are authenticated like the request that was answered with 202.


_NO_HEADERS: Mapping[str, str] = {}
_AUTHORIZATION = "authorization"


@dataclass(frozen=True, slots=True)
class Caller:
    """The credentials of a request: some of its headers, and what its HTTP client calls ``auth``.

    ``own`` are the client's own headers, its token among them. They go to the service that was asked, at
    ``home``, and to no other host, whatever else the client may call.
    """

    headers: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS, repr=False)
    auth: Any = field(default=httpx2.USE_CLIENT_DEFAULT, repr=False)
    own: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS, repr=False)
    home: str | None = None

    @classmethod
    def of(cls, headers: object) -> Caller:
        """The credentials among these headers: ``Authorization``, and the service's own ``X-...``."""
        sent = dict(cast("Mapping[Any, Any]", headers).items())
        return cls({str(name): str(value) for name, value in sent.items() if _tells(str(name).lower())})

    def with_auth(self, auth: Any) -> Caller:
        """The same with an ``auth``, which makes the ``Authorization`` header of each request."""
        headers = {name: value for name, value in self.headers.items() if name.lower() != _AUTHORIZATION}
        return replace(self, headers=headers, auth=auth)

    def at(self, offer: Offer) -> Caller:
        """The same for the polls of an offer; the client's own headers only if no other host answered."""
        return replace(self, home=None if offer.is_redirected else offer.service)

    def headers_for(self, url: str) -> dict[str, str]:
        """The headers with credentials for one address."""
        said = {name.lower() for name in self.headers}
        if self.home is None or place_of(url) != self.home:
            return dict(self.headers)
        return {**{name: self.own[name] for name in self.own if name.lower() not in said}, **self.headers}


def own_headers(token: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    """What a client sends to the services that it calls; raises ``ValueError``, which quotes no value."""
    own = dict(headers or {})
    if token is not None:
        if any(name.lower() == _AUTHORIZATION for name in own):
            raise ValueError("a token is sent as Authorization, which headers has as well; give one of them")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("a token is printable ASCII without blanks; this one is not")
        own["Authorization"] = f"Bearer {token}"
    for name, value in own.items():
        if "\r" in value or "\n" in value or "\0" in value:
            raise ValueError(f"the header {name!r} has a line break in its value")
    return own


def _tells(name: str) -> bool:
    return name == _AUTHORIZATION or name.startswith("x-")
