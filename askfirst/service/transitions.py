"""State transitions of a case: pure functions of its row, run within the transaction that has locked the row.

``now`` is in milliseconds, as in the row. A transition returns the change, or None for no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple, cast

from pydantic_core import from_json

from askfirst.clock import seconds, to_milliseconds
from askfirst.errors import CaseClosed, CaseExpired, CaseHeld, HitlStaleAnswer
from askfirst.ids import new_id
from askfirst.messages import JsonObject
from askfirst.protocol import EVENT_OF, EventName, State, next_state
from askfirst.service.adoption import answer_of, result_of
from askfirst.service.answers import is_decline, reason_of_decline
from askfirst.service.case import (
    Case,
    Held,
    Lost,
    callback_body,
    case_of,
    changed_row,
    event_data,
    reminder_facts,
)
from askfirst.service.person import REVIEWER, Respondent
from askfirst.store.audit import CLOCK, Entry, case_content_sha256, case_result_sha256, claimed, salted
from askfirst.store.case_rows import CallbackRow, CaseRow, Change, Event
from askfirst.store.cases import Decide
from askfirst.store.rows import RequestRow, Settled, decode_request, decode_text

AGENT = "agent"
"""The actor of an audit row if a case ends because its agent's request was settled. The request has its own row."""
MOST_DRAFTS = 10
"""How many progress events of a case are kept. The latest one contains everything that older ones had."""


MOST_UNDONE = 20
"""Of how many undone decisions the forms are remembered."""


def opened(now: int) -> Decide:
    """A person has opened the page. No change if it was opened before, or if the case has ended."""

    def decide(row: CaseRow, request: RequestRow | None) -> Change | None:
        if row.status != "pending" or row.expires_at <= now:
            return None
        case = replace(case_of(row, request), status="opened", opened_at=seconds(now))
        return _with_event(row, case, "review.opened", now, "opened", REVIEWER)

    return decide


def drafted(now: int, draft: JsonObject, progress: JsonObject | None, browser: str | None = None) -> Decide:
    """A person has filled in some of the form, in the browser with the mark ``browser``."""

    def decide(row: CaseRow, request: RequestRow | None) -> Change | None:
        case = _open_case(row, request, now)
        status = next_state(case.status, "review.in_progress")
        changes = {"status": status, "draft": draft, "progress": progress}
        is_news = any(getattr(case, name) != value for name, value in changes.items())
        if not is_news and case.drafted_by == browser:
            return None
        begun = replace(case, opened_at=case.opened_at or seconds(now), drafted_by=browser, **changes)
        change = _with_event(row, begun, "review.in_progress", now, None, REVIEWER)
        if not is_news:  # the same draft from another browser: store the browser, but send no event
            return change._replace(event=None)
        return change._replace(forgets_before=row.version + 1 - MOST_DRAFTS)

    return decide


class Pressed(NamedTuple):
    """The form that brought an answer: the digest of its nonce, and the mark of its browser."""

    nonce: str | None = None
    mark: str | None = None


NO_FORM = Pressed()
"""An answer that did not come from a page's form."""


def answered(
    now: int, result: JsonObject, who: Respondent, write_id: int, pressed: Pressed = NO_FORM
) -> Decide:
    """A person has answered. The request of an agent is settled in the same transaction.

    A decision that another person made on a page and that is still held is lost: it had not been sent yet.
    """

    def decide(row: CaseRow, request: RequestRow | None) -> Change | None:
        case = _open_case(row, request, now)
        if case.has_undone(pressed.nonce):
            return None
        return _answered(row, request, case, _Answer(now, result, who, write_id, pressed))

    return decide


class _Answer(NamedTuple):
    now: int
    result: JsonObject
    who: Respondent
    write_id: int
    pressed: Pressed


def _answered(
    row: CaseRow, request: RequestRow | None, case: Case, given: _Answer, settled_at: int | None = None
) -> Change:
    now, result, who, write_id, pressed = given
    action, data = cast(str, result["action"]), cast("Mapping[str, Any]", result["data"])
    if is_decline(case, action):
        return _declined(row, request, case, given)
    done = replace(
        _without_hold(case),
        status="completed",
        ended_at=seconds(now),
        result=result,
        responded_by=who.responded_by,
        claimed_by=who.claimed_by,
        submission_context=who.context,
        draft=None,
        answered_with=pressed.nonce,
        answered_in=pressed.mark,
    )
    change = _end(row, done, now, "answered", who.actor, {"action": action, **who.audit_details})
    change = change._replace(audit=(*change.audit, *_overtaken_entries(case, now)))
    settles = _settlement(row, request, "answered", settled_at or now, write_id)
    if case.request is None or settles is None:
        return change
    answer = answer_of(case.request, action, data)
    return change._replace(
        settles=settles._replace(
            answer=answer, by=who.by or who.claimed, via=who.via, digest=case.digest, actor=who.actor
        ),
    )


def _declined(row: CaseRow, request: RequestRow | None, case: Case, given: _Answer) -> Change:
    """The case is cancelled because a person cannot answer it."""
    now, result, who, write_id, pressed = given
    reason = reason_of_decline(cast("Mapping[str, Any]", result["data"]))
    done = replace(
        _without_hold(case),
        status="cancelled",
        ended_at=seconds(now),
        reason=reason,
        declined_by=who.responded_by or {},
        draft=None,
        answered_with=pressed.nonce,
        answered_in=pressed.mark,
    )
    change = _end(row, done, now, "cancelled", who.actor, {"reason": reason, **who.audit_details})
    change = change._replace(audit=(*change.audit, *_overtaken_entries(case, now)))
    settles = _settlement(row, request, "cancelled", now, write_id)
    if settles is None:
        return change
    return change._replace(settles=settles._replace(reason=reason, by=who.by or who.actor, actor=who.actor))


# A held decision: it counts only after a few seconds, and can be undone until then.


def held(now: int, until: int, result: JsonObject, who: Respondent, pressed: Pressed) -> Decide:
    """A person has decided on a page, and the decision is held. The request stays pending: the agent goes on waiting.

    The same form posted again changes nothing, not even after an undo: a second tap may arrive late. Raises
    `CaseHeld` while another decision is held.
    """
    action, data = cast(str, result["action"]), cast("JsonObject", result["data"])

    def decide(row: CaseRow, request: RequestRow | None) -> Change | None:
        case = _open_case(row, request, now)
        if request is not None and request.status != "pending":
            raise HitlStaleAnswer(row.question_id or "", request.status)
        if case.held is not None:
            if pressed.nonce is not None and case.held.nonce == pressed.nonce:
                return None
            raise CaseHeld(row.case_id)
        if case.has_undone(pressed.nonce):
            return None
        if case.request is not None and not is_decline(case, action):
            answer_of(case.request, action, data)  # raises now, not only when the hold ends
        kept = Held(
            action=action,
            at=seconds(now),
            until=seconds(until),
            nonce=pressed.nonce,
            mark=pressed.mark,
            who=cast("JsonObject", asdict(who)),
            result=result,
        )
        waits = replace(case, held=kept, lost=None)
        said = {"action": action, "until": until, **who.audit_details}
        return Change(changed_row(row, waits), audit=(entry(now, who.actor, "held", case, said),))

    return decide


def undone(now: int, mark: str, login: JsonObject | None = None) -> Decide:
    """The person undoes the held decision. No change if none is held. Raises `CaseHeld` for another person's."""

    def decide(row: CaseRow, request: RequestRow | None) -> Change | None:
        case = case_of(row, request)
        if case.held is None or case.is_final:
            return None
        if not case.held.was_made_by(mark, login):
            raise CaseHeld(row.case_id)
        who = Respondent.from_dict(case.held.who)
        undone = [*([case.held.nonce] if case.held.nonce else []), *(case.undone_with or "").split()]
        free = replace(case, held=None, undone_with=" ".join(undone[:MOST_UNDONE]) or None)
        act = entry(now, who.actor, "undone", case, {"action": case.held.action, **who.audit_details})
        return Change(changed_row(row, free), audit=(act,))

    return decide


def hold_ended(now: int, write_id: int) -> Decide:
    """The hold has ended: the decision counts now. It was made in time, even if the deadline has passed since."""

    def decide(row: CaseRow, request: RequestRow | None) -> Change | None:
        if not row.is_open or row.held_until is None or row.held_until > now:
            return None
        case = case_of(row, request)
        kept = case.held
        if kept is None:
            return None
        who = Respondent.from_dict(kept.who)
        given = _Answer(now, kept.result, who, write_id, Pressed(kept.nonce, kept.mark))
        made = to_milliseconds(kept.at)
        overdue = request is not None and request.expires_at is not None and request.expires_at <= now
        change = _answered(row, request, replace(case, held=None), given, made if overdue else None)
        said = {"action": kept.action, "held_at": made}
        return change._replace(audit=(entry(now, CLOCK, "released", case, said), *change.audit))

    return decide


def _without_hold(case: Case) -> Case:
    """The case with its held decision recorded as lost: another answer, or a cancellation, came first."""
    if case.held is None:
        return case
    return replace(case, held=None, lost=Lost(case.held.action, case.held.at, case.held.mark))


def _overtaken_entries(case: Case, now: int) -> tuple[Entry, ...]:
    if case.held is None:
        return ()
    who = Respondent.from_dict(case.held.who)
    return (entry(now, who.actor, "overtaken", case, {"action": case.held.action, **who.audit_details}),)


def cancelled(now: int, reason: str, by: str, write_id: int, claims: str | None = None) -> Decide:
    """The case is cancelled. ``by`` is the verified actor, ``claims`` the name that they give for themselves."""

    def decide(row: CaseRow, request: RequestRow | None) -> Change | None:
        case = _open_case(row, request, now)
        free = _without_hold(case)
        done = replace(free, status="cancelled", ended_at=seconds(now), reason=reason, draft=None)
        change = _end(row, done, now, "cancelled", by, {"reason": reason, **claimed(claims, by)})
        change = change._replace(audit=(*change.audit, *_overtaken_entries(case, now)))
        settles = _settlement(row, request, "cancelled", now, write_id)
        if settles is None:
            return change
        return change._replace(settles=settles._replace(reason=reason, by=claims or by, actor=by))

    return decide


def expired(now: int, write_id: int) -> Decide:
    """The case expires, and its request times out. Raises if that was settled before: see `settled_elsewhere`."""

    def decide(row: CaseRow, request: RequestRow | None) -> Change | None:
        if not row.is_open or row.expires_at > now or row.held_until is not None:
            return None  # a held decision was made in time: it will count
        case = replace(case_of(row, request), status="expired", ended_at=seconds(now), draft=None)
        change = _end(row, case, now, "expired", CLOCK, {"default_action": case.default_action})
        if request is None:
            return change
        return change._replace(settles=_settlement(row, request, "timed_out", now, write_id))

    return decide


def reminded(now: int) -> Decide:
    """A reminder is due. One reminder is sent for all reminder times that have passed."""

    def decide(row: CaseRow, request: RequestRow | None) -> Change | None:
        if not row.is_open or row.remind_at is None or row.remind_at > now or row.expires_at <= now:
            return None
        case = replace(case_of(row, request), reminder_sent_at=seconds(now))
        told = reminder_facts(case, seconds(row.remind_at))
        return _with_event(row, case, "review.reminder", now, "reminded", CLOCK, told)

    return decide


def settled_elsewhere(now: int, actor: str = AGENT) -> Decide:
    """The agent's request was settled without the case, such as in a terminal: the case ends as the request did."""

    def decide(row: CaseRow, request: RequestRow | None) -> Change | None:
        if not row.is_open or row.thread_id is None or (request and request.status == "pending"):
            return None
        case = case_of(row, request)
        ended = ended_as(_without_hold(case), request, now)
        by, via = (None, None) if request is None else (request.answered_by, request.via)
        said = {**claimed(by, actor), **({"via": via} if via else {})}
        change = _end(row, ended, now, ended.status, actor, said)
        return change._replace(audit=(*change.audit, *_overtaken_entries(case, now)))

    return decide


def ended_as(case: Case, request: RequestRow | None, now: int) -> Case:
    """The ended case for a settled request: completed, expired or cancelled."""
    at = seconds(now if request is None or request.settled_at is None else request.settled_at)
    if request is not None and request.status == "answered":
        result = result_of(decode_request(request), from_json(request.answer or "null"))
        # A claim: the service has not verified who settled the request.
        by: JsonObject | None = {"name": request.answered_by} if request.answered_by else None
        return replace(case, status="completed", ended_at=at, result=result, claimed_by=by, draft=None)
    if request is not None and request.status == "timed_out":
        return replace(case, status="expired", ended_at=at, draft=None)
    why = "it was withdrawn" if request is None else decode_text(request.reason) or request.status
    return replace(case, status="cancelled", ended_at=at, reason=why, draft=None)


def _settlement(
    row: CaseRow, request: RequestRow | None, status: str, now: int, write_id: int
) -> Settled | None:
    """The settlement of the case's request; None for a case without a request."""
    if row.thread_id is None or row.question_id is None:
        return None
    if (
        request is not None and request.status != "pending"
    ):  # a later round, if there is one, has its own case
        raise HitlStaleAnswer(row.question_id, request.status)
    return Settled(row.thread_id, row.question_id, status, now, write_id, round=row.round)


def _open_case(row: CaseRow, request: RequestRow | None, now: int) -> Case:
    """The open case; raises `CaseClosed` or `CaseExpired` if it cannot be answered any more."""
    if row.status == "expired" or (row.is_open and row.expires_at <= now):
        raise CaseExpired(row.case_id)
    if not row.is_open:
        raise CaseClosed(row.case_id, row.status)
    return case_of(row, request)


def _with_event(
    row: CaseRow,
    case: Case,
    event: EventName,
    now: int,
    act: str | None,
    actor: str,
    more: Mapping[str, Any] | None = None,
) -> Change:
    counted = replace(case, version=row.version + 1)
    audit = () if act is None else (entry(now, actor, act, case),)
    return Change(changed_row(row, case), Event(event, event_data(counted, more)), audit=audit)


def _end(row: CaseRow, case: Case, now: int, act: str, actor: str, detail: Mapping[str, Any]) -> Change:
    state: State = case.status
    change = _with_event(row, case, EVENT_OF[state], now, None, actor)
    callback = None
    if case.callback_url is not None:
        callback = CallbackRow(
            callback_id=f"cb_{new_id()}",
            case_id=case.case_id,
            key_id=case.key_id,
            url=case.callback_url,
            body=callback_body(case, EVENT_OF[state], seconds(now)),
            attempts=0,
            due_at=now,
            outcome=None,
            write_id=0,
            since=now,
        )
    after = salted(change.row)
    said = {"shown_sha256": case_content_sha256(row), "result_sha256": case_result_sha256(after), **detail}
    return change._replace(row=after, callback=callback, audit=(entry(now, actor, act, case, said),))


def entry(now: int, actor: str, act: str, case: Case, detail: Mapping[str, Any] | None = None) -> Entry:
    """The audit row of an act on a case. It has the actor and the act, but not the answer itself."""
    said: dict[str, Any] = {"type": case.type, **(detail or {})}
    if case.digest is not None:
        said["digest"] = case.digest
    return Entry(at=now, actor=actor, act=f"case.{act}", subject=case.case_id, detail=said)
