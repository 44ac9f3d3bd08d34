"""Signed results: whether a service's signature fits what it says that a person decided."""

from __future__ import annotations

import asyncio
import base64
import binascii
import importlib.util
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, cast

import httpx2
from pydantic_core import from_json

from assent.client.connections import Connections
from assent.client.offer import Offer
from assent.clock import Clock
from assent.errors import InvalidOutcome, InvalidSignature, MissingExtra
from assent.protocol import PollAnswer, verify_answer

logger = logging.getLogger("assent.client")

VerifyResults = bool | Mapping[str, Any] | None
"""True: every result must be signed. A JWKS document: and with one of these keys. False: none is looked at.
None: those that are signed in our way are checked with the keys that their service publishes."""

SECONDS = 20.0
MOST_BYTES = 256_000
KEPT_SECONDS = 300.0
_KEPT = 100


class _Unknown(Exception):
    """The keys of a service could not be had; the text says why."""


class SignatureChecks:
    """Checks results for a client, and keeps the keys of its services for a few minutes."""

    def __init__(
        self,
        verify: VerifyResults,
        connections: Connections,
        may_call: Callable[[str, str], bool],
        clock: Clock,
    ) -> None:
        if verify not in (None, False) and importlib.util.find_spec("joserfc") is None:
            raise MissingExtra("a signed result", "signatures")
        self._verify = verify
        self._connections = connections
        self._may_call = may_call
        self._clock = clock
        self._keys: OrderedDict[str, tuple[float, Mapping[str, Any]]] = OrderedDict()

    async def checked(self, offer: Offer, answer: PollAnswer) -> bool:
        """Whether a result was checked, and its signature fits. Raises `InvalidOutcome` if it has to and does not."""
        if self._verify is False or answer.result is None:
            return False
        is_needed = self._verify is not None
        if not is_needed and not (is_ours(answer) and importlib.util.find_spec("joserfc")):
            return False
        try:
            keys = await self._keys_for(offer, answer)
            verify_answer(answer, case_id=offer.case_id, jwks=keys, shown=offer.shown)
        except _Unknown as unknown:
            if is_needed:
                raise _unfit(offer, str(unknown)) from None
            logger.warning("the result of case %s is signed and was not checked: %s", offer.case_id, unknown)
            return False
        except InvalidSignature as error:
            raise _unfit(offer, f"is not to be believed: {error}") from None
        return True

    async def _keys_for(self, offer: Offer, answer: PollAnswer) -> Mapping[str, Any]:
        if isinstance(self._verify, Mapping):
            return self._verify
        signature = None if answer.result is None else answer.result.signature
        if signature is None or signature.value is None:
            raise _Unknown("is required, and there is none")
        signer = signature.signer
        if signer is None or not self._may_call(signer, offer.service):
            raise _Unknown("names no keys on the host of its service, or on one in allowed_hosts")
        now = self._clock.now()
        kept = self._keys.get(signer)
        if kept is not None and now - kept[0] < KEPT_SECONDS and _names(kept[1], signature.value):
            return kept[1]
        keys = await self._fetched(signer)
        self._keys[signer] = now, keys
        self._keys.move_to_end(signer)
        if len(self._keys) > _KEPT:
            self._keys.popitem(last=False)
        return keys

    async def _fetched(self, signer: str) -> Mapping[str, Any]:
        """A service's public keys; they are asked for without any credentials."""
        try:
            async with (
                asyncio.timeout(SECONDS),
                self._connections.calls.stream(
                    "GET", signer, headers={"Accept": "application/json"}, auth=None, follow_redirects=False
                ) as response,
            ):
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise _Unknown("its service's keys are too long to be read")
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, TimeoutError) as error:
            raise _Unknown(f"its service's keys could not be fetched ({type(error).__name__})") from None
        if response.status_code != 200:
            raise _Unknown(f"its service's keys were answered with HTTP {response.status_code}")
        try:
            said: Any = from_json(bytes(body))
        except ValueError:
            said = None
        if not isinstance(said, Mapping):
            raise _Unknown("its service's keys are no JWKS document")
        return cast("Mapping[str, Any]", said)


def is_ours(answer: PollAnswer) -> bool:
    """Whether a result is signed in our way: a JWS without its payload, whose header says who answered.

    The protocol does not say what a signature is over, so another service's may be made in another way.
    """
    signature = None if answer.result is None else answer.result.signature
    return signature is not None and signature.value is not None and "who" in _header(signature.value)


def _names(jwks: Mapping[str, Any], value: str) -> bool:
    """Whether the key that a signature names is among these."""
    wanted, keys = _header(value).get("kid"), jwks.get("keys")
    listed = cast("list[Any]", keys) if isinstance(keys, list) else []
    return any(
        isinstance(key, Mapping) and cast("Mapping[str, Any]", key).get("kid") == wanted for key in listed
    )


def _header(value: str) -> Mapping[str, Any]:
    protected, dots, _ = value.partition("..")
    if not dots or len(protected) > 8_000:
        return {}
    try:
        padded = protected.encode("ascii") + b"=" * (-len(protected) % 4)
        said: Any = from_json(base64.urlsafe_b64decode(padded))
    except (ValueError, binascii.Error):
        return {}
    return cast("Mapping[str, Any]", said) if isinstance(said, Mapping) else {}


def _unfit(offer: Offer, fault: str) -> InvalidOutcome:
    return InvalidOutcome(offer.case_id, {"result.signature": fault})
