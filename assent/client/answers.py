"""Answers of any HTTP library, as far as the client needs to know them."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2

from assent.client.caller import Caller
from assent.client.exchange import MOST_BYTES
from assent.errors import InvalidOffer


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
    """Look at an answer of httpx2, httpx, requests or aiohttp, or at one that is like theirs.

    It has ``status_code`` or ``status``, ``url``, and ``json()``, which may be async; and perhaps ``request``
    (or ``request_info``) with the ``headers`` that were sent. The body is read only of a 202. Raises
    ``TypeError`` for anything else.
    """
    answer: Any = response
    status = getattr(answer, "status_code", None)
    status = getattr(answer, "status", None) if status is None else status
    if not isinstance(status, int) or not hasattr(answer, "url"):
        raise TypeError(f"a {type(response).__name__} is no HTTP response: it has no status or no url")
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
    """Its JSON; None for what is no JSON, and so asks nobody anything. Raises `InvalidOffer` if it is too long."""
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
        if type(error).__name__ == "ContentTypeError":  # aiohttp's word for it
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
    """A stream that ends with an error before it gets too long, also unpacked."""

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
        """How much a piece comes to, unpacked no further than what may still come."""
        if self._unpacking is None:
            return len(piece)
        try:
            return len(self._unpacking.decompress(piece, MOST_BYTES - self._count + 1))
        except zlib.error:
            return len(piece)  # whoever reads it says what is wrong with it

    async def aclose(self) -> None:
        await self._stream.aclose()


def _too_long() -> InvalidOffer:
    return InvalidOffer({"": f"its body has more than {MOST_BYTES} bytes"})
