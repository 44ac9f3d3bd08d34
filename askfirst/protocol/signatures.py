"""Signatures of callbacks and of results."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from hmac import compare_digest
from typing import Any, NamedTuple, cast

import rfc8785

from askfirst.errors import (
    InvalidProtocolObject,
    InvalidSecret,
    InvalidSignature,
    MissingExtra,
)
from askfirst.protocol.poll import CaseFacts, Result, ResultSignature, respondent_digest

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
        raise InvalidSignature("the callback's timestamp is not a number of seconds")
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


# Signed results: a service's proof of what a person decided, and the keys to check it with (JWS, JWKS).
#
# What is signed is the canonical JSON (RFC 8785) of case, action, data and time. The signature's ``value`` is
# a compact JWS with that payload left out (RFC 7515, appendix F). Its header names the key and has two digests:
# ``who`` of who answered and ``shown`` of what they were shown. They are in the header because it is signed too, and
# because the protocol's schema has no other place for them; a check of the payload alone still works.


ALGORITHMS = ("ES256", "RS256")
"""The accepted algorithms; results are signed with the first."""
_MOST_HEADER, _MOST_PAYLOAD = 4_096, 16_000_000


@contextmanager
def _needs_joserfc() -> Generator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra("a signed result", "signatures") from error


class SigningKey:
    """A service's private key (P-256), named by its thumbprint. Needs the ``signatures`` extra."""

    def __init__(self, jwk: Mapping[str, Any]) -> None:
        """Load a key that `private_jwk` returned; raises `InvalidSecret` for anything else."""
        with _needs_joserfc():
            from joserfc.errors import JoseError
            from joserfc.jwk import ECKey
        try:
            self._key: Any = ECKey.import_key(dict(jwk))
            usable = self._key.is_private and self._key.curve_name == "P-256"
        except (JoseError, ValueError, KeyError, TypeError):
            usable = False
        if not usable:
            raise InvalidSecret("a signing key is a private JWK of the curve P-256")
        self.key_id: str = self._key.thumbprint()

    @classmethod
    def generate(cls) -> "SigningKey":
        """A new key."""
        with _needs_joserfc():
            from joserfc.jwk import ECKey
        return cls(ECKey.generate_key("P-256").as_dict(private=True))

    def private_jwk(self) -> dict[str, Any]:
        """The whole key, to be kept secret."""
        return {**self._key.as_dict(private=True), **self._public_facts()}

    def public_jwk(self) -> dict[str, Any]:
        """The half that everyone may have."""
        return {**self._key.as_dict(private=False), **self._public_facts()}

    def _public_facts(self) -> dict[str, Any]:
        return {"kid": self.key_id, "alg": ALGORITHMS[0], "use": "sig"}

    def __repr__(self) -> str:
        return f"SigningKey(key_id={self.key_id!r})"


def jwks_document(keys: Iterable[SigningKey]) -> dict[str, Any]:
    """The public halves as a JWKS document; keep those of replaced keys in it for as long as results count."""
    return {"keys": [key.public_jwk() for key in keys]}


def sign_text(text: bytes, key: SigningKey) -> str:
    """A compact JWS over a text of the service's own, without the text."""
    with _needs_joserfc():
        from joserfc import jws
    header = {"alg": ALGORITHMS[0], "kid": key.key_id}
    compact = jws.serialize_compact(header, text, key._key, list(ALGORITHMS))  # pyright: ignore[reportPrivateUsage]
    protected, _, mark = compact.split(".")
    return f"{protected}..{mark}"


def verify_text(text: bytes, signature: str, jwks: Mapping[str, Any]) -> None:
    """Check what `sign_text` gave with a service's JWKS document; raises `InvalidSignature`."""
    with _needs_joserfc():
        from joserfc import jws
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet
    try:
        keys = KeySet.import_key_set(cast(Any, dict(jwks)))
        jws.deserialize_compact(signature, keys, list(ALGORITHMS), payload=text)
    except (JoseError, ValueError, KeyError, TypeError):
        raise InvalidSignature("the signature does not fit the text, or its key is unknown") from None


class SignedFacts(NamedTuple):
    """What a result's signature covers besides the result: digests in hexadecimal, None where it covers nothing."""

    who: str | None
    """See `askfirst.protocol.respondent_digest`."""
    shown: str | None
    """See `askfirst.protocol.shown_digest`; for the call of an agent of ours, the digest of that call."""


def sign_result(
    result: Result,
    *,
    case_id: str,
    key: SigningKey,
    signed_at: datetime,
    signer: str,
    who: str | None = None,
    shown: str | None = None,
) -> Result:
    """The result with its signature. ``signer`` is the address of the JWKS document.

    ``who`` and ``shown`` are the digests of who answered and of what they were shown.
    """
    with _needs_joserfc():
        from joserfc import jws
    payload = _payload(result, case_id, ResultSignature(signed_at=signed_at))
    covered = {"who": who, "shown": shown}
    header = {"alg": ALGORITHMS[0], "kid": key.key_id} | {
        name: digest for name, digest in covered.items() if digest is not None
    }
    compact = jws.serialize_compact(header, payload, key._key, list(ALGORITHMS), _registry())  # pyright: ignore[reportPrivateUsage]
    protected, _, mark = compact.split(".")
    signature = ResultSignature(
        algorithm=ALGORITHMS[0], value=f"{protected}..{mark}", signed_at=signed_at, signer=signer
    )
    return result.model_copy(update={"signature": signature})


def verify_result(result: Result, *, case_id: str, jwks: Mapping[str, Any]) -> SignedFacts:
    """Check a result's signature with a service's JWKS document; raises `InvalidSignature`.

    The document must come from an address that the caller trusts, not from wherever ``signer`` points. What else
    the signature covers is returned, to be compared; `verify_answer` does that.
    """
    with _needs_joserfc():
        from joserfc import jws
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet
    signature = result.signature
    if signature is None or signature.value is None:
        raise InvalidSignature("the result has no signature")
    try:
        keys = KeySet.import_key_set(cast(Any, dict(jwks)))
        payload = _payload(result, case_id, signature)
        seen = jws.deserialize_compact(signature.value, keys, list(ALGORITHMS), _registry(), payload)
    except (JoseError, ValueError, KeyError, TypeError):
        raise InvalidSignature("the result's signature does not fit it, or its key is unknown") from None
    headers = seen.headers()
    if headers.get("alg") != signature.algorithm:
        raise InvalidSignature("the result's signature names another algorithm than it uses")
    who, shown = headers.get("who"), headers.get("shown")
    return SignedFacts(who if isinstance(who, str) else None, shown if isinstance(shown, str) else None)


def verify_answer(
    answer: CaseFacts, *, case_id: str, jwks: Mapping[str, Any], shown: str | None = None
) -> SignedFacts:
    """Check the signature of a poll answer (or of an event's data): what was decided, and who answered.

    With ``shown``, a digest of `shown_digest`, also that this is what the person was shown. Raises
    `InvalidSignature`, also for a signature that does not cover what is to be checked. The JWKS document must come
    from an address that the caller trusts.
    """
    if answer.result is None:
        raise InvalidSignature("there is no result, so nothing is signed")
    facts = verify_result(answer.result, case_id=case_id, jwks=jwks)
    by, context = answer.responded_by, answer.submission_context
    who = respondent_digest(None if by is None else by.wire(), None if context is None else context.wire())
    if facts.who is None:
        raise InvalidSignature("the result's signature does not cover who answered")
    if not compare_digest(facts.who.encode(), who.encode()):
        raise InvalidSignature("the result was signed for another person's answer than it names")
    if shown is not None and facts.shown is None:
        raise InvalidSignature("the result's signature does not cover what the person was shown")
    if shown is not None and not compare_digest((facts.shown or "").encode(), shown.encode()):
        raise InvalidSignature("the person was shown something else than what was asked")
    return facts


def _registry() -> Any:
    """A registry with limits for an answer's data, which exceed joserfc's own."""
    from joserfc.jws import JWSRegistry

    registry = JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)
    registry.max_header_length, registry.max_payload_length = _MOST_HEADER, _MOST_PAYLOAD
    return registry


def _payload(result: Result, case_id: str, signature: ResultSignature) -> bytes:
    signed = {
        "case_id": case_id,
        "action": result.action,
        "data": result.data or {},
        "signed_at": signature.wire().get("signed_at"),
    }
    try:
        return rfc8785.dumps(cast(Any, signed))
    except rfc8785.CanonicalizationError:
        problem = "holds a number beyond 2^53, which cannot be signed; send it as text"
        raise InvalidProtocolObject("Result", {"data": problem}) from None
