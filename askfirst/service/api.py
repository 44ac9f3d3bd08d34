"""The routes of the API: open a case (202), poll, follow, answer and cancel it; follow a thread."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from askfirst import limits
from askfirst.errors import CaseNotFound, InlineRefused, InvalidCallbackUrl, InvalidReview, LinkExpired
from askfirst.protocol import (
    HumanInputRequired,
    PollResponse,
    SubmissionAccepted,
    SubmitRequest,
    VerificationEvidence,
)
from askfirst.protocol.events import FINAL_EVENTS
from askfirst.protocol.submit import ErrorBody
from askfirst.protocol.wire import Opt
from askfirst.service.answers import item_faults
from askfirst.service.budgets import CountedStream, address_of
from askfirst.service.case import hitl_object, iso, poll_answer
from askfirst.service.cases import Cases
from askfirst.service.context import ApiKey, DocumentedApiKey, OpenService, Service, own_case, service_of
from askfirst.service.egress import check_callback_url
from askfirst.service.friction import check_inline
from askfirst.service.new_review import ReviewRequest, check_terms
from askfirst.service.openapi import body_of
from askfirst.service.page_data import decision_for, going_on
from askfirst.service.person import messenger_user
from askfirst.service.problems import problem
from askfirst.service.request_bodies import needed_json, read_json
from askfirst.service.thread_events import HEARTBEAT_SECONDS, Position, ThreadFollower
from askfirst.store.rows import ID_LENGTH

# Opening a case, and the 202 response for its caller.


POLL_SECONDS = 30
"""The polling interval that the service recommends, sent as ``Retry-After``."""


async def open_review(
    service: Service, owner: str, review: ReviewRequest, idempotency_key: str | None = None
) -> dict[str, Any]:
    """Open a case that only ``owner`` may poll, and return the body of the 202 response."""
    if review.hitl_callback_url is not None:
        if not service.settings.takes_callbacks:
            said = "this service makes no callbacks; poll, or follow events"
            raise InvalidReview({"hitl_callback_url": said})
        try:
            check_callback_url(review.hitl_callback_url, development=service.settings.development)
        except InvalidCallbackUrl as error:
            raise InvalidReview({"hitl_callback_url": error.problem}) from None
    check_terms(review, service.terms)
    if review.addresses is not None and service.email_codes is None:
        said = "this service sends no e-mail, so it cannot ask for a code; set ASKFIRST_SMTP_URL"
        raise InvalidReview({"verify_email": said})
    if faults := item_faults(review.type, review.context):
        raise InvalidReview(faults)
    issued = await service.cases.create(owner, review, idempotency_key)
    return {
        "status": "human_input_required",
        "message": issued.case.message or issued.case.prompt,
        "hitl": hitl_object(issued.case, service.settings.base_url, issued.tokens),
    }


def accepted(body: Mapping[str, Any]) -> JSONResponse:
    """The 202 response with this body."""
    return JSONResponse(body, 202, {"Retry-After": str(POLL_SECONDS), "Cache-Control": "no-store"})


# Server-sent events of a case, resumed after the last event that the client has seen.


async def event_stream(
    cases: Cases,
    case_id: str,
    after: int,
    *,
    key_id: str | None = None,
    heartbeat: float = HEARTBEAT_SECONDS,
) -> AsyncIterator[bytes]:
    """Server-sent events after number ``after``, each once and in order; ends after a final event.

    With ``key_id``, ends before the next event if that API key has been revoked.
    """
    yield b"retry: 3000\n\n"
    with cases.followers.follow(case_id) as changed:
        while True:
            changed.clear()
            told = await cases.events_for(case_id, after, key_id)
            if told is None:
                return
            for seq, event, data in told:
                after = seq
                yield f"id: {seq}\nevent: {event}\ndata: {data}\n\n".encode()
                if event in FINAL_EVENTS:
                    return
            try:
                async with asyncio.timeout(heartbeat):
                    await changed.wait()
            except TimeoutError:
                yield b": still here\n\n"


CaseId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
_NOT_INLINE = "This service takes no answers from messengers: the person answers on the review page."
_SSE: dict[str, Any] = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}


def _error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    said = {
        400: "The request cannot be parsed",
        401: "The API key is missing or unknown",
        403: "This can only be decided on the review page",
        404: "There is no such case or thread, or it is not yours",
        409: "The case has ended, or a quota is used up",
        410: "The case has expired",
        413: "The body is too long",
        415: "The content type is not JSON",
        422: "The request has faults",
        429: "Too many requests",
        503: "The store cannot be reached",
    }
    return {
        status: {"model": ErrorBody, "description": said[status]} for status in (*statuses, 400, 413, 503)
    }


_submit_token = HTTPBearer(auto_error=False, scheme_name="SubmitToken", description="A case's submit token")


Caller = Annotated[str, Depends(ApiKey())]
Token = Annotated[HTTPAuthorizationCredentials | None, Depends(_submit_token)]
router = APIRouter(prefix="/v1")


@router.post(
    "/reviews",
    status_code=202,
    response_model=HumanInputRequired,
    responses=_error_responses(401, 404, 409, 415, 422, 429),
    openapi_extra=body_of(ReviewRequest),
    summary="Open a case",
)
async def open_case(
    request: Request,
    service: OpenService,
    key_id: Caller,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Open a case, and answer 202 with the hitl object."""
    review = await needed_json(request, ReviewRequest)
    return accepted(await open_review(service, key_id, review, idempotency_key))


@router.get(
    "/reviews/{case_id}/status",
    response_model=PollResponse,
    responses={304: {"description": "Nothing has changed"}, **_error_responses(401, 404, 422, 429)},
    dependencies=[Depends(DocumentedApiKey())],
    summary="The state of a case",
)
async def status(
    case_id: CaseId,
    request: Request,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The state of a case. A caller may poll a case 60 times a minute."""
    service = await service_of(request)
    case, polled = await own_case(service, request, case_id)
    # Only the owner's polls are counted: nobody else can use them up, or learn from a 429 which cases exist.
    wait = await service.quotas.rate.poll(case_id, polled)
    if wait is not None:
        headers = {"Retry-After": str(wait)}
        return problem(429, "rate_limited", "This case is polled too often.", headers)
    etag = f'"{case.version}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Retry-After": str(POLL_SECONDS)}
    known = _etags(if_none_match or "")
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(to_json(poll_answer(case)), 200, headers, "application/json")


def _etags(header: str) -> list[str]:
    """The ETags of ``If-None-Match``; none if the header is too long."""
    if len(header) > limits.ETAGS_CHARACTERS:
        return []
    return [part.strip().removeprefix("W/") for part in header.split(",")]


class ContinuationBody(BaseModel):
    """The continuation of an answered case: whether its thread has gone on."""

    state: Literal["due", "running", "failed", "done"]
    attempts: int
    error: str | None
    """The type of the last error, without its text."""
    next_at: str | None
    updated_at: str


@router.get(
    "/reviews/{case_id}/continuation",
    response_model=ContinuationBody,
    responses=_error_responses(401, 404, 422),
    summary="Whether an answered case has gone on",
)
async def continuation(case_id: CaseId, service: OpenService, key_id: Caller) -> Response:
    """The continuation of an answered case of an agent or a gate, for any caller who knows the case's id.

    404 while the case is open, if no resumer is registered for its thread, and for another caller's case.
    """
    case = await service.cases.get(case_id)
    known = None if case.key_id not in (None, key_id) else await going_on(service.cases.engine, case)
    if known is None:
        raise CaseNotFound(case_id)
    return JSONResponse(known.wire(), 200, {"Cache-Control": "no-store"})


@router.get(
    "/reviews/{case_id}/events",
    response_class=StreamingResponse,
    responses={200: _SSE, **_error_responses(401, 404, 422, 429)},
    summary="Follow a case",
)
async def follow(
    case_id: CaseId,
    service: OpenService,
    key_id: Caller,
    request: Request,
    last_event_id: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """The events of a case as server-sent events: from the first, or after ``Last-Event-ID``."""
    await service.cases.get(case_id, key_id)
    after = int(last_event_id) if re.fullmatch("[0-9]{1,18}", last_event_id or "") else 0
    stream_id = await service.quotas.streams.begin(key_id, address_of(request))
    stream = event_stream(service.cases, case_id, after, key_id=key_id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return CountedStream(stream, service.quotas.streams, stream_id, headers)


class Submission(SubmitRequest):
    """An answer that an agent submits because a person pressed a button in a messenger."""

    action: Annotated[str, Field(strict=True, max_length=255)]
    verification_evidence: Opt[Annotated[list[VerificationEvidence], Field(max_length=limits.PROOFS)]] = None


@router.post(
    "/reviews/{case_id}/respond",
    response_model=SubmissionAccepted,
    responses=_error_responses(401, 403, 409, 410, 415, 422, 429),
    openapi_extra=body_of(Submission),
    summary="Submit a person's answer from a messenger",
)
async def respond(case_id: CaseId, request: Request, service: OpenService, token: Token) -> Response:
    """Answer a case with its submit token, after a person pressed a button. Refused unless the operator allows it."""
    if not service.terms.inline:  # submit tokens that were issued while it was allowed are refused, too
        return problem(403, "action_not_inline", _NOT_INLINE, case_id=case_id)
    try:
        case = await service.cases.with_token(case_id, "" if token is None else token.credentials, "submit")
    except (CaseNotFound, LinkExpired):
        headers = {"WWW-Authenticate": "Bearer"}
        return problem(401, "invalid_token", "This token opens no such case.", headers)
    wait = await service.quotas.rate.submission(case_id)
    if wait is not None:
        said = "This case gets too many answers."
        return problem(429, "rate_limited", said, {"Retry-After": str(wait)})
    submission = await needed_json(request, Submission)
    action, data = submission.action, submission.data
    try:
        await service.cases.check(case, action, data, inline=True)
        check_inline(await decision_for(service, case), case, action)
        who = await messenger_user(case, request, service.identify, submission)
        proofs = submission.verification_evidence or []
        verified = await service.verifier.check(case, "inline_submit", action, proofs, address_of(request))
        if verified is not None:
            who = replace(who, context={**(who.context or {}), "verification_result": verified.wire()})
        done = await service.cases.answer(case, action, data, who)
    except InlineRefused as error:
        where = (
            f"{service.settings.base_url}/review/{case_id}"  # without a token: only the person has the link
        )
        return problem(403, error.code, str(error), case_id=case_id, review_url=where)
    body = {"status": "completed", "case_id": case_id, "completed_at": iso(done.ended_at or 0)}
    return JSONResponse(body, 200, {"Cache-Control": "no-store"})


class Cancellation(BaseModel):
    """Why a case is cancelled."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Field(min_length=1, max_length=limits.REASON_CHARACTERS)] = (
        "cancelled by the caller"
    )


@router.post(
    "/reviews/{case_id}/cancel",
    response_model=PollResponse,
    responses=_error_responses(401, 404, 409, 410, 415, 422),
    openapi_extra=body_of(Cancellation, required=False),
    summary="Cancel a case",
)
async def cancel(case_id: CaseId, request: Request, service: OpenService, key_id: Caller) -> Response:
    """End a case without an answer."""
    case = await service.cases.get(case_id, key_id)
    cancellation = await read_json(request, Cancellation, most=limits.SMALL_BODY_BYTES)
    done = await service.cases.cancel(case, (cancellation or Cancellation()).reason, key_id)
    return Response(to_json(poll_answer(done)), 200, {"Cache-Control": "no-store"}, "application/json")


@router.get(
    "/threads/{thread_id:path}/events",
    response_class=StreamingResponse,
    responses={200: _SSE, **_error_responses(401, 404, 422, 429)},
    summary="Follow a thread",
)
async def follow_thread(
    thread_id: Annotated[str, Path(min_length=1, max_length=ID_LENGTH)],
    service: OpenService,
    key_id: Caller,
    request: Request,
    begin: Annotated[Literal["now", "beginning"], Query(alias="from")] = "now",
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Everything that a run adds to its thread, as server-sent events, from any process."""
    follower = ThreadFollower(service.cases.engine, thread_id, service.cases.now, key_id)
    if not await service.may_be_followed(key_id, thread_id) or not await follower.exists():
        return problem(404, "not_found", "There is no such thread.")
    at = Position.of(last_event_id) or (Position() if begin == "beginning" else None)
    stream_id = await service.quotas.streams.begin(key_id, address_of(request))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return CountedStream(follower.stream(at), service.quotas.streams, stream_id, headers)
