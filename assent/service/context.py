"""What the routes of the service work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.requests import Request

from assent.protocol import SigningKey
from assent.service.cases import Cases
from assent.service.email_codes import EmailCodes
from assent.service.identity import Identify
from assent.service.keys import Keys, hashed_key
from assent.service.prefills import Prefills
from assent.service.rate import CaseRate
from assent.service.spending import Spending
from assent.service.streaming import OpenStreams
from assent.service.terms import Terms
from assent.service.verification import Verifier

Authenticate = Callable[[Request], Awaitable[str | None]]
"""From a request to the id of whoever makes it, up to 255 characters; None if nobody may."""


@dataclass(slots=True)
class Service:
    """An open service: its cases, who may call it, and where it is reached."""

    cases: Cases
    keys: Keys
    rate: CaseRate
    verifier: Verifier
    prefills: Prefills
    spending: Spending
    streams: OpenStreams
    base_url: str
    name: str = "Assent"
    takes_callbacks: bool = False
    signing_key: SigningKey | None = None
    retention_days: int = 30
    development: bool = False
    terms: Terms = field(default_factory=Terms)
    """What the operator allows whoever opens cases."""
    authenticate: Authenticate | None = None
    """Tells who calls, in place of API keys."""
    identify: Identify | None = None
    """Tells who answers, on the page or by a messenger's button."""
    email_codes: EmailCodes | None = None
    """None where no mail can be sent."""

    async def owner_of(self, request: Request) -> str | None:
        """The id of whoever makes a request, by their API key unless the host has its own way."""
        if self.authenticate is not None:
            return await self.authenticate(request)
        key_hash = self.key_hash_in(request)
        known = None if key_hash is None else await self.keys.find_hashed(key_hash)
        return None if known is None else known.key_id

    def key_hash_in(self, request: Request) -> str | None:
        """What the API key hashes to that a request shows; None if it shows none."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        return hashed_key(key.strip()) if scheme.lower() == "bearer" else None

    @property
    def base_path(self) -> str:
        """The path under which people reach it; empty at a host's root."""
        return urlsplit(self.base_url).path.rstrip("/")


async def service_of(request: Request) -> Service:
    """The service that answers a request."""
    return request.app.state.service
