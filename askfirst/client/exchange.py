"""One HTTP request and its response: read from any library, retried where that is safe, within limits."""

from __future__ import annotations

import inspect
import random
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2

from askfirst.client.connections import Caller
from askfirst.client.polling import seconds_of
from askfirst.clock import Clock
from askfirst.errors import InvalidOffer, ResponseTooLarge

# Responses of any HTTP library.


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The status of an answer, where it came from, its JSON (None if it has none), and who asked."""

    status: int
    url: str
    body: Any = field(repr=False)
    caller: Caller
    asked: str | None = None
    """Where the first request went, if redirects led elsewhere."""


async def read_answer(response: object) -> HttpAnswer:
    """Read a response of httpx2, httpx, requests or aiohttp, or of a similar library.

    It has ``status_code`` or ``status``, ``url``, and ``json()``, which may be async; and perhaps ``request``
    (or ``request_info``) with the ``headers`` that were sent. The body is read only of a 202. Raises
    ``TypeError`` for anything else.
    """
    answer: Any = response
    status = getattr(answer, "status_code", None)
    status = getattr(answer, "status", None) if status is None else status
    if not isinstance(status, int) or not hasattr(answer, "url"):
        raise TypeError(f"a {type(response).__name__} is not an HTTP response: it has no status or no url")
    body: Any = None
    if status == 202:
        body = await _json(answer)
    request = getattr(answer, "request", None) or getattr(answer, "request_info", None)
    headers: Any = getattr(request, "headers", None)
    caller = Caller() if headers is None else Caller.of(headers)
    history: Any = getattr(answer, "history", None)
    asked = str(history[0].url) if history else None
    return HttpAnswer(status, str(answer.url), body, caller, asked)


async def _json(answer: Any) -> Any:
    """The JSON of a response; None if it is not JSON. Raises `InvalidOffer` if it is too long."""
    headers: Any = getattr(answer, "headers", None) or {}
    announced = str(headers.get("content-length") or headers.get("Content-Length") or "")
    if announced.isascii() and announced.isdigit() and len(announced) < 20 and int(announced) > MOST_BYTES:
        raise _too_long()
    if hasattr(answer, "aread"):
        await _read_stream(answer)
    content: Any = getattr(answer, "content", None)
    if isinstance(content, bytes) and len(content) > MOST_BYTES:
        raise _too_long()
    try:
        body = answer.json()
        return await body if inspect.isawaitable(body) else body
    except (ValueError, RecursionError):
        return None
    except Exception as error:
        if type(error).__name__ == "ContentTypeError":  # of aiohttp
            return None
        raise


async def _read_stream(answer: Any) -> None:
    """Read a stream of httpx2 or httpx, unless it was read already; one of httpx2 no further than it may be."""
    if isinstance(answer, httpx2.Response) and not answer.is_stream_consumed and not answer.is_closed:
        packing = answer.headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("identity", "gzip"):
            raise InvalidOffer({"": f"its body is packed as {packing!r}; read it before it is handed over"})
        answer.stream = _Counted(cast("httpx2.AsyncByteStream", answer.stream), is_packed=packing == "gzip")
    await answer.aread()


class _Counted(httpx2.AsyncByteStream):
    """A stream that raises once it exceeds the limit, also decompressed."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, is_packed: bool) -> None:
        self._stream = stream
        self._unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16) if is_packed else None
        self._count = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._count += self._size(piece)
            if self._count > MOST_BYTES:
                raise _too_long()
            yield piece

    def _size(self, piece: bytes) -> int:
        """The decompressed size of a piece, measured up to the limit."""
        if self._unpacking is None:
            return len(piece)
        try:
            return len(self._unpacking.decompress(piece, MOST_BYTES - self._count + 1))
        except zlib.error:
            return len(piece)  # the reader of the stream reports it

    async def aclose(self) -> None:
        await self._stream.aclose()


def _too_long() -> InvalidOffer:
    return InvalidOffer({"": f"its body has more than {MOST_BYTES} bytes"})


MOST_BYTES = 8_000_000
"""The largest body of a 202, decompressed."""
TRIES = 4
"""Attempts of a request that is answered with 5xx."""
LONGEST_DEMAND = 60.0
"""A longer ``Retry-After`` is not waited for: the response is returned."""
_REPEATABLE = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
_FIRST_PAUSE = 1.0
_HOPS = 20
_PACKED = ("content-encoding", "content-length", "transfer-encoding")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request that is about to be sent."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    """What the caller gave for this request."""
    own: Mapping[str, str] = field(repr=False)
    """The client's own headers, sent to every service that it calls, and not to hosts that it redirects to."""
    auth: Any = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    is_repeatable: bool = False
    """Whether sending it twice does no more than sending it once."""
    max_bytes: int | None = None
    """How much of an answer is read; None for all of it."""


def may_repeat(method: str) -> bool:
    """Whether a method is idempotent in HTTP."""
    return method.upper() in _REPEATABLE


async def exchange(http: httpx2.AsyncClient, outgoing: Outgoing, clock: Clock) -> httpx2.Response:
    """Send a request and read its answer.

    A 5xx is retried with back-off, if the request may be repeated; after `TRIES` attempts it is returned.
    Raises `InvalidOffer` for a 202 of more than `MOST_BYTES`, and `ResponseTooLarge` for any other answer of more
    than ``max_bytes``: neither is decompressed any further.
    """
    tries = 1
    while True:
        response = await _sent(http, outgoing)
        try:
            pause = _pause(response, tries, clock.now())
            if pause is None or tries >= TRIES or not _may_send_again(outgoing):
                return await _read(response, outgoing.max_bytes)
        finally:
            await response.aclose()
        await clock.sleep(pause)
        tries += 1


def _may_send_again(outgoing: Outgoing) -> bool:
    """Whether a request may be sent again, and can be: a streamed body is consumed by the first attempt."""
    content: object = outgoing.options.get("content")
    return (
        outgoing.is_repeatable
        and outgoing.options.get("files") is None
        and (content is None or isinstance(content, str | bytes))
    )


def _pause(response: httpx2.Response, tries: int, now: float) -> float | None:
    """The back-off before the next attempt; None for a response that is not retried."""
    if response.status_code < 500:
        return None
    demanded = seconds_of(response.headers.get("retry-after"), now)
    if demanded is not None and demanded > LONGEST_DEMAND:
        return None
    usual = _FIRST_PAUSE * 2 ** (tries - 1) * random.uniform(0.5, 1.5)  # noqa: S311
    return max(usual, demanded or 0.0)


async def _sent(http: httpx2.AsyncClient, outgoing: Outgoing) -> httpx2.Response:
    """Send a request; its body is not read yet. The client's own headers follow no redirect to another host."""
    options = dict(outgoing.options)
    follow: Any = options.pop("follow_redirects", httpx2.USE_CLIENT_DEFAULT)
    headers = httpx2.Headers(dict(outgoing.own))
    headers.update(dict(outgoing.headers))
    request = http.build_request(outgoing.method, outgoing.url, headers=headers, **options)
    if not outgoing.own:
        return await http.send(request, stream=True, auth=outgoing.auth, follow_redirects=follow)
    follows = http.follow_redirects if follow is httpx2.USE_CLIENT_DEFAULT else bool(follow)
    auth, first, history = outgoing.auth, request.url, list[httpx2.Response]()
    while True:
        response = await http.send(request, stream=True, auth=auth, follow_redirects=False)
        response.history = list(history)
        if not follows or response.next_request is None:
            return response
        await response.aclose()
        if len(history) >= _HOPS:
            raise httpx2.TooManyRedirects("the service redirects again and again", request=request)
        history.append(response)
        request = response.next_request
        if request.url.origin != first.origin:
            auth = None
            for name in outgoing.own:
                request.headers.pop(name, None)


async def _read(response: httpx2.Response, max_bytes: int | None) -> httpx2.Response:
    """The same answer with its body, all of it."""
    most = MOST_BYTES if response.status_code == 202 else max_bytes
    if most is None:
        await response.aread()
        return response
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > most:
            if response.status_code == 202:
                raise InvalidOffer({"": f"its body has more than {most} bytes"})
            raise ResponseTooLarge(response.url.host, response.status_code, most)
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _PACKED]
    whole = httpx2.Response(
        response.status_code,
        headers=headers,
        content=bytes(body),
        request=response.request,
        extensions={name: response.extensions[name] for name in _TOLD if name in response.extensions},
        history=response.history,
    )
    await response.aclose()
    with suppress(RuntimeError):  # raised where a transport, such as httpx2.MockTransport, takes no time
        whole.elapsed = response.elapsed
    return whole


_TOLD = ("http_version", "reason_phrase")
