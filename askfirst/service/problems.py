"""Error responses: an HTTP status, and a body in the protocol's format, or a page for a browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

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
from askfirst.service.context import Settings
from askfirst.service.pages import (
    PAGE_HEADERS,
    Reader,
    language_for,
    languages,
    render_foreign,
    render_unavailable,
    render_unknown,
)
from askfirst.service.pages.reader import SCHEMES

_RETRY_SOON = {"Retry-After": "5"}
SCHEME_COOKIE = "askfirst_scheme"
"""The colour scheme that a reader chose: ``light`` or ``dark``."""
_LINK_ERRORS: Mapping[type[ServiceError], tuple[int, str]] = {
    NotIdentified: (403, "not_identified"),
    NotAuthorized: (403, "not_authorized"),
    LinkExpired: (410, "link_expired"),
}


def problem(
    status: int, error: str, message: str, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """An error response; ``more`` are further fields of its body."""
    body = {"error": error, "message": message, **more}
    return JSONResponse(body, status, {"Cache-Control": "no-store", **(headers or {})})


def unauthorized_response() -> Response:
    """The response to a caller without a valid API key."""
    said = "A known API key is needed: Authorization: Bearer ..."
    return problem(401, "invalid_api_key", said, {"WWW-Authenticate": "Bearer"})


def error_response(error: ServiceError | StoreError) -> Response:
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
            return problem(*_LINK_ERRORS[type(error)], said)
        case InlineRefused() | EmailCodeRefused():
            return problem(403, error.code, said, case_id=error.case_id)
        case StoreError():
            return problem(503, "unavailable", "The store cannot be reached just now.", _RETRY_SOON)
        case _:
            return problem(400, "refused", said)


def _over_budget(error: OverBudget) -> Response:
    """The response for an exceeded budget: 429 if waiting helps, otherwise 409."""
    status = 409 if error.retry_after is None else 429
    wait = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return problem(status, "over_budget", str(error), wait, budget=error.budget)


def error_response_to(request: Request, error: ServiceError | StoreError) -> Response:
    """The response for an error: JSON, or a page if the store cannot be reached and a browser asks."""
    if isinstance(error, StoreError) and _from_browser(request):
        service = request.app.state.service
        sent, reader = request.method == "POST", reader_of(service.settings, request)
        page_url = _page_of(request) if sent else ""
        html = render_unavailable(service.settings.base_path, sent=sent, page_url=page_url, reader=reader)
        return HTMLResponse(html, 503, {**PAGE_HEADERS, **_RETRY_SOON})
    return error_response(error)


def _page_of(request: Request) -> str:
    """The case's page, from a step such as ``/review/ID/respond``: relative, because a proxy may add a prefix."""
    case_id = request.path_params.get("case_id")
    return "" if case_id is None else f"../{quote(str(case_id), safe='')}?{request.url.query}"


def foreign_response(request: Request) -> Response:
    """The response to a form that another site's page has posted (CSRF): a page for a browser, else JSON."""
    if _from_browser(request):
        settings = request.app.state.service.settings
        html = render_foreign(settings.base_path, reader_of(settings, request))
        return HTMLResponse(html, 403, PAGE_HEADERS)
    return problem(403, "foreign_origin", "This was sent from another site.")


def not_found_response(request: Request) -> Response:
    """The 404 response: a page for a browser, otherwise JSON."""
    if _from_browser(request):
        settings = request.app.state.service.settings
        html = render_unknown(settings.base_path, reader_of(settings, request))
        return HTMLResponse(html, 404, PAGE_HEADERS)
    return problem(404, "not_found", "Not Found")


def _from_browser(request: Request) -> bool:
    """Whether the client accepts HTML, as browsers do."""
    return "text/html" in request.headers.get("accept", "").lower()


def reader_of(settings: Settings, request: Request) -> Reader:
    """The reader of a page, with the language that the address asks for, the browser prefers or the service has."""
    asked = request.query_params.get("lang")
    language = language_for(asked, request.headers.get("accept-language"), settings.language)
    kept = request.cookies.get(SCHEME_COOKIE)
    scheme = kept if kept in SCHEMES else None
    return Reader(language, settings.name, asked if asked in languages() else None, scheme)
