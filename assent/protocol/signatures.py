"""Signatures of callbacks: the protocol's own header, and those of Standard Webhooks."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from assent.errors import InvalidSecret, InvalidSignature

SIGNATURE_HEADER = "X-HITL-Signature"
_SECRET_PREFIX = "whsec_"  # noqa: S105  (no secret, but how one begins)


def new_callback_secret() -> str:
    """A new shared secret that serves both kinds of signatures."""
    return _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def sign_callback(body: bytes, secret: str) -> str:
    """The value of ``X-HITL-Signature`` for a body: ``sha256=`` and the HMAC in hexadecimal."""
    if not secret:
        raise InvalidSecret("an empty secret protects nothing")
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def verify_callback(body: bytes, signature: str | None, secret: str) -> None:
    """Check ``X-HITL-Signature`` over the raw body, in constant time; raises `InvalidSignature`."""
    if signature is None:
        raise InvalidSignature(f"the callback has no {SIGNATURE_HEADER} header")
    if not _same(sign_callback(body, secret), signature):
        raise InvalidSignature("the callback's signature does not fit its body")


def verify_hitl_signature(body: bytes, header: str | None, secret: str) -> bool:
    """Whether a callback's ``X-HITL-Signature`` fits its raw body, compared in constant time.

    False for a header that is missing or no signature at all. Raises `InvalidSecret` for an empty secret.
    """
    try:
        verify_callback(body, header, secret)
    except InvalidSignature:
        return False
    return True


def webhook_headers(body: bytes, secret: str, *, message_id: str, timestamp: int) -> dict[str, str]:
    """The headers of Standard Webhooks for a body. ``timestamp`` is in seconds since 1970.

    ``message_id`` stays the same when a delivery is tried again. The secret begins with ``whsec_``; raises
    `InvalidSecret` if it does not.
    """
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": _webhook_signature(body, secret, message_id, str(timestamp)),
    }


def verify_webhook(
    body: bytes, headers: Mapping[str, str], secret: str, *, now: float, tolerance: float = 300
) -> str:
    """Check the headers of Standard Webhooks over the raw body, in constant time; gives the message's id.

    ``now`` is in seconds since 1970; a timestamp further from it than ``tolerance`` is refused. Raises
    `InvalidSignature`.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        if not lower.get(name):
            raise InvalidSignature(f"the callback has no {name} header")
    message_id, timestamp = lower["webhook-id"], lower["webhook-timestamp"]
    expected = _webhook_signature(body, secret, message_id, timestamp)
    if not any(_same(expected, each) for each in lower["webhook-signature"].split(" ")):
        raise InvalidSignature("the callback's signature does not fit its body")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15):
        raise InvalidSignature("the callback's timestamp is no number of seconds")
    if abs(now - int(timestamp)) > tolerance:
        raise InvalidSignature(f"the callback was signed more than {tolerance:g} s before or after now")
    return message_id


def _webhook_signature(body: bytes, secret: str, message_id: str, timestamp: str) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_key(secret), signed, hashlib.sha256).digest()).decode()


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX).encode(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_SECRET_PREFIX) or not key:
        raise InvalidSecret("a secret for Standard Webhooks is whsec_ and base64")
    return key


def _same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogatepass"))
