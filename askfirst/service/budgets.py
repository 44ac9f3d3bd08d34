"""Budgets: rate limits and quotas for API keys, cases, links, e-mail recipients and network addresses."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from ipaddress import IPv4Address, ip_address, ip_network

from starlette.requests import HTTPConnection
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from askfirst.clock import HOUR, MINUTE, Clock, SystemClock, milliseconds
from askfirst.concurrency import finish
from askfirst.errors import OverBudget, ServiceError
from askfirst.ids import new_id
from askfirst.service.case import Case
from askfirst.store import budgets as counts
from askfirst.store.budgets import Allowance, StreamRow, Use, Window
from askfirst.store.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The service's budgets, counted over all processes on one database. Each is a whole number of at least 1.

    The defaults are higher than normal use needs. The operator may change them.
    """

    open_cases: int = 1_000
    """Cases of one key that are open at once."""
    cases_per_hour: int = 1_000
    """Cases that one key opens within an hour. The limit protects people from a flood of requests."""
    stored_bytes: int = 1_000_000_000
    """Bytes of all cases of one key. A case counts until it is purged."""
    streams_per_key: int = 200
    """Event streams of one key that are open at once."""
    streams_per_address: int = 400
    """Event streams from one network address that are open at once."""
    posts_per_minute: int = 60
    """Answers, drafts, steps and requests for codes with one link, within a minute."""
    proofs_per_hour: int = 20
    """Answers with proofs that are verified for one case, within an hour."""
    codes_per_case: int = 5
    """Codes that are sent by e-mail for one case, within an hour."""
    codes_per_recipient: int = 20
    """Codes that are sent to one e-mail address, within an hour."""
    codes_per_key: int = 200
    """Codes that are sent for all cases of one key, within an hour."""
    codes_per_address: int = 100
    """Codes that are requested from one network address, within an hour."""
    code_tries_per_recipient: int = 50
    """Codes that are tried for one e-mail address, within an hour."""
    code_tries_per_key: int = 500
    """Codes that are tried for all cases of one key, within an hour."""
    tries_per_address: int = 200
    """Codes and proofs that are tried from one network address, within an hour."""
    prefills_per_minute: int = 100
    """Values that are fetched for the fields of one case, within a minute."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value: object = getattr(self, each.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ServiceError(
                    f"the budget {each.name} must be a whole number of at least 1, not {value!r}"
                )

    @property
    def allowance(self) -> Allowance:
        """The limits of one API key: open cases, stored bytes, and cases within an hour."""
        return Allowance(self.open_cases, self.stored_bytes, Window(self.cases_per_hour, HOUR))


def read_budgets(given: Iterable[str]) -> Budgets:
    """Budgets from texts such as ``open_cases=50``; raises `ServiceError` for any other text."""
    known = [each.name for each in fields(Budgets)]
    values: dict[str, int] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in known:
            raise ServiceError(f"there is no budget {name[:64]!r}; there are {', '.join(known)}")
        if not (value.isascii() and value.isdigit()) or len(value) > 18:
            raise ServiceError(f"the budget {name} must be a whole number of at least 1, as in {name}=50")
        values[name] = int(value)
    return Budgets(**values)


# Uses are counted before anything costly is done.


KEPT = 2 * HOUR
"""How long the count of a use is kept."""


class Spending:
    """Counts uses against the budgets. The counts are in the store, so all processes share them."""

    def __init__(self, engine: Engine, budgets: Budgets, clock: Clock | None = None) -> None:
        self._engine = engine
        self._clock = clock or SystemClock()
        self.budgets = budgets

    async def post(self, token: str) -> None:
        """Count a POST with a link; raises `OverBudget`."""
        await self._spend([self._use("posts_per_minute", token, MINUTE)])

    async def proof(self, case: Case, address: str | None) -> None:
        """Count an answer with proofs; raises `OverBudget`."""
        uses = [self._use("proofs_per_hour", case.case_id, HOUR)]
        await self._spend([*uses, *self._address_uses("tries_per_address", address)])

    async def code(self, case: Case, recipient: str, address: str | None) -> None:
        """Count a code before it is sent by e-mail; raises `OverBudget`."""
        uses = [
            self._use("codes_per_case", case.case_id, HOUR),
            self._use("codes_per_recipient", recipient.lower(), HOUR),
            self._use("codes_per_key", case.key_id or "", HOUR),
        ]
        await self._spend([*uses, *self._address_uses("codes_per_address", address)])

    async def code_try(self, case: Case, address: str | None) -> None:
        """Count a code that was entered, for every recipient of the case; raises `OverBudget`."""
        recipients = sorted({each.lower() for each in case.verify_email or ()})
        uses = [self._use("code_tries_per_recipient", each, HOUR) for each in recipients]
        uses.append(self._use("code_tries_per_key", case.key_id or "", HOUR))
        await self._spend([*uses, *self._address_uses("tries_per_address", address)])

    async def prefills(self, case: Case, count: int) -> bool:
        """Count ``count`` values to be fetched for a case's fields; False if the budget does not allow them."""
        try:
            await self._spend([self._use("prefills_per_minute", case.case_id, MINUTE, count)])
        except OverBudget:
            return False
        return True

    async def forget(self) -> bool:
        """Delete old counts, and the streams of dead processes. Returns False: there is no more work left."""
        now = self._now()
        await finish(self._engine.write(partial(counts.forget_counts, now - KEPT)))
        await finish(self._engine.write(partial(counts.forget_streams, now)))
        return False

    async def _spend(self, uses: Sequence[Use]) -> None:
        refused = await finish(self._engine.write(partial(counts.spend_all, uses, self._now())))
        if refused is not None:
            raise OverBudget(refused.budget, refused.wait)

    def _use(self, budget: str, whose: str, milliseconds: int, amount: int = 1) -> Use:
        """A use of a budget. ``whose`` is stored as a hash, so that the store holds no names or addresses."""
        subject = f"{budget}:{hashlib.sha256(whose.encode()).hexdigest()}"
        return Use(budget, subject, Window(getattr(self.budgets, budget), milliseconds), amount)

    def _address_uses(self, budget: str, address: str | None) -> list[Use]:
        return [] if address is None else [self._use(budget, address, HOUR)]

    def _now(self) -> int:
        return milliseconds(self._clock)


def address_of(connection: HTTPConnection) -> str | None:
    """The network address that a request comes from, as the server sees it.

    For IPv6 it is the /64 network, because one household or machine usually has all of it. None for a loopback
    address: that is the operator, or a proxy that does not forward the client's address.
    """
    if connection.client is None:
        return None
    try:
        address = ip_address(connection.client.host)
    except ValueError:  # not an IP address: a proxy gave a name
        return connection.client.host[:255]
    if address.is_loopback:
        return None
    return str(address) if isinstance(address, IPv4Address) else str(ip_network((address, 64), strict=False))


# Open event streams: limited for each API key and each network address, over all processes.


LEASE_MILLISECONDS = 120_000
"""The lease of an open stream: how long it counts without a heartbeat of its process."""
RENEW_SECONDS = 30.0
_RETRY_MILLISECONDS = 15_000


class OpenStreams:
    """The open event streams of this process.

    They are counted in the store, together with other processes' streams.
    """

    def __init__(self, engine: Engine, budgets: Budgets, clock: Clock | None = None) -> None:
        self._engine = engine
        self._budgets = budgets
        self._clock = clock or SystemClock()
        self._process = new_id()
        self._open = 0

    async def begin(self, key_id: str, address: str | None) -> str:
        """Count a stream, and return its id for `end`; raises `OverBudget`."""
        now = self._now()
        row = StreamRow(new_id(), self._process, key_id, address, now + LEASE_MILLISECONDS)
        most = self._budgets.streams_per_key, self._budgets.streams_per_address
        over = await finish(self._engine.write(partial(counts.begin_stream, row, now, *most)))
        if over is not None:
            raise OverBudget(over, _RETRY_MILLISECONDS)
        self._open += 1
        return row.stream_id

    async def end(self, stream_id: str) -> None:
        """Stop counting a stream."""
        self._open -= 1
        await finish(self._engine.write(partial(counts.end_stream, stream_id)))

    async def renew(self) -> bool:
        """Renew the leases of this process's streams (the heartbeat). Returns False: there is no more work left."""
        if self._open:
            until = self._now() + LEASE_MILLISECONDS
            await finish(self._engine.write(partial(counts.renew_streams, self._process, until)))
        return False

    def _now(self) -> int:
        return milliseconds(self._clock)


class CountedStream(StreamingResponse):
    """A streaming response that counts as open until it has ended or its client has disconnected."""

    def __init__(
        self, content: AsyncIterator[bytes], streams: OpenStreams, stream_id: str, headers: dict[str, str]
    ) -> None:
        super().__init__(content, 200, headers, "text/event-stream")
        self._streams = streams
        self._stream_id = stream_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._streams.end(self._stream_id)
