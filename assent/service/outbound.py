"""Callbacks on their way out: signed, to checked addresses only, and tried again for days."""

from __future__ import annotations

import ssl
from typing import Literal, NamedTuple, Self

import httpx2

from assent.clock import Clock, SystemClock
from assent.errors import InvalidCallbackUrl
from assent.protocol import SIGNATURE_HEADER, sign_callback, webhook_headers
from assent.service.addresses import check_callback_url
from assent.service.guarded import Guard, Resolve
from assent.store.case_rows import CallbackRow

BACKOFF_SECONDS = 10
BACKOFF_FACTOR = 6
LONGEST_BACKOFF_SECONDS = 6 * 3600
PATIENCE_SECONDS = 3 * 86_400
"""How long a callback is tried, from when it was due first."""
SECONDS = 15.0
"""For all of an attempt, the look-up of the name included."""
_WORTH_ANOTHER_TRY = {408, 425, 429}


class Outcome(NamedTuple):
    """How an attempt went: ``sent``, worth another try (``retry``), or ``refused`` for good."""

    kind: Literal["sent", "retry", "refused"]
    detail: str
    """A few words for the log; nothing of the URL but its host, nothing of what was answered."""
    unreachable: bool = False
    """Whether nobody took the connection, so that it has nothing to do with this callback."""


def next_attempt(row: CallbackRow, outcome: Outcome, now: int) -> int | None:
    """When to try again (epoch ms, as ``now`` is) after an attempt; None if this was the last."""
    if outcome.kind != "retry":
        return None
    grown = BACKOFF_FACTOR ** min(max(row.attempts - 1, 0), 10)
    due_at = now + 1000 * min(BACKOFF_SECONDS * grown, LONGEST_BACKOFF_SECONDS)
    return due_at if due_at <= patience_ends(row, now) else None


def patience_ends(row: CallbackRow, now: int = 0) -> int:
    """When a callback is given up (epoch ms)."""
    return (now if row.since is None else row.since) + 1000 * PATIENCE_SECONDS


class CallbackSender:
    """Sends callbacks, through a `Guard` with these options. ``clock`` tells when a callback is signed.

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
        """Make one attempt to POST a body of JSON, signed with a secret of ``callback_secret``.

        ``message_id`` stays the same from attempt to attempt. Never raises for what is wrong with the
        receiver or on the way to it.
        """
        headers = {
            "content-type": "application/json",
            "user-agent": "assent",
            SIGNATURE_HEADER: sign_callback(body, secret),
            **webhook_headers(body, secret, message_id=message_id, timestamp=int(self._clock.now())),
        }
        try:
            where = check_callback_url(url, development=self._guard.development)
        except InvalidCallbackUrl as error:
            return Outcome("refused", error.problem)
        try:
            return _judged((await self._guard.exchange("POST", where, headers, body, seconds=SECONDS)).status)
        except InvalidCallbackUrl as error:
            return Outcome("refused", error.problem)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return Outcome("retry", f"{where.host} could not be reached", unreachable=True)
        except httpx2.TransportError as error:
            return Outcome("retry", f"the connection broke ({type(error).__name__})")
        except TimeoutError:
            return Outcome("retry", f"no answer within {SECONDS:g} seconds")
        except OSError as error:  # of the look-up
            why = f"the host could not be found ({type(error).__name__})"
            return Outcome("retry", why, unreachable=True)


def _judged(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome("sent", f"answered with {status}")
    again = status >= 500 or status in _WORTH_ANOTHER_TRY
    return Outcome("retry" if again else "refused", f"answered with {status}")
