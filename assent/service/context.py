"""What the routes of the service work with."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request

from assent.protocol import SigningKey
from assent.service.cases import Cases
from assent.service.keys import Keys
from assent.service.rate import CaseRate
from assent.service.verification import Verifier


@dataclass(slots=True)
class Service:
    """An open service: its cases, who may call it, and where it is reached."""

    cases: Cases
    keys: Keys
    rate: CaseRate
    verifier: Verifier
    base_url: str
    name: str = "Assent"
    takes_callbacks: bool = False
    signing_key: SigningKey | None = None
    retention_days: int = 30
    development: bool = False

    @property
    def base_path(self) -> str:
        """The path under which people reach it; empty at a host's root."""
        return urlsplit(self.base_url).path.rstrip("/")


async def service_of(request: Request) -> Service:
    """The service that answers a request."""
    return request.app.state.service
