"""Error responses: a status, and a body of the protocol's shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from askfirst.errors import (
    CaseClosed,
    CaseExpired,
    CaseHeld,
    CaseNotFound,
    EmailCodeRefused,
    IdempotencyConflict,
    InlineRefused,
    InvalidReview,
    LinkExpired,
    NotAuthorized,
    NotIdentified,
    OverBudget,
    ServiceError,
    StoreError,
)
from askfirst.service.pages import PAGE_HEADERS, render_unavailable, render_unknown

_AWAY = {"Retry-After": "5"}
_LINK_HOLDERS: Mapping[type[ServiceError], tuple[int, str]] = {
    NotIdentified: (403, "not_identified"),
    NotAuthorized: (403, "not_authorized"),
    LinkExpired: (410, "link_expired"),
}


def problem(
    status: int, error: str, message: str, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """An error response."""
    body = {"error": error, "message": message, **more}
    return JSONResponse(body, status, {"Cache-Control": "no-store", **(headers or {})})


def unauthorized() -> Response:
    """The response to a caller without a valid API key."""
    said = "A known API key is needed: Authorization: Bearer ..."
    return problem(401, "invalid_api_key", said, {"WWW-Authenticate": "Bearer"})


def of_error(error: ServiceError | StoreError) -> Response:
    """The response for an error."""
    said = str(error)
    if isinstance(error, OverBudget):
        return _over_budget(error)
    match error:
        case CaseNotFound():
            return problem(404, "not_found", "There is no such case.")
        case CaseClosed() | CaseHeld():
            code = "held" if isinstance(error, CaseHeld) else "duplicate_submission"
            return problem(409, code, said, case_id=error.case_id)
        case CaseExpired():
            return problem(410, "case_expired", said, case_id=error.case_id)
        case IdempotencyConflict():
            return problem(422, "idempotency_conflict", said)
        case InvalidReview():
            return problem(422, "invalid_request", said, faults=error.faults)
        case NotIdentified() | NotAuthorized() | LinkExpired():
            return problem(*_LINK_HOLDERS[type(error)], said)
        case InlineRefused() | EmailCodeRefused():
            return problem(403, error.code, said, case_id=error.case_id)
        case StoreError():
            return problem(503, "unavailable", "The store cannot be reached just now.", _AWAY)
        case _:
            return problem(400, "refused", said)


def _over_budget(error: OverBudget) -> Response:
    """The response for an exceeded budget: 429 where waiting helps, else 409."""
    status = 409 if error.retry_after is None else 429
    wait = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return problem(status, "over_budget", str(error), wait, budget=error.budget)


def of_error_to(request: Request, error: ServiceError | StoreError) -> Response:
    """The response for an error: a page for a browser if the store cannot be reached, else JSON."""
    if isinstance(error, StoreError) and _from_browser(request):
        html = render_unavailable(request.app.state.service.settings.base_path, sent=request.method == "POST")
        return HTMLResponse(html, 503, {**PAGE_HEADERS, **_AWAY})
    return of_error(error)


def nowhere(request: Request) -> Response:
    """The 404 response: a page for a browser, else JSON."""
    if _from_browser(request):
        return HTMLResponse(render_unknown(request.app.state.service.settings.base_path), 404, PAGE_HEADERS)
    return problem(404, "not_found", "Not Found")


def _from_browser(request: Request) -> bool:
    """Whether the client accepts HTML, as browsers do."""
    return "text/html" in request.headers.get("accept", "").lower()
