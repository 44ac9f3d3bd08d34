"""A 202 read as an offer: required fields are validated, the others read leniently."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

import httpx2
from pydantic import JsonValue

from askfirst.errors import InvalidDuration, InvalidOffer, InvalidProtocolObject
from askfirst.messages import JsonObject
from askfirst.protocol import (
    SPEC_VERSION,
    CaseFacts,
    Context,
    HitlObject,
    Lenient,
    parse_duration,
    read_leniently,
    shown_digest,
)

# The context of a case as text, so that a message shows all that its buttons approve.


LONGEST = 3_500
"""A longer context is shown on the page only."""


def context_text(context: Any) -> str | None:
    """A line for each fact; empty where there is no context.

    None for a context that only the page can show: a form, no object, or too long.
    """
    if context is None or context == {}:
        return ""
    if not isinstance(context, Mapping) or "form" in context:
        return None
    facts = cast("Mapping[str, Any]", context)
    text = "\n".join(f"{_line(name)}: {_line(value)}" for name, value in facts.items())
    return text if len(text) <= LONGEST else None


def _line(value: Any) -> str:
    """A value on one line: plain text as it is, anything else as JSON."""
    plain = isinstance(value, str) and value.isprintable() and value == value.strip() and ": " not in value
    return value if plain and value else json.dumps(value, ensure_ascii=False)


_CALLED = ("poll_url", "events_url", "submit_url")
"""The addresses that the client calls, with credentials or a token; the person opens the review page."""
_INLINE = ("submit_url", "submit_token", "inline_actions", "verification_policy")
"""The fields of inline answers. If one of them cannot be used, none is, and the page decides."""
_MOST_VALUES = 50_000
"""The most values of a context whose digest is taken."""
_THIS_MACHINE = ("localhost", "127.0.0.1")
_USUAL_LIFE, _LONGEST_LIFE = 86_400, 366 * 86_400
"""Seconds that a case without an expiry is open in the protocol, and the most that is accepted."""

ForeignPages = Literal["tell", "refuse"]
"""What is done with a review page on another host than its service: the notice says so, or it is refused."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a service asks a person through us. Addresses and tokens are in no ``repr``."""

    hitl: HitlObject = field(repr=False)
    service: str
    """Who asks: host and, where it is not the usual one, port of the service that was called."""
    message: str | None = None
    about: str | None = None
    """The context as text for a message, empty if there is none; None if it is for the page: see `context_text`."""
    more: JsonObject = field(default_factory=dict[str, JsonValue], repr=False)
    """What else the hitl object held: fields that the protocol does not know, and values that cannot be used."""
    foreign_page: str | None = None
    """Host of the review page, where that is neither the service's nor one of those that are allowed."""
    has_expiry: bool = True
    """Whether the service named an expiry; if not, ``hitl.expires_at`` is the protocol's default."""
    has_odd_form: bool = False
    """Whether some of the form could not be read, so that it is unknown which values are sensitive."""
    shown: str | None = None
    """The digest of what the person is to be shown, see `askfirst.protocol.shown_digest`; None if it is too large."""
    is_redirected: bool = False
    """Whether another host answered than the one that was called; its polls get no credentials."""

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


def read_offer(
    status: int,
    url: str,
    body: Any,
    *,
    allowed_hosts: Collection[str] = (),
    foreign_pages: ForeignPages = "tell",
    now: float | None = None,
) -> Offer | None:
    """The offer in a response, or None for a response that asks for nobody.

    ``url`` is where the answer came from and ``body`` its decoded JSON. A ``hitl`` object with ``case_id``,
    ``type``, ``prompt``, ``review_url`` and ``poll_url`` is enough. Whatever else is in it may be missing, odd or
    unknown; ``now`` (seconds since 1970) is when it came. Raises `InvalidOffer` with everything that is wrong:
    one of the five that is missing or malformed, plain http to another machine, and addresses for the agent to
    call that are neither the service's own nor on one of the ``allowed_hosts``.
    """
    if status != 202 or not isinstance(body, Mapping):
        return None
    said = cast("Mapping[str, Any]", body)
    inner = said.get("hitl")
    if inner is None:
        return None
    if not isinstance(inner, Mapping):
        raise InvalidOffer({"hitl": "must be an object"})
    given = cast("Mapping[str, Any]", inner)
    service = place_of(url) or ""
    faults = _foreign(given, service, allowed_hosts)
    page = _page(given, service, allowed_hosts)
    if page is not None and foreign_pages == "refuse":
        faults["hitl.review_url"] = (
            "must be on the host of the service that answered, or on one in allowed_hosts"
        )
    facts, has_expiry = _dated(given, datetime.now(UTC) if now is None else datetime.fromtimestamp(now, UTC))
    try:
        read = _read(facts)
    except InvalidProtocolObject as error:
        raise InvalidOffer(
            {**faults, **{f"hitl.{name}": why for name, why in error.faults.items()}}
        ) from None
    if faults:
        raise InvalidOffer(faults)
    message = said.get("message")
    return Offer(
        _without_context(read.value),
        service,
        message if isinstance(message, str) and message else None,
        context_text(given.get("context")),
        more=_more(given, read),
        foreign_page=page,
        has_expiry=has_expiry,
        has_odd_form=read.is_odd("context"),
        shown=_shown(given),
    )


def _shown(given: Mapping[str, Any]) -> str | None:
    context = given.get("context")
    if not _is_small(context):
        return None
    try:
        return shown_digest(
            type=given["type"],
            prompt=given["prompt"],
            context=cast("Mapping[str, Any]", context) if isinstance(context, Mapping) else None,
        )
    except InvalidProtocolObject:  # no canonical JSON
        return None


def _is_small(value: object) -> bool:
    """Whether a value has at most `_MOST_VALUES` values in it."""
    left, waiting = _MOST_VALUES, [value]
    while waiting and left > 0:
        each = waiting.pop()
        if isinstance(each, Mapping | list):
            inside = cast("Mapping[str, Any] | list[Any]", each)
            left -= len(inside)
            if left > 0:
                waiting.extend(inside.values() if isinstance(inside, Mapping) else inside)
    return left > 0


def _dated(given: Mapping[str, Any], now: datetime) -> tuple[dict[str, Any], bool]:
    """The object with default times and version filled in, and whether it names an expiry.

    Of its context only the form is of use to an agent; the rest is for the page, and may be large.
    """
    times = {name: given[name] for name in ("created_at", "expires_at") if name in given}
    read = read_leniently(CaseFacts, times).value
    facts: dict[str, Any] = {
        **given,
        "spec_version": SPEC_VERSION,
        "created_at": read.created_at or now,
        "expires_at": read.expires_at or now + _life(given.get("timeout")),
    }
    context = facts.pop("context", None)
    form = cast("Mapping[str, Any]", context).get("form") if isinstance(context, Mapping) else None
    if form is not None:
        facts["context"] = {"form": form}
    return facts, read.expires_at is not None


def _life(timeout: object) -> timedelta:
    try:
        seconds = parse_duration(timeout) if isinstance(timeout, str) else _USUAL_LIFE
    except InvalidDuration:
        seconds = _USUAL_LIFE
    return timedelta(seconds=min(seconds, _LONGEST_LIFE))


def _read(facts: Mapping[str, Any]) -> Lenient[HitlObject]:
    """The object, without its inline answers if any part of them cannot be used."""
    if any(name in facts for name in _INLINE):
        try:
            read = read_leniently(HitlObject, facts)
            if not any(read.is_odd(name) for name in _INLINE):
                return read
        except InvalidProtocolObject:
            pass  # the faults of the other fields are found below
    return read_leniently(HitlObject, {name: facts[name] for name in facts if name not in _INLINE})


def _more(given: Mapping[str, Any], read: Lenient[HitlObject]) -> JsonObject:
    """What was set aside, and the version if it is another than ours."""
    aside = {name: value for name, value in read.aside.items() if name not in ("context", *_INLINE)}
    version = given.get("spec_version")
    if isinstance(version, str) and version != SPEC_VERSION:
        aside["spec_version"] = version[:100]
    return aside


def _without_context(hitl: HitlObject) -> HitlObject:
    """Only the form is of use to an agent; the rest is for the page, and may be large."""
    context = None if hitl.form is None else Context(form=hitl.form)
    return hitl.model_copy(update={"context": context})


def _foreign(given: Mapping[str, Any], service: str, allowed_hosts: Collection[str]) -> dict[str, str]:
    """A fault for each address that is not the service's, whatever else is wrong with the object."""
    called = {name: given.get(name) for name in _CALLED}
    return {
        f"hitl.{name}": "must be on the host of the service that answered, or on one in allowed_hosts"
        for name, value in called.items()
        if isinstance(value, str) and not may_call(value, service, allowed_hosts)
    }


def _page(given: Mapping[str, Any], service: str, allowed_hosts: Collection[str]) -> str | None:
    """The host of a review page that is neither the service's nor an allowed one."""
    url = given.get("review_url")
    if not isinstance(url, str) or may_call(url, service, allowed_hosts):
        return None
    return place_of(url) or "another host"
