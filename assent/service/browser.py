"""The pages where people decide: shown to whoever has the link, and to nobody else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from assent import limits
from assent.errors import (
    CaseClosed,
    CaseExpired,
    CaseNotFound,
    EmailCodeRefused,
    InlineRefused,
    InvalidProtocolObject,
    InvalidReview,
    LinkExpired,
    OverBudget,
    ServiceError,
)
from assent.protocol import ReviewSubmission, VerificationEvidence, sensitive_keys
from assent.service.answers import check_step
from assent.service.bodies import is_json, media_type, parsed, read_bytes
from assent.service.case import Case
from assent.service.context import Service, service_of
from assent.service.draft_owner import browser_of, keep, seen_by
from assent.service.email_codes import read_code
from assent.service.heavy import apart
from assent.service.identity import respondent
from assent.service.pages import (
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
from assent.service.posted_form import posted_fields
from assent.service.previews import is_navigation
from assent.service.problems import of_error, problem
from assent.service.progress import progress_of
from assent.service.spending import address_of
from assent.service.wire import iso

router = APIRouter()
The = Annotated[Service, Depends(service_of)]
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
_OWN_SITES = ("same-origin", "none")
"""What browsers say of a form that our own page sends, or that a person typed the address of."""
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
    """Show a case. Only a person who comes by a browser opens it: previews and prefetches do not."""
    if (
        not token and service.terms.links == "service"
    ):  # the same for every id: it tells nobody which there are
        return _html(render_withheld(service.base_path), 403)
    try:
        case = await _with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return _no_page(service, error)
    visited = request.method == "GET" and is_navigation(request.headers)
    if visited:
        case = await service.cases.opened(case)
    return await _page(service, seen_by(case, browser_of(request)), token, visited=visited)


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
    if _is_foreign(service, request):
        return problem(403, "foreign_origin", "This was sent from another site.")
    try:
        case = await _with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return of_error(error) if as_json else _no_page(service, error)
    if not as_json and media_type(request) not in _FORMS:
        said = "A decision is a form (application/x-www-form-urlencoded) or JSON (application/json)."
        return problem(415, "unsupported_media_type", said)
    raw = await read_bytes(request)
    if as_json:
        await service.spending.post(token)
        return await _decide_json(service, case, request, raw)
    return await _decide_form(service, case, token, request, raw)


async def _decide_json(service: Service, case: Case, request: Request, raw: bytes) -> Response:
    said = await apart(len(raw), parsed, raw, ReviewSubmission)
    more: Mapping[str, Any] = said.model_extra or {}
    code = more.get("email_code", "")
    if not isinstance(code, str) or len(code) > limits.CODE_CHARACTERS:
        raise InvalidReview({"email_code": f"is text of at most {limits.CODE_CHARACTERS} characters"})
    proofs = _evidence(more.get("verification_evidence") or [])
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
    """What a browser posts: a step, a draft, an edit to look at once more, a wish for a code, or the decision."""
    browser = browser_of(request)
    case = seen_by(case, browser)
    try:
        submission = await apart(case.size + len(raw), _read_form, case, raw)
    except ValueError:
        return problem(422, "invalid_request", f"A form has at most {limits.POSTED_FIELDS} fields.")
    try:
        response = await _heard(service, case, token, request, submission)
        if submission.intent != "answer" or response.status_code != 303:
            keep(
                response,
                browser,
                case,
                base_url=service.base_url,
                base_path=service.base_path,
                now=service.cases.now(),
            )
        return response
    except (CaseClosed, CaseExpired) as error:
        now = await service.cases.with_token(case.case_id, token, "review")
        return await _page(service, now, token, notice="late", status=of_error(error).status_code)
    except ServiceError as error:
        refused = of_error(error)
        faults = {"": str(error)}
        page = await _page(service, case, token, submission, faults, status=refused.status_code)
        if "Retry-After" in refused.headers:
            page.headers["Retry-After"] = refused.headers["Retry-After"]
        return page


def _read_form(case: Case, raw: bytes) -> Submission:
    """What a browser has posted; raises ``ValueError`` for too many fields."""
    return read_submission(case, posted_fields(raw, most=limits.POSTED_FIELDS))


async def _heard(
    service: Service, case: Case, token: str, request: Request, submission: Submission
) -> Response:
    """Do what a person wants, or show them what is wrong with it."""
    await service.spending.post(token)
    try:
        if submission.send_code is not None:
            return await _send_code(service, case, token, request, submission)
        return await _take(service, case, token, request, submission)
    except EmailCodeRefused as error:
        submission = replace(submission, email_code="")
        return await _refused(service, case, token, submission, {"email_code": str(error)}, 403)
    except InlineRefused as error:
        faults = {"proof": _NO_PROOF if submission.proofs else str(error)}
        return await _refused(service, case, token, replace(submission, proofs={}), faults, 403)
    except InvalidReview as error:
        return await _refused(service, case, token, submission, error.faults)


async def _send_code(
    service: Service, case: Case, token: str, request: Request, submission: Submission
) -> Response:
    """Send a code, and show the page with all that is filled in."""
    if case.is_final:
        raise CaseClosed(case.case_id, case.status)
    if service.cases.now() >= case.expires_at:
        raise CaseExpired(case.case_id)
    if case.form is not None:  # what the page does not show again is kept
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
    page = await _page(service, case, token, submission, step=submission.step, notice=notice, status=status)
    page.headers.update(wait)
    return page


async def _take(
    service: Service, case: Case, token: str, request: Request, submission: Submission
) -> Response:
    if submission.faults:
        return await _refused(service, case, token, submission, submission.faults)
    match submission.intent:
        case "answer":
            action, data = submission.action, submission.data
            proofs = service.verifier.evidence(case, action, submission.proofs)
            await _answer(service, case, request, action, data, submission.email_code, proofs)
            # A reload shows the outcome; it does not send the answer again.
            return RedirectResponse(_path(service, case, token), 303, PAGE_HEADERS)
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


async def _refused(
    service: Service,
    case: Case,
    token: str,
    submission: Submission,
    faults: Mapping[str, str],
    status: int = 422,
) -> Response:
    """The same step again, with what is wrong."""
    case = await _keep_secrets(service, case, submission)
    return await _page(service, case, token, submission, faults, status=status)


async def _keep_secrets(service: Service, case: Case, submission: Submission) -> Case:
    """Keep what was filled in if some of it is sensitive: the page does not show that again, and has not got it."""
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
) -> Case:
    """Whoever has the link answers: the token says that they may, not who they are."""
    await service.cases.check(case, action, data)
    if case.verify_email is not None:
        read_code(case, code)  # before a proof is used up
    verified = await service.verifier.check(case, "browser_submit", action, proofs, address_of(request))
    who = await respondent(case, request, service.identify, service.email_codes, code)
    if verified is not None:
        who = replace(who, context={**(who.context or {}), "verification_result": verified.wire()})
    return await service.cases.answer(case, action, data, who)


async def _with_token(service: Service, case_id: str, token: str) -> Case:
    """The case that a link leads to; one that cannot be is as unknown as any other."""
    if not _CASE_ID.fullmatch(case_id):
        raise CaseNotFound(case_id)
    return await service.cases.with_token(case_id, token, "review")


def _no_page(service: Service, error: CaseNotFound | LinkExpired) -> HTMLResponse:
    """The page for a link that leads nowhere, or does no longer."""
    render = render_outlived if isinstance(error, LinkExpired) else render_unknown
    return _html(render(service.base_path), of_error(error).status_code)


def _path(service: Service, case: Case, token: str) -> str:
    return f"{service.base_path}/review/{case.case_id}?token={token}"


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
) -> HTMLResponse:
    """The page as it is now: what was filled in a moment ago, else what was kept of it.

    Where nobody has ``visited`` it, it is rendered for a program, for which nothing is fetched.
    """
    now, is_open = service.cases.now(), not case.is_final
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
        base_path=service.base_path,
        values=values,
        faults=faults,
        step=step,
        notice=notice,
        email_code="" if submission is None else submission.email_code,
        prefills=prefills,
        asked=await service.verifier.asked(case) if visited and is_open else None,
        proofs=None if submission is None else submission.proofs,
        now=now,
    )
    return _html(html, status)


def _weight(case: Case, values: Mapping[str, Any] | None) -> int:
    """How much a page of a case has on it, in characters, roughly."""
    return case.size + sum(len(each) if isinstance(each, str) else 8 for each in (values or {}).values())


def _html(html: str, status: int) -> HTMLResponse:
    return HTMLResponse(html, status, PAGE_HEADERS)


def _is_foreign(service: Service, request: Request) -> bool:
    """Whether a form comes from another site's page: nobody decides by visiting one."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None and site not in _OWN_SITES:
        return True
    if origin is None or origin.lower() == _origin(service.base_url):
        return False
    # Our own pages send no referrer, and for that browsers say null; so does a frame in a sandbox.
    return origin != "null" or site is None


def _origin(base_url: str) -> str:
    """The origin of our own pages, as browsers write it."""
    at = urlsplit(base_url.lower())
    usual = {"http": 80, "https": 443}.get(at.scheme)
    host = f"[{at.hostname}]" if ":" in (at.hostname or "") else at.hostname
    return f"{at.scheme}://{host}" if at.port in (None, usual) else f"{at.scheme}://{host}:{at.port}"
