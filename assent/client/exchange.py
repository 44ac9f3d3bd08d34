"""One request and its answer: tried again where that is safe, and read no further than it may be."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from assent.client.polling import seconds_of
from assent.clock import Clock
from assent.errors import InvalidOffer, ResponseTooLarge

MOST_BYTES = 8_000_000
"""Of a 202, unpacked."""
TRIES = 4
"""How often a request is sent that a service answers with 5xx."""
LONGEST_DEMAND = 60.0
"""A service that wants to be left alone for longer gets no second try: its answer is handed back."""
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
    """What the client sends to every service that it calls, and to nobody to whom that redirects."""
    auth: Any = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    is_repeatable: bool = False
    """Whether sending it twice does no more than sending it once."""
    max_bytes: int | None = None
    """How much of an answer is read; None for all of it."""


async def exchange(http: httpx2.AsyncClient, outgoing: Outgoing, clock: Clock) -> httpx2.Response:
    """Send a request and read its answer.

    A 5xx is tried again, with pauses that grow, if the request may be repeated; after `TRIES` it is handed back
    as it is. Raises `InvalidOffer` for a 202 of more than `MOST_BYTES`, and `ResponseTooLarge` for any other
    answer of more than ``max_bytes``: neither is unpacked any further.
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
    """Whether it may be, and can be: a body that is made as it is sent is gone afterwards."""
    content: object = outgoing.options.get("content")
    return (
        outgoing.is_repeatable
        and outgoing.options.get("files") is None
        and (content is None or isinstance(content, str | bytes))
    )


def _pause(response: httpx2.Response, tries: int, now: float) -> float | None:
    """How long to wait before the next try; None for an answer that is none to be tried again."""
    if response.status_code < 500:
        return None
    demanded = seconds_of(response.headers.get("retry-after"), now)
    if demanded is not None and demanded > LONGEST_DEMAND:
        return None
    usual = _FIRST_PAUSE * 2 ** (tries - 1) * random.uniform(0.5, 1.5)  # noqa: S311
    return max(usual, demanded or 0.0)


async def _sent(http: httpx2.AsyncClient, outgoing: Outgoing) -> httpx2.Response:
    """The answer, its body not read yet. What is the client's own does not follow a redirect to another host."""
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
    whole.elapsed = response.elapsed
    return whole


_TOLD = ("http_version", "reason_phrase")
