"""Agents' open requests as cases: which case one becomes, and which case it follows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from assent.protocol import iso_duration
from assent.requests import ApproveRequest, HitlRequest
from assent.service.case import Case
from assent.service.from_request import case_context, case_prompt, case_type
from assent.store.case_store import CaseStore
from assent.store.rows import RequestRow, decode_request

NO_LIMIT_SECONDS = 3650 * 86_400
"""How long a request is open as a case that has no time-out of its own: the protocol knows no for ever.

People are not told of it: see `Case.never_expires`.
"""


def adopted(row: RequestRow, rounds: Rounds | None = None) -> Case:
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
        previous_case_id=None if rounds is None else rounds.before(row, request),
    )


def case_id_of(thread_id: str, question_id: str, round: int) -> str:
    """The same for the same request, whoever makes a case of it."""
    named = f"{thread_id}\0{question_id}\0{round}".encode()
    return f"review_{hashlib.sha256(named).hexdigest()[:32]}"


class Rounds:
    """The cases of one thread's calls that no other follows yet: read once for many requests of the thread."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, str]] = {}
        """The last round of each question, and its case."""
        self._sent_back: dict[str, dict[str, int]] = {}
        """By tool, the cases that a person sent back to be done better, and when."""

    @classmethod
    async def of(cls, store: CaseStore, thread_id: str) -> Rounds:
        """What is in the store just now."""
        known = cls()
        for each in await store.rounds(thread_id):
            facts = from_json(each.facts)
            if "next_case_id" in facts or each.question_id is None or each.round is None:
                continue
            known.add(each.question_id, each.round, each.case_id)
            if _was_sent_back(facts):
                request = await store.request(thread_id, each.question_id, each.round)
                tool = None if request is None else _tool_of(decode_request(request))
                if tool is not None:
                    known._sent_back.setdefault(tool, {})[each.case_id] = each.ended_at or 0
        return known

    def add(self, question_id: str, round: int, case_id: str) -> None:
        """A case that no other follows."""
        self._last[question_id] = max(self._last.get(question_id, (-1, "")), (round, case_id))

    def before(self, row: RequestRow, request: HitlRequest) -> str | None:
        """The case before a request: the same call's last round, or the same tool's that a person sent back."""
        last = self._last.get(row.question_id)
        if last is not None and last[0] < row.round:
            return last[1]
        sent_back = self._sent_back.get(_tool_of(request) or "", {})
        return max(sent_back, key=lambda each: (sent_back[each], each), default=None)

    def followed(self, case_id: str) -> None:
        """Another case follows this one now."""
        self._last = {question: last for question, last in self._last.items() if last[1] != case_id}
        for cases in self._sent_back.values():
            cases.pop(case_id, None)


def _was_sent_back(facts: Mapping[str, Any]) -> bool:
    """Whether a person asked for changes in words: an edit without edits."""
    result: Mapping[str, Any] = facts.get("result") or {}
    return result.get("action") == "edit" and "edits" not in (result.get("data") or {})


def _tool_of(request: HitlRequest) -> str | None:
    payload = request.payload
    return payload.tool_name if isinstance(payload, ApproveRequest) else None
