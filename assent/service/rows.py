"""Between a case and its row."""

from __future__ import annotations

from typing import Any, cast

from pydantic_core import from_json, to_json

from assent.protocol import State, is_final
from assent.service.case import Case
from assent.service.heavy import work_in
from assent.store.case_rows import CaseRow
from assent.store.rows import RequestRow, decode_request
from assent.store.usage import size_of

_BODY = (
    "prompt",
    "timeout",
    "default_action",
    "message",
    "context",
    "callback_url",
    "inline_actions",
    "verification_policy",
    "verify_email",
    "previous_case_id",
    "reminder_at",
)
_FACTS = (
    "result",
    "responded_by",
    "claimed_by",
    "submission_context",
    "reason",
    "progress",
    "next_case_id",
    "drafted_by",
)
_TUPLES = ("inline_actions", "verify_email", "reminder_at")


def case_of(row: CaseRow, request: RequestRow | None = None) -> Case:
    """A case from its row, with the request it shows."""
    said: dict[str, Any] = {**from_json(row.body), **from_json(row.facts)}
    for name in _TUPLES:
        if said.get(name) is not None:
            said[name] = tuple(said[name])
    return Case(
        case_id=row.case_id,
        type=row.type,
        status=cast(State, row.status),
        version=row.version,
        created_at=row.created_at,
        expires_at=row.expires_at,
        key_id=row.key_id,
        thread_id=row.thread_id,
        opened_at=row.opened_at,
        ended_at=row.ended_at,
        reminder_sent_at=row.reminder_sent_at,
        draft=None if row.draft is None else from_json(row.draft),
        request=None if request is None else decode_request(request),
        size=_size(row, request),
        **{name: value for name, value in said.items() if name in _BODY or name in _FACTS},
    )


def _size(row: CaseRow, request: RequestRow | None) -> int:
    asked = 0 if request is None else len(request.payload)
    return work_in(row.body) + len(row.facts) + len(row.draft or "") + asked


def row_of(case: Case, write_id: int, **columns: Any) -> CaseRow:
    """A new case's row; ``columns`` are those that a case does not know."""
    body, facts = _json(case, _BODY), _json(case, _FACTS)
    draft = None if case.draft is None else to_json(case.draft).decode()
    return CaseRow(
        case_id=case.case_id,
        key_id=case.key_id,
        thread_id=case.thread_id,
        question_id=columns.get("question_id"),
        round=columns.get("round"),
        type=case.type,
        status=case.status,
        is_open=int(not is_final(case.status)),
        version=case.version,
        body=body,
        facts=facts,
        draft=draft,
        created_at=case.created_at,
        opened_at=case.opened_at,
        ended_at=case.ended_at,
        expires_at=case.expires_at,
        remind_at=next_reminder(case),
        reminder_sent_at=case.reminder_sent_at,
        idempotency=columns.get("idempotency"),
        fingerprint=columns.get("fingerprint"),
        awaits_effect=0,
        write_id=write_id,
        tell_at=columns.get("tell_at"),
        size=size_of(body, facts, draft),
    )


def changed_row(row: CaseRow, case: Case) -> CaseRow:
    """The row of a case that has changed."""
    return row._replace(
        status=case.status,
        is_open=int(not case.is_final),
        facts=_json(case, _FACTS),
        draft=None if case.draft is None else to_json(case.draft).decode(),
        opened_at=case.opened_at,
        ended_at=case.ended_at,
        remind_at=next_reminder(case),
        reminder_sent_at=case.reminder_sent_at,
        awaits_effect=int(_lets_a_call_run(case)),
    )


def _lets_a_call_run(case: Case) -> bool:
    if case.status != "completed" or case.request is None or case.request.payload.kind != "approve":
        return False
    result: dict[str, Any] = dict(case.result or {})
    return result["action"] == "approve" or "edits" in (result.get("data") or {})


def next_reminder(case: Case) -> int | None:
    """When somebody is to be reminded of a case, if ever: it is pending or opened, and the time has not passed."""
    if case.status not in ("pending", "opened"):
        return None
    sent = case.reminder_sent_at
    return min((at for at in case.reminder_at if sent is None or at > sent), default=None)


def _json(case: Case, names: tuple[str, ...]) -> str:
    values = {name: getattr(case, name) for name in names}
    return to_json({name: value for name, value in values.items() if value is not None}).decode()
