"""Routes for a page that follows its case: server-sent events, undo, and the newest round."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from pydantic_core import to_json

from askfirst.clock import seconds
from askfirst.errors import CaseHeld, CaseNotFound, LinkExpired
from askfirst.service.budgets import CountedStream, address_of
from askfirst.service.case import Case, iso
from askfirst.service.case_state import CaseState, case_state_of
from askfirst.service.context import OpenService, Service
from askfirst.service.page_data import going_on, newest_round, outcome_of
from askfirst.service.pages import PAGE_HEADERS
from askfirst.service.pages.reader import Place
from askfirst.service.person import REVIEWER
from askfirst.service.problems import error_response, foreign_response
from askfirst.service.review_routes import case_with_token, late_page, no_page, page_path
from askfirst.service.visitor import (
    LINK_COOKIE,
    Visit,
    browser_of,
    for_visitor,
    is_cross_site,
    is_navigation,
    visit_of,
)
from askfirst.store import outcomes

router = APIRouter()
POLL_SECONDS = 1.0
"""The polling interval, in seconds. A change that this process makes wakes the stream at once."""
HEARTBEAT_POLLS = 15
"""Polls between two heartbeats (keep-alive comments)."""
MOST_POLLS = 900
"""Polls after which the stream ends; the browser then opens it again."""
_FINAL_STATES = ("done", "failed", "rejected", "answered", "cancelled", "expired")
"""States after which the stream ends, because no further change is expected."""
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get(
    "/review/{case_id}/live",
    response_model=None,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
        204: {"description": "There are no further events"},
        404: {"description": "There is no such case, or the link does not open it"},
        410: {"description": "The link has expired"},
        429: {"description": "Too many open streams"},
    },
    summary="What happens to a case, for its page",
)
async def live(case_id: str, service: OpenService, request: Request, token: str = "") -> Response:
    """Follow a case from its page: one event ``state`` at once, and one for every change.

    The page's cookie (`page_pass`) gives access; without the cookie, the link's token does.
    """
    kept = request.cookies.get(LINK_COOKIE)

    async def opened() -> Case:
        if kept:
            return await service.cases.links.case_of_pass(case_id, kept)
        return await case_with_token(service, case_id, token)

    try:
        case = await opened()
    except (CaseNotFound, LinkExpired) as error:
        return error_response(error)
    if request.headers.get("last-event-id") == str(case.version) and case.is_final:
        standing = await _state_for(service, case_id, None)
        if standing.state in _FINAL_STATES:
            return Response(status_code=204, headers=_HEADERS)  # a browser does not reconnect after 204
    streams = service.quotas.streams
    stream_id = await streams.begin(f"page:{case.case_id}", address_of(request))
    stream = states(service, case, browser_of(request).mark, opened)
    return CountedStream(stream, streams, stream_id, _HEADERS)


async def states(
    service: Service, case: Case, viewer: str | None, opened: Callable[[], Awaitable[Case]]
) -> AsyncIterator[bytes]:
    """The states of a case as server-sent events. Ends after a final state, or after `MOST_POLLS` polls.

    ``opened`` opens the case with the reader's link once more: the stream ends with the link.
    """
    yield b"retry: 3000\n\n"
    cases, known, case_id = service.cases, None, case.case_id
    call = None if case.payload is None else case.payload.call
    look = partial(outcomes.pulse, case_id, "" if call is None else call.tool_call_id)
    with cases.followers.follow(case_id) as changed:
        for polls in range(MOST_POLLS):
            changed.clear()
            pulse = await cases.engine.read(look)
            if pulse is None:
                return
            if pulse != known or polls % HEARTBEAT_POLLS == 0:
                try:
                    await opened()
                except (CaseNotFound, LinkExpired):  # revoked, or expired
                    return
            if pulse != known:
                known = pulse
                standing = await _state_for(service, case_id, viewer)
                head = f"id: {standing.version}\nevent: state\ndata: ".encode()
                yield head + to_json(state_data(standing)) + b"\n\n"
                if standing.state in _FINAL_STATES:
                    return
            elif polls % HEARTBEAT_POLLS == 0:
                yield b": still here\n\n"
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await changed.wait()
            except TimeoutError:
                pass


async def _state_for(service: Service, case_id: str, viewer: str | None) -> CaseState:
    case = await service.cases.get(case_id)
    engine = service.cases.engine
    goes_on = await going_on(engine, case)
    outcome = await outcome_of(engine, case, goes_on)
    return case_state_of(case, seconds(service.cases.now()), viewer, outcome, goes_on)


def state_data(standing: CaseState) -> dict[str, object]:
    """The data of a ``state`` event: enough for the page to fetch itself again, without the answer's contents."""
    said: dict[str, object] = {
        "state": standing.state,
        "version": standing.version,
        "is_yours": standing.is_yours,
        "has_next": standing.has_next,
    }
    if standing.held_until is not None:
        said["held_until"] = iso(standing.held_until)
    if standing.lost is not None:
        said["lost"] = standing.lost
    return said


@router.post(
    "/review/{case_id}/undo",
    response_model=None,
    responses={
        303: {"description": "Undone, or too late to undo; see the page"},
        403: {"description": "Sent from another site"},
        404: {"description": "There is no such case, or the link does not open it"},
        409: {"description": "The decision was made by somebody else"},
    },
    summary="Undo a decision that is still held",
)
async def undo(case_id: str, service: OpenService, request: Request, token: str = "") -> Response:
    """Undo a held decision of this browser or login. A decision that already counts stays; the page then shows it."""
    visit = visit_of(service, request, token)
    if is_cross_site(service, request):
        return foreign_response(request)
    try:
        case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return await no_page(service, error, visit)
    await service.quotas.spending.post(token)
    try:
        case = await for_visitor(service, case, request)
        await service.cases.undo(case, browser_of(request).mark)
    except CaseHeld as error:
        return await late_page(service, case, visit, request, error)
    return RedirectResponse(f"{page_path(service, case, visit)}&undone=1", 303, PAGE_HEADERS)


@router.get("/review/{case_id}/next", response_model=None, include_in_schema=False)
async def next_round(case_id: str, service: OpenService, request: Request, token: str = "") -> Response:
    """Redirect a person with a case's link to the newest round of the case, with a new link for that round."""
    visit = visit_of(service, request, token)
    try:
        case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return await no_page(service, error, visit)
    newest = await newest_round(service.cases, case)
    return await _to_round(service, case, newest.case_id, visit, request)


@router.get("/review/{case_id}/previous", response_model=None, include_in_schema=False)
async def preceding(case_id: str, service: OpenService, request: Request, token: str = "") -> Response:
    """Redirect a person with a case's link to the previous round of the case, with a new link for that round."""
    visit = visit_of(service, request, token)
    try:
        case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return await no_page(service, error, visit)
    return await _to_round(service, case, case.previous_case_id, visit, request)


async def _to_round(
    service: Service, case: Case, other_id: str | None, visit: Visit, request: Request
) -> Response:
    """Redirect to another round of a case with a new link, or to the case itself if there is no such round."""
    if other_id in (None, case.case_id) or not is_navigation(request.headers):
        return RedirectResponse(page_path(service, case, visit), 303, PAGE_HEADERS)
    await service.quotas.spending.post(visit.token)
    if await service.cases.links.are_revoked(str(other_id)):
        return await no_page(service, CaseNotFound(str(other_id)), visit)
    try:
        days = await service.cases.links.days_left(
            case, visit.token
        )  # else two rounds would renew each other's
        fresh = await service.cases.issue(str(other_id), by=REVIEWER, days=days)
    except CaseNotFound:  # purged
        return RedirectResponse(page_path(service, case, visit), 303, PAGE_HEADERS)
    asked = visit.reader.asked_language
    path = Place(service.settings.base_path, str(other_id), fresh, asked).address()
    return RedirectResponse(path, 303, PAGE_HEADERS)
