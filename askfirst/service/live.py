"""A page that follows its case: server-sent events, undo, and the way to the newest round."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from pydantic_core import to_json

from askfirst.clock import seconds
from askfirst.errors import CaseHeld, CaseNotFound, LinkExpired
from askfirst.service.budgets import CountedStream, address_of
from askfirst.service.case import Case, iso
from askfirst.service.context import Service, The
from askfirst.service.continuation import going_on
from askfirst.service.outcome import newest_round, outcome_of
from askfirst.service.pages import PAGE_HEADERS
from askfirst.service.person import REVIEWER
from askfirst.service.problems import of_error, problem
from askfirst.service.review_routes import case_with_token, late_page, no_page, page_path
from askfirst.service.standing import Standing, standing_of
from askfirst.service.visitor import LINK_COOKIE, browser_of, is_foreign, is_navigation
from askfirst.store import outcomes

router = APIRouter()
LOOK_SECONDS = 1.0
"""Seconds between two looks at the store; a change in this process is seen at once."""
HEARTBEAT_LOOKS = 15
LONGEST_LOOKS = 900
"""After so many looks the stream ends, and the browser opens it again."""
_OVER = ("done", "failed", "rejected", "answered", "cancelled", "expired")
"""States after which a page has nothing more to hear, but for a next round."""
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get(
    "/review/{case_id}/live",
    response_model=None,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
        204: {"description": "All was told before"},
        404: {"description": "No such case, or not with this link"},
        410: {"description": "The time of this link is over"},
        429: {"description": "Too many open streams"},
    },
    summary="What happens to a case, for its page",
)
async def live(case_id: str, service: The, request: Request, token: str = "") -> Response:
    """Follow a case from its page, by the page's cookie: one event ``state`` now, and one for every change."""
    try:
        if kept := request.cookies.get(LINK_COOKIE):
            case = await service.cases.links.case_of_pass(case_id, kept)
        else:
            case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return of_error(error)
    if request.headers.get("last-event-id") == str(case.version) and case.is_final:
        standing = await _standing(service, case_id, None)
        if standing.state in _OVER:
            return Response(status_code=204, headers=_HEADERS)  # tells a browser not to open it again
    streams = service.quotas.streams
    stream_id = await streams.begin(f"page:{case.case_id}", address_of(request))
    stream = states(service, case.case_id, browser_of(request).mark)
    return CountedStream(stream, streams, stream_id, _HEADERS)


async def states(service: Service, case_id: str, viewer: str | None) -> AsyncIterator[bytes]:
    """The states of a case as server-sent events; ends when nothing more can happen."""
    yield b"retry: 3000\n\n"
    cases, known = service.cases, None
    with cases.followers.follow(case_id) as changed:
        for looks in range(LONGEST_LOOKS):
            changed.clear()
            pulse = await cases.engine.read(partial(outcomes.pulse, case_id))
            if pulse is None:
                return
            if pulse != known:
                known = pulse
                standing = await _standing(service, case_id, viewer)
                head = f"id: {standing.version}\nevent: state\ndata: ".encode()
                yield head + to_json(told(standing)) + b"\n\n"
                if standing.state in _OVER:
                    return
            elif looks % HEARTBEAT_LOOKS == 0:
                yield b": still here\n\n"
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await changed.wait()
            except TimeoutError:
                pass


async def _standing(service: Service, case_id: str, viewer: str | None) -> Standing:
    case = await service.cases.get(case_id)
    engine = service.cases.engine
    goes_on = await going_on(engine, case)
    outcome = await outcome_of(engine, case, goes_on)
    return standing_of(case, seconds(service.cases.now()), viewer, outcome, goes_on)


def told(standing: Standing) -> dict[str, object]:
    """A standing as its event's data: enough to know what to fetch, and nothing that was answered."""
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
        303: {"description": "Undone, or gone out already; see the page"},
        403: {"description": "Sent from another site"},
        404: {"description": "No such case, or not with this link"},
        409: {"description": "Somebody else's decision"},
    },
    summary="Take back a decision that has not gone out yet",
)
async def undo(case_id: str, service: The, request: Request, token: str = "") -> Response:
    """Take back what was decided in this browser a moment ago. What has gone out stays; the page then says so."""
    if is_foreign(service, request):
        return problem(403, "foreign_origin", "This was sent from another site.")
    try:
        case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return no_page(service, error)
    await service.quotas.spending.post(token)
    try:
        await service.cases.undo(case, browser_of(request).mark)
    except CaseHeld as error:
        return await late_page(service, case, token, request, error)
    return RedirectResponse(page_path(service, case, token), 303, PAGE_HEADERS)


@router.get("/review/{case_id}/next", response_model=None, include_in_schema=False)
async def following(case_id: str, service: The, request: Request, token: str = "") -> Response:
    """Lead whoever has a case's link to its newest round, with a link of its own."""
    try:
        case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return no_page(service, error)
    newest: Case = await newest_round(service.cases, case)
    if newest.case_id == case.case_id or not is_navigation(request.headers):
        return RedirectResponse(page_path(service, case, token), 303, PAGE_HEADERS)
    await service.quotas.spending.post(token)
    fresh = await service.cases.issue(newest.case_id, by=REVIEWER)
    path = f"{service.settings.base_path}/review/{quote(newest.case_id, safe='')}?token={fresh}"
    return RedirectResponse(path, 303, PAGE_HEADERS)
