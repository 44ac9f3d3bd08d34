"""One poll, and how often to poll."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx2
from pydantic_core import from_json

from askfirst.client.connections import Caller, Connections
from askfirst.client.offer import Offer
from askfirst.clock import Clock
from askfirst.concurrency import first_of
from askfirst.errors import InvalidProtocolObject, ReviewContradiction, ReviewRefused
from askfirst.protocol import FINAL_STATES, PollAnswer, State

# How often a service is polled, with back-off while it is in trouble.


USUAL = 30.0
SLOWEST = 300.0
"""The protocol's bounds, in seconds: no quicker by default, and no slower."""
MOST_A_MINUTE = 60
_MINUTE = 60.0
_HINT_GAP = 1.0
_LONGEST_DEMAND = 3600.0
"""A longer ``Retry-After`` is cut to this."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The time between two polls of a case. ``quick`` is a developer's choice to go below the protocol's bound."""

    interval: float = USUAL
    quick: bool = False

    @classmethod
    def chosen(cls, poll_interval: float | None, min_poll_interval: float) -> Pace:
        """The pace that a developer asked for, within its bounds."""
        if not 0 < min_poll_interval <= SLOWEST:
            raise ValueError(f"min_poll_interval must be more than 0 and at most {SLOWEST:g} seconds")
        wanted = min_poll_interval if poll_interval is None else poll_interval
        return cls(min(max(wanted, min_poll_interval), SLOWEST), quick=min_poll_interval < USUAL)

    def after_answer(self, retry_after: float | None, *, streaming: bool) -> float:
        """How long to wait after an answer; ``streaming`` while a stream of events tells us anyway."""
        if streaming:
            return SLOWEST
        advised = 0.0 if retry_after is None or self.quick else retry_after
        return min(max(self.interval, advised), SLOWEST)

    def after_failure(self, failures: int, demanded: float | None) -> float:
        """The back-off after so many failures in a row; at least the service's ``Retry-After``."""
        most = min(self.interval * 2 ** min(failures, 16), SLOWEST)
        wait = max(random.uniform(0, most), min(self.interval, 1.0))  # noqa: S311
        return wait if demanded is None else max(wait, min(demanded, _LONGEST_DEMAND))


class Allowance:
    """No more than 60 polls of a case in any minute, whatever the reason for each."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: deque[float] = deque(maxlen=MOST_A_MINUTE)

    def next(self, now: float) -> float:
        """When the next poll may begin: now, or later."""
        if len(self._begun) < MOST_A_MINUTE:
            return now
        return max(now, self._begun[0] + _MINUTE)

    def use(self, now: float) -> None:
        """A poll begins."""
        self._begun.append(now)

    @property
    def last(self) -> float | None:
        """When the last poll began."""
        return self._begun[-1] if self._begun else None


class PollPlan:
    """When a case is polled next: by its pace, with back-off after failures, sooner for a hint or a reminder."""

    def __init__(self, pace: Pace, now: float) -> None:
        self.at = now + pace.interval
        """When the next poll is due by plan."""
        self.failures = 0
        """How many polls have failed in a row."""
        self._pace = pace
        self._allowance = Allowance()
        self._quiet_until = now
        self._was_streaming = False

    def next(self, now: float, *, streaming: bool, reminder: float | None, hinted: bool) -> float:
        """When to poll: as planned, for a reminder, or because of a hint; never too often."""
        if self._was_streaming and not streaming:  # the stream has died since: go back to the usual pace
            self.at = min(self.at, now + self._pace.interval)
        self._was_streaming = streaming
        at = self.at
        if not self.failures and reminder is not None:
            at = min(at, reminder)
        if hinted:
            last = self._allowance.last
            at = now if last is None else min(at, last + min(_HINT_GAP, self._pace.interval))
        at = max(at, self._quiet_until)
        return at if at > now else self._allowance.next(now)

    def begin(self, now: float) -> None:
        """A poll begins."""
        self._allowance.use(now)

    def answered(self, now: float, retry_after: float | None, *, streaming: bool) -> None:
        """A poll was answered."""
        self.failures = 0
        self.at = now + self._pace.after_answer(retry_after, streaming=streaming)

    def failed(self, now: float, demanded: float | None) -> None:
        """A poll failed; ``demanded`` is the service's ``Retry-After``."""
        self.failures += 1
        self.at = now + self._pace.after_failure(self.failures, demanded)
        if demanded is not None:
            self._quiet_until = self.at


SECONDS = 30.0
"""The time-out of one poll, its body included."""
STUCK = 300.0
"""The time-out of one poll by the client's clock. It counts from the turn of the poll: with many cases and a slow
service a poll may wait long for its turn, which is no failure of the service."""
MOST_BYTES = 8_000_000
_MOST_OF_A_REFUSAL = 64_000
_ENDS: Mapping[str, State] = {state: state for state in FINAL_STATES}
_HOPS = 3
_REFUSED = (401, 403, 404, 410)
_TRUSTED_TAGS = 5
"""After so many 304 in a row the next poll does without its tag: a tag may lie."""
_IN_NEED = (429, 503)
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Polled:
    """What a service answered; ``answer`` is None if nothing has changed since ``etag`` was handed out."""

    answer: PollAnswer | None
    etag: str | None = None
    retry_after: float | None = None


class PollFailed(Exception):
    """A poll that failed and may be retried. Its text is the problem, without any value.

    ``demanded`` is the ``Retry-After`` of an overloaded service; ``is_unreadable`` is whether it answered,
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


class Poller:
    """Polls one case as ``caller``, with the ETag of the last answer."""

    def __init__(
        self, connections: Connections, caller: Caller, may_call: Callable[[str], bool], clock: Clock
    ) -> None:
        self._connections = connections
        self._caller = caller
        self._may_call = may_call
        self._clock = clock
        self._etag: str | None = None
        self._unchanged = 0

    async def poll(self, offer: Offer, plan: PollPlan, *, hinted: bool) -> Polled:
        """Poll once, when it is this case's turn at its service; raises as `poll` does.

        A hint says that something has changed, so that poll goes without the tag.
        """
        with_tag = not hinted and self._unchanged < _TRUSTED_TAGS
        async with self._connections.polling(offer.service):
            now = self._clock.now()
            plan.begin(now)
            asking = poll(
                self._connections.calls,
                offer.hitl.poll_url,
                case_id=offer.case_id,
                now=now,
                may_call=self._may_call,
                etag=self._etag if with_tag else None,
                caller=self._caller,
            )
            polled: Polled
            which, polled = await first_of(asking, self._clock.sleep(STUCK))
            if which != 0:
                raise PollFailed(f"no answer within {STUCK:g} s")
        self._unchanged = self._unchanged + 1 if polled.answer is None else 0
        self._etag = polled.etag if polled.answer is not None else polled.etag or self._etag
        return polled


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
    """The whole body, also of an error: only a connection that is read to the end can be reused."""
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
        raise PollFailed("its answer is not JSON", is_unreadable=True) from None
    if not isinstance(said, Mapping):
        raise PollFailed("its answer is not an object", is_unreadable=True)
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
    """The service's time, from its ``Date`` header."""
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
