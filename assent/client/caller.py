"""Who asks: polls and streams are authenticated like the request that was answered with 202."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import httpx2

from assent.client.offer import place_of

if TYPE_CHECKING:
    from assent.client.offer import Offer

_NO_HEADERS: Mapping[str, str] = {}
_AUTHORIZATION = "authorization"


@dataclass(frozen=True, slots=True)
class Caller:
    """The credentials of a request: some of its headers, and what its HTTP client calls ``auth``.

    ``own`` are the client's own headers, its token among them. They go to the service that was asked, at
    ``home``, and to no other host, whatever else the client may call.
    """

    headers: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS, repr=False)
    auth: Any = field(default=httpx2.USE_CLIENT_DEFAULT, repr=False)
    own: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS, repr=False)
    home: str | None = None

    @classmethod
    def of(cls, headers: object) -> Caller:
        """Who sent these headers: ``Authorization`` says it, and the service's own, ``X-...``."""
        sent = dict(cast("Mapping[Any, Any]", headers).items())
        return cls({str(name): str(value) for name, value in sent.items() if _tells(str(name).lower())})

    def with_auth(self, auth: Any) -> Caller:
        """The same with an ``auth``, which makes the header by itself, each time anew."""
        headers = {name: value for name, value in self.headers.items() if name.lower() != _AUTHORIZATION}
        return replace(self, headers=headers, auth=auth)

    def at(self, offer: Offer) -> Caller:
        """The same where a service waits for us: at home, unless somebody else answered in its place."""
        return replace(self, home=None if offer.is_redirected else offer.service)

    def headers_for(self, url: str) -> dict[str, str]:
        """The headers that say who asks, for one address."""
        said = {name.lower() for name in self.headers}
        if self.home is None or place_of(url) != self.home:
            return dict(self.headers)
        return {**{name: self.own[name] for name in self.own if name.lower() not in said}, **self.headers}


def own_headers(token: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    """What a client sends to the services that it calls; raises ``ValueError``, which quotes no value."""
    own = dict(headers or {})
    if token is not None:
        if any(name.lower() == _AUTHORIZATION for name in own):
            raise ValueError("a token is sent as Authorization, which headers has as well; give one of them")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("a token is printable ASCII without blanks; this one is not")
        own["Authorization"] = f"Bearer {token}"
    for name, value in own.items():
        if "\r" in value or "\n" in value or "\0" in value:
            raise ValueError(f"the header {name!r} has a line break in its value")
    return own


def _tells(name: str) -> bool:
    return name == _AUTHORIZATION or name.startswith("x-")
