"""Agents' open requests as cases: which case one becomes, and which case it follows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from assent.protocol import iso_duration
from assent.requests import ApproveRequest, HitlRequest
from assent.service.case import Case
from assent.service.from_request import case_context, case_prompt, case_type
from assent.store.case_rows import CaseRow
from assent.store.rows import RequestRow, decode_request

NO_LIMIT_SECONDS = 3650 * 86_400
"""How long a request is open as a case that has no time-out of its own: the protocol knows no for ever.

People are not told of it: see `Case.never_expires`.
"""


def adopted(row: RequestRow, rounds: Sequence[tuple[CaseRow, RequestRow]] = ()) -> Case:
    """The case that a request becomes; ``rounds`` are the cases of its thread's calls before it."""
    request = decode_request(row)
    most = row.created_at + NO_LIMIT_SECONDS * 1000
    expires_at = most if row.expires_at is None else min(row.expires_at, most)
    seconds = min(request.timeout_seconds or NO_LIMIT_SECONDS, NO_LIMIT_SECONDS)
    return Case(
        case_id=case_id_of(row.thread_id, row.question_id, row.round),
        type=case_type(request),
        status="pending",
        version=1,
        prompt=case_prompt(request),
        created_at=row.created_at,
        expires_at=expires_at,
        timeout=iso_duration(max(1, math.ceil(seconds))),  # the protocol counts whole seconds
        context=case_context(request),
        request=request,
        thread_id=row.thread_id,
        previous_case_id=_previous(row, request, rounds),
    )


def case_id_of(thread_id: str, question_id: str, round: int) -> str:
    """The same for the same request, whoever makes a case of it."""
    named = f"{thread_id}\0{question_id}\0{round}".encode()
    return f"review_{hashlib.sha256(named).hexdigest()[:32]}"


def _previous(
    row: RequestRow, request: HitlRequest, rounds: Sequence[tuple[CaseRow, RequestRow]]
) -> str | None:
    """The case before: the same call's last round, or the same tool's that a person sent back to be done better."""
    free = [each for each in rounds if "next_case_id" not in from_json(each[0].facts)]
    same = [case for case, _ in free if case.question_id == row.question_id and (case.round or 0) < row.round]
    if same:
        return max(same, key=lambda case: case.round or 0).case_id
    payload = request.payload
    if not isinstance(payload, ApproveRequest):
        return None
    sent_back = [
        case for case, known in free if _was_sent_back(case) and _tool_of(known) == payload.tool_name
    ]
    return max(sent_back, key=lambda case: (case.ended_at or 0, case.case_id)).case_id if sent_back else None


def _was_sent_back(case: CaseRow) -> bool:
    """Whether a person asked for changes in words: an edit without edits."""
    result: dict[str, Any] = from_json(case.facts).get("result") or {}
    return result.get("action") == "edit" and "edits" not in (result.get("data") or {})


def _tool_of(row: RequestRow) -> str | None:
    payload = decode_request(row).payload
    return payload.tool_name if isinstance(payload, ApproveRequest) else None
