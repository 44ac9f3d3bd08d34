"""The routes of the review page: show a case, and take drafts, steps, codes and answers."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

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
from askfirst.formats import Style
from askfirst.protocol import ReviewSubmission, VerificationEvidence, sensitive_keys
from askfirst.service.answers import check_step, declines_by_cancelling, may_decline
from askfirst.service.budgets import address_of
from askfirst.service.case import Case, iso
from askfirst.service.case_state import note_in
from askfirst.service.context import OpenService, Service
from askfirst.service.email_codes import read_code
from askfirst.service.friction import (
    carry_faults,
    check_json,
    confirm_value,
    edited_args,
    hold_of,
    is_acting,
    note_field,
    second_step_faults,
    step_up_faults,
    without_step_up,
)
from askfirst.service.page_data import decision_for, sight_of
from askfirst.service.pages import (
    PAGE_HEADERS,
    Notice,
    Stage,
    Submission,
    fields_to_fill,
    read_submission,
    render_case,
    render_outlived,
    render_unknown,
    render_withheld,
)
from askfirst.service.pages.decision import opened_by, risk_of
from askfirst.service.pages.form_parts import is_unseen, paged, progress_of
from askfirst.service.pages.language import Language
from askfirst.service.pages.reader import SCHEMES, Place
from askfirst.service.pages.row import ALL, View
from askfirst.service.pages.sight import Second
from askfirst.service.pages.submission import is_long
from askfirst.service.person import respondent
from askfirst.service.problems import error_response, foreign_response, problem
from askfirst.service.request_bodies import is_json, media_type, parsed, posted_fields, read_bytes
from askfirst.service.transitions import Pressed
from askfirst.service.visitor import (
    Visit,
    browser_of,
    for_visitor,
    is_cross_site,
    is_navigation,
    set_browser_cookie,
    set_link_cookie,
    set_scheme_cookie,
    view_of,
    visit_of,
)
from askfirst.service.worker_threads import run_by_size

router = APIRouter()
_CASE_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_GZIP_LEVEL = 6
_FORMS = ("application/x-www-form-urlencoded", "")
_JSON_SUBMISSION: dict[str, Any] = ReviewSubmission.model_json_schema()
_JSON_SUBMISSION["properties"]["email_code"] = {"type": "string"}
_JSON_SUBMISSION["properties"]["verification_evidence"] = {"type": "array", "items": {"type": "object"}}
_SENDING_NOTICES: dict[str, tuple[Notice, int]] = {
    "sent": ("code_sent", 200),
    "too_many": ("too_many_codes", 429),
    "not_sent": ("code_not_sent", 503),
}
_NO_PROOF = "This proof was not accepted. Make a new one, for this decision."
_UNKNOWN_CASE = {"description": "There is no such case, or the token does not open it"}
_EXPIRED_LINK = {"description": "The link has expired"}
_WITHHELD = {"description": "There is no token, and the service delivers the links itself"}


@router.head("/review/{case_id}", include_in_schema=False)
@router.get(
    "/review/{case_id}",
    response_class=HTMLResponse,
    responses={403: _WITHHELD, 404: _UNKNOWN_CASE, 410: _EXPIRED_LINK},
    summary="The page where a person decides",
)
async def page(case_id: str, service: OpenService, request: Request, token: str = "") -> Response:
    """Show a case. A person's navigation marks the case as opened; link previews and prefetches do not."""
    visit = visit_of(service, request, token)
    if (
        not token and service.terms.links == "service"
    ):  # the same for every id: it does not tell which cases exist
        return await _html_response(render_withheld(service.settings.base_path, visit.reader), 403, visit)
    try:
        case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        return await no_page(service, error, visit)
    visited = request.method == "GET" and is_navigation(request.headers)
    if visited and (scheme := request.query_params.get("scheme")) in ("system", *SCHEMES):
        again = RedirectResponse(page_path(service, case, visit), 303, PAGE_HEADERS)
        set_scheme_cookie(again, service, scheme)
        return again
    browser = browser_of(request)
    case = await for_visitor(service, await service.cases.opened(case) if visited else case, request, browser)
    stage: Stage = "edit" if request.query_params.get("edit") else "decide"
    view = view_of(request)
    undone: Notice | None = "undone" if request.query_params.get("undone") and not case.is_final else None
    response = await _page(service, case, visit, view=view, visited=visited, stage=stage, notice=undone)
    if visited:
        set_link_cookie(response, service, case, token)
        if not case.is_final:  # now: after a lost response, this browser can still undo
            set_browser_cookie(response, service, browser, case)
    return response


@router.post(
    "/review/{case_id}/respond",
    responses={
        303: {"description": "Answered; see the page"},
        403: {
            "description": "From another site, without the required code or proof, or by a person who may not decide"
        },
        400: {"description": "The request cannot be parsed"},
        404: _UNKNOWN_CASE,
        409: {"description": "The case has ended"},
        410: {"description": "The case or the link has expired"},
        413: {"description": "The body is too long"},
        415: {"description": "The body is neither a form nor JSON"},
        422: {"description": "The answer does not fit the case"},
        429: {"description": "Too many requests, or too many codes"},
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
async def decide(case_id: str, service: OpenService, request: Request, token: str = "") -> Response:
    """Take a decision: a form from the page, or JSON ``{"action", "data"}``.

    JSON also has ``email_code`` or ``verification_evidence`` if the case requires a code or a proof.
    """
    as_json = is_json(request)
    if is_cross_site(service, request):
        return foreign_response(request)
    try:
        case = await case_with_token(service, case_id, token)
    except (CaseNotFound, LinkExpired) as error:
        if as_json:
            return error_response(error)
        return await no_page(service, error, visit_of(service, request, token))
    if not as_json and media_type(request) not in _FORMS:
        said = "A decision is a form (application/x-www-form-urlencoded) or JSON (application/json)."
        return problem(415, "unsupported_media_type", said)
    raw = await read_bytes(request)
    if as_json:
        await service.quotas.spending.post(token)
        return await _decide_json(service, case, request, raw)
    return await _decide_form(service, case, visit_of(service, request, token), request, raw)


async def _decide_json(service: Service, case: Case, request: Request, raw: bytes) -> Response:
    said = await run_by_size(len(raw), parsed, raw, ReviewSubmission)
    more: Mapping[str, Any] = said.model_extra or {}
    code = more.get("email_code", "")
    if not isinstance(code, str) or len(code) > limits.CODE_CHARACTERS:
        raise InvalidReview({"email_code": f"must be text of at most {limits.CODE_CHARACTERS} characters"})
    proofs = _evidence(more.get("verification_evidence") or [])
    case = await for_visitor(service, case, request)
    if risk_of(case) == "critical":
        check_json(await decision_for(service, case), case, said.action, said.data)
    done = await _answer_case(service, case, request, said.action, said.data, code, proofs)
    body = {"status": "completed", "case_id": case.case_id, "completed_at": iso(done.ended_at or 0)}
    return JSONResponse(body, 200, {"Cache-Control": "no-store"})


def _evidence(given: Any) -> list[VerificationEvidence]:
    proofs = cast("list[Any]", given) if isinstance(given, list) else [given]
    if len(proofs) > limits.PROOFS:
        raise InvalidReview({"verification_evidence": f"must have at most {limits.PROOFS} proofs"})
    try:
        return [VerificationEvidence.read(each) for each in proofs]
    except InvalidProtocolObject:
        raise InvalidReview({"verification_evidence": "must be a list of proofs"}) from None


async def _decide_form(service: Service, case: Case, visit: Visit, request: Request, raw: bytes) -> Response:
    """Handle a posted form: a step, a draft, a preview of edits, a request for a code, or the decision."""
    browser = browser_of(request)
    case = await for_visitor(service, case, request, browser)
    try:
        submission = await run_by_size(
            case.size + len(raw), _read_form, case, raw, visit.reader.language, service.settings.quick_reasons
        )
    except ValueError:
        return problem(422, "invalid_request", f"A form must have at most {limits.POSTED_FIELDS} fields.")
    if is_repeated(case, submission.nonce):
        return RedirectResponse(page_path(service, case, visit), 303, PAGE_HEADERS)
    try:
        response = await _handle_form(service, case, visit, request, submission)
        set_browser_cookie(response, service, browser, case)
        return response
    except (CaseClosed, CaseExpired, CaseHeld) as error:
        return await late_page(service, case, visit, request, error, submission)
    except ServiceError as error:
        refused = error_response(error)
        faults = {"": str(error)}
        page = await _page(service, case, visit, submission, faults, status=refused.status_code)
        if "Retry-After" in refused.headers:
            page.headers["Retry-After"] = refused.headers["Retry-After"]
        return page


def _read_form(case: Case, raw: bytes, language: Language, reasons: Sequence[str]) -> Submission:
    """Parse a posted form; raises ``ValueError`` for too many fields."""
    return read_submission(case, posted_fields(raw, most=limits.POSTED_FIELDS), language, reasons)


async def late_page(
    service: Service,
    case: Case,
    visit: Visit,
    request: Request,
    error: CaseClosed | CaseExpired | CaseHeld,
    submission: Submission | None = None,
) -> Response:
    """The page for an answer that came too late. If the same form was posted twice, redirect to the case instead."""
    now = await service.cases.with_token(case.case_id, visit.token, "review")
    now = await for_visitor(service, now, request)
    if submission is not None and is_repeated(now, submission.nonce):
        return RedirectResponse(page_path(service, case, visit), 303, PAGE_HEADERS)
    notice: Notice = "held" if isinstance(error, CaseHeld) else "late"
    status = error_response(error).status_code
    return await _page(service, now, visit, submission, notice=notice, status=status)


def is_repeated(case: Case, nonce: str) -> bool:
    """Whether a form with this nonce has already brought a decision: one that is held, that counts, or was undone."""
    digest = nonce_digest(nonce)
    return digest is not None and case.has_had(digest)


def nonce_digest(nonce: str) -> str | None:
    """The digest under which a form's nonce is stored; None for a form without one."""
    return hashlib.sha256(nonce.encode()).hexdigest() if nonce else None


async def _handle_form(
    service: Service, case: Case, visit: Visit, request: Request, submission: Submission
) -> Response:
    """Handle a form that was not posted before: send a code, or take the decision; show faults on the page."""
    await service.quotas.spending.post(visit.token)
    if is_unseen(case, submission.drafted):  # nothing is kept or sent of steps that the person did not see so
        return await _page(service, case, visit, status=409)
    try:
        if submission.send_code is not None:
            return await _send_code(service, case, visit, request, submission)
        return await _handle_intent(service, case, visit, request, submission)
    except EmailCodeRefused as error:
        case = await _store_in_draft(service, case, submission)
        faults = {"email_code": str(error)}
        submission = replace(submission, email_code="")
        return await _page(service, case, visit, submission, faults, stage="code", status=403)
    except InlineRefused as error:
        faults = {"proof": _NO_PROOF if submission.proofs else str(error)}
        return await _page_with_faults(service, case, visit, replace(submission, proofs={}), faults, 403)
    except InvalidReview as error:
        return await _page_with_faults(service, case, visit, submission, error.faults)


async def _send_code(
    service: Service, case: Case, visit: Visit, request: Request, submission: Submission
) -> Response:
    """Send a code by e-mail, and show the step that asks for it. The decision is carried to that step."""
    if case.is_final:
        raise CaseClosed(case.case_id, case.status)
    if seconds(service.cases.now()) >= case.expires_at:
        raise CaseExpired(case.case_id)
    case = await _store_in_draft(service, case, submission)
    place, addresses = submission.send_code or 0, case.verify_email or ()
    wait: dict[str, str] = {}
    if service.email_codes is None or place >= len(addresses):
        notice, status = _SENDING_NOTICES["not_sent"]
    else:
        try:
            sending = await service.email_codes.send(case, place, submission.data, address_of(request))
        except OverBudget as error:
            sending, wait = "too_many", {"Retry-After": str(error.retry_after)}
        notice, status = _SENDING_NOTICES[sending]
    code_to = place if notice == "code_sent" else None
    page = await _page(
        service, case, visit, submission, notice=notice, status=status, stage="code", code_to=code_to
    )
    page.headers.update(wait)
    return page


async def _take_decision(
    service: Service, case: Case, visit: Visit, request: Request, submission: Submission
) -> Response:
    """Answer the case, or show the step that is still needed: the second step, or the code from an e-mail."""
    if lacks := step_up_faults(case, submission.action, submission.data, can_mail=bool(service.email_codes)):
        return await _page_with_faults(service, case, visit, submission, lacks, 403)
    second = await _second_step(service, case, submission, visit.reader.style)
    if second is not None:
        if submission.confirmed != second.value:
            if faults := carry_faults(case, submission.data):
                return await _page_with_faults(service, case, visit, submission, faults)
            case = await _store_in_draft(service, case, submission)
            return await _page(service, case, visit, submission, second=second)
        faults = second_step_faults(
            second.decision, case, submission.data, unread=submission.unread, looked=submission.looked
        )
        if faults:
            return await _page_with_faults(service, case, visit, submission, faults, second=second)
    if await _needs_code(service, case, submission):
        if faults := carry_faults(case, submission.data):
            return await _page_with_faults(service, case, visit, submission, faults)
        return await _send_code(service, case, visit, request, submission)
    proofs = service.verifier.evidence(case, submission.action, submission.proofs)
    pressed = Pressed(nonce_digest(submission.nonce), case.viewer)
    await _answer_case(
        service,
        case,
        request,
        submission.action,
        submission.data,
        submission.email_code,
        proofs,
        pressed,
    )
    # A redirect: reloading the page then shows the outcome and does not post the answer again.
    return RedirectResponse(page_path(service, case, visit), 303, PAGE_HEADERS)


async def _handle_intent(
    service: Service, case: Case, visit: Visit, request: Request, submission: Submission
) -> Response:
    if submission.begun is not None:
        case = await service.cases.draft(case, submission.begun)
        if submission.intent in ("drop", "draft"):  # a script saves an edit, and shows nothing
            return RedirectResponse(page_path(service, case, visit), 303, PAGE_HEADERS)
    if submission.faults:
        return await _page_with_faults(service, case, visit, submission, submission.faults)
    match submission.intent:
        case "decline" if declines_by_cancelling(case):
            return await _decline(service, case, visit, request, submission)
        case "decline" if not may_decline(case):
            raise InvalidReview({"": "This cannot be declined: whoever asks needs an answer."})
        case "answer" | "decline":
            return await _take_decision(service, case, visit, request, submission)
        case "next" | "back" | "draft":
            if submission.intent == "next" and case.form is not None:
                form = paged(case.form)
                await run_by_size(case.size, check_step, case, form, submission.data, submission.step)
            progress = progress_of(case, submission.data, submission.goto)
            case = await service.cases.draft(case, submission.data, progress)
            notice = "saved" if submission.intent == "draft" else None
            return await _page(service, case, visit, submission, step=submission.goto, notice=notice)
        case "more":
            case = await _store_in_draft(service, case, submission)
            return await _page(service, case, visit, submission, step=submission.goto, notice="more")
        case _:
            return await _page(service, case, visit, submission, step=submission.goto)


async def _needs_code(service: Service, case: Case, submission: Submission) -> bool:
    """Whether the decision needs a code by e-mail that was not asked for yet.

    The decision is checked first: no code is sent for an answer that does not fit.
    """
    needed = without_step_up(case, submission.action, submission.data)
    if needed.verify_email is None or submission.email_code or submission.with_code:
        return False
    await service.cases.check(case, submission.action, submission.data)
    return True


async def _decline(
    service: Service, case: Case, visit: Visit, request: Request, submission: Submission
) -> Response:
    """Cancel a case that the person cannot answer, with their note as the reason. Like an answer, it is held."""
    proofs = service.verifier.evidence(case, submission.action, submission.proofs)
    await service.verifier.check(case, "browser_submit", submission.action, proofs, address_of(request))
    who = await respondent(case, request, service.identify, service.email_codes, submission.email_code)
    pressed = Pressed(nonce_digest(submission.nonce), case.viewer)
    hold = hold_of(case, service.settings.hold_seconds)
    await service.cases.decline(case, note_in(submission.data), who, pressed, hold)
    return RedirectResponse(page_path(service, case, visit), 303, PAGE_HEADERS)


async def _page_with_faults(
    service: Service,
    case: Case,
    visit: Visit,
    submission: Submission,
    faults: Mapping[str, str],
    status: int = 422,
    second: Second | None = None,
) -> Response:
    """Show the step again, with the faults of what was posted."""
    case = await _store_in_draft(service, case, submission)
    return await _page(service, case, visit, submission, faults, status=status, second=second)


async def _second_step(service: Service, case: Case, submission: Submission, style: Style) -> Second | None:
    """The second step of a decision; None if the risk does not require one, or the decision runs nothing."""
    action, data = submission.action, submission.data
    if case.is_final or not is_acting(case, action, data):
        return None
    edited = edited_args(case, data)
    args = cast("Mapping[str, Any]", edited) if isinstance(edited, Mapping) else None
    decision = opened_by(await decision_for(service, case, args=args, style=style), submission.reading)
    friction = decision.friction
    if not friction.second_step and decision.doubt is None:  # to run it again may do it twice
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


async def _store_in_draft(service: Service, case: Case, submission: Submission) -> Case:
    """Store sensitive and long values of the answer in the draft, because the page does not get them back."""
    data = submission.data
    long = any(isinstance(value, str) and is_long(value) for value in data.values())
    if case.form is None:
        said = data.get("response")
        return await service.cases.draft(case, {"response": said}) if long and said is not None else case
    if not long and sensitive_keys(case.form).isdisjoint(data):
        return case
    progress = progress_of(case, data, submission.step)
    return await service.cases.draft(case, data, progress)


async def _answer_case(
    service: Service,
    case: Case,
    request: Request,
    action: str,
    data: Mapping[str, Any] | None,
    code: str,
    proofs: Sequence[VerificationEvidence],
    pressed: Pressed | None = None,
) -> Case:
    """Answer a case for a person with its link. The token proves that they have the link, not who they are.

    ``pressed`` is set for the page's own form. The decision is then held for the undo time before it counts.
    """
    case = without_step_up(case, action, data)
    await service.cases.check(case, action, data)
    if case.verify_email is not None:
        read_code(case, code)  # checked first: verifying a proof uses it up
    verified = await service.verifier.check(case, "browser_submit", action, proofs, address_of(request))
    who = await respondent(case, request, service.identify, service.email_codes, code, data)
    if verified is not None:
        who = replace(who, context={**(who.context or {}), "verification_result": verified.wire()})
    if pressed is None:
        return await service.cases.answer(case, action, data, who)
    hold = hold_of(case, service.settings.hold_seconds)
    return await service.cases.answer(case, action, data, who, pressed, hold)


async def case_with_token(service: Service, case_id: str, token: str) -> Case:
    """The case of a link. Raises `CaseNotFound`, also for an id that no case can have, and `LinkExpired`."""
    if not _CASE_ID.fullmatch(case_id):
        raise CaseNotFound(case_id)
    return await service.cases.with_token(case_id, token, "review")


async def no_page(service: Service, error: CaseNotFound | LinkExpired, visit: Visit) -> Response:
    """The page for an unknown or expired link."""
    render = render_outlived if isinstance(error, LinkExpired) else render_unknown
    html = render(service.settings.base_path, visit.reader)
    return await _html_response(html, error_response(error).status_code, visit)


def page_path(service: Service, case: Case, visit: Visit) -> str:
    """The address of a case's page, without scheme and host."""
    return Place(service.settings.base_path, case.case_id, visit.token, visit.reader.asked_language).address()


async def _page(
    service: Service,
    case: Case,
    visit: Visit,
    submission: Submission | None = None,
    faults: Mapping[str, str] | None = None,
    *,
    step: int | None = None,
    notice: Notice | None = None,
    status: int = 200,
    visited: bool = True,
    view: View = ALL,
    second: Second | None = None,
    stage: Stage = "decide",
    code_to: int | None = None,
) -> Response:
    """The page of a case, filled with the posted values, or with the draft if nothing was posted.

    Prefills and challenges for proofs are fetched only if a person ``visited`` the page, not for a link preview.
    """
    now, is_open = seconds(service.cases.now()), not case.is_final
    values = None if submission is None else submission.data
    step = step or (1 if submission is None else submission.step)
    weight = _rendering_work(case, values)
    wanted = await run_by_size(
        weight, fields_to_fill, case, values=values, faults=faults, step=step, notice=notice, now=now
    )
    prefills: dict[str, Any] = {field.key: None for field in wanted}
    if visited and wanted:
        prefills = await service.prefills.fetch(case, visit.token, wanted)
    html = await run_by_size(
        weight,
        render_case,
        case,
        token=visit.token,
        base_path=service.settings.base_path,
        reader=visit.reader,
        values=values,
        faults=faults,
        step=step,
        notice=notice,
        email_code="" if submission is None else submission.email_code,
        prefills=prefills,
        asked=await service.verifier.asked(case) if visited and is_open else None,
        proofs=None if submission is None else submission.proofs,
        sight=await sight_of(
            service,
            case,
            style=visit.reader.style,
            view=ALL if stage == "edit" else view,
            second=second,
            edits_from=view.rows_from if submission is None else submission.edits_from,
        ),
        stage=stage,
        code_to=code_to,
        carried=() if submission is None else submission.carried_to_code,
        reading=None if submission is None else submission.reading,
        unsent=None if submission is None else submission.data,
        now=now,
    )
    return await _html_response(html, status, visit)


def _rendering_work(case: Case, values: Mapping[str, Any] | None) -> int:
    """The estimated work to render a page, in characters."""
    return case.size + sum(len(each) if isinstance(each, str) else 8 for each in (values or {}).values())


async def _html_response(html: str, status: int, visit: Visit) -> Response:
    """A page, compressed where the browser takes that.

    Nobody learns the link's token from the page's length (BREACH): whoever can load the page has the token already.
    """
    if not visit.takes_gzip:
        return HTMLResponse(html, status, PAGE_HEADERS)
    body = await run_by_size(len(html), gzip.compress, html.encode(), _GZIP_LEVEL, mtime=0)
    headers = {**PAGE_HEADERS, "Content-Encoding": "gzip", "Vary": f"{PAGE_HEADERS['Vary']}, Accept-Encoding"}
    return HTMLResponse(body, status, headers)
