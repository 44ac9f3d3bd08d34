"""What a person reads about a case. What the service wrote is data here: put in as it is, never taken apart."""

from __future__ import annotations

from assent.client.submit import offered_buttons
from assent.client.wait_state import WaitState
from assent.delivery.base import Ended, Notice, NoticeKind
from assent.protocol import Form, PollAnswer, Progress


def review(state: WaitState) -> Notice:
    """The first: what is to be decided, and where."""
    hitl = state.offer.hitl
    asked = [_round(state) + (state.offer.message or hitl.prompt)]
    if state.offer.message and hitl.prompt not in state.offer.message:
        asked.append(hitl.prompt)
    if hitl.form is not None:
        asked.append(form_line(hitl.form))
    if state.offer.foreign_page is not None:
        asked.append(_elsewhere(state.offer.foreign_page, state.offer.service))
    if state.derived:
        asked.append("The service has begun this round by itself. It should be found where the last one was:")
    return _asking(state, "review", "\n\n".join(asked), whole=state.offer.about is not None)


def reminder(state: WaitState) -> Notice:
    """The same again, shorter."""
    offer = state.offer
    whole = offer.about is not None and offer.message in (None, offer.hitl.prompt)
    asked = f"Reminder: {_round(state)}{offer.hitl.prompt}"
    if offer.foreign_page is not None:
        asked = f"{asked}\n\n{_elsewhere(offer.foreign_page, offer.service)}"
    return _asking(state, "reminder", asked, whole=whole)


def progress(state: WaitState, answer: PollAnswer) -> Notice | None:
    """How it goes on, where there is something to tell."""
    if answer.status == "opened":
        said = "The review page was opened."
    elif answer.status == "in_progress":
        where = "" if answer.progress is None else progress_line(answer.progress)
        said = f"Somebody is at work on it. {where}".strip()
    else:
        return None
    return Notice("progress", state.case_id, _round(state) + said, round=state.round, facts=_facts(state))


def ended(state: WaitState, answer: PollAnswer, default: str | None) -> Ended:
    """The end, for the messages that asked."""
    by = None if answer.responded_by is None else answer.responded_by.name or answer.responded_by.email
    if answer.status == "expired":
        return Ended(
            state.case_id,
            "expired",
            f"{_round(state)}Nobody answered in time. By default: {default}.",
            default,
        )
    if answer.status == "cancelled":
        why = f": {answer.reason}" if answer.reason else "."
        return Ended(state.case_id, "cancelled", f"{_round(state)}The review was cancelled{why}")
    action = "" if answer.result is None else answer.result.action
    who = f" by {by}" if by else ""
    more = " Another round follows." if answer.next_case_id else ""
    return Ended(state.case_id, "completed", f"{_round(state)}Decided: {action}{who}.{more}", action, by)


def _elsewhere(page: str, service: str) -> str:
    return f"The page is on {page}. That is another host than {service}, which asks."


def form_line(form: Form) -> str:
    """How much there is to fill in."""
    if form.steps is not None:
        titles = " → ".join(step.title for step in form.steps)
        return f"{_count(len(form.steps), 'step')}: {titles}"
    return f"Please fill {_count(len(form.all_fields), 'field')}."


def progress_line(progress: Progress) -> str:
    """How far somebody is in a form, such as ``Step 2 of 3, 4 of 8 fields.``; empty where nothing is known."""
    parts: list[str] = []
    if progress.current_step is not None:
        total = "" if progress.total_steps is None else f" of {progress.total_steps}"
        parts.append(f"Step {progress.current_step}{total}")
    if progress.completed_fields is not None:
        total = "" if progress.total_fields is None else f" of {progress.total_fields}"
        parts.append(f"{progress.completed_fields}{total} fields")
    return f"{', '.join(parts)}." if parts else ""


def _asking(state: WaitState, kind: NoticeKind, body: str, *, whole: bool) -> Notice:
    hitl = state.offer.hitl
    return Notice(
        kind,
        state.case_id,
        body,
        review_url=hitl.review_url,
        buttons=offered_buttons(hitl),
        round=state.round,
        expires_at=hitl.expires_at.timestamp() if state.offer.has_expiry else None,
        facts=_facts(state) | ({"context": state.offer.about} if state.offer.about else {}),
        whole=whole and state.offer.hitl.form is None and not state.derived,
    )


def _facts(state: WaitState) -> dict[str, str]:
    offer = state.offer
    message = {} if offer.message is None else {"message": offer.message}
    return {"type": offer.hitl.type, "prompt": offer.hitl.prompt, "service": offer.service, **message}


def _round(state: WaitState) -> str:
    return "" if state.round == 1 else f"Round {state.round}: "


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
