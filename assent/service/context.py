"""What the routes of the service work with."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

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
    development: bool = False


async def service_of(request: Request) -> Service:
    """The service that answers a request."""
    return request.app.state.service
