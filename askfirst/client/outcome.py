"""The last word of a service on a case: its signature checked, and read as a ReviewOutcome."""

from __future__ import annotations

import asyncio
import base64
import binascii
import importlib.util
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import httpx2
from pydantic import JsonValue
from pydantic_core import from_json

from askfirst.client.connections import Connections
from askfirst.client.offer import Offer
from askfirst.client.wait_state import WaitState
from askfirst.clock import Clock
from askfirst.errors import InvalidOutcome, InvalidSignature, MissingExtra, ReviewContradiction
from askfirst.messages import JsonObject
from askfirst.protocol import (
    ACTIONS,
    DefaultAction,
    PollAnswer,
    RespondedBy,
    SubmissionContext,
    sensitive_keys,
    verify_answer,
    visible_fields,
)
from askfirst.protocol.form_answers import is_empty

OutcomeStatus = Literal["completed", "expired", "cancelled"]


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """What a person decided on another service's review, or that nobody did. Its data are in no ``repr``."""

    status: OutcomeStatus
    action: str
    """The person's action; the declared default of an expired case; ``cancelled`` of a cancelled one."""
    case_id: str
    """The last round's."""
    data: JsonObject = field(default_factory=dict[str, JsonValue], repr=False)
    rounds: int = 1
    """How many cases it took, from the first to the last."""
    responded_by: RespondedBy | None = None
    submission_context: SubmissionContext | None = None
    default_action: str | None = None
    reason: str | None = None
    """Why it was cancelled, where the service says."""
    next_case_id: str | None = None
    """The next round, where the service names one that this client has not followed.

    After an ``edit`` that is the round which you begin with what you have revised.
    """

    sensitive: frozenset[str] = frozenset()
    """The keys of ``data`` whose values must not be logged, traced or shown to a model."""

    is_verified: bool = False
    """Whether the service's signature was checked: it covers what was decided, by whom, and what was shown."""
    more: JsonObject = field(default_factory=dict[str, JsonValue], repr=False)
    """What else the service's last answer held: fields of its own, and values that cannot be used, such as a
    ``responded_by`` that is a text. Nothing of it was checked."""
    offer_more: JsonObject = field(default_factory=dict[str, JsonValue], repr=False)
    """The same of the hitl object that asked."""

    @property
    def expired(self) -> bool:
        """Whether nobody answered in time, so that ``action`` is the default one."""
        return self.status == "expired"

    @property
    def cancelled(self) -> bool:
        """Whether the service took the case back."""
        return self.status == "cancelled"


_DEFAULTS: tuple[str, ...] = get_args(DefaultAction)


def outcome_of(state: WaitState, answer: PollAnswer, *, is_verified: bool = False) -> ReviewOutcome:
    """The outcome of a case that has ended.

    Raises `InvalidOutcome` if the action was not on offer or what the form requires is missing, and
    `ReviewContradiction` for a case that expired with another default than its service declared.
    """
    status = cast("OutcomeStatus", answer.status)
    default = default_of(state.offer, answer) if status == "expired" else None
    data: dict[str, Any] = {}
    action = default or "cancelled"
    if status == "completed" and answer.result is not None:
        action, data = answer.result.action, answer.result.data or {}
        _check_action(state.offer, action)
        if not state.offer.has_odd_form:
            _check_form(state.offer, action, data)
    return ReviewOutcome(
        status,
        action,
        state.case_id,
        data,
        rounds=state.round,
        responded_by=answer.responded_by,
        submission_context=answer.submission_context,
        default_action=default,
        reason=answer.reason,
        next_case_id=answer.next_case_id,
        is_verified=is_verified,
        more=answer.aside,
        offer_more=state.offer.more,
        sensitive=_sensitive(state.offer, data),
    )


def _sensitive(offer: Offer, data: dict[str, Any]) -> frozenset[str]:
    """The keys whose values are not to be shown: all of them, if the form that says so could not be read."""
    if offer.has_odd_form:
        return frozenset(data)
    return frozenset() if offer.hitl.form is None else sensitive_keys(offer.hitl.form)


def default_of(offer: Offer, answer: PollAnswer) -> str:
    """What is done now that nobody has answered: what the service declared, else ``skip``."""
    declared = offer.hitl.default_action
    said = answer.default_action if answer.default_action in _DEFAULTS else None
    if declared is not None and said is not None and said != declared:
        raise ReviewContradiction(
            offer.case_id, f"its default was {declared}, and now that it expired the service says {said}"
        )
    return said or declared or "skip"


def _check_action(offer: Offer, action: str) -> None:
    """Refuse an action that the type does not offer. Escalations, and custom types, may offer others."""
    offered = ACTIONS.get(offer.hitl.type)
    if offered is not None and offer.hitl.type != "escalation" and action not in offered:
        fault = f"is none of {', '.join(offered)}, which is all that a case of this type offers"
        raise InvalidOutcome(offer.case_id, {"result.action": fault})


def _check_form(offer: Offer, action: str, data: dict[str, Any]) -> None:
    form = offer.hitl.form
    if form is None or action != "submit" or data.get("declined") is True:
        return
    faults = {
        f"result.data.{field.key}": "is required"
        for field in visible_fields(form, data)
        if field.required and is_empty(data.get(field.key))
    }
    if faults:
        raise InvalidOutcome(offer.case_id, faults)


# Signed results.


logger = logging.getLogger("askfirst.client")

VerifyResults = bool | Mapping[str, Any] | None
"""True: every result must be signed. A JWKS document: with one of these keys. False: signatures are ignored.
None: results that are signed as Askfirst signs them are checked with the keys that their service publishes."""

SECONDS = 20.0
MOST_BYTES = 256_000
KEPT_SECONDS = 300.0
_KEPT = 100


class _Unknown(Exception):
    """The keys of a service could not be fetched; the text says why."""


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
        """Whether the signature of a result was verified. Raises `InvalidOutcome` if it is required, or wrong."""
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
            raise _Unknown("its service's keys are not a JWKS document")
        return cast("Mapping[str, Any]", said)


def is_ours(answer: PollAnswer) -> bool:
    """Whether a result is signed as Askfirst signs: a detached JWS whose header has a digest of who answered.

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
