"""Outbox: due continuations as signed webhooks (CloudEvents), for any task queue or workflow engine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from askfirst.checkpointer.sql import SqlCheckpointer
from askfirst.errors import InvalidSignature, MissingExtra
from askfirst.protocol import verify_webhook, webhook_headers
from askfirst.workers.continuations import Continuation
from askfirst.workers.relay import NotHandedOver, Relay

if TYPE_CHECKING:
    import httpx2

EVENT_TYPE = "org.askfirst.continuation.due"
SECRET_VARIABLE = "ASKFIRST_OUTBOX_SECRET"  # noqa: S105  (its name)
TAKE_SECONDS = 60.0
"""How long a receiver has to begin what it has accepted, before the continuation is posted again."""
TOLERANCE_SECONDS = 300.0
_NAME = "outbox"
_SEND_SECONDS = 15.0
_SOURCE = "urn:askfirst"


@dataclass(frozen=True, slots=True)
class DueEvent:
    """A due continuation as a receiver of the outbox's webhooks reads it."""

    id: str
    """The event's id: the same for every delivery of one hand-over, another one for a later hand-over of the
    thread."""
    thread_id: str
    resumer: str
    attempts: int
    """How many attempts were made before."""
    settled_at: float
    """When the request was settled that made the continuation due, in seconds since 1970 (UTC)."""


def due_event(handed: Continuation, source: str = _SOURCE) -> tuple[str, bytes]:
    """The id and the body of the CloudEvent (structured JSON, version 1.0) for a continuation that is handed over."""
    number = (handed.owner or "").rpartition(" ")[2]
    event_id = f"continuation-{number}"
    event = {
        "specversion": "1.0",
        "type": EVENT_TYPE,
        "source": source,
        "id": event_id,
        "subject": handed.thread_id,
        "time": datetime.fromtimestamp(handed.settled_at, UTC).isoformat(timespec="milliseconds"),
        "datacontenttype": "application/json",
        "data": {
            "thread_id": handed.thread_id,
            "resumer": handed.resumer,
            "attempts": handed.attempts,
            "settled_at": handed.settled_at,
        },
    }
    return event_id, json.dumps(event).encode()


def read_due_event(
    body: bytes, headers: Mapping[str, str], secret: str, *, now: float | None = None
) -> DueEvent:
    """Check a webhook of the outbox (Standard Webhooks, constant time, at most 5 minutes old), then read it.

    ``body`` is what was received, byte for byte. Raises `InvalidSignature` for anything but an event of ours.
    """
    at = time.time() if now is None else now
    message_id = verify_webhook(body, headers, secret, now=at, tolerance=TOLERANCE_SECONDS)
    try:
        event = cast("dict[str, Any]", json.loads(body))
        data = event["data"]
        if event["type"] != EVENT_TYPE or event["id"] != message_id:
            raise InvalidSignature("the webhook is not an event of a continuation that is due")
        return DueEvent(
            id=message_id,
            thread_id=str(data["thread_id"]),
            resumer=str(data["resumer"]),
            attempts=int(data["attempts"]),
            settled_at=float(data["settled_at"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidSignature("the webhook is not an event of a continuation that is due") from error


class Outbox:
    """Posts each due continuation to one URL, at least once, until a 2xx response.

    Whoever receives it has the thread go on with `run_continuation`; if nobody has begun after ``take_seconds``, it
    is posted again, as a new event. ``resumers`` are those whose continuations are posted, all if None. ``secret``
    begins with ``whsec_``. Needs the ``client`` extra. Raises `InvalidSecret` for another secret and `ValueError` for
    what is no address.
    """

    def __init__(
        self,
        checkpointer: SqlCheckpointer,
        url: str,
        secret: str,
        *,
        resumers: Sequence[str] | None = None,
        take_seconds: float = TAKE_SECONDS,
        source: str = _SOURCE,
    ) -> None:
        address = urlsplit(url)
        if address.scheme not in ("https", "http") or not address.hostname:
            raise ValueError("the outbox's address is an https:// or http:// URL with a host")
        webhook_headers(b"", secret, message_id="", timestamp=0)
        self._url, self._secret, self._host, self._source = url, secret, address.hostname, source
        self._relay = Relay(checkpointer, self._post, to=_NAME, resumers=resumers, again_in=take_seconds)
        self._http: httpx2.AsyncClient | None = None

    def stop(self) -> None:
        """Post nothing more; `run` returns when the posts under way have ended."""
        self._relay.stop()

    async def run(self) -> None:
        """Post continuations as they become due, until `stop`."""
        async with await asyncio.to_thread(_client) as self._http:
            await self._relay.run()

    async def run_due(self) -> int:
        """Post what is due now; returns how many posts were attempted."""
        count = 0
        async with await asyncio.to_thread(_client) as self._http:
            while handed := await self._relay.hand_due():
                count += handed
        return count

    async def _post(self, handed: Continuation) -> None:
        import httpx2

        assert self._http is not None  # noqa: S101  (only `run` and `run_due` get here)
        message_id, body = due_event(handed, self._source)
        signed = webhook_headers(body, self._secret, message_id=message_id, timestamp=int(time.time()))
        headers = {"content-type": "application/cloudevents+json; charset=utf-8", **signed}
        try:
            answer = await self._http.post(self._url, content=body, headers=headers)
        except httpx2.HTTPError as error:
            raise NotHandedOver(f"{self._host} could not be told ({type(error).__name__})") from error
        if not answer.is_success:
            raise NotHandedOver(f"{self._host} answered with {answer.status_code}")


def _client() -> httpx2.AsyncClient:
    """A client; to be made in a thread, because it reads the certificates of all authorities."""
    try:
        import httpx2
    except ModuleNotFoundError as error:
        raise MissingExtra("the outbox", "client") from error
    return httpx2.AsyncClient(
        timeout=_SEND_SECONDS, follow_redirects=False, headers={"user-agent": "askfirst"}
    )
