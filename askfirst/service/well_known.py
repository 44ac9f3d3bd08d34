"""The routes that describe the service: discovery, signing keys (JWKS), OpenAPI, health."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from askfirst.errors import StoreError
from askfirst.protocol import (
    ACTIONS,
    SPEC_VERSION,
    Authentication,
    Capabilities,
    Discovery,
    Endpoints,
    Policies,
    RateLimits,
    ServiceDescription,
    ServiceInfo,
    jwks_document,
)
from askfirst.service.context import ApiKey, OpenService
from askfirst.service.problems import problem
from askfirst.store import cases as case_store

FRESH_SECONDS = 3_600
"""How long clients may cache the discovery document."""

router = APIRouter()


@router.get("/.well-known/hitl.json", response_model=Discovery, summary="What this service can do")
async def discovery(service: OpenService) -> Response:
    """The protocol's discovery document."""
    url = service.settings.base_url
    described = ServiceDescription(
        spec_version=SPEC_VERSION,
        service=ServiceInfo(name=service.settings.name, url=url),
        capabilities=Capabilities(
            review_types=list(ACTIONS),
            transports=["polling", "sse", "callback"],
            default_timeout="PT24H",
            max_timeout="P366D",
            supports_reminders=True,
            supports_multi_round=True,
            supports_signatures=service.settings.signing_key is not None,
            supports_inline_submit=service.terms.inline,
        ),
        endpoints=Endpoints(
            reviews_base=f"{url}/v1/reviews",
            review_page_base=f"{url}/review",
            well_known=f"{url}/.well-known/hitl.json",
        ),
        authentication=Authentication(type="bearer"),
        rate_limits=RateLimits(poll_recommended_interval_seconds=30, max_requests_per_minute=60),
        policies=Policies(data_retention_days=service.settings.retention_days),
    )
    return JSONResponse(
        Discovery(hitl_protocol=described).wire(),
        headers={"Cache-Control": f"public, max-age={FRESH_SECONDS}"},
    )


@router.get("/.well-known/jwks.json", summary="The keys that sign results")
async def jwks(service: OpenService) -> dict[str, Any]:
    """The public keys as a JWK set. It is empty if results are not signed."""
    return (
        {"keys": []}
        if service.settings.signing_key is None
        else jwks_document([service.settings.signing_key])
    )


@router.get("/openapi.json", include_in_schema=False, dependencies=[Depends(ApiKey())])
async def openapi(request: Request) -> Response:
    """The OpenAPI document, for callers with an API key."""
    return JSONResponse(request.app.openapi())


@router.get("/healthz", summary="Whether the process is alive")
async def healthz() -> dict[str, str]:
    """Liveness: always ok if the process can answer."""
    return {"status": "ok"}


@router.get(
    "/readyz", summary="Whether the store can be reached", responses={503: {"description": "It cannot"}}
)
async def readyz(service: OpenService) -> Response:
    """Readiness: whether cases can be read from the store now."""
    try:
        await service.cases.engine.read(partial(case_store.get, "readyz"))
    except StoreError:
        return problem(503, "unavailable", "The store cannot be reached just now.", {"Retry-After": "5"})
    return JSONResponse({"status": "ok"})
