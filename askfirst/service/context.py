"""The open service that routes work with, and the authentication of API callers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends
from fastapi.openapi.models import HTTPBearer as HTTPBearerModel
from fastapi.security.base import SecurityBase
from starlette.requests import Request

from askfirst.errors import CaseNotFound, ServiceError
from askfirst.protocol import SigningKey
from askfirst.service.budgets import OpenStreams, Spending
from askfirst.service.case import Case, case_of
from askfirst.service.cases import Cases
from askfirst.service.egress import Prefills
from askfirst.service.email_codes import EmailCodes
from askfirst.service.keys import Keys, hashed_key
from askfirst.service.links import Terms
from askfirst.service.person import Identify
from askfirst.service.rate import CaseRate
from askfirst.service.risk_patterns import RiskPatterns, shipped_patterns
from askfirst.service.thread_events import MayFollow
from askfirst.service.verification import Verifier
from askfirst.store import case_access
from askfirst.store.case_access import Asked

logger = logging.getLogger("askfirst.service")


class Unauthorized(Exception):
    """A request without a key, or with one that is not known."""


class ShownKey(SecurityBase):
    """Describes the API key for OpenAPI; the route itself authenticates, in the read of its case (`own_case`)."""

    def __init__(self) -> None:
        self.model = HTTPBearerModel(description="A key of `askfirst keys create`")
        self.scheme_name = "ApiKey"

    async def __call__(self, request: Request) -> str | None:
        """None: nothing is checked here."""
        return None


class ApiKey(ShownKey):
    """Authenticates the caller of a request."""

    async def __call__(self, request: Request) -> str:
        """The caller's id; raises `Unauthorized`."""
        owner = await (await service_of(request)).owner_of(request)
        if owner is None:
            raise Unauthorized
        request.state.key_id = owner
        return owner


async def own_case(service: Service, request: Request, case_id: str) -> tuple[Case, Sequence[int]]:
    """The case that a request asks for, and the times of its recent polls that the store has counted.

    Authentication, ownership and the case are read in one statement, for polls are frequent. Raises
    `Unauthorized`, and `CaseNotFound` for another caller's case as for one that does not exist.
    """
    asked = await _asked(service, request, case_id)
    if asked is None:
        raise Unauthorized
    request.state.key_id = asked.owner
    if asked.row is None:
        raise CaseNotFound(case_id)
    return case_of(asked.row), asked.times


async def _asked(service: Service, request: Request, case_id: str) -> Asked | None:
    engine = service.cases.engine
    if service.authenticate is not None:
        owner = await service.authenticate(request)
        if owner is None:
            return None
        return await engine.read(partial(case_access.case_by_owner, case_id, owner))
    key_hash = service.key_hash_in(request)
    if key_hash is None:
        return None
    return await engine.read(partial(case_access.case_by_key, case_id, key_hash))


LONGEST_HOLD = 60.0


def checked_hold(hold_seconds: float) -> float:
    """How long decisions are held; raises `ServiceError` for a length that makes no sense."""
    if not 0 <= hold_seconds <= LONGEST_HOLD:
        raise ServiceError(f"hold_seconds is 0 to {LONGEST_HOLD:g}, not {hold_seconds!r}")
    return float(hold_seconds)


Authenticate = Callable[[Request], Awaitable[str | None]]
"""From a request to its caller's id, of up to 255 characters; None to refuse the request."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator set when the service was made, and what it tells of itself."""

    base_url: str
    """Where people and agents reach it, without a slash at the end."""
    name: str = "Askfirst"
    signing_key: SigningKey | None = None
    retention_days: int = 30
    takes_callbacks: bool = False
    development: bool = False
    hold_seconds: float = 5.0
    """How long a decision made on a page can be undone before it goes out; 0 for not at all."""
    risk_patterns: RiskPatterns = field(default_factory=shipped_patterns)

    @property
    def base_path(self) -> str:
        """The path of ``base_url``; empty at a host's root."""
        return urlsplit(self.base_url).path.rstrip("/")


@dataclass(frozen=True, slots=True)
class Quotas:
    """What is counted over all processes on one database: polls of a case, budgets, open event streams."""

    rate: CaseRate
    spending: Spending
    streams: OpenStreams


@dataclass(frozen=True, slots=True)
class Service:
    """An open service: its settings, its cases, who may call it, and what they may use."""

    settings: Settings
    cases: Cases
    keys: Keys
    quotas: Quotas
    verifier: Verifier
    prefills: Prefills
    authenticate: Authenticate | None = None
    """Authenticates callers, in place of API keys."""
    may_follow: MayFollow | None = None
    """Tells which threads a caller may follow; without it, none."""
    identify: Identify | None = None
    """Tells who answers, on the page or by a messenger's button."""
    email_codes: EmailCodes | None = None
    """None where no mail can be sent."""

    async def owner_of(self, request: Request) -> str | None:
        """The id of a request's caller, by the host's ``authenticate`` or else by API key; None if there is none."""
        if self.authenticate is not None:
            return await self.authenticate(request)
        key_hash = self.key_hash_in(request)
        known = None if key_hash is None else await self.keys.find_hashed(key_hash)
        return None if known is None else known.key_id

    async def may_be_followed(self, caller: str, thread_id: str) -> bool:
        """Whether a caller may follow a thread; not if the host's ``may_follow`` is missing, or raises."""
        if self.may_follow is None:
            return False
        try:
            return await self.may_follow(caller, thread_id) is True
        except Exception:
            logger.exception("may_follow failed, so that the thread is not shown")
            return False

    def key_hash_in(self, request: Request) -> str | None:
        """The hash of the API key in a request; None if there is no key."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        return hashed_key(key.strip()) if scheme.lower() == "bearer" else None

    @property
    def terms(self) -> Terms:
        """What the operator allows callers who open cases."""
        return self.cases.links.terms


async def service_of(request: Request) -> Service:
    """The service that answers a request."""
    return request.app.state.service


The = Annotated[Service, Depends(service_of)]
"""The type of a route's ``service`` parameter: FastAPI hands in the service that answers."""
