"""Signed results: a service's proof of what a person decided, and the keys to check it with (JWS, JWKS).

What is signed is the canonical JSON (RFC 8785) of case, action, data and time. The signature's ``value`` is
a compact JWS with that payload left out (RFC 7515, appendix F). Its header names the key and has two digests:
``who`` of who answered and ``shown`` of what they were shown. They stand in the header because it is signed too,
and because the protocol's schema has no other place for them: whoever checks the payload alone, as before, still
can.
"""

import hashlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from hmac import compare_digest
from typing import Any, NamedTuple, cast

import rfc8785

from assent.digests import canonical_json
from assent.errors import (
    InvalidMessage,
    InvalidProtocolObject,
    InvalidSecret,
    InvalidSignature,
    MissingExtra,
)
from assent.protocol.poll import CaseFacts, Result, ResultSignature

ALGORITHMS = ("ES256", "RS256")
"""What is accepted; we sign with the first."""
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
        """Take up a key that `private_jwk` gave; raises `InvalidSecret` for anything else."""
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
    """See `respondent_digest`."""
    shown: str | None
    """See `shown_digest`; for the call of an agent of ours, the digest of that call."""


def respondent_digest(
    responded_by: Mapping[str, Any] | None, submission_context: Mapping[str, Any] | None
) -> str:
    """SHA-256 over who answered, as a poll answer tells it: whom the service verified, and who it is said to be.

    The latter is ``submitted_by`` of the ``submission_context``.
    """
    claimed = (submission_context or {}).get("submitted_by")
    return _digest({"responded_by": responded_by, "claimed_by": claimed}, "responded_by")


def shown_digest(*, type: str, prompt: str, context: Mapping[str, Any] | None) -> str:
    """SHA-256 over what a service was asked to show, as its hitl object tells it."""
    return _digest({"type": type, "prompt": prompt, "context": context or {}}, "context")


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
    """What a signature may hold: joserfc's own limits are below what an answer's data may have."""
    from joserfc.jws import JWSRegistry

    registry = JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)
    registry.max_header_length, registry.max_payload_length = _MOST_HEADER, _MOST_PAYLOAD
    return registry


def _digest(facts: Mapping[str, Any], name: str) -> str:
    try:
        return hashlib.sha256(canonical_json(facts)).hexdigest()
    except InvalidMessage as error:
        raise InvalidProtocolObject("Result", {name: f"cannot be signed: {error.problem}"}) from None


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
