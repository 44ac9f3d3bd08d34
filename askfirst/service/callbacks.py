"""Callbacks (webhooks): taken from an outbox, signed, sent to checked addresses, retried, with a circuit breaker."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, Self

import httpx2

from askfirst.clock import Clock, SystemClock
from askfirst.concurrency import cancel_all, finish
from askfirst.errors import InvalidCallbackUrl, InvalidSecret
from askfirst.ids import fresh_write_id
from askfirst.protocol import SIGNATURE_HEADER, sign_callback, webhook_headers
from askfirst.service.cases import Cases
from askfirst.service.egress import Guard, Resolve, check_callback_url
from askfirst.store import case_queues
from askfirst.store.case_queues import AT_ONCE
from askfirst.store.case_rows import CallbackRow

# The secrets that sign callbacks: one for each API key, all derived from the server's secret.


SECRET_VARIABLE = "ASKFIRST_SECRET"  # noqa: S105  (its name)
SECRET_LENGTH = 32


def callback_secret(server_secret: str, key_id: str) -> str:
    """The secret for the callbacks of cases that were opened with an API key: ``whsec_`` and base64.

    The same server secret and key id always give the same result. Raises `InvalidSecret` for a server secret of
    fewer than 32 characters.
    """
    if len(server_secret) < SECRET_LENGTH:
        raise InvalidSecret(
            f"the server's secret needs at least {SECRET_LENGTH} characters; "
            f"set {SECRET_VARIABLE} to the output of: openssl rand -base64 32"
        )
    derived = hmac.new(server_secret.encode(), b"askfirst callback\0" + key_id.encode(), hashlib.sha256)
    return "whsec_" + base64.b64encode(derived.digest()).decode()


# Circuit breakers: a host that keeps failing gets no callbacks for a while, then one probe at a time.


FAILURES = 3
"""How many failures in a row open a breaker."""
FIRST_PAUSE = 30_000
LONGEST_PAUSE = 1_800_000
PROBE = 20_000
"""How long other callbacks wait for the outcome of a probe, in milliseconds."""
HOSTS = 10_000


@dataclass(slots=True)
class _Breaker:
    failures: int = 0
    until: int = 0
    """The time until which an open breaker lets no callback through."""


class Breakers:
    """The circuit breakers of one process, by name. If there are too many, the least recently used are deleted.

    All times are in milliseconds since 1970.
    """

    def __init__(self, *, hosts: int = HOSTS) -> None:
        self._most = hosts
        self._known: OrderedDict[str, _Breaker] = OrderedDict()

    def wait(self, names: tuple[str, ...], now: int) -> int | None:
        """None if an attempt may be made now; otherwise the time of the next one.

        An attempt after a pause is a probe.
        """
        closed = [known for name in names if (known := self._known.get(name)) and known.failures >= FAILURES]
        until = max((each.until for each in closed), default=0)
        if until > now:
            return until
        for each in closed:
            each.until = now + PROBE
        return None

    def worked(self, names: tuple[str, ...]) -> None:
        """Close these breakers, because the host has answered."""
        for name in names:
            self._known.pop(name, None)

    def failed(self, name: str, now: int) -> None:
        """Count a failure. After `FAILURES` in a row the breaker opens, with each further failure for longer."""
        known = self._known.setdefault(name, _Breaker())
        self._known.move_to_end(name)
        known.failures += 1
        if known.failures >= FAILURES:
            pause = FIRST_PAUSE * 2 ** min(known.failures - FAILURES, 10)
            known.until = now + min(pause, LONGEST_PAUSE)
        if len(self._known) > self._most:
            self._known.popitem(last=False)


# Sending: callbacks are signed, go to checked addresses only, and are retried with back-off for days.


BACKOFF_SECONDS = 10
BACKOFF_FACTOR = 6
LONGEST_BACKOFF_SECONDS = 6 * 3600
PATIENCE_SECONDS = 3 * 86_400
"""How long a callback is retried, counted from when it was first due."""
SECONDS = 15.0
"""The time-out of an attempt, including the DNS look-up."""
_RETRIED_STATUSES = {408, 425, 429}


class Outcome(NamedTuple):
    """The outcome of an attempt: ``sent``, failed for now (``retry``), or ``refused`` for good."""

    kind: Literal["sent", "retry", "refused"]
    detail: str
    """A few words for the log. Of the URL they contain at most the host, and nothing of the response's body."""
    unreachable: bool = False
    """Whether no connection to the host could be made."""


def next_attempt(row: CallbackRow, outcome: Outcome, now: int) -> int | None:
    """The time of the next attempt (epoch ms, as ``now`` is); None if there is none."""
    if outcome.kind != "retry":
        return None
    grown = BACKOFF_FACTOR ** min(max(row.attempts - 1, 0), 10)
    due_at = now + 1000 * min(BACKOFF_SECONDS * grown, LONGEST_BACKOFF_SECONDS)
    return due_at if due_at <= retries_end(row, now) else None


def retries_end(row: CallbackRow, now: int = 0) -> int:
    """The time from which a callback is not retried any more (epoch ms)."""
    return (now if row.since is None else row.since) + 1000 * PATIENCE_SECONDS


class CallbackSender:
    """Sends callbacks through a `Guard` with these options. ``clock`` gives the time in the signature.

    Use it in ``async with``.
    """

    def __init__(
        self,
        *,
        development: bool = False,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._guard = Guard(development=development, tls=tls, resolve=resolve)
        self._clock = clock or SystemClock()

    async def __aenter__(self) -> Self:
        await self._guard.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._guard.__aexit__(*error)

    async def send(self, url: str, body: bytes, secret: str, *, message_id: str) -> Outcome:
        """Make one attempt to POST a JSON body, signed with a secret of ``callback_secret``.

        ``message_id`` is the same for every attempt, so that a receiver can recognise a repetition. Failures of the
        network or the receiver are not raised; they are in the `Outcome`.
        """
        headers = {
            "content-type": "application/json",
            "user-agent": "askfirst",
            SIGNATURE_HEADER: sign_callback(body, secret),
            **webhook_headers(body, secret, message_id=message_id, timestamp=int(self._clock.now())),
        }
        try:
            where = check_callback_url(url, development=self._guard.development)
        except InvalidCallbackUrl as error:
            return Outcome("refused", error.problem)
        try:
            return _outcome_of(
                (await self._guard.exchange("POST", where, headers, body, seconds=SECONDS)).status
            )
        except InvalidCallbackUrl as error:
            return Outcome("refused", error.problem)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return Outcome("retry", f"{where.host} could not be reached", unreachable=True)
        except httpx2.TransportError as error:
            return Outcome("retry", f"the connection broke ({type(error).__name__})")
        except TimeoutError:
            return Outcome("retry", f"no answer within {SECONDS:g} seconds")
        except OSError as error:  # from the DNS look-up
            why = f"the host could not be found ({type(error).__name__})"
            return Outcome("retry", why, unreachable=True)


def _outcome_of(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome("sent", f"answered with {status}")
    again = status >= 500 or status in _RETRIED_STATUSES
    return Outcome("retry" if again else "refused", f"answered with {status}")


logger = logging.getLogger("askfirst.service")
TAKEN_MILLISECONDS = 120_000
"""The lease on a callback, in milliseconds. If this process dies, another worker takes the callback after it."""


class CallbackWorker:
    """Sends the callbacks that are due: a limited number at a time, and only a few of each API key.

    So a slow receiver does not delay other callbacks, and a key whose receivers do not answer does not delay other
    keys. A host that keeps failing gets no callbacks for a while (`Breakers`).
    """

    def __init__(
        self,
        cases: Cases,
        sender: CallbackSender,
        secret: str,
        *,
        on_outcome: Callable[[str], None] | None = None,
    ) -> None:
        self._cases = cases
        self._sender = sender
        self._secret = secret
        self._on_outcome = on_outcome
        self._breakers = Breakers()
        self._under_way: dict[asyncio.Task[None], str] = {}

    async def work(self) -> bool:
        """Take callbacks that are due under a lease, and start them; True if there may be more."""
        free = AT_ONCE - len(self._under_way)
        if not free:
            return False
        now, busy = self._cases.now(), Counter(self._under_way.values())
        take = partial(
            case_queues.take_callbacks, now, now + TAKEN_MILLISECONDS, free, busy, fresh_write_id()
        )
        taken = await finish(self._cases.engine.write(take))
        for row in taken:
            task = asyncio.create_task(self._attempt(row))
            self._under_way[task] = row.key_id or ""
            task.add_done_callback(self._ended)
        return bool(taken)

    async def stop(self) -> None:
        """Cancel the callbacks under way. Another worker takes them when their leases have expired."""
        await cancel_all(self._under_way)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "the outcome of a callback could not be stored, so it will be sent again: %s",
                type(error).__name__,
            )

    async def _attempt(self, row: CallbackRow) -> None:
        names = self._breaker_names(row)
        again = self._breakers.wait(names, self._cases.now())
        if again is not None and again < retries_end(row):
            await self._store_outcome(row, again, row.outcome, counts=False)
            return
        secret = callback_secret(self._secret, row.key_id or "")
        body = row.body.encode()
        outcome = await self._sender.send(row.url, body, secret, message_id=row.callback_id)
        self._update_breakers(names, outcome)
        due_at = next_attempt(row, outcome, self._cases.now())
        kind = "gave_up" if outcome.kind == "retry" and due_at is None else outcome.kind
        self._log_outcome(row, kind, outcome.detail)
        await self._store_outcome(row, due_at, kind)

    async def _store_outcome(
        self, row: CallbackRow, due_at: int | None, outcome: str | None, *, counts: bool = True
    ) -> None:
        done = partial(case_queues.callback_done, row, due_at, outcome, counts=counts)
        await finish(self._cases.engine.write(done))

    def _breaker_names(self, row: CallbackRow) -> tuple[str, ...]:
        """The names of a callback's two breakers: one for its host, one for its API key at that host.

        An unreachable host opens the breaker for all keys. An error response opens it for one key alone: otherwise
        a key could name an address that answers with errors, and so stop the callbacks of other keys to the host.
        """
        try:
            where = check_callback_url(row.url, development=True)
        except InvalidCallbackUrl:
            return ()
        host = f"{where.host}:{where.port}"
        return host, f"{host} {row.key_id}"

    def _update_breakers(self, names: tuple[str, ...], outcome: Outcome) -> None:
        if outcome.kind != "retry":
            self._breakers.worked(names)
        elif names:
            self._breakers.failed(names[0 if outcome.unreachable else 1], self._cases.now())

    def _log_outcome(self, row: CallbackRow, kind: str, detail: str) -> None:
        """Log the outcome of an attempt. Retries after the first are logged at debug level only."""
        if self._on_outcome is not None:
            self._on_outcome(kind)
        level = logging.INFO if kind == "sent" else logging.WARNING
        if kind == "retry" and row.attempts > 1:
            level = logging.DEBUG
        said = f"{detail}; given up after days of attempts" if kind == "gave_up" else detail
        logger.log(level, "callback %s of case %s: %s", row.callback_id, row.case_id, said)
