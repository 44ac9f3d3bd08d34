"""Signed results: a service's proof of what a person decided, and the keys to check it with (JWS, JWKS).

What is signed is the canonical JSON (RFC 8785) of case, action, data and time. The signature's ``value`` is
a compact JWS with that payload left out (RFC 7515, appendix F), its header naming the key.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

import rfc8785

from assent.errors import InvalidProtocolObject, InvalidSecret, InvalidSignature, MissingExtra
from assent.protocol.poll import Result, ResultSignature

ALGORITHMS = ("ES256", "RS256")
"""What is accepted; we sign with the first."""


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


def sign_result(result: Result, *, case_id: str, key: SigningKey, signed_at: datetime, signer: str) -> Result:
    """The result with its signature. ``signer`` is the address of the JWKS document."""
    with _needs_joserfc():
        from joserfc import jws
    payload = _payload(result, case_id, ResultSignature(signed_at=signed_at))
    header = {"alg": ALGORITHMS[0], "kid": key.key_id}
    compact = jws.serialize_compact(header, payload, key._key, list(ALGORITHMS))  # pyright: ignore[reportPrivateUsage]
    protected, _, mark = compact.split(".")
    signature = ResultSignature(
        algorithm=ALGORITHMS[0], value=f"{protected}..{mark}", signed_at=signed_at, signer=signer
    )
    return result.model_copy(update={"signature": signature})


def verify_result(result: Result, *, case_id: str, jwks: Mapping[str, Any]) -> None:
    """Check a result's signature with a service's JWKS document; raises `InvalidSignature`.

    The document must come from an address that the caller trusts, not from wherever ``signer`` points.
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
        seen = jws.deserialize_compact(
            signature.value, keys, list(ALGORITHMS), payload=_payload(result, case_id, signature)
        )
    except (JoseError, ValueError, KeyError, TypeError):
        raise InvalidSignature("the result's signature does not fit it, or its key is unknown") from None
    if seen.headers().get("alg") != signature.algorithm:
        raise InvalidSignature("the result's signature names another algorithm than it uses")


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
