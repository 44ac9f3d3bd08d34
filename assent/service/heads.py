"""Heads of the audit trail for keeping elsewhere: signed, and pushed to where nobody who has the database writes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2

from assent.clock import Clock, SystemClock
from assent.digests import canonical_json
from assent.errors import ServiceError
from assent.protocol import SigningKey
from assent.protocol.result_signatures import sign_text, verify_text
from assent.store import chain
from assent.store.chain import START, Head
from assent.store.engine import Engine
from assent.store.linking import link_all

SECONDS = 15.0
"""How long the receiver may take."""
EVERY_SECONDS = 60.0
"""How often a service pushes a head that has moved."""
_HERE = ("localhost", "127.0.0.1", "::1")


def head_body(head: Head, now: int, key: SigningKey | None = None) -> dict[str, Any]:
    """A head as JSON: how many rows there are, the last one's hash, and when that was.

    With a key, ``signature`` is a compact JWS over the canonical JSON of the rest.
    """
    at = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body: dict[str, Any] = {"rows": head.seq, "head": head.hash, "at": at}
    return body if key is None else {**body, "signature": sign_text(canonical_json(body), key)}


def verify_head(body: Mapping[str, Any], jwks: Mapping[str, Any]) -> Head:
    """The head that was signed; raises `InvalidSignature` if it was altered, or another key signed it."""
    said = {name: body.get(name) for name in ("rows", "head", "at")}
    verify_text(canonical_json(said), str(body.get("signature", "")), jwks)
    return Head(int(str(said["rows"])), str(said["head"]))


def check_push_url(url: str) -> None:
    """Raise `ServiceError` for an address that heads are not pushed to: https, or http on this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _HERE):
        raise ServiceError("heads are pushed to an https:// address, or to http:// on this machine")


class HeadPusher:
    """Pushes the trail's head to a URL whenever it has moved. The operator chose the URL: any host will do."""

    def __init__(
        self, engine: Engine, url: str, key: SigningKey | None = None, clock: Clock | None = None
    ) -> None:
        check_push_url(url)
        self._engine = engine
        self._url = url
        self._key = key
        self._clock = clock or SystemClock()
        self._pushed = START
        self._tls: ssl.SSLContext | None = None

    async def push(self) -> Head | None:
        """Link what is not linked, and push the head unless it was pushed before; returns it if it was pushed now.

        Raises `ServiceError` if the receiver does not take it.
        """
        await link_all(self._engine)
        head = await self._engine.read(chain.head) or START
        if head == self._pushed:
            return None
        body = json.dumps(head_body(head, round(self._clock.now() * 1000), self._key)).encode()
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context)  # it reads files
        try:
            async with httpx2.AsyncClient(verify=self._tls, timeout=SECONDS) as client:
                answer = await client.post(
                    self._url, content=body, headers={"content-type": "application/json"}
                )
        except (httpx2.HTTPError, OSError) as error:
            raise ServiceError(f"the head could not be pushed: {type(error).__name__}") from error
        if not answer.is_success:
            raise ServiceError(
                f"the head could not be pushed: the receiver answered with {answer.status_code}"
            )
        self._pushed = head
        return head
