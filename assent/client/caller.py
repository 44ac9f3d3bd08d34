"""Who asks: polls and streams are authenticated like the request that was answered with 202."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import httpx2

_NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Caller:
    """The credentials of a request: some of its headers, and what its HTTP client calls ``auth``."""

    headers: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS, repr=False)
    auth: Any = field(default=httpx2.USE_CLIENT_DEFAULT, repr=False)

    @classmethod
    def of(cls, headers: object) -> Caller:
        """Who sent these headers: ``Authorization`` says it, and the service's own, ``X-...``."""
        sent = dict(cast("Mapping[Any, Any]", headers).items())
        return cls({str(name): str(value) for name, value in sent.items() if _tells(str(name).lower())})

    def with_auth(self, auth: Any) -> Caller:
        """The same with an ``auth``, which makes the header by itself, each time anew."""
        headers = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        return replace(self, headers=headers, auth=auth)


def _tells(name: str) -> bool:
    return name == "authorization" or name.startswith("x-")
