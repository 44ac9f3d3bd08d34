"""The open service, which routes get as a parameter, and the authentication of API callers."""

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
from askfirst.limits import LONGEST_HOLD
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
from askfirst.store.case_access import PolledCase

logger = logging.getLogger("askfirst.service")


class Unauthorized(Exception):
    """A request without an API key, or with an unknown one."""


class DocumentedApiKey(SecurityBase):
    """Describes the API key for OpenAPI, and checks nothing: the route authenticates with `own_case`."""

    def __init__(self) -> None:
        self.model = HTTPBearerModel(description="A key of `askfirst keys create`")
        self.scheme_name = "ApiKey"

    async def __call__(self, request: Request) -> str | None:
        """Return None; nothing is checked here."""
        return None


class ApiKey(DocumentedApiKey):
    """Authenticates the caller of a request."""

    async def __call__(self, request: Request) -> str:
        """The caller's id; raises `Unauthorized`."""
        owner = await (await service_of(request)).owner_of(request)
        if owner is None:
            raise Unauthorized
        request.state.key_id = owner
        return owner


async def own_case(service: Service, request: Request, case_id: str) -> tuple[Case, Sequence[int]]:
    """The case that a request asks for, and the times of its recent polls that are counted in the store.

    Authentication, ownership and the case are read in one statement, because polls are frequent. Raises
    `Unauthorized`, and `CaseNotFound` for an unknown case as well as for another caller's case.
    """
    asked = await _polled_case(service, request, case_id)
    if asked is None:
        raise Unauthorized
    request.state.key_id = asked.owner
    if asked.row is None:
        raise CaseNotFound(case_id)
    return case_of(asked.row), asked.times


async def _polled_case(service: Service, request: Request, case_id: str) -> PolledCase | None:
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


MOST_REASONS = 6
LONGEST_REASON = 60


def checked_hold(hold_seconds: float) -> float:
    """How long decisions are held, in seconds; raises `ServiceError` if it is out of range."""
    if not 0 <= hold_seconds <= LONGEST_HOLD:
        raise ServiceError(f"hold_seconds must be between 0 and {LONGEST_HOLD:g}, not {hold_seconds!r}")
    return float(hold_seconds)


def checked_reasons(given: Sequence[str]) -> tuple[str, ...]:
    """The operator's quick reasons; raises `ServiceError` if they are too many, or one is empty or too long."""
    reasons = tuple(given)
    if len(reasons) > MOST_REASONS or not all(0 < len(it.strip()) <= LONGEST_REASON for it in reasons):
        raise ServiceError(
            f"quick_reasons must be at most {MOST_REASONS} texts of 1 to {LONGEST_REASON} characters each"
        )
    return reasons


Authenticate = Callable[[Request], Awaitable[str | None]]
"""A function of the host that returns the caller's id, of up to 255 characters; None refuses the request."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings of the service."""

    base_url: str
    """The address at which people and agents reach the service, without a slash at the end."""
    name: str = "Askfirst"
    signing_key: SigningKey | None = None
    retention_days: int = 30
    takes_callbacks: bool = False
    development: bool = False
    hold_seconds: float = 5.0
    """How long a decision made on a page is held and can be undone; 0 for no hold."""
    risk_patterns: RiskPatterns = field(default_factory=shipped_patterns)
    quick_reasons: tuple[str, ...] = ()
    """Reasons to reject that the page offers; empty for its own, in the reader's language."""
    language: str = "en"
    """The language for readers who prefer none that the pages have, and of the tools' texts in messages."""

    @property
    def base_path(self) -> str:
        """The path of ``base_url``; empty at a host's root."""
        return urlsplit(self.base_url).path.rstrip("/")


@dataclass(frozen=True, slots=True)
class Quotas:
    """The counters that all processes on one database share: polls of a case, budgets, open event streams."""

    rate: CaseRate
    spending: Spending
    streams: OpenStreams


@dataclass(frozen=True, slots=True)
class Service:
    """An open service: its settings, its cases, its quotas, and the functions of the host."""

    settings: Settings
    cases: Cases
    keys: Keys
    quotas: Quotas
    verifier: Verifier
    prefills: Prefills
    authenticate: Authenticate | None = None
    """Authenticates callers, in place of API keys."""
    may_follow: MayFollow | None = None
    """Decides which threads a caller may follow; without it, none."""
    identify: Identify | None = None
    """Identifies the person who answers, on the page or with a messenger's button."""
    email_codes: EmailCodes | None = None
    """None if no mail can be sent."""

    async def owner_of(self, request: Request) -> str | None:
        """The id of a request's caller, from the host's ``authenticate`` or by API key; None if it is unknown."""
        if self.authenticate is not None:
            return await self.authenticate(request)
        key_hash = self.key_hash_in(request)
        known = None if key_hash is None else await self.keys.find_hashed(key_hash)
        return None if known is None else known.key_id

    async def may_be_followed(self, caller: str, thread_id: str) -> bool:
        """Whether a caller may follow a thread; False if ``may_follow`` is missing or raises (fail closed)."""
        if self.may_follow is None:
            return False
        try:
            return await self.may_follow(caller, thread_id) is True
        except Exception:
            logger.exception("may_follow failed, so the caller may not follow the thread")
            return False

    def key_hash_in(self, request: Request) -> str | None:
        """The hash of the API key in a request; None if there is no key."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        return hashed_key(key.strip()) if scheme.lower() == "bearer" else None

    @property
    def terms(self) -> Terms:
        """The operator's terms for callers who open cases."""
        return self.cases.links.terms


async def service_of(request: Request) -> Service:
    """The service that answers a request."""
    return request.app.state.service


OpenService = Annotated[Service, Depends(service_of)]
"""The type of a route's ``service`` parameter: FastAPI passes the open service (dependency injection)."""
