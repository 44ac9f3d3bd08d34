"""Inline answers: a press of a messenger's button, posted to the service that asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from askfirst.delivery.base import Button, PressAnswer
from askfirst.messages import JsonObject
from askfirst.protocol import HitlObject, SubmitRequest, SubmittedBy, VerificationEvidence, actions_of

logger = logging.getLogger("askfirst.client")

SECONDS = 20.0
"""The time-out of an attempt: a person looks at the button meanwhile."""
_WITHOUT_DATA = ("approve", "reject", "confirm", "cancel", "retry", "skip", "abort")
"""Actions that need no data; the others are filled in on the page."""
_TO_PAGE = "This is decided on the review page."
_AGAIN = "The service could not be reached. Press again, or use the link."


def offered_buttons(hitl: HitlObject) -> tuple[Button, ...]:
    """The decisions that may be pressed right in a message, in the order of the review's type.

    None where the service takes no inline answers, or asks for a proof with each.
    """
    if hitl.submit_url is None or _needs_proof(hitl):
        return ()
    actions = [action for action in actions_of(hitl.type) if action in _WITHOUT_DATA]
    return tuple(Button(action, action.capitalize()) for action in actions if _may_be_inline(hitl, action))


async def submit(
    http: httpx2.AsyncClient,
    hitl: HitlObject,
    action: str,
    *,
    submitted_via: str,
    submitted_by: SubmittedBy | Mapping[str, Any],
    data: JsonObject | None = None,
    evidence: Sequence[VerificationEvidence] | None = None,
) -> PressAnswer:
    """Answer a case with its submit token, for a person who has just pressed a button; never for the agent itself.

    ``submitted_by`` is that person as the messenger vouches for them, ``evidence`` a proof that they brought.
    What the service says becomes a sentence for them. Raises `InvalidProtocolObject` for what the protocol
    does not know.
    """
    body = SubmitRequest.read(
        {
            "action": action,
            **({} if data is None else {"data": data}),
            "submitted_via": submitted_via,
            "submitted_by": submitted_by.wire() if isinstance(submitted_by, SubmittedBy) else submitted_by,
            **({"verification_evidence": [each.wire() for each in evidence]} if evidence else {}),
        }
    )
    if hitl.submit_url is None or not _may_be_inline(hitl, action) or (_needs_proof(hitl) and not evidence):
        return PressAnswer("to_page", _TO_PAGE, hitl.review_url)
    try:
        async with asyncio.timeout(SECONDS):
            status, retry_after = await _post(http, hitl, body)
    except (httpx2.HTTPError, TimeoutError) as error:
        logger.warning("the press for case %s did not get through: %s", hitl.case_id, type(error).__name__)
        return PressAnswer("failed", _AGAIN, hitl.review_url)
    if not 200 <= status < 300:
        logger.info("the press for case %s was answered with %d", hitl.case_id, status)
    return _told(hitl, action, status, retry_after)


async def _post(http: httpx2.AsyncClient, hitl: HitlObject, body: SubmitRequest) -> tuple[int, str]:
    """Status and Retry-After. The body is not read: the wait learns how the case ended."""
    headers = {"Authorization": f"Bearer {hitl.submit_token}"}
    async with http.stream(
        "POST",
        str(hitl.submit_url),
        json=body.wire(),
        headers=headers,
        auth=None,  # without the agent's own credentials
        follow_redirects=False,
    ) as response:
        return response.status_code, response.headers.get("retry-after", "")


def _told(hitl: HitlObject, action: str, status: int, retry_after: str) -> PressAnswer:
    match status:
        case _ if 200 <= status < 300:
            return PressAnswer("done", f"Sent: {action}.")
        case 400 | 403 | 422:
            return PressAnswer("to_page", _TO_PAGE, hitl.review_url)
        case 409:
            return PressAnswer("closed", "This was decided already; the first answer counts.")
        case 410:
            return PressAnswer("closed", "The time to decide is over.")
        case 429:
            seconds = retry_after if retry_after.isascii() and retry_after.isdigit() else ""
            when = f"in {int(seconds[:6])} s" if seconds else "in a moment"
            return PressAnswer("failed", f"That was too often. Press again {when}.", hitl.review_url)
        case _ if status >= 500:
            return PressAnswer("failed", _AGAIN, hitl.review_url)
        case _:  # 401 and other unexpected codes: pressing again would not help
            return PressAnswer(
                "failed", "The service does not take this press. Use the link.", hitl.review_url
            )


def _may_be_inline(hitl: HitlObject, action: str) -> bool:
    return action in actions_of(hitl.type) if hitl.inline_actions is None else action in hitl.inline_actions


def _needs_proof(hitl: HitlObject) -> bool:
    policy = hitl.verification_policy
    return policy is not None and policy.mode != "optional" and "inline_submit" in policy.required_for
