"""Signed HTTP requests from Slack: the alternative to Socket Mode for services with a public address."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from askfirst.clock import Clock, SystemClock
from askfirst.delivery.slack_api import NAME
from askfirst.delivery.slack_socket import Handle
from askfirst.errors import DeliveryError

logger = logging.getLogger("askfirst.delivery")
MOST_BYTES = 1_000_000
OLDEST_SECONDS = 300
"""Older requests are refused, so that a recorded request cannot be replayed later."""

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def is_signed(secret: str, body: bytes, stamp: str, signature: str, now: float) -> bool:
    """Whether Slack signed this body with this timestamp, and the timestamp is recent."""
    if not stamp.isascii() or not stamp.isdigit() or abs(now - int(stamp)) > OLDEST_SECONDS:
        return False
    said = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"v0={said}".encode(), signature.encode())


class SlackRequests:
    """An ASGI application to which Slack posts interactions, commands and events; mount it at any path.

    The signature is checked over the raw body before the body is parsed.
    """

    def __init__(self, signing_secret: str, handle: Handle, *, clock: Clock | None = None) -> None:
        if not signing_secret.strip():
            raise DeliveryError(
                NAME, "the signing secret is empty: copy it from the app's page", permanent=True
            )
        self._secret = signing_secret.strip()
        self._handle = handle
        self._clock = clock or SystemClock()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        status, body = await self._answer(scope, receive)
        content = json.dumps(body).encode() if body else b""
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(
        self, scope: MutableMapping[str, Any], receive: Receive
    ) -> tuple[int, dict[str, Any] | None]:
        if scope["method"] != "POST":
            return 405, None
        raw = await _body(receive)
        if raw is None:
            return 413, None
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        stamp, signature = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
        if not is_signed(self._secret, raw, stamp, signature, self._clock.now()):
            return 401, None
        try:
            kind, payload = read_request(raw, headers.get("content-type", ""))
        except (ValueError, LookupError):
            return 400, None
        if payload.get("type") == "url_verification":
            return 200, {"challenge": str(payload.get("challenge", ""))}
        try:
            return 200, await self._handle(kind, payload)
        except Exception as error:
            logger.error("slack: a request could not be handled (%s)", type(error).__name__)
            logger.debug("traceback of the failed request", exc_info=error)
            return 500, None


def read_request(raw: bytes, content_type: str) -> tuple[str, dict[str, Any]]:
    """The kind and payload of a request, in the form of Socket Mode. Raises ``ValueError`` or ``LookupError``."""
    if content_type.startswith("application/json"):
        return "events_api", json.loads(raw)
    form = {name: values[-1] for name, values in parse_qs(raw.decode(), keep_blank_values=True).items()}
    if "payload" in form:
        return "interactive", json.loads(form["payload"])
    if "command" not in form:
        raise ValueError("neither an interaction nor a command")
    return "slash_commands", dict(form)


async def _body(receive: Receive) -> bytes | None:
    """The raw body; None if it is longer than `MOST_BYTES`, which Slack never sends."""
    parts: list[bytes] = []
    size = 0
    while True:
        said = await receive()
        parts.append(said.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BYTES:
            return None
        if said["type"] == "http.disconnect" or not said.get("more_body"):
            return b"".join(parts)
