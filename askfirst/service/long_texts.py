"""Downloads of long texts: one value of a case as a file, exactly as it is, hidden characters included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from askfirst.errors import CaseNotFound, LinkExpired
from askfirst.service.case import Case
from askfirst.service.context import OpenService, Service
from askfirst.service.page_data import sight_of
from askfirst.service.pages import PAGE_HEADERS
from askfirst.service.pages.decision import values_of
from askfirst.service.pages.edits import formats_of
from askfirst.service.pages.rows import text_of
from askfirst.service.pages.sources import source
from askfirst.service.review_routes import case_with_token, no_page
from askfirst.service.visitor import Visit, for_visitor, view_of, visit_of

router = APIRouter()
_HEADERS = {**PAGE_HEADERS, "Content-Disposition": 'attachment; filename="value.txt"'}


@router.get("/review/{case_id}/text", include_in_schema=False)
async def download(case_id: str, service: OpenService, request: Request, token: str = "") -> Response:
    """One value of a case as plain text. ``of`` and ``row`` name it, as for the page of its parts."""
    visit = visit_of(service, request, token)
    try:
        case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return await no_page(service, error, visit)
    view = view_of(request)
    case = await for_visitor(service, case, request)
    values = await _values(service, case, view.of, visit)
    names = list(values)
    if view.row is None or view.row >= len(names):
        return await no_page(service, CaseNotFound(case_id), visit)
    name = names[view.row]
    if view.of in ("", "was", "edited") and formats_of(case).get(name) == "secret":
        return await no_page(service, CaseNotFound(case_id), visit)
    text = text_of(values[name])
    return Response(text.encode("utf-8", "surrogatepass"), 200, _HEADERS, "text/plain; charset=utf-8")


async def _values(service: Service, case: Case, of: str, visit: Visit) -> Mapping[str, Any]:
    if not of:
        return values_of(case)
    sight = await sight_of(service, case)
    return source(of, case, sight.standing, sight.previous, visit.reader.language)
