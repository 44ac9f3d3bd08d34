"""The service mounted in your own FastAPI application, and called from its routes.

    hitl = create_app("sqlite:///askfirst.db", base_url="https://api.example/hitl")
    app = FastAPI(lifespan=lambda app: running(hitl))
    app.mount("/hitl", hitl)

    @app.post("/deploy")
    async def deploy(request: Request) -> Response:
        return await human_input_required(hitl, request, type="approval", prompt="Deploy v2.4.0?")

If the application authenticates its callers itself, pass its function to ``create_app(..., authenticate=...)``.
Otherwise callers send an API key of ``askfirst keys create``. Only the caller who opened a case may poll it.

If your application is traced, exclude the URLs under ``/hitl/``: a review link contains its token, and anybody with
the token can answer. With FastAPI's own tracing, use ``telemetry={"exclude": ...}``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import ValidationError

from askfirst.service import needs_service

with needs_service():
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

    from askfirst.service.context import Service

from askfirst.errors import InvalidReview, ServiceError
from askfirst.protocol.wire import faults_of
from askfirst.service.api import accepted, open_review
from askfirst.service.case import review_url
from askfirst.service.new_review import ReviewRequest
from askfirst.service.problems import error_response, unauthorized_response


@asynccontextmanager
async def running(service: FastAPI) -> AsyncGenerator[None]:
    """Open the service for the lifespan of the application that it is mounted in.

    A server runs the lifespan of the outermost application only. If you have a lifespan of your own, put
    ``async with running(hitl):`` around its ``yield``.
    """
    async with service.router.lifespan_context(service):
        yield


async def human_input_required(
    service: FastAPI,
    request: Request,
    *,
    data: dict[str, Any] | None = None,
    idempotency_key: str | None = None,
    **review: Any,
) -> Response:
    """Open a case for a person to decide, and return the 202 response with the hitl object for this request.

    ``review`` are the fields of `ReviewRequest`: ``type``, ``prompt``, ``context``, ``timeout`` and so on. Pass the
    caller's ``hitl_callback_url`` on if it sent one. ``data`` is put into the body beside the hitl object. The
    case belongs to the caller of the request. The response is 401 for an unknown caller, and 422 for a fault of the
    caller, such as an invalid callback URL. Raises `InvalidReview` for an invalid ``review``.
    """
    opened = service_in(service)
    owner = await opened.owner_of(request)
    if owner is None:
        return unauthorized_response()
    try:
        asked = ReviewRequest(**review)
    except ValidationError as error:
        raise InvalidReview(faults_of(error, review)) from None
    try:
        body = await open_review(opened, owner, asked, idempotency_key)
    except ServiceError as error:
        return error_response(error)
    return accepted(body if data is None else {**body, "data": data})


async def review_link(service: FastAPI, case_id: str, *, days: float | None = None) -> str:
    """A new link to the page of a case, for the person who has to decide. Anybody with the link can answer.

    Use it in ``on_case``, which is called for the requests of agents, and with ``links="service"`` for all cases. The
    link is valid for ``days``, by default for `create_app`'s ``link_days``. Raises `CaseNotFound`.
    """
    opened = service_in(service)
    token = await opened.cases.issue(case_id, "review", days=days)
    return review_url(opened.settings.base_url, case_id, token)


async def revoke_links(service: FastAPI, case_id: str, *, by: str = "service") -> int:
    """Revoke all links and submit tokens of a case; returns how many. Raises `CaseNotFound`.

    The case stays open: make a new link with `review_link`, or cancel the case. ``by`` is the actor for the audit
    trail.
    """
    return await service_in(service).cases.revoke_links(case_id, by=by)


def service_in(app: FastAPI) -> Service:
    """The open service of an application that `create_app` made; raises `ServiceError` while it is closed."""
    opened: Service | None = getattr(app.state, "service", None)
    if opened is None:
        raise ServiceError(
            "the service is not open: run it alone, or put running(...) into your own lifespan"
        )
    return opened
