"""The page of a case, in whatever state it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Literal, cast
from urllib.parse import quote

from assent.limits import FAULTS
from assent.protocol import Form, FormField, actions_of, visible_fields
from assent.requests import EscalateRequest
from assent.service.answers import beyond
from assent.service.case import Case
from assent.service.mailboxes import masked_address
from assent.service.pages.answered import answered, filled_in, questions
from assent.service.pages.choices import choices_of, needs_one, takes_one
from assent.service.pages.diff import Change, changes, differ
from assent.service.pages.edits import Editable, edit_fields, editable_of
from assent.service.pages.faults import brief, listed, without_prefix
from assent.service.pages.fields import defaults, fields_of_step, page_fields
from assent.service.pages.moments import moment, time_left
from assent.service.pages.passage import marked, passage
from assent.service.pages.proofs import proof_fields
from assent.service.pages.shown import shown, text_of
from assent.service.pages.subject import call_of, why_of, words_of
from assent.service.pages.templates import fill
from assent.service.pages.wizard import Step, step_at, step_with
from assent.service.verification import Asked

Notice = Literal["saved", "more", "late", "code_sent", "code_entered", "too_many_codes", "code_not_sent"]


def render_case(
    case: Case,
    *,
    token: str,
    base_path: str,
    values: Mapping[str, Any] | None = None,
    faults: Mapping[str, str] | None = None,
    step: int = 1,
    notice: Notice | None = None,
    email_code: str = "",
    prefills: Mapping[str, Any] | None = None,
    asked: Asked | None = None,
    proofs: Mapping[int, str] | None = None,
    now: int,
) -> str:
    """The page of a case: a form while it can be answered, else how it ended.

    ``values`` is what the person has filled in, in the shape of a result's data; without it, the case's draft
    is shown. ``faults`` are sentences by key of it, with or without ``data.`` before. ``step`` counts the steps
    of a form from 1; of an edit, 2 is the page that shows what it changes. ``notice`` tells what became of the
    last click: the draft was ``saved``, ``more`` fields came up, the answer came too ``late``, or what became of
    a code that was to be sent by e-mail. ``email_code`` is one that was entered and not looked at yet.
    ``prefills`` are the values of `fields_to_fill`, None for those that could not be had. ``asked`` are the
    proofs that an answer needs, and ``proofs`` those that were entered, by place.
    """
    facts = _facts(case, base_path, now) | {"notice": notice}
    if case.is_final or now >= case.expires_at:
        return _closed(case, facts)
    keyed = without_prefix(dict(islice((faults or {}).items(), FAULTS)))
    facts |= {
        "action_url": f"{base_path}/review/{quote(case.case_id, safe='')}/respond?token={quote(token, safe='')}",
        "values": (case.draft or {}) if values is None else values,
        "faults": keyed,
        "mailboxes": [marked(masked_address(address)) for address in case.verify_email or ()],
        "email_code": email_code,
        "prefills": prefills or {},
        "proofs": proof_fields(asked, proofs or {}),
    }
    page = {"approval": _decision, "escalation": _decision, "selection": _choice, "confirmation": _choice}
    return page.get(case.type, _input)(case, facts, step)


def render_unknown(base_path: str = "") -> str:
    """The page for a case that does not exist, or whose link is wrong: nobody can tell which."""
    return fill("unknown.html", base_path=base_path)


def render_outlived(base_path: str = "") -> str:
    """The page for a link whose time is over: it shows nothing of the case."""
    return fill("outlived.html", base_path=base_path)


def render_withheld(base_path: str = "") -> str:
    """The page for an address without a token, where the service itself sends people their links."""
    return fill("withheld.html", base_path=base_path)


def render_unavailable(base_path: str = "", *, sent: bool = False) -> str:
    """The page for whoever comes while the store is away; ``sent`` if they came with an answer.

    Of an answer nobody knows then whether it was kept: the connection may have been lost on the way back.
    """
    return fill("unavailable.html", base_path=base_path, sent=sent)


def _facts(case: Case, base_path: str, now: int) -> dict[str, Any]:
    return {
        "base_path": base_path,
        "case": case,
        "from_agent": case.request is not None,
        "call": call_of(case),
        "why": why_of(case),
        "words": words_of(case),
        "until": moment(case.expires_at),
        "asked": moment(case.created_at),
        "left": None if case.never_expires else time_left(case.expires_at - now),
        "case_name": marked(case.case_id),
        "thread_name": None if case.thread_id is None else marked(case.thread_id),
        "previous_name": None if case.previous_case_id is None else marked(case.previous_case_id),
    }


def _decision(case: Case, facts: dict[str, Any], step: int) -> str:
    """An approval or an escalation, which may bring edits with it."""
    editable = editable_of(case)
    values, faults = facts["values"], facts["faults"]
    facts["editable"] = editable
    facts["actions"] = _actions(case)
    if editable is None:
        facts["params_text"] = text_of(values.get("modified_params", ""))
        return fill(f"{case.type}.html", **facts, problems=listed(faults, {}))
    edited: Any = values.get(editable.key)
    if step == 2 and not faults and isinstance(edited, Mapping):
        facts |= {"edited_json": json.dumps(edited), "changes": _changes(editable, edited)}
        return fill("preview.html", **facts, problems=[])
    fields = edit_fields(editable, cast("Mapping[str, Any]", edited or {}), faults)
    places = {f"{editable.key}.{field.key}": (field.name, brief(field.label)) for field in fields}
    is_changed = isinstance(edited, Mapping) and differ(editable.values, cast("Mapping[str, Any]", edited))
    facts |= {"edit_fields": fields, "editing": edited is not None, "is_changed": is_changed}
    return fill(f"{case.type}.html", **facts, problems=listed(faults, places))


def _changes(editable: Editable | None, edited: Any) -> list[Change]:
    if editable is None or not isinstance(edited, Mapping):
        return []
    return changes(editable.values, cast("Mapping[str, Any]", edited))


def _actions(case: Case) -> list[str]:
    payload = None if case.request is None else case.request.payload
    return list(payload.choices if isinstance(payload, EscalateRequest) else actions_of(case.type))


def _choice(case: Case, facts: dict[str, Any], step: int) -> str:
    """A selection or a confirmation."""
    facts |= {"choices": choices_of(case), "takes_one": takes_one(case), "needs_one": needs_one(case)}
    return fill(f"{case.type}.html", **facts, problems=listed(facts["faults"], {}))


def _input(case: Case, facts: dict[str, Any], step: int) -> str:
    """A form to fill in, or one text where there is no form."""
    form = case.form
    faults: Mapping[str, str] = facts["faults"]
    if form is None:
        return fill("input.html", **facts, form=None, problems=listed(faults, {}))
    values, here = _standing(form, facts["values"], faults, step, again=_again(faults, facts["notice"]))
    fields = page_fields(case, form, here.number, values, faults, facts["prefills"])
    places = {field.key: (f"f-{field.key}", brief(field.label)) for field in fields}
    facts |= {"form": form, "step": here, "fields": fields, "others_draft": case.is_others_draft}
    if here.is_summary:
        shown = {
            field.key: values[field.key] for field in visible_fields(form, values) if field.key in values
        }
        facts["summary"] = filled_in(case, form, shown)
    return fill("input.html", **facts, problems=listed(faults, places))


def fields_to_fill(
    case: Case,
    *,
    values: Mapping[str, Any] | None,
    faults: Mapping[str, str] | None = None,
    step: int = 1,
    notice: Notice | None = None,
    now: int,
) -> list[FormField]:
    """The fields with a ``default_ref`` that a page with these facts has, and that nobody has touched yet."""
    form = case.form
    if form is None or case.is_final or now >= case.expires_at or _again(faults, notice):
        return []
    given = (case.draft or {}) if values is None else values
    _, here = _standing(form, given, {}, step, again=False)
    shown = fields_of_step(form, here.number)
    return [field for field in shown if field.default_ref is not None and field.key not in given]


def _again(faults: Mapping[str, str] | None, notice: Notice | None) -> bool:
    """Whether a step is shown once more, so that what is empty there was emptied."""
    return bool(faults) or notice is not None


def _standing(
    form: Form, given: Mapping[str, Any], faults: Mapping[str, str], step: int, *, again: bool
) -> tuple[dict[str, Any], Step]:
    """What stands in the fields, and the step that is shown."""
    number = step_with(form, faults, step)
    cleared = {field.key for field in fields_of_step(form, number)} if again else set[str]()
    values = {key: value for key, value in defaults(form).items() if key not in cleared} | dict(given)
    return values, step_at(form, values, number)


def _closed(case: Case, facts: dict[str, Any]) -> str:
    """How a case ended: in the words in which it was asked. What a sensitive field held is not told."""
    result: dict[str, Any] = dict(case.result or {})
    data: dict[str, Any] = dict(result.get("data") or {})
    editable = editable_of(case)
    edited: Any = data.pop(editable.key, None) if editable is not None else None
    more = beyond(case, data)
    by: Mapping[str, Any] = case.responded_by or {}
    if case.result is None:
        facts["words"] = replace(facts["words"], questions=questions(case))
    return fill(
        "closed.html",
        **facts,
        status=case.status if case.is_final else "expired",
        ended=moment(case.ended_at or case.expires_at),
        action=result.get("action"),
        action_name=marked(str(result.get("action"))),
        data=answered(case, {name: value for name, value in data.items() if name not in more}),
        more=[shown(name, value) for name, value in more.items()],
        changes=_changes(editable, edited),
        by=marked(str(by.get("name") or by.get("email"))) if by else None,
        claimed=_claimed(case),
        reason=passage(case.reason) if case.reason else None,
        next_name=None if case.next_case_id is None else marked(case.next_case_id),
    )


def _claimed(case: Case) -> Any:
    """Who is said to have answered, where nobody knows: the name and the messenger's account."""
    said: Mapping[str, Any] = case.claimed_by or {}
    if case.responded_by or not said:
        return None
    name, account = said.get("name"), said.get("account")
    return marked(str(name or account) if not (name and account) else f"{name} ({account})")
