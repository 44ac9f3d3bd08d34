"""Sources: groups of texts of a case that pages of their own show in parts, besides the case's own values.

The parameters ``of`` (the source) and ``row`` of an address name one text: in the link to a long text, on the page of
its parts, and for its download.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from askfirst.errors import InvalidMessage
from askfirst.messages import canonical_json
from askfirst.protocol import visible_fields
from askfirst.service.answers import beyond, declines_by_cancelling, given_reason, may_decline
from askfirst.service.case import Case
from askfirst.service.case_state import CaseState, Previous
from askfirst.service.pages.answered import answers_of, filled_in
from askfirst.service.pages.choices import choice_text, choices_of
from askfirst.service.pages.decision import other_details, reasons_of
from askfirst.service.pages.edits import editable_of, formats_of
from askfirst.service.pages.ended import data_of
from askfirst.service.pages.fields import field_text
from askfirst.service.pages.form_parts import paged
from askfirst.service.pages.language import Language
from askfirst.service.pages.rows import text_of

SAID = ("prompt", "tool", "message", "reason", "note", "result")
"""The rows of the source ``said``, in order."""

_HIDDEN = "[hidden]"


@dataclass(frozen=True, slots=True)
class _Case:
    """A case, with the further data that the sources need."""

    case: Case
    standing: CaseState
    previous: Previous | None
    language: Language


def source(
    of: str, case: Case, standing: CaseState, previous: Previous | None, language: Language
) -> Mapping[str, Any]:
    """The values of a source, each under the name that a person reads. An unknown source has none."""
    make = _SOURCES.get(of)
    return {} if make is None else make(_Case(case, standing, previous, language))


def _said(it: _Case) -> Mapping[str, Any]:
    payload, outcome = it.case.payload, it.standing.outcome
    call = None if payload is None else payload.shown_call
    texts = {
        "prompt": it.case.prompt if payload is None else " ".join(payload.sentences),
        "tool": None if call is None else call[0],
        "message": it.case.message,
        "reason": given_reason(it.case),
        "note": None if it.previous is None else it.previous.note,
        "result": None if outcome is None else outcome.text,
    }
    return {it.language.plain(f"source.{name}"): texts[name] or "" for name in SAID}


def _why(it: _Case) -> Mapping[str, Any]:
    return _numbered([text or "" for text, _ in reasons_of(it.case, it.language.tag)])


def _detail(it: _Case) -> Mapping[str, Any]:
    return {} if it.case.payload is None else other_details(it.case.payload)


def _item(it: _Case) -> Mapping[str, Any]:
    return _numbered([choice_text(each) for each in choices_of(it.case)])


def _field(it: _Case) -> Mapping[str, Any]:
    form = it.case.form
    return {} if form is None else _numbered([field_text(it.case, each) for each in form.all_fields])


def _step(it: _Case) -> Mapping[str, Any]:
    steps = [] if it.case.form is None else paged(it.case.form).steps or []
    return _numbered(["\n".join([each.title, each.description or ""]) for each in steps])


def _was(it: _Case) -> Mapping[str, Any]:
    return {} if it.previous is None else it.previous.args or {}


def _edited(it: _Case) -> Mapping[str, Any]:
    return edited_of(it.case) or {}


def _answer(it: _Case) -> Mapping[str, Any]:
    return answers_of(it.case, split_answer(it.case)[0], it.language)


def _more(it: _Case) -> Mapping[str, Any]:
    return split_answer(it.case)[1]


def _raw(it: _Case) -> Mapping[str, Any]:
    told = raw_of(it.case)
    if told is None:
        return {}
    name = it.language.plain("call.raw")
    try:
        return {name: canonical_json(told).decode()}
    except InvalidMessage:  # such as a lone surrogate, of which there is no digest
        return {name: text_of(told)}


def raw_of(case: Case) -> Mapping[str, Any] | None:
    """What the digest of a case is computed from: the call, or what a service asked; None for any other question.

    Values of the format ``secret`` are replaced, so that the text has another digest then.
    """
    payload = case.payload
    if payload is None:
        return {"context": _without_secrets(case, case.context), "prompt": case.prompt, "type": case.type}
    call = payload.shown_call
    return None if call is None else {"args": _without_secrets(case, call[1]), "name": call[0]}


def raw_digest(case: Case) -> str | None:
    """The SHA-256 of the text of the source ``raw``; None if some of it is hidden, or if it has none."""
    told = raw_of(case)
    try:
        return None if told is None or _secrets(case) else hashlib.sha256(canonical_json(told)).hexdigest()
    except InvalidMessage:
        return None


def _secrets(case: Case) -> set[str]:
    return {name for name, form in formats_of(case).items() if form == "secret"}


def _without_secrets(case: Case, values: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(values) | dict.fromkeys(_secrets(case) & values.keys(), _HIDDEN)


def _draft(it: _Case) -> Mapping[str, Any]:
    form, draft = it.case.form, it.case.draft or {}
    if form is None:
        return {}
    shown = {field.key: draft[field.key] for field in visible_fields(form, draft) if field.key in draft}
    return filled_in(it.case, form, shown, it.language)


_SOURCES: Mapping[str, Callable[[_Case], Mapping[str, Any]]] = {
    "said": _said,
    "why": _why,
    "detail": _detail,
    "item": _item,
    "field": _field,
    "step": _step,
    "was": _was,
    "edited": _edited,
    "answer": _answer,
    "more": _more,
    "draft": _draft,
    "raw": _raw,
}
SOURCES = tuple(_SOURCES)
"""The values that ``of`` may have."""


def _numbered(texts: list[str]) -> dict[str, Any]:
    return {str(place): text for place, text in enumerate(texts, 1)}


def edited_of(case: Case) -> Mapping[str, Any] | None:
    """The arguments as a person has changed them; None if nobody did."""
    editable = editable_of(case)
    edited: Any = None if editable is None else data_of(case).get(editable.key)
    return cast("Mapping[str, Any]", edited) if isinstance(edited, Mapping) else None


def split_answer(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer's data, without edited arguments; and the fields that the case's type does not define."""
    data, editable = data_of(case), editable_of(case)
    if editable is not None and edited_of(case) is not None:
        del data[editable.key]
    if (may_decline(case) or declines_by_cancelling(case)) and data.get("declined") is True:
        del data["declined"]  # the heading says it
        return data, {}
    more = beyond(case, data)
    return {name: value for name, value in data.items() if name not in more}, more
