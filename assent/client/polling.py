"""Asking a service once how a case stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx2
from pydantic_core import from_json

from assent.client.caller import Caller
from assent.errors import InvalidProtocolObject, ReviewContradiction, ReviewRefused
from assent.protocol import FINAL_STATES, PollAnswer, State

SECONDS = 30.0
"""For all of one poll, however slowly its answer drips in."""
MOST_BYTES = 8_000_000
_MOST_OF_A_REFUSAL = 64_000
_ENDS: Mapping[str, State] = {state: state for state in FINAL_STATES}
_HOPS = 3
_REFUSED = (401, 403, 404, 410)
_IN_NEED = (429, 503)
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Polled:
    """What a service answered; ``answer`` is None if nothing has changed since ``etag`` was handed out."""

    answer: PollAnswer | None
    etag: str | None = None
    retry_after: float | None = None


class PollFailed(Exception):
    """A poll that brought nothing, and may be tried again. Its text is the problem, without any value.

    ``demanded`` is how long a service in need asked to be left alone; ``is_unreadable`` is whether it answered,
    and its answer cannot be used; ``claimed`` a final state that it named in such an answer.
    """

    def __init__(
        self,
        problem: str,
        *,
        demanded: float | None = None,
        is_unreadable: bool = False,
        claimed: State | None = None,
    ) -> None:
        super().__init__(problem)
        self.demanded = demanded
        self.is_unreadable = is_unreadable
        self.claimed: State | None = claimed


async def poll(
    http: httpx2.AsyncClient,
    url: str,
    *,
    case_id: str,
    now: float,
    may_call: Callable[[str], bool],
    caller: Caller,
    etag: str | None = None,
) -> Polled:
    """Ask once, as ``caller``. ``etag`` is that of the last answer.

    Redirects are followed where ``may_call`` allows it. Raises `ReviewRefused` for 401, 403, 404 and 410,
    `ReviewContradiction` for an answer about another case, and `PollFailed` for what may be better next time.
    """
    headers = {"Accept": "application/json"}
    if etag is not None:
        headers["If-None-Match"] = etag
    try:
        async with asyncio.timeout(SECONDS):
            for _ in range(_HOPS):
                async with http.stream(
                    "GET",
                    url,
                    headers={**headers, **caller.headers_for(url)},
                    auth=caller.auth,
                    follow_redirects=False,
                ) as response:
                    if response.status_code in _REDIRECTS:
                        url = _target(response, may_call)
                        continue
                    return await _answer(response, case_id, now, asked_with_etag=etag is not None)
    except TimeoutError:
        raise PollFailed(f"no answer within {SECONDS:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise PollFailed(f"no answer ({type(error).__name__})") from None
    raise PollFailed("it redirects again and again")


def _target(response: httpx2.Response, may_call: Callable[[str], bool]) -> str:
    target = str(response.url.join(response.headers.get("location", "")))
    if not may_call(target):
        raise PollFailed("it redirects to another host")
    return target


async def _answer(response: httpx2.Response, case_id: str, now: float, *, asked_with_etag: bool) -> Polled:
    status = response.status_code
    retry_after = seconds_of(response.headers.get("retry-after"), _its_time(response) or now)
    body = await _body(response)
    if status in _REFUSED:
        raise ReviewRefused(case_id, status)
    if status == 304 and asked_with_etag:
        return Polled(None, response.headers.get("etag"), retry_after)
    if status != 200:
        raise PollFailed(f"HTTP {status}", demanded=retry_after if status in _IN_NEED else None)
    return Polled(read_answer(body, case_id), response.headers.get("etag"), retry_after)


async def _body(response: httpx2.Response) -> bytes:
    """All of it, also of what is no answer: only a connection that is read to the end can be used again."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MOST_BYTES and response.status_code == 200:
            raise PollFailed("its answer is too long", is_unreadable=True)
        if len(body) > _MOST_OF_A_REFUSAL and response.status_code != 200:
            break
    return bytes(body)


def read_answer(body: bytes, case_id: str) -> PollAnswer:
    """The answer about this case; raises as `poll` does."""
    try:
        said: Any = from_json(body, allow_inf_nan=False)
    except ValueError:
        raise PollFailed("its answer is no JSON", is_unreadable=True) from None
    if not isinstance(said, Mapping):
        raise PollFailed("its answer is no object", is_unreadable=True)
    return read_facts(cast("Mapping[str, Any]", said), case_id)


def read_facts(facts: Mapping[str, Any], case_id: str) -> PollAnswer:
    """The same from decoded JSON. An answer need not name its case; one that names another is refused."""
    named = facts.get("case_id")
    if isinstance(named, str) and named != case_id:
        raise ReviewContradiction(case_id, "asked about it, the service answers about another case")
    try:
        return PollAnswer.read_leniently({**facts, "case_id": case_id})
    except InvalidProtocolObject as error:
        status = facts.get("status")
        raise PollFailed(
            f"its answer cannot be used ({', '.join(error.faults)})",
            is_unreadable=True,
            claimed=_ENDS.get(status) if isinstance(status, str) else None,
        ) from None


def _its_time(response: httpx2.Response) -> float | None:
    """What time it is for the service, whose clock need not be ours."""
    try:
        return parsedate_to_datetime(response.headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def seconds_of(retry_after: str | None, now: float) -> float | None:
    """A Retry-After, in seconds or as a date, as seconds from now; None for nonsense."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
