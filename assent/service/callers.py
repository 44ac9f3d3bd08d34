"""Who calls the API, and whether the case that they ask for is theirs."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from fastapi.openapi.models import HTTPBearer as HTTPBearerModel
from fastapi.security.base import SecurityBase

from assent.errors import CaseNotFound
from assent.service.case import Case
from assent.service.context import Service, service_of
from assent.service.rows import case_of
from assent.store.polls import Asked


class Unauthorized(Exception):
    """A request without a key, or with one that is not known."""


class ShownKey(SecurityBase):
    """Describes how callers say who they are; the route finds out, together with its case (`own_case`)."""

    def __init__(self) -> None:
        self.model = HTTPBearerModel(description="A key of `assent keys create`")
        self.scheme_name = "ApiKey"

    async def __call__(self, request: Request) -> str | None:
        """None: nobody has looked as yet."""
        return None


class ApiKey(ShownKey):
    """Finds the id of whoever makes a request."""

    async def __call__(self, request: Request) -> str:
        """The id; raises `Unauthorized`."""
        owner = await (await service_of(request)).owner_of(request)
        if owner is None:
            raise Unauthorized
        request.state.key_id = owner
        return owner


async def own_case(service: Service, request: Request, case_id: str) -> tuple[Case, Sequence[int]]:
    """The case that a request asks for, and when it was asked for lately, as far as the store counts that.

    Who asks, and whether the case is theirs, is found in the same statement: polls come often.
    Raises `Unauthorized`, and `CaseNotFound` for a case of others as for one that does not exist.
    """
    asked = await _asked(service, request, case_id)
    if asked is None:
        raise Unauthorized
    request.state.key_id = asked.owner
    if asked.row is None:
        raise CaseNotFound(case_id)
    return case_of(asked.row), asked.times


async def _asked(service: Service, request: Request, case_id: str) -> Asked | None:
    store = service.cases.store
    if service.authenticate is not None:
        owner = await service.authenticate(request)
        return None if owner is None else await store.asked_by_owner(case_id, owner)
    key_hash = service.key_hash_in(request)
    return None if key_hash is None else await store.asked_by_key(case_id, key_hash)
