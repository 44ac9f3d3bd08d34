"""Opening a case for a caller, and the 202 that tells them of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from assent.errors import InvalidCallbackUrl, InvalidReview
from assent.service.addresses import check_callback_url
from assent.service.context import Service
from assent.service.items import item_faults
from assent.service.review import ReviewRequest
from assent.service.wire import hitl_object

POLL_SECONDS = 30
"""How long a poller is asked to wait."""


async def open_review(
    service: Service, owner: str, review: ReviewRequest, idempotency_key: str | None = None
) -> dict[str, Any]:
    """Open a case that only ``owner`` may ask about, and return the body of the 202 for it."""
    if review.hitl_callback_url is not None:
        if not service.takes_callbacks:
            said = "this service makes no callbacks; poll, or follow events"
            raise InvalidReview({"hitl_callback_url": said})
        try:
            check_callback_url(review.hitl_callback_url, development=service.development)
        except InvalidCallbackUrl as error:
            raise InvalidReview({"hitl_callback_url": error.problem}) from None
    service.terms.check(review)
    if review.addresses is not None and service.email_codes is None:
        said = "this service sends no e-mail, so it cannot ask for a code; set ASSENT_SMTP_URL"
        raise InvalidReview({"verify_email": said})
    if faults := item_faults(review.type, review.context):
        raise InvalidReview(faults)
    issued = await service.cases.create(owner, review, idempotency_key)
    return {
        "status": "human_input_required",
        "message": issued.case.message or issued.case.prompt,
        "hitl": hitl_object(issued.case, service.base_url, issued.tokens),
    }


def accepted(body: Mapping[str, Any]) -> JSONResponse:
    """The 202 itself."""
    return JSONResponse(body, 202, {"Retry-After": str(POLL_SECONDS), "Cache-Control": "no-store"})
