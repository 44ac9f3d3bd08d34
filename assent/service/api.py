"""The API that agents and services use: open a case, ask how it stands, follow it, answer it, cancel it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Path, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from assent.errors import CaseNotFound, InvalidCallbackUrl, InvalidReview
from assent.protocol import HumanInputRequired, PollResponse, SubmissionAccepted, SubmitRequest
from assent.protocol.submit import ErrorBody
from assent.service.addresses import check_callback_url
from assent.service.cases import Respondent
from assent.service.context import Service, service_of
from assent.service.problems import problem
from assent.service.review import ReviewRequest
from assent.service.streams import event_stream
from assent.service.wire import hitl_object, iso, poll_answer

POLL_SECONDS = 30
"""How long a poller is asked to wait."""
CaseId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
_SSE: dict[str, Any] = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    said = {
        400: "The request cannot be read",
        401: "No key, or one that is not known",
        403: "It can only be done on the review page",
        404: "No such case, or not yours",
        409: "The case has ended",
        410: "The case's time is up",
        422: "It does not fit",
        429: "Too often",
        503: "The store cannot be reached",
    }
    return {status: {"model": ErrorBody, "description": said[status]} for status in (*statuses, 400, 503)}


class Unauthorized(Exception):
    """A request without a key, or with one that is not known."""


async def caller(
    request: Request,
    service: Annotated[Service, Depends(service_of)],
    authorization: Annotated[str | None, Header()] = None,
) -> str:
    """The id of the key that a request comes with."""
    scheme, _, key = (authorization or "").partition(" ")
    known = await service.keys.find(key.strip()) if scheme.lower() == "bearer" else None
    if known is None:
        raise Unauthorized
    request.state.key_id = known.key_id
    return known.key_id


Caller = Annotated[str, Depends(caller)]
The = Annotated[Service, Depends(service_of)]
router = APIRouter(prefix="/v1")


@router.post(
    "/reviews",
    status_code=202,
    response_model=HumanInputRequired,
    responses=_refusals(401, 404, 422),
    summary="Open a case",
)
async def open_case(
    review: ReviewRequest,
    service: The,
    key_id: Caller,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Open a case, and get the answer to give: 202 with the hitl object."""
    if review.hitl_callback_url is not None:
        if not service.takes_callbacks:
            raise InvalidReview(
                {"hitl_callback_url": "this service makes no callbacks; poll, or follow events"}
            )
        try:
            check_callback_url(review.hitl_callback_url, development=service.development)
        except InvalidCallbackUrl as error:
            raise InvalidReview({"hitl_callback_url": str(error)}) from None
    issued = await service.cases.create(key_id, review, idempotency_key)
    body = {
        "status": "human_input_required",
        "message": issued.case.message or issued.case.prompt,
        "hitl": hitl_object(issued.case, service.base_url, issued.tokens),
    }
    return JSONResponse(body, 202, {"Retry-After": str(POLL_SECONDS), "Cache-Control": "no-store"})


@router.get(
    "/reviews/{case_id}/status",
    response_model=PollResponse,
    responses={304: {"description": "Nothing has changed"}, **_refusals(401, 404, 422, 429)},
    summary="How a case stands",
)
async def status(
    case_id: CaseId,
    service: The,
    key_id: Caller,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """How a case stands, at most 60 times a minute."""
    wait = service.rate.allow(case_id)
    if wait is not None:
        headers = {"Retry-After": str(wait)}
        return problem(429, "rate_limited", "This case is asked about too often.", headers)
    case = await service.cases.get(case_id, key_id)
    etag = f'"{case.version}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Retry-After": str(POLL_SECONDS)}
    if if_none_match is not None and etag in (part.strip() for part in if_none_match.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(to_json(poll_answer(case)), 200, headers, "application/json")


@router.get(
    "/reviews/{case_id}/events",
    response_class=StreamingResponse,
    responses={200: _SSE, **_refusals(401, 404, 422)},
    summary="Follow a case",
)
async def follow(
    case_id: CaseId,
    service: The,
    key_id: Caller,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """What happens to a case, as server-sent events, from the first or from the one last seen."""
    await service.cases.get(case_id, key_id)
    after = int(last_event_id) if last_event_id is not None and last_event_id.isdigit() else 0
    stream = event_stream(service.cases, case_id, min(after, 2**62))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, 200, headers, "text/event-stream")


@router.post(
    "/reviews/{case_id}/respond",
    response_model=SubmissionAccepted,
    responses=_refusals(401, 403, 409, 410, 422, 429),
    summary="Carry a person's answer from a messenger",
)
async def respond(
    case_id: CaseId,
    submission: SubmitRequest,
    service: The,
    authorization: Annotated[str | None, Header()] = None,
) -> Response:
    """Answer a case with its submit token, after a person pressed a button."""
    scheme, _, token = (authorization or "").partition(" ")
    try:
        if scheme.lower() != "bearer":
            raise CaseNotFound(case_id)
        case = await service.cases.with_token(case_id, token.strip(), "submit")
    except CaseNotFound:
        return problem(401, "invalid_token", "This token opens no such case.")
    verified = await service.verifier.check(
        case, "inline_submit", submission.action, submission.verification_evidence or []
    )
    by = submission.submitted_by
    context: dict[str, Any] = {
        "mode": "inline_submit",
        "submitted_via": submission.submitted_via,
        "submitted_by": by.model_dump(mode="json", exclude_none=True),
    }
    if verified is not None:
        context["verification_result"] = verified.model_dump(mode="json", exclude_none=True)
    who = Respondent(
        by=f"{by.platform}:{by.platform_user_id}"[:255],
        via=submission.submitted_via,
        responded_by={"name": by.display_name} if by.display_name else None,
        context=context,
    )
    done = await service.cases.answer_inline(case, submission.action, submission.data, who)
    body = {"status": "completed", "case_id": case_id, "completed_at": iso(done.ended_at or 0)}
    return JSONResponse(body, 200, {"Cache-Control": "no-store"})


class Cancellation(BaseModel):
    """Why nobody is to decide any more."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Field(min_length=1, max_length=2000)] = "cancelled by the caller"


@router.post(
    "/reviews/{case_id}/cancel",
    response_model=PollResponse,
    responses=_refusals(401, 404, 409, 410, 422),
    summary="Cancel a case",
)
async def cancel(
    case_id: CaseId,
    service: The,
    key_id: Caller,
    request: Request,
    cancellation: Annotated[Cancellation | None, Body()] = None,
) -> Response:
    """End a case without an answer."""
    case = await service.cases.get(case_id, key_id)
    done = await service.cases.cancel(case, (cancellation or Cancellation()).reason, key_id)
    return Response(to_json(poll_answer(done)), 200, {"Cache-Control": "no-store"}, "application/json")
