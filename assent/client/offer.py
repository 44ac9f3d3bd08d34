"""A 202 that asks for a person: read, checked, and refused as a whole if anything about it is wrong."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2

from assent.errors import InvalidOffer, InvalidProtocolObject
from assent.protocol import Context, HitlObject, read_202

_CALLED = ("poll_url", "events_url", "submit_url")
"""What the agent calls itself, with its credentials or a token; the review page is the person's business."""
_THIS_MACHINE = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Offer:
    """What a service asks a person through us. Addresses and tokens are in no ``repr``."""

    hitl: HitlObject = field(repr=False)
    service: str
    """Who asks: host and, where it is not the usual one, port of the service that was called."""
    message: str | None = None

    @property
    def case_id(self) -> str:
        """The case's id."""
        return self.hitl.case_id


def place_of(url: str) -> str | None:
    """Host and port of an address, as the HTTP client reads it; None where it has no host, or names a user."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        return None
    if not parsed.host or parsed.userinfo:
        return None
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return host.lower() if parsed.port is None else f"{host.lower()}:{parsed.port}"


def may_call(url: str, service: str, allowed_hosts: Collection[str]) -> bool:
    """Whether an address is the service's own, or on a host that was allowed (``host``, or ``host:port``).

    Only over https, or http on this machine.
    """
    place = place_of(url)
    if place is None:
        return False
    parsed = httpx2.URL(url)
    if parsed.scheme != "https" and (parsed.scheme != "http" or parsed.host not in _THIS_MACHINE):
        return False
    allowed = {host.lower() for host in allowed_hosts}
    return place == service or place in allowed or parsed.host.lower() in allowed


def read_offer(status: int, url: str, body: Any, *, allowed_hosts: Collection[str] = ()) -> Offer | None:
    """What an answer asks of a person, or None for an answer like any other.

    ``url`` is where the answer came from and ``body`` its decoded JSON. Raises `InvalidOffer` with everything
    that is wrong: fields that are missing or malformed, plain http to another machine, and addresses for the
    agent to call that are neither the service's own nor on one of the ``allowed_hosts``.
    """
    if status != 202 or not isinstance(body, Mapping):
        return None
    said = cast("Mapping[str, Any]", body)
    inner = said.get("hitl")
    if inner is None:
        return None
    service = place_of(url) or ""
    faults = _foreign(inner, service, allowed_hosts)
    try:
        asked = read_202(said)
    except InvalidProtocolObject as error:
        raise InvalidOffer({**faults, **error.faults}) from None
    if faults:
        raise InvalidOffer(faults)
    return Offer(_without_context(asked.hitl), service, asked.message)


def _without_context(hitl: HitlObject) -> HitlObject:
    """Only the form is of use to an agent; the rest is for the page, and may be large."""
    context = None if hitl.form is None else Context(form=hitl.form)
    return hitl.model_copy(update={"context": context})


def _foreign(inner: Any, service: str, allowed_hosts: Collection[str]) -> dict[str, str]:
    """A fault for each address that is not the service's, whatever else is wrong with the object."""
    if not isinstance(inner, Mapping):
        return {}
    called = {name: cast("Mapping[str, Any]", inner).get(name) for name in _CALLED}
    return {
        f"hitl.{name}": "must be on the host of the service that answered, or on one in allowed_hosts"
        for name, value in called.items()
        if isinstance(value, str) and not may_call(value, service, allowed_hosts)
    }
