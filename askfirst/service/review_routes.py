"""The routes of the review page: link previews, form progress, drafts, answers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from askfirst import limits
from askfirst.clock import seconds
from askfirst.errors import (
    CaseClosed,
    CaseExpired,
    CaseHeld,
    CaseNotFound,
    EmailCodeRefused,
    InlineRefused,
    InvalidProtocolObject,
    InvalidReview,
    LinkExpired,
    OverBudget,
    ServiceError,
)
from askfirst.messages import JsonObject
from askfirst.protocol import ReviewSubmission, VerificationEvidence, sensitive_keys, visible_fields
from askfirst.service.answers import check_step, may_decline
from askfirst.service.bodies import is_json, media_type, parsed, posted_fields, read_bytes
from askfirst.service.budgets import address_of
from askfirst.service.case import Case, iso
from askfirst.service.context import Service, The
from askfirst.service.email_codes import read_code
from askfirst.service.friction import (
    check_json,
    confirm_value,
    faults_of,
    is_acting,
    note_field,
    without_step_up,
)
from askfirst.service.gather import decision_for, sight_of
from askfirst.service.pages import (
    PAGE_HEADERS,
    STATIC,
    Notice,
    Submission,
    fields_to_fill,
    read_submission,
    render_case,
    render_outlived,
    render_unknown,
    render_withheld,
)
from askfirst.service.pages.decision import risk_of
from askfirst.service.pages.rows import ALL, View
from askfirst.service.pages.sight import Second
from askfirst.service.person import respondent
from askfirst.service.problems import of_error, problem
from askfirst.service.standing import note_in
from askfirst.service.transitions import Pressed
from askfirst.service.visitor import (
    browser_of,
    is_foreign,
    is_navigation,
    keep,
    keep_link,
    seen,
    seen_by,
    view_of,
)
from askfirst.service.worker_threads import apart

# Progress in a form.


def progress_of(case: Case, data: Mapping[str, Any], step: int) -> JsonObject | None:
    """The protocol's progress object; None for a case without a form."""
    form = case.form
    if form is None:
        return None
    fields = visible_fields(form, data)
    filled = sum(1 for field in fields if data.get(field.key) not in (None, "", []))
    said: JsonObject = {"completed_fields": filled, "total_fields": len(fields)}
    if form.steps is not None:
        said |= {"current_step": min(step, len(form.steps)), "total_steps": len(form.steps)}
    return said


router = APIRouter()
_CASE_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_FORMS = ("application/x-www-form-urlencoded", "")
_JSON_SUBMISSION: dict[str, Any] = ReviewSubmission.model_json_schema()
_JSON_SUBMISSION["properties"]["email_code"] = {"type": "string"}
_JSON_SUBMISSION["properties"]["verification_evidence"] = {"type": "array", "items": {"type": "object"}}
_SENDING: dict[str, tuple[Notice, int]] = {
    "sent": ("code_sent", 200),
    "too_many": ("too_many_codes", 429),
    "not_sent": ("code_not_sent", 503),
}
_NO_PROOF = "This proof was not accepted. Make a new one, for this decision."
_UNKNOWN = {"description": "No such case, or not with this token"}
_OUTLIVED = {"description": "The time of this link is over"}
_WITHHELD = {"description": "The service itself sends the link to the person"}


def static_files() -> StaticFiles:
    """The pages' style sheet and script."""
    return StaticFiles(directory=STATIC, check_dir=False)


@router.head("/review/{case_id}", include_in_schema=False)
@router.get(
    "/review/{case_id}",
    response_class=HTMLResponse,
    responses={403: _WITHHELD, 404: _UNKNOWN, 410: _OUTLIVED},
    summary="The page where a person decides",
)
async def page(case_id: str, service: The, request: Request, token: str = "") -> Response:
    """Show a case. A person's navigation opens the case; previews and prefetches do not."""
    if (
        not token and service.terms.links == "service"
    ):  # the same for every id, so that it does not tell which cases exist
        return _html(render_withheld(service.settings.base_path), 403)
    try:
        case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return no_page(service, error)
    visited = request.method == "GET" and is_navigation(request.headers)
    if visited:
        case = await seen(service, await service.cases.opened(case), request)
    else:
        case = seen_by(case, browser_of(request))
    response = await _page(service, case, token, view=view_of(request), visited=visited)
    if visited:
        keep_link(response, service, case, token)
    return response


@router.post(
    "/review/{case_id}/respond",
    responses={
        303: {"description": "Answered; see the page"},
        403: {
            "description": "Sent from another site, not with the code or proof needed, or by nobody who may"
        },
        400: {"description": "The request cannot be read"},
        404: _UNKNOWN,
        409: {"description": "The case has ended"},
        410: {"description": "The case's time is up, or the link's"},
        413: {"description": "Too long"},
        415: {"description": "Neither a form nor JSON"},
        422: {"description": "It does not fit"},
        429: {"description": "Too often, or too many codes"},
        503: {"description": "The code could not be sent"},
    },
    response_model=None,
    summary="A person's decision, from the page",
    openapi_extra={
        "requestBody": {
            "content": {
                "application/json": {"schema": _JSON_SUBMISSION},
                "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
            }
        }
    },
)
async def decide(case_id: str, service: The, request: Request, token: str = "") -> Response:
    """Take a decision: a form from the page, or JSON ``{"action", "data"}``.

    With ``email_code`` or ``verification_evidence``, if need be.
    """
    as_json = is_json(request)
    if is_foreign(service, request):
        return problem(403, "foreign_origin", "This was sent from another site.")
    try:
        case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return of_error(error) if as_json else no_page(service, error)
    if not as_json and media_type(request) not in _FORMS:
        said = "A decision is a form (application/x-www-form-urlencoded) or JSON (application/json)."
        return problem(415, "unsupported_media_type", said)
    raw = await read_bytes(request)
    if as_json:
        await service.quotas.spending.post(token)
        return await _decide_json(service, case, request, raw)
    return await _decide_form(service, case, token, request, raw)


async def _decide_json(service: Service, case: Case, request: Request, raw: bytes) -> Response:
    said = await apart(len(raw), parsed, raw, ReviewSubmission)
    more: Mapping[str, Any] = said.model_extra or {}
    code = more.get("email_code", "")
    if not isinstance(code, str) or len(code) > limits.CODE_CHARACTERS:
        raise InvalidReview({"email_code": f"is text of at most {limits.CODE_CHARACTERS} characters"})
    proofs = _evidence(more.get("verification_evidence") or [])
    case = await seen(service, case, request)
    if risk_of(case) == "critical":
        check_json(await decision_for(service, case), case, said.action, said.data)
    done = await _answer(service, case, request, said.action, said.data, code, proofs)
    body = {"status": "completed", "case_id": case.case_id, "completed_at": iso(done.ended_at or 0)}
    return JSONResponse(body, 200, {"Cache-Control": "no-store"})


def _evidence(given: Any) -> list[VerificationEvidence]:
    proofs = cast("list[Any]", given) if isinstance(given, list) else [given]
    if len(proofs) > limits.PROOFS:
        raise InvalidReview({"verification_evidence": f"has at most {limits.PROOFS} proofs"})
    try:
        return [VerificationEvidence.read(each) for each in proofs]
    except InvalidProtocolObject:
        raise InvalidReview({"verification_evidence": "is a list of proofs"}) from None


async def _decide_form(service: Service, case: Case, token: str, request: Request, raw: bytes) -> Response:
    """Handle a posted form: a step, a draft, a preview of edits, a request for a code, or the decision."""
    browser = browser_of(request)
    case = await seen(service, case, request, browser)
    try:
        submission = await apart(case.size + len(raw), _read_form, case, raw)
    except ValueError:
        return problem(422, "invalid_request", f"A form has at most {limits.POSTED_FIELDS} fields.")
    if is_repeated(case, submission.nonce):
        return RedirectResponse(page_path(service, case, token), 303, PAGE_HEADERS)
    try:
        response = await _heard(service, case, token, request, submission)
        keep(
            response,
            browser,
            case,
            base_url=service.settings.base_url,
            base_path=service.settings.base_path,
            now=seconds(service.cases.now()),
        )
        return response
    except (CaseClosed, CaseExpired, CaseHeld) as error:
        return await late_page(service, case, token, request, error, submission.nonce)
    except ServiceError as error:
        refused = of_error(error)
        faults = {"": str(error)}
        page = await _page(service, case, token, submission, faults, status=refused.status_code)
        if "Retry-After" in refused.headers:
            page.headers["Retry-After"] = refused.headers["Retry-After"]
        return page


def _read_form(case: Case, raw: bytes) -> Submission:
    """Parse a posted form; raises ``ValueError`` for too many fields."""
    return read_submission(case, posted_fields(raw, most=limits.POSTED_FIELDS))


async def late_page(
    service: Service,
    case: Case,
    token: str,
    request: Request,
    error: CaseClosed | CaseExpired | CaseHeld,
    nonce: str = "",
) -> Response:
    """The page of a case that was decided before; the same form posted twice is no second decision."""
    now = await seen(service, await service.cases.with_token(case.case_id, token, "review"), request)
    if is_repeated(now, nonce):
        return RedirectResponse(page_path(service, case, token), 303, PAGE_HEADERS)
    notice: Notice = "held" if isinstance(error, CaseHeld) else "late"
    return await _page(service, now, token, notice=notice, status=of_error(error).status_code)


def is_repeated(case: Case, nonce: str) -> bool:
    """Whether the decision that is held, or that counts, came with this very form."""
    digest = nonce_digest(nonce)
    held = None if case.held is None else case.held.nonce
    return digest is not None and digest in (held, case.answered_with)


def nonce_digest(nonce: str) -> str | None:
    """What is kept of a form's nonce."""
    return hashlib.sha256(nonce.encode()).hexdigest() if nonce else None


async def _heard(
    service: Service, case: Case, token: str, request: Request, submission: Submission
) -> Response:
    """Do what the form asks for, or show the page with its faults."""
    await service.quotas.spending.post(token)
    try:
        if submission.send_code is not None:
            return await _send_code(service, case, token, request, submission)
        return await _take(service, case, token, request, submission)
    except EmailCodeRefused as error:
        submission, faults = replace(submission, email_code=""), {"email_code": str(error)}
        return await _refused(
            service, case, token, submission, faults, 403, await _second(service, case, submission)
        )
    except InlineRefused as error:
        faults = {"proof": _NO_PROOF if submission.proofs else str(error)}
        return await _refused(service, case, token, replace(submission, proofs={}), faults, 403)
    except InvalidReview as error:
        return await _refused(service, case, token, submission, error.faults)


async def _send_code(
    service: Service, case: Case, token: str, request: Request, submission: Submission
) -> Response:
    """Send an e-mail code, and show the page with everything that was filled in."""
    if case.is_final:
        raise CaseClosed(case.case_id, case.status)
    if seconds(service.cases.now()) >= case.expires_at:
        raise CaseExpired(case.case_id)
    if case.form is not None:  # values that the page does not show again are kept
        progress = progress_of(case, submission.data, submission.step)
        case = await service.cases.draft(case, submission.data, progress)
    if submission.email_code:  # the Enter key presses a form's first button
        return await _page(service, case, token, submission, step=submission.step, notice="code_entered")
    place, addresses = submission.send_code or 0, case.verify_email or ()
    wait: dict[str, str] = {}
    if service.email_codes is None or place >= len(addresses):
        notice, status = _SENDING["not_sent"]
    else:
        try:
            sending = await service.email_codes.send(case, place, address_of(request))
        except OverBudget as error:
            sending, wait = "too_many", {"Retry-After": str(error.retry_after)}
        notice, status = _SENDING[sending]
    second = await _second(service, case, submission) if submission.confirmed else None
    page = await _page(
        service, case, token, submission, step=submission.step, notice=notice, status=status, second=second
    )
    page.headers.update(wait)
    return page


async def _take(
    service: Service, case: Case, token: str, request: Request, submission: Submission
) -> Response:
    if submission.faults:
        return await _refused(service, case, token, submission, submission.faults)
    match submission.intent:
        case "decline" if case.request is not None:
            return await _decline(service, case, token, request, submission)
        case "decline" if not may_decline(case):
            raise InvalidReview({"": "Whoever asks needs an answer: this cannot be declined."})
        case "answer" | "decline":
            return await _decided(service, case, token, request, submission)
        case "next" | "back" | "draft":
            if submission.intent == "next":
                await apart(case.size, check_step, case, submission.data, submission.step)
            progress = progress_of(case, submission.data, submission.goto)
            case = await service.cases.draft(case, submission.data, progress)
            notice = "saved" if submission.intent == "draft" else None
            return await _page(service, case, token, submission, step=submission.goto, notice=notice)
        case "more":
            case = await _keep_secrets(service, case, submission)
            return await _page(service, case, token, submission, step=submission.goto, notice="more")
        case _:
            return await _page(service, case, token, submission, step=submission.goto)


async def _decided(
    service: Service, case: Case, token: str, request: Request, submission: Submission
) -> Response:
    """Take a decision, once the second step is done where its risk asks for one."""
    second = await _second(service, case, submission)
    if second is not None:
        if submission.confirmed != second.value:
            return await _page(service, case, token, submission, second=second)
        faults = faults_of(second.decision, case, submission.data, unread=submission.unread)
        if faults:
            return await _refused(service, case, token, submission, faults, second=second)
    action, data, code = submission.action, submission.data, submission.email_code
    proofs = service.verifier.evidence(case, action, submission.proofs)
    pressed = Pressed(nonce_digest(submission.nonce), case.viewer)
    await _answer(service, case, request, action, data, code, proofs, pressed)
    # A reload shows the outcome; it does not send the answer again.
    return RedirectResponse(page_path(service, case, token), 303, PAGE_HEADERS)


async def _decline(
    service: Service, case: Case, token: str, request: Request, submission: Submission
) -> Response:
    """A person cannot answer an agent's question: it is cancelled, with what they say."""
    who = await respondent(case, request, service.identify, service.email_codes, submission.email_code)
    said = note_in(submission.data)
    reason = "the person cannot answer this" if said is None else f"the person cannot answer this: {said}"
    await service.cases.cancel(case, reason[: limits.REASON_CHARACTERS], who.actor, claims=who.by)
    return RedirectResponse(page_path(service, case, token), 303, PAGE_HEADERS)


async def _refused(
    service: Service,
    case: Case,
    token: str,
    submission: Submission,
    faults: Mapping[str, str],
    status: int = 422,
    second: Second | None = None,
) -> Response:
    """The same step again, with its faults."""
    case = await _keep_secrets(service, case, submission)
    return await _page(service, case, token, submission, faults, status=status, second=second)


async def _second(service: Service, case: Case, submission: Submission) -> Second | None:
    """The second step of a decision; None if its risk asks for none, or nothing happens after it."""
    action, data = submission.action, submission.data
    if case.is_final or not is_acting(case, action, data):
        return None
    edited = data.get("edits", data.get("modified_params"))
    args = cast("Mapping[str, Any]", edited) if isinstance(edited, Mapping) else None
    decision = await decision_for(service, case, args=args)
    friction = decision.friction
    if not friction.second_step:
        return None
    return Second(
        action=action,
        value=confirm_value(case, action, data),
        decision=decision,
        note_field=note_field(case),
        note=note_in(data) or "",
        needs_reason=friction.reason,
        needs_tick=friction.tick,
        needs_code=case.verify_email is not None,
        fields=submission.carried,
    )


async def _keep_secrets(service: Service, case: Case, submission: Submission) -> Case:
    """Save the draft if some of it is sensitive: the page does not get those values back."""
    if case.form is None or sensitive_keys(case.form).isdisjoint(submission.data):
        return case
    progress = progress_of(case, submission.data, submission.step)
    return await service.cases.draft(case, submission.data, progress)


async def _answer(
    service: Service,
    case: Case,
    request: Request,
    action: str,
    data: Mapping[str, Any] | None,
    code: str,
    proofs: Sequence[VerificationEvidence],
    pressed: Pressed | None = None,
) -> Case:
    """Answer a case for a holder of its link. The token proves possession of the link, not who they are.

    With ``pressed`` it comes from the page's own form, and is held before it goes out.
    """
    case = without_step_up(case, action, data)
    await service.cases.check(case, action, data)
    if case.verify_email is not None:
        read_code(case, code)  # before a proof is used up
    verified = await service.verifier.check(case, "browser_submit", action, proofs, address_of(request))
    who = await respondent(case, request, service.identify, service.email_codes, code)
    if verified is not None:
        who = replace(who, context={**(who.context or {}), "verification_result": verified.wire()})
    if pressed is None:
        return await service.cases.answer(case, action, data, who)
    hold = service.settings.hold_seconds
    return await service.cases.answer(case, action, data, who, pressed, hold)


async def case_with_token(service: Service, case_id: str, token: str) -> Case:
    """The case of a link; raises `CaseNotFound` for an impossible id too."""
    if not _CASE_ID.fullmatch(case_id):
        raise CaseNotFound(case_id)
    return await service.cases.with_token(case_id, token, "review")


def no_page(service: Service, error: CaseNotFound | LinkExpired) -> HTMLResponse:
    """The page for an unknown or expired link."""
    render = render_outlived if isinstance(error, LinkExpired) else render_unknown
    return _html(render(service.settings.base_path), of_error(error).status_code)


def page_path(service: Service, case: Case, token: str) -> str:
    return f"{service.settings.base_path}/review/{case.case_id}?token={token}"


async def _page(
    service: Service,
    case: Case,
    token: str,
    submission: Submission | None = None,
    faults: Mapping[str, str] | None = None,
    *,
    step: int | None = None,
    notice: Notice | None = None,
    status: int = 200,
    visited: bool = True,
    view: View = ALL,
    second: Second | None = None,
) -> HTMLResponse:
    """The page of a case, filled with the posted values, else with the draft.

    Unless a person has ``visited`` it, it is rendered for a program, and no prefills are fetched.
    """
    now, is_open = seconds(service.cases.now()), not case.is_final
    values = case.draft if submission is None else submission.data
    step = step or (1 if submission is None else submission.step)
    weight = _weight(case, values)
    wanted = await apart(
        weight, fields_to_fill, case, values=values, faults=faults, step=step, notice=notice, now=now
    )
    prefills: dict[str, Any] = {field.key: None for field in wanted}
    if visited and wanted:
        prefills = await service.prefills.fetch(case, token, wanted)
    html = await apart(
        weight,
        render_case,
        case,
        token=token,
        base_path=service.settings.base_path,
        values=values,
        faults=faults,
        step=step,
        notice=notice,
        email_code="" if submission is None else submission.email_code,
        prefills=prefills,
        asked=await service.verifier.asked(case) if visited and is_open else None,
        proofs=None if submission is None else submission.proofs,
        sight=await sight_of(service, case, view=view, second=second),
        now=now,
    )
    return _html(html, status)


def _weight(case: Case, values: Mapping[str, Any] | None) -> int:
    """How many characters a page has, roughly."""
    return case.size + sum(len(each) if isinstance(each, str) else 8 for each in (values or {}).values())


def _html(html: str, status: int) -> HTMLResponse:
    return HTMLResponse(html, status, PAGE_HEADERS)
